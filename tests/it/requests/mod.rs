//! What a lock costs, and by which of several ways it is granted.

#[cfg(not(virtual_time))]
mod counted;
#[cfg(feature = "scenes")]
mod in_memory;
#[cfg(feature = "scenes")]
mod round_trips;
#[cfg(feature = "scenes")]
mod shared_listings;
mod switches;
mod undisturbed;
