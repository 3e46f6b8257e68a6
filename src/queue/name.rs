//! Owns the spelling of node names, and the order that they put contenders in.
//!
//! 1. A name ends in the separator of its kind and the parent's counter, as the server formats it (`%010d` of a signed
//!    32-bit number): ten digits, or a minus and nine or ten.
//! 2. Numbers are compared with 32-bit serial arithmetic: `a` comes before `b` when `b - a`, wrapped, is positive.
//! 3. At the end of the counter that is not enough. Servers hand out 2147483647 more than once, and negative numbers
//!    in an order of their own. Among the nodes of that zone the `czxid` decides, which is the order of creation.
//! 4. The order is one of pairs, so that what two contenders think of each other never depends on a third.

use std::cmp::Ordering;

use uuid::Uuid;

/// What the node of a contender stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A mutex, or the turn of somebody who wants permits of a semaphore. Excludes everybody.
    Lock,
    /// A reader. Excludes all but readers.
    Read,
    /// A writer. Excludes everybody.
    Write,
    /// A permit of a semaphore. Excludes nobody, while there is room.
    Lease,
    /// A candidate for leadership. Excludes everybody.
    Latch,
}

/// All separators that are known, of Curator and kazoo; ours are Curator's. ZooKeeper's own recipe has none.
const SEPARATORS: [(&str, Kind); 7] = [
    ("-lock-", Kind::Lock),
    ("__lock__", Kind::Lock),
    ("__READ__", Kind::Read),
    ("__rlock__", Kind::Read),
    ("__WRIT__", Kind::Write),
    ("-lease-", Kind::Lease),
    ("-latch-", Kind::Latch),
];

impl Kind {
    /// What stands between the guid and the number in the names we make.
    pub(crate) fn separator(self) -> &'static str {
        match self {
            Self::Lock => "-lock-",
            Self::Read => "-__READ__",
            Self::Write => "-__WRIT__",
            Self::Lease => "-lease-",
            Self::Latch => "-latch-",
        }
    }

    /// Whether a contender of this kind waits for one of kind `other` that came before it.
    pub(crate) fn waits_for(self, other: Self) -> bool {
        self != Self::Read || other != Self::Read
    }
}

/// The name of a contender, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
    pub(crate) number: i32,
}

impl<'a> Name<'a> {
    /// Takes a name apart; `None` if it is not a contender's.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        // A waiter takes a whole line apart, which may be thousands of names long, whenever it looks.
        let separated = [10, 11].into_iter().find_map(|length| {
            let (head, number) = text.split_at_checked(text.len().checked_sub(length)?)?;
            let (_, kind) = SEPARATORS.iter().find(|(separator, _)| head.ends_with(separator))?;
            Some(Self { text, kind: *kind, number: parse_number(number)? })
        });
        separated.or_else(|| Some(Self { text, kind: Kind::Lock, number: parse_number(after_session(text)?)? }))
    }

    /// Whether the number alone does not tell the order.
    pub(crate) fn is_in_zone(&self) -> bool {
        self.number == i32::MAX || self.number < 0
    }
}

/// The guid in a name that is one of Curator's or ours.
pub(crate) fn guid_in(text: &str) -> Option<Uuid> {
    let guid = text.strip_prefix("_c_")?.get(..36)?;
    Uuid::try_parse(guid).ok()
}

/// What follows the session in the names of ZooKeeper's own recipe, `x-SESSION-NUMBER`. In Java the session is a decimal
/// number, maybe a negative one, in C a hexadecimal one.
fn after_session(text: &str) -> Option<&str> {
    let text = text.strip_prefix("x-")?;
    let (session, rest) = text.strip_prefix('-').unwrap_or(text).split_once('-')?;
    let well_formed = !session.is_empty() && session.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then_some(rest)
}

fn parse_number(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes() {
        [b'-', digits @ ..] if matches!(digits.len(), 9 | 10) => (-1, digits),
        digits if digits.len() == 10 => (1, digits),
        _ => return None,
    };
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = 10 * number + i64::from(digit - b'0');
    }
    i32::try_from(sign * number).ok()
}

/// A contender with what it takes to order it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked<'a> {
    pub(crate) name: Name<'a>,
    /// Known in the zone at the end of the counter, where it is needed.
    pub(crate) czxid: Option<i64>,
}

