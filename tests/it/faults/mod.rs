//! One fault each: of the servers, of neighbours, of the user.

#[cfg(feature = "scenes")]
mod acls;
#[cfg(feature = "scenes")]
mod bad_input;
#[cfg(feature = "scenes")]
mod deleted_by_hand;
#[cfg(feature = "scenes")]
mod full_session;
#[cfg(feature = "scenes")]
mod hostile;
#[cfg(feature = "scenes")]
mod lost_creates;
#[cfg(feature = "scenes")]
mod lost_events;
#[cfg(feature = "scenes")]
mod new_sessions;
#[cfg(feature = "scenes")]
mod paths;
#[cfg(feature = "scenes")]
mod permissions_and_restarts;
#[cfg(feature = "scenes")]
mod throttled;
#[cfg(not(virtual_time))]
mod user_code;
