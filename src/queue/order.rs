//! Owns the order of a queue: the names of lock nodes, and how contenders are sorted. Does no I/O.
//!
//! 1. A name ends in the separator of its kind and the parent's counter, as the server formats it (`%010d` of a signed
//!    32-bit number): ten digits, or a minus and nine or ten digits.
//! 2. Contenders are in the order of their numbers, until the counter reaches its end.
//! 3. At the end of the counter, numbers are not enough. Servers hand out 2147483647 more than once, and negative
//!    numbers in an order of their own. Near the wrap of the sequence counter, contenders are in the order of their
//!    `czxid`, the order of creation.

use crate::machine::{Kind, is_near_wrap};

/// The children of a semaphore's path: the queue in which callers wait for their turn, and the permits.
pub(crate) const TURNS: &str = "locks";
pub(crate) const LEASES: &str = "leases";

/// All known separators: Curator's, which we use, and kazoo's. ZooKeeper's own recipe has none.
const SEPARATORS: [(&str, Kind); 7] = [
    ("-lock-", Kind::Lock),
    ("__lock__", Kind::Lock),
    ("__READ__", Kind::Read),
    ("__rlock__", Kind::Read),
    ("__WRIT__", Kind::Write),
    ("-lease-", Kind::Lease),
    ("-latch-", Kind::Latch),
];

/// The parsed name of a contender's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeName<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: Kind,
    pub(crate) number: i32,
}

impl<'a> NodeName<'a> {
    /// Parses a name; `None` if it is not the name of a contender's node.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        // This is in the hot path: every listing of a waiter parses all names, which may be thousands.
        let separated = [10, 11].into_iter().find_map(|length| {
            let (head, number) = text.split_at_checked(text.len().checked_sub(length)?)?;
            let (_, kind) = SEPARATORS.iter().find(|(separator, _)| head.ends_with(separator))?;
            Some(Self { text, kind: *kind, number: parse_number(number)? })
        });
        separated.or_else(|| Some(Self { text, kind: Kind::Lock, number: parse_number(after_session(text)?)? }))
    }

    pub(crate) fn is_near_wrap(&self) -> bool {
        is_near_wrap(self.number)
    }
}

/// Returns the part after the session in a name of ZooKeeper's own recipe, `x-SESSION-NUMBER`. In Java the session is a
/// decimal number, maybe a negative one; in C it is hexadecimal.
fn after_session(text: &str) -> Option<&str> {
    let text = text.strip_prefix("x-")?;
    let (session, rest) = text.strip_prefix('-').unwrap_or(text).split_once('-')?;
    let well_formed = !session.is_empty() && session.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then_some(rest)
}

