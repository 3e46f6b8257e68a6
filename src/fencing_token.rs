//! Owns [`FencingToken`]: a number that grows with every conflicting grant.

use std::fmt;

/// A number that grows from one conflicting grant of a lock to the next.
///
/// It begins with the `czxid` of the hold's node: the number of the transaction that created it. So it goes on
/// growing when the lock path is deleted and made again, where sequence numbers start over. Hand it to the resource
/// with every write, and let the resource refuse what carries a smaller one than it has seen: that is what keeps a
/// holder out that was paused for longer than its session lives.
///
/// Among holders that hold at the same time (readers, permits) it orders nothing: a store compares with the largest
/// token of a *writer*.
///
/// # When the servers lose their data
///
/// Tokens fall when the data of the ensemble is wiped, or restored from an older backup: the servers count transactions
/// from there. A store that remembers a larger token then refuses every holder. Do not lower what the store remembers,
/// which would let an old holder in. Keep an *epoch* in the store and in the configuration of the services, and compare
/// `(epoch, token)`, the epoch first. After such a restore, an operator stops the services, raises the epoch by one in
/// both places, and starts them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    czxid: i64,
    pass: u32,
}

impl FencingToken {
    /// Makes a token, for fakes and for stores that keep one.
    #[must_use]
    pub const fn new(czxid: i64, pass: u32) -> Self {
        Self { czxid, pass }
    }

    /// The `czxid`: all there is to compare unless a hold is handed on within a process.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.czxid
    }

    /// How often the hold was handed on within its process; 0 without local hand-off.
    #[must_use]
    pub const fn pass(self) -> u32 {
        self.pass
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pass {
            0 => fmt::Display::fmt(&self.czxid, f),
            pass => f.pad(&format!("{}.{pass}", self.czxid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_czxid_and_then_by_pass() {
        let tokens = [(7, 0), (7, 1), (8, 0), (i64::MAX, 0)].map(|(czxid, pass)| FencingToken::new(czxid, pass));
        assert!(tokens.is_sorted());
        assert_eq!(tokens.map(|token| token.to_string()), ["7", "7.1", "8", "9223372036854775807"]);
    }
}