impl Ranked<'_> {
    /// Whether `self` comes before `other`.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        if self.name.is_in_zone() && other.name.is_in_zone() {
            return self.czxid < other.czxid;
        }
        other.name.number.wrapping_sub(self.name.number) > 0
    }

    /// Orders contenders that all come before one with the number `pivot`: the greatest is the nearest to it.
    ///
    /// Unlike [`precedes`](Self::precedes) this is a total order, because all distances are taken from one point. The
    /// zone counts as one point, where the counter ends or, for those behind it, just before it begins anew.
    pub(crate) fn cmp_before(&self, other: &Self, pivot: i32) -> Ordering {
        let zone = if (0..i32::MAX / 2).contains(&pivot) { -1 } else { i32::MAX };
        let distance = |one: &Self| pivot.wrapping_sub(if one.name.is_in_zone() { zone } else { one.name.number });
        let nearness = distance(other).cmp(&distance(self));
        nearness.then(self.czxid.cmp(&other.czxid)).then_with(|| self.name.text.cmp(other.name.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: &str = "6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e";

    #[test]
    fn parses_every_dialect() {
        let names = [
            (format!("_c_{GUID}-lock-0000000017"), Kind::Lock, 17),
            (format!("_c_{GUID}-lock--000000005"), Kind::Lock, -5),
            (format!("_c_{GUID}-lock--2147483648"), Kind::Lock, i32::MIN),
            (format!("_c_{GUID}-__READ__0000000000"), Kind::Read, 0),
            (format!("_c_{GUID}-__WRIT__2147483647"), Kind::Write, i32::MAX),
            (format!("_c_{GUID}-latch-0000000001"), Kind::Latch, 1),
            ("0123456789abcdef0123456789abcdef__lock__0000000003".to_owned(), Kind::Lock, 3),
            ("0123456789abcdef0123456789abcdef__rlock__0000000004".to_owned(), Kind::Read, 4),
            ("_c_0123456789abcdef0123456789abcdef-lock-0000000005".to_owned(), Kind::Lock, 5),
            ("ü-lock-x-lock-0000000006".to_owned(), Kind::Lock, 6),
            ("x-72058475851939841-0000000007".to_owned(), Kind::Lock, 7),
            ("x--72058475851939841--000000008".to_owned(), Kind::Lock, -8),
            ("x-0100000a1b2c3d4e-0000000009".to_owned(), Kind::Lock, 9),
        ];
        for (text, kind, number) in &names {
            let name = Name::parse(text).expect(text);
            assert_eq!((name.kind, name.number), (*kind, *number), "{text}");
        }
    }

    #[test]
    fn what_does_not_parse_is_no_contender() {
        for text in [
            "",
            "-",
            "lock",
            "-lock-",
            "-lock-1",
            "a-lock-000000001",
            "a-lock-00000000011",
            "a-lock-000000000x",
            "a-lock-+000000001",
            "a-lock--00000001",
            "a-lock--00000000001",
            "a-lock-9999999999",
            "a-lock--9999999999",
            "a-lock-0000000001-",
            "0000000001",
            "ü",
            "a-lock-ü000000001",
            "leases",
            "a-lock-٠٠٠٠٠٠٠٠٠٠",
            "x-0000000001",
            "x--0000000001",
            "x-session-0000000001",
            "y-72058475851939841-0000000001",
            "x-72058475851939841-1",
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }

    #[test]
    fn guid_is_that_of_a_curator_name() {
        let guid = guid_in(&format!("_c_{GUID}-lock-0000000017"));
        assert_eq!(guid.map(|guid| guid.to_string()).as_deref(), Some(GUID));
        assert_eq!(guid_in("_c_üüüüüüüüüüüüüüüüüüüüüüüü-lock-0000000017"), None);
    }

    #[test]
    fn numbers_wrap() {
        let ranked = |text: &'static str, czxid| Ranked { name: Name::parse(text).expect(text), czxid };
        let old = ranked("a-lock-2147483640", None);
        let stuck = ranked("a-lock-2147483647", Some(7));
        let negative = ranked("a-lock--2147483600", Some(6));
        let last = ranked("a-lock--000000001", Some(8));
        let young = ranked("a-lock-0000000003", None);
        assert!(old.precedes(&stuck) && old.precedes(&negative) && !stuck.precedes(&old));
        assert!(negative.precedes(&stuck) && !stuck.precedes(&negative), "by czxid, not by number");
        assert!(last.precedes(&young) && !young.precedes(&last));
    }
}
