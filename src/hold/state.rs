//! Owns [`HoldState`]: what a hold can say of itself.

use crate::error::Loss;

/// What Curator's `Revoker` writes into a node to ask its holder for the lock.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// What a hold can say of itself at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldState {
    /// The lock is held: connected, and trusted to be ours.
    Held,
    /// The lock is still trusted to be ours, but the connection is gone, or no answer has come for half a session
    /// timeout. Begin nothing that takes long; it becomes `Held` again or `Lost`.
    Suspended,
    /// The lock is lost, for good. Somebody else may hold it.
    Lost(Loss),
}