/// Parses a number as a server prints it. No server prints a plus, a minus before zero, or an unneeded tenth digit after a
/// minus.
fn parse_number(text: &str) -> Option<i32> {
    if text.len() > 11 {
        return None;
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    // Faster than `str::parse`, which checks each digit for an overflow. Eleven digits do not overflow an `i64`.
    let add = |sum: i64, byte: u8| byte.is_ascii_digit().then(|| 10 * sum + i64::from(byte - b'0'));
    let number = i32::try_from(sign * digits.bytes().try_fold(0, add)?).ok()?;
    let length = if number <= -1_000_000_000 { 11 } else { 10 };
    (text.len() == length && (sign < 0) == (number < 0)).then_some(number)
}

/// Sorts contenders into queue order. `of` returns a contender's number and name, and `czxid` its `czxid` if that is known.
pub(crate) fn sort<T>(contenders: &mut [T], of: impl Fn(&T) -> (i32, &str), czxid: impl Fn(&T) -> Option<i64>) {
    let near_wrap = contenders.iter().filter(|one| is_near_wrap(of(one).0)).count();
    if near_wrap == 0 {
        return contenders.sort_unstable_by(|one, other| of(one).cmp(&of(other)));
    }
    let is_mixed = near_wrap < contenders.len();
    contenders.sort_unstable_by(|one, other| {
        let with_name = |one| (key(of(one).0, czxid(one), is_mixed), of(one).1);
        with_name(one).cmp(&with_name(other))
    });
}

/// Returns the sort key of a contender. `is_mixed`: some contenders are not near the wrap.
///
/// Contenders near the wrap are sorted by `czxid`, all others by number. If a queue has both, numbers just below 0 come first,
/// and numbers at and past the counter's end come last. So no client can change the order of two other contenders by the
/// name of its node.
fn key(number: i32, czxid: Option<i64>, is_mixed: bool) -> (i8, i32, Option<i64>) {
    if !is_near_wrap(number) {
        return (0, number, None);
    }
    let side = if is_before_zero(number) { -1 } else { 1 };
    (if is_mixed { side } else { 0 }, 0, czxid)
}

/// Returns whether a number is negative and nearer to 0 than to `i32::MIN`, where the counter goes on after its end.
pub(crate) fn is_before_zero(number: i32) -> bool {
    (i32::MIN / 2..0).contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A contender that the test created. Its true position is its index.
    struct Truth {
        text: String,
        czxid: i64,
        near_wrap: bool,
    }

    /// Creates a queue, in the order of creation, with the numbers that servers hand out from `start` on. The counter has
    /// 33 bits here. At its end servers repeat the last number, or mix it with negative numbers. Past its end the numbers
    /// rise to 0 from below.
    fn queue(random: &mut fastrand::Rng, start: i64, kinds: &[Kind], stuck: bool) -> Vec<Truth> {
        let mut counter = start;
        let mut czxid = random.i64(0..1 << 40);
        (0..random.usize(1..25))
            .map(|index| {
                counter += random.i64(1..3);
                czxid += random.i64(1..1_000);
                let at_the_end = (END..END + 100).contains(&counter);
                let number = match at_the_end {
                    false => counter as i32,
                    true if stuck || random.bool() => i32::MAX,
                    true => i32::MIN + random.i32(0..40),
                };
                let kind = kinds[random.usize(..kinds.len())];
                let text = format!("_c_{index:036}{}{number:010}", kind.separator());
                Truth { text, czxid, near_wrap: number == i32::MAX || number < 0 }
            })
            .collect()
    }

    /// Returns the contenders of a listing in queue order.
    fn sorted(listing: &[String], czxid: impl Fn(&str) -> Option<i64>) -> Vec<&str> {
        let mut names: Vec<_> = listing.iter().filter_map(|text| NodeName::parse(text)).collect();
        sort(&mut names, |name| (name.number, name.text), |name| czxid(name.text));
        names.into_iter().map(|name| name.text).collect()
    }

    const END: i64 = i32::MAX as i64;
    /// The value at which the numbers reach 0 again.
    const START_AGAIN: i64 = 1 << 32;
    /// The value at which negative numbers go from ten digits to nine.
    const NINE_DIGITS: i64 = START_AGAIN - 1_000_000_000;

    #[test]
    fn agrees_with_the_naive_rule() {
        let kinds: [&[Kind]; 3] = [&[Kind::Lock], &[Kind::Read, Kind::Write], &[Kind::Latch]];
        let starts = [
            0,
            1 << 30,
            END - 10,
            END - 1,
            END,
            END + 5,
            NINE_DIGITS - 10,
            START_AGAIN - 40,
            START_AGAIN - 10,
            START_AGAIN - 2,
            START_AGAIN + 5,
        ];
        for seed in 0..5_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let start = starts[random.usize(..starts.len())];
            let (kinds, stuck) = (kinds[random.usize(..3)], random.bool());
            let queue = queue(&mut random, start, kinds, stuck);
            let mut listing: Vec<_> = queue.iter().map(|one| one.text.clone()).collect();
            listing.extend(["leases".to_owned(), "x-lock-1".to_owned(), "ü".to_owned()]);
            random.shuffle(&mut listing);
            let czxid =
                |text: &str| queue.iter().find(|one| one.text == text && one.near_wrap).map(|one| one.czxid);
            let sorted = sorted(&listing, czxid);
            let truth: Vec<_> = queue.iter().map(|one| one.text.as_str()).collect();
            assert_eq!(sorted, truth, "seed {seed}");
            // Any client may create a node with any name.
            let mut with_others = listing.clone();
            with_others.extend((0..3).map(|at| format!("{at}-lock-{:010}", random.i32(..i32::MAX))));
            let sorted = self::sorted(&with_others, czxid);
            let left: Vec<_> = sorted.into_iter().filter(|text| truth.contains(text)).collect();
            assert_eq!(left, truth, "seed {seed}: {with_others:?}");
        }
    }

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
            let name = NodeName::parse(text).expect(text);
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
            "a-lock--000000000",
            "a-lock--0000000000",
            "a-lock--0000000005",
            "a-lock--0999999999",
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
            assert_eq!(NodeName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_what_a_server_prints_is_a_number() {
        let parts = [
            "a",
            "x-",
            "-",
            "--",
            "-lock-",
            "__READ__",
            "__rlock__",
            "ü",
            "0",
            "00000",
            "000000000",
            "2147483648",
            "2147483647",
            "7",
        ];
        let mut random = fastrand::Rng::with_seed(2);
        let mut contenders = 0;
        for _ in 0..200_000 {
            let mut text: String = (0..random.usize(1..6)).map(|_| parts[random.usize(..parts.len())]).collect();
            if random.bool() {
                let number = random.i32(..) >> random.u32(0..32);
                text += &format!("-lock-{number:010}");
                assert_eq!(NodeName::parse(&text).map(|name| name.number), Some(number), "{text}");
            }
            let Some(name) = NodeName::parse(&text) else { continue };
            contenders += 1;
            assert!(text.ends_with(&format!("{:010}", name.number)), "{text}: {}", name.number);
        }
        assert!(contenders > 100_000, "{contenders}");
    }

    #[test]
    fn numbers_wrap() {
        let sorted = |names: [(&str, i64); 3]| {
            let listing = names.map(|(text, _)| text.to_owned());
            let czxid = |text: &str| names.iter().find(|(name, _)| *name == text).map(|(_, czxid)| *czxid);
            sorted(&listing, czxid).concat().replace(|c: char| !c.is_ascii_uppercase(), "")
        };
        let old = ("A-lock-2147483640", 5);
        assert_eq!(sorted([("C-lock-2147483647", 7), ("B-lock--2147483600", 6), old]), "ABC", "by czxid");
        assert_eq!(sorted([("B-lock-0000000003", 9), ("C-lock-2147483647", 10), ("A-lock--000000001", 8)]), "ABC");
    }
}
