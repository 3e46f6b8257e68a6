//! Owns [`FencingToken`]: a number that grows with every conflicting grant.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The number of bits below the [epoch](FencingToken::epoch): enough for 2²³ leaders with 2³² transactions each.
const CZXID_BITS: u32 = 55;

/// A number that grows from one conflicting grant of a lock to the next.
///
/// A token is the `czxid` of the hold's node: the positive number of the transaction that created it. Tokens still grow
/// after the lock path was deleted and created again, where sequence numbers start over. Send the token to the resource
/// with every write, and let the resource refuse a write whose token is smaller than the largest it has seen. That
/// keeps out a holder that was paused for longer than its session lives. An [epoch](Self::epoch) may stand before the
/// `czxid`.
///
/// Tokens do not order simultaneous holders (readers, permits): a store compares with the largest token of a *writer*.
///
/// # Sending and storing
///
/// A token converts to and from `i64` (an SQL `BIGINT`) and text. The eight bytes of `get().to_be_bytes()` compare as the
/// tokens do. With the feature `serde` it is serialized as a number. JavaScript loses digits of numbers above 2⁵³, and every
/// token with an epoch is larger: send text to JavaScript. The guide [fencing](crate::guide::fencing) has the statements
/// of a store, an HTTP header and a gRPC metadata pair.
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
/// Transaction numbers fall when the data of the ensemble is wiped, restored from an older backup, or replaced by
/// another ensemble. A store that remembers a larger token then refuses every holder. Do not lower the stored token,
/// which would let an old holder in. Raise the epoch instead, with
/// [`Options::with_token_epoch`](crate::Options::with_token_epoch): a token is `epoch · 2⁵⁵ + czxid`, so it is larger
/// than all tokens of lower epochs, and it is still one number. Without an epoch, or with 0, it is the `czxid` alone.
#[doc(alias = "fence")]
#[doc(alias = "epoch")]
#[doc(alias = "sequencer")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i64", into = "i64"))]
pub struct FencingToken(i64);

impl FencingToken {
    /// Returns the token of a node, in this epoch. `czxid`: the transaction that created the node.
    pub(crate) fn of_node(node: &str, epoch: u8, czxid: i64) -> Result<Self> {
        let token = Self::try_from(czxid).map_err(|_| {
            let reason = format!(
                "the servers name {czxid} as the transaction that created {node}, which gives no fencing token; connect \
                 with a client that speaks the protocol of ZooKeeper 3.5 or later"
            );
            Error::invalid("session", reason)
        })?;
        // Without an epoch, the number may use all bits.
        if epoch > 0 && token.epoch() > 0 {
            let reason = format!(
                "the servers name {czxid} as the transaction that created {node}, and numbers from 2^{CZXID_BITS} on leave \
                 no room for an epoch; move to servers without data, and raise the epoch"
            );
            return Err(Error::invalid("token_epoch", reason));
        }
        Ok(Self(i64::from(epoch) << CZXID_BITS | czxid))
    }

    /// Returns the number, which is positive.
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

    /// Returns the [epoch](crate::Options::with_token_epoch) that was configured where the lock was acquired: the token
    /// divided by 2⁵⁵, without the remainder. 0 if no epoch was configured.
    ///
    /// After more than eight million elections of a leader, transaction numbers reach 2⁵⁵. Then a token without an
    /// epoch seems to have one. Even so, the next epoch that you configure must be above the one that this method
    /// returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::FencingToken;
    ///
    /// assert_eq!(FencingToken::try_from((3_i64 << 55) + 17)?.epoch(), 3);
    /// assert_eq!(FencingToken::try_from(17_i64)?.epoch(), 0);
    /// # Ok::<_, zookeeper_recipes::Error>(())
    /// ```
    #[must_use]
    pub const fn epoch(self) -> u8 {
        // A positive `i64` has 63 bits, so 8 are left for the epoch.
        (self.0 >> CZXID_BITS) as u8
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self> {
        if number > 0 { Ok(Self(number)) } else { Err(not_a_token(number)) }
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
            assert_eq!(i64::from(token), number);
            assert_eq!(token.to_string().parse::<FencingToken>().expect("a number"), token);
        }
    }

    /// A client that speaks the protocol of ZooKeeper 3.4 reports no czxid.
    #[test]
    fn node_without_a_number_gives_no_token() {
        let error = FencingToken::of_node("/lock/node", 0, -1).expect_err("no token").to_string();
        assert!(error.contains("/lock/node") && error.contains("3.5 or later"), "{error}");
    }

    /// The naive model compares pairs of epoch and czxid.
    #[test]
    fn order_is_that_of_the_epochs_and_then_of_the_transactions() {
        let random = || {
            let epoch = [0, 1, fastrand::u8(..), u8::MAX][fastrand::usize(..4)];
            let czxid = [1, 2, fastrand::i64(1..1 << CZXID_BITS), (1 << CZXID_BITS) - 1][fastrand::usize(..4)];
            (epoch, czxid)
        };
        for _ in 0..100_000 {
            let (one, other) = (random(), random());
            let token = |(epoch, czxid)| FencingToken::of_node("/lock/node", epoch, czxid).expect("it fits");
            assert_eq!(token(one).cmp(&token(other)), one.cmp(&other), "{one:?} {other:?}");
            assert_eq!(token(one).epoch(), one.0);
            assert_eq!(token(one).get() & ((1 << CZXID_BITS) - 1), one.1);
        }
    }

    #[test]
    fn without_an_epoch_it_is_the_number_of_the_transaction() {
        for czxid in [1, (1 << CZXID_BITS) - 1, 1 << CZXID_BITS, i64::MAX] {
            assert_eq!(FencingToken::of_node("/lock/node", 0, czxid).expect("positive").get(), czxid);
        }
    }

    #[test]
    fn number_that_leaves_no_room_for_the_epoch_gives_no_token() {
        for czxid in [1 << CZXID_BITS, i64::MAX] {
            let error = FencingToken::of_node("/lock/node", 1, czxid).expect_err("no room").to_string();
            assert!(error.starts_with("invalid token_epoch: ") && error.contains("/lock/node"), "{error}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for refused in [FencingToken::try_from(-1_i64), "7.1".parse(), "".parse()] {
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
