//! One fault each: of the servers, of neighbours, of the user.

mod acls;
mod all_at_once;
mod bad_input;
mod deleted_by_hand;
mod full_session;
mod hostile;
mod lost_creates;
mod lost_events;
mod new_sessions;
mod paths;
pub(crate) mod permissions_and_restarts;
mod throttled;
#[cfg(not(virtual_time))]
mod user_code;
