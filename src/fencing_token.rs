//! Owns [`FencingToken`]: a number that grows with every conflicting grant.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A number that grows from one conflicting grant of a lock to the next.
///
/// It is the `czxid` of the hold's node: the number of the transaction that created it, which is positive. It still
/// grows after the lock path was deleted and created again, where sequence numbers start over. Send it to the resource
/// with every write, and let the resource refuse a write whose token is smaller than the largest it has seen. That
/// keeps out a holder that was paused for longer than its session lives.
///
/// It does not order simultaneous holders (readers, permits): a store compares with the largest token of a *writer*.
///
/// # Sending and storing
///
/// It converts to and from `i64` (an SQL `BIGINT`), `u64` and text, and to eight bytes that compare as the tokens do.
/// With the feature `serde` it is serialized as a number; JavaScript loses digits above 2⁵³, so send text there.
///
/// ```
/// use zookeeper_recipes::FencingToken;
///
/// let token: FencingToken = "4294967298".parse()?;
/// assert_eq!(i64::from(token), 4_294_967_298);
/// assert_eq!(FencingToken::try_from(4_294_967_298_i64)?, token);
/// assert!(FencingToken::try_from(0_i64).is_err(), "a token is positive");
/// # Ok::<_, zookeeper_recipes::Error>(())
/// ```
///
/// # When the servers lose their data
///
/// Tokens fall when the data of the ensemble is wiped, or restored from an older backup: the servers count transactions
/// from there. A store that remembers a larger token then refuses every holder. Do not lower what the store remembers,
/// which would let an old holder in. Keep an *epoch* in the store and in the configuration of the services, and compare
/// `(epoch, token)`, the epoch first. After such a restore, an operator stops the services, raises the epoch by one in
/// both places, and starts them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i64", into = "i64"))]
pub struct FencingToken(i64);

impl FencingToken {
    /// The token of a node that was created by this transaction.
    pub(crate) fn of_node(node: &str, czxid: i64) -> Result<Self> {
        Self::try_from(czxid).map_err(|_| {
            let reason = format!(
                "the servers name {czxid} as the transaction that created {node}, which gives no fencing token; connect \
                 with a client that speaks the protocol of ZooKeeper 3.5 or later"
            );
            Error::invalid("session", reason)
        })
    }

    /// The number, which is positive.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::FencingToken;
    ///
    /// assert_eq!(FencingToken::try_from(17_i64)?.get(), 17);
    /// # Ok::<_, zookeeper_recipes::Error>(())
    /// ```
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Eight bytes, the most significant first: they compare as the tokens do.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::FencingToken;
    ///
    /// let (older, newer) = (FencingToken::try_from(255_i64)?, FencingToken::try_from(256_i64)?);
    /// assert!(older.to_be_bytes() < newer.to_be_bytes());
    /// # Ok::<_, zookeeper_recipes::Error>(())
    /// ```
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self> {
        if number > 0 { Ok(Self(number)) } else { Err(not_a_token(number)) }
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self> {
        i64::try_from(number).map_err(|_| not_a_token(number))?.try_into()
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse::<i64>().map_err(|_| not_a_token(format!("{text:?}")))?.try_into()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0.unsigned_abs()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

fn not_a_token(given: impl fmt::Display) -> Error {
    Error::invalid("fencing token", format!("{given} is not a token; a token is a number from 1 to {}", i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_and_back() {
        for number in [1, 7, i64::MAX] {
            let token = FencingToken::try_from(number).expect("positive");
            assert_eq!(FencingToken::try_from(u64::from(token)).expect("positive"), token);
            assert_eq!(token.to_string().parse::<FencingToken>().expect("a number"), token);
            assert_eq!(i64::from_be_bytes(token.to_be_bytes()), number);
        }
    }

    /// A client that is made to speak like that of ZooKeeper 3.4 has no such number.
    #[test]
    fn node_without_a_number_gives_no_token() {
        let error = FencingToken::of_node("/lock/node", -1).expect_err("no token").to_string();
        assert!(error.contains("/lock/node") && error.contains("3.5 or later"), "{error}");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for refused in
            [FencingToken::try_from(-1_i64), FencingToken::try_from(u64::MAX), "7.1".parse(), "".parse()]
        {
            let error = refused.expect_err("no token").to_string();
            assert!(error.starts_with("invalid fencing token: ") && error.contains("from 1 to"), "{error}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn is_a_number_in_messages() {
        let token = FencingToken::try_from(7_i64).expect("positive");
        assert_eq!(serde_json::to_string(&token).expect("a number"), "7");
        assert_eq!(serde_json::from_str::<FencingToken>("7").expect("a token"), token);
        for refused in ["0", "-7", "\"7\"", "9223372036854775808"] {
            serde_json::from_str::<FencingToken>(refused).expect_err(refused);
        }
    }
}
