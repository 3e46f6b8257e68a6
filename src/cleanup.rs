//! Owns the deletion of nodes that nobody waits for, until it is certain: what `Drop` hands over to.
//!
//! 1. Whoever gives up a node sends the delete before handing over, if there is a connection to send it on; the work
//!    here only follows it up. Without a connection nothing is sent until there is one.
//! 2. A create whose answer is known tells the node's name. One with an unknown outcome is searched for by its guid,
//!    behind a barrier that needs a quorum; and again a second later, because a server was seen to apply a request of
//!    a lost connection after the search.
//! 3. The end of the session ends the work: the server removes the nodes of a session with it.

mod deletion;
mod stake;
mod stakes;

pub(crate) use self::deletion::{Deletion, delete_in_background, find_all, find_guid};
pub(crate) use self::stake::Stake;
pub(crate) use self::stakes::Stakes;
