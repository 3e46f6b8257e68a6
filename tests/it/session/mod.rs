//! Sessions from their start to their end.

#[cfg(not(virtual_time))]
mod attached;
mod drain;
mod ends;
mod lazy;
mod renewal;
#[cfg(not(virtual_time))]
mod restart;
#[cfg(not(virtual_time))]
mod runtime;
mod states;
