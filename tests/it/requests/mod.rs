//! What a lock costs, and by which of several ways it is granted.

#[cfg(not(virtual_time))]
mod counted;
mod cycle;
#[cfg(feature = "scenes")]
mod in_memory;
#[cfg(feature = "scenes")]
mod round_trips;
#[cfg(feature = "scenes")]
mod shared_listings;
#[cfg(feature = "scenes")]
mod switches;
#[cfg(feature = "scenes")]
mod undisturbed;
