//! What a lock costs, and by which of several ways it is granted.

#[cfg(not(virtual_time))]
mod counted;
mod in_memory;
mod round_trips;
mod shared_listings;
mod switches;
mod undisturbed;
