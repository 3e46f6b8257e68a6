//! Owns the order of a queue: the names of nodes, which contenders hold, and the predecessor of each of the others.
//! Free of I/O.
//!
//! 1. A name ends in the separator of its kind and the parent's counter, as the server formats it (`%010d` of a signed
//!    32-bit number): ten digits, or a minus and nine or ten.
//! 2. Numbers are compared with 32-bit serial arithmetic: `a` comes before `b` when `b - a`, wrapped, is positive.
//! 3. At the end of the counter that is not enough. Servers hand out 2147483647 more than once, and negative numbers
//!    in an order of their own. Among the nodes of that zone the `czxid` decides, which is the order of creation.
//! 4. The order is one of pairs, so that the order of two contenders depends on these two only.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// What the node of a contender stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContenderKind {
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

/// The short name, which is used within the crate.
pub(crate) type Kind = ContenderKind;

impl fmt::Display for ContenderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
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
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Read => "reader",
            Self::Write => "writer",
            Self::Lease => "permit",
            Self::Latch => "candidate",
        }
    }

    /// The recipe with nodes of this kind.
    pub(crate) fn recipe(self) -> &'static str {
        match self {
            Self::Lock => "a Mutex",
            Self::Read | Self::Write => "an RwLock",
            Self::Lease => "a Semaphore",
            Self::Latch => "an Election",
        }
    }

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

    /// Whether the number alone does not show the order.
    pub(crate) fn is_in_zone(&self) -> bool {
        self.number == i32::MAX || self.number < 0
    }
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
    // No server prints a zero with a sign, nor a tenth digit that is not needed after one.
    let is_padded = sign < 0 && (number == 0 || digits.len() == 10 && number < 1_000_000_000);
    i32::try_from(sign * number).ok().filter(|_| !is_padded)
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
    /// zone counts as one point, where the counter ends or, for those behind it, just before it starts again at 0.
    pub(crate) fn cmp_before(&self, other: &Self, pivot: i32) -> Ordering {
        let zone = if (0..i32::MAX / 2).contains(&pivot) { -1 } else { i32::MAX };
        let distance = |one: &Self| pivot.wrapping_sub(if one.name.is_in_zone() { zone } else { one.name.number });
        let nearness = distance(other).cmp(&distance(self));
        nearness.then(self.czxid.cmp(&other.czxid)).then_with(|| self.name.text.cmp(other.name.text))
    }
}

/// The `czxid`s of nodes at the end of the counter, each read once and kept by name. One that is kept may be that of an
/// older node of the same name, which keeps the younger one ahead; so a waiter looks whether the node
/// [is still](update_czxid) the one that is known.
pub(crate) type Czxids = HashMap<String, i64>;

/// The position of a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// It holds what it queues for.
    Granted,
    /// It waits for its predecessor, the last of `ahead` that it has to wait for.
    Behind { predecessor: String, ahead: usize },
    /// There are `excess` more nodes than permits.
    Full { excess: usize },
}

/// Why a listing does not show a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// The contender is not listed.
    Unlisted,
    /// The numbers do not show the order: the czxids of these nodes are needed first.
    Unordered(Vec<String>),
}

/// The position of the contender `mine` in `listing`.
pub(crate) fn position(listing: &[String], mine: &str, czxids: &Czxids) -> Result<Position, Undecided> {
    let Some(me) = listing.iter().find(|text| *text == mine).and_then(|text| Name::parse(text)) else {
        return Err(Undecided::Unlisted);
    };
    let me = rank(me, czxids);
    // One pass, and nothing is kept of the names: a line may be thousands of them long.
    let (mut ahead, mut nearest, mut zone) = (0, None::<Ranked<'_>>, Vec::new());
    for name in contenders(listing) {
        if name.text == mine || !me.name.kind.waits_for(name.kind) {
            continue;
        }
        let other = rank(name, czxids);
        let precedes = other.precedes(&me);
        // Within the zone nothing is certain before the czxids are known.
        if name.is_in_zone() && (precedes || me.name.is_in_zone()) {
            zone.push(other);
        }
        if precedes {
            ahead += 1;
            // Waiting for the nearest alone keeps a release from waking contenders that it cannot admit.
            let is_nearer = |than: &Ranked<'_>| other.cmp_before(than, me.name.number).is_gt();
            nearest = nearest.filter(|nearest| !is_nearer(nearest)).or(Some(other));
        }
    }
    let unordered = unordered(zone.iter().chain([&me]));
    if !unordered.is_empty() {
        return Err(Undecided::Unordered(unordered));
    }
    Ok(nearest.map_or(Position::Granted, |nearest| Position::Behind {
        predecessor: nearest.name.text.to_owned(),
        ahead,
    }))
}

/// The first contender; the error has the names of those whose czxids are needed first.
pub(crate) fn first<'a>(listing: &'a [String], czxids: &Czxids) -> Result<Option<Name<'a>>, Vec<String>> {
    let all: Vec<_> = contenders(listing).map(|name| rank(name, czxids)).collect();
    let unordered = unordered(all.iter());
    if !unordered.is_empty() {
        return Err(unordered);
    }
    Ok(all.into_iter().reduce(|first, one| if one.precedes(&first) { one } else { first }).map(|one| one.name))
}

/// Those in the zone at the end of the counter whose `czxid` is not known, if there are others to compare them with.
fn unordered<'a>(contenders: impl Iterator<Item = &'a Ranked<'a>> + Clone) -> Vec<String> {
    let zone = contenders.filter(|one| one.name.is_in_zone());
    if zone.clone().count() < 2 {
        return Vec::new();
    }
    zone.filter(|one| one.czxid.is_none()).map(|one| one.name.text.to_owned()).collect()
}

/// Whether the node `name` is the one whose `czxid` is known, if any is. At the end of the counter a name may be given
/// again: clients that lock with one prefix for ever, as ZooKeeper's recipe does, get the same number, too.
pub(crate) fn update_czxid(czxids: &mut Czxids, name: &str, czxid: i64) -> bool {
    czxids.get_mut(name).is_none_or(|known| std::mem::replace(known, czxid) == czxid)
}

/// The names in a listing that are contenders'.
pub(crate) fn contenders(listing: &[String]) -> impl Iterator<Item = Name<'_>> {
    listing.iter().filter_map(|text| Name::parse(text))
}

pub(crate) fn rank<'a>(name: Name<'a>, czxids: &Czxids) -> Ranked<'a> {
    Ranked { name, czxid: czxids.get(name.text).copied() }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// A contender as the test made it: its true position is its index.
    struct Truth {
        text: String,
        kind: Kind,
        czxid: i64,
        zone: bool,
    }

    /// The rule as a sentence: the nearest of those before me that exclude me.
    fn naive(queue: &[Truth], me: usize) -> Result<Position, Undecided> {
        let excludes = |other: &&Truth| queue[me].kind != Kind::Read || other.kind == Kind::Write;
        let ahead: Vec<_> = queue[..me].iter().filter(excludes).collect();
        ahead.last().map_or(Ok(Position::Granted), |nearest| {
            Ok(Position::Behind { predecessor: nearest.text.clone(), ahead: ahead.len() })
        })
    }

    /// A queue of contenders in the order of their creation, with the numbers that servers give out from `start` on, of
    /// a counter that has 33 bits here: at its end they are the last number again and again, or a mix of that and
    /// negative ones, before they settle. Where the counter has gone over its end it comes up to 0 from below.
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
                Truth { text, kind, czxid, zone: number == i32::MAX || number < 0 }
            })
            .collect()
    }

    const END: i64 = i32::MAX as i64;
    /// Where the counter is at 0 again.
    const START_AGAIN: i64 = 1 << 32;
    /// Where negative numbers go from ten digits to nine.
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
            for (index, me) in queue.iter().enumerate() {
                let mut czxids = Czxids::new();
                let found = loop {
                    match position(&listing, &me.text, &czxids) {
                        Err(Undecided::Unordered(names)) => {
                            assert!(!names.is_empty(), "asks for something");
                            for name in names {
                                let node =
                                    queue.iter().find(|one| one.text == name).expect("asks for a contender");
                                assert!(node.zone, "seed {seed}: asks for {name}, whose number is enough");
                                assert!(czxids.insert(name, node.czxid).is_none(), "asks once");
                            }
                        }
                        found => break found,
                    }
                };
                assert_eq!(found, naive(&queue, index), "seed {seed}: {}", me.text);
            }
            let mut czxids = Czxids::new();
            let found = first(&listing, &czxids).unwrap_or_else(|names| {
                for name in names {
                    let node = queue.iter().find(|one| one.text == name).expect("asks for a contender");
                    assert!(node.zone, "seed {seed}: asks for {name}, whose number is enough");
                    czxids.insert(name, node.czxid);
                }
                first(&listing, &czxids).expect("knows all that it asked for")
            });
            assert_eq!(found.map(|name| name.text), Some(&*queue[0].text), "seed {seed}");
        }
    }

    #[test]
    fn exactly_one_of_two_waits_for_all_numbers() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let number = |random: &mut fastrand::Rng| match random.u8(0..4) {
                0 => i32::MAX,
                1 => i32::MIN + random.i32(0..3),
                _ => random.i32(..),
            };
            let (one, other) = (number(&mut random), number(&mut random));
            // Half the circle apart neither comes before the other; no two live nodes are.
            if one.wrapping_sub(other) == i32::MIN || (one == other && one >= 0 && one != i32::MAX) {
                continue;
            }
            let names = [format!("a-lock-{one:010}"), format!("b-lock-{other:010}")];
            let czxids = Czxids::from([(names[0].clone(), 5), (names[1].clone(), 6)]);
            let positions = [0, 1].map(|me| position(&names, &names[me], &czxids));
            let admitted = positions.iter().filter(|&found| *found == Ok(Position::Granted)).count();
            assert_eq!(admitted, 1, "{names:?}: {positions:?}");
        }
    }

    #[test]
    fn reader_watches_nearest_writer() {
        let listing: Vec<_> =
            ["a__WRIT__0000000001", "b__WRIT__0000000002", "c__READ__0000000003", "d__READ__0000000004"]
                .map(String::from)
                .to_vec();
        assert_eq!(
            position(&listing, &listing[3], &Czxids::new()),
            Ok(Position::Behind { predecessor: listing[1].clone(), ahead: 2 })
        );
        assert_eq!(position(&listing[2..], &listing[3], &Czxids::new()), Ok(Position::Granted));
    }

    #[test]
    fn missing_when_not_listed() {
        assert_eq!(
            position(&["a-lock-0000000001".to_owned()], "b-lock-0000000002", &Czxids::new()),
            Err(Undecided::Unlisted)
        );
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
            assert_eq!(Name::parse(text), None, "{text}");
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
                assert_eq!(Name::parse(&text).map(|name| name.number), Some(number), "{text}");
            }
            let Some(name) = Name::parse(&text) else { continue };
            contenders += 1;
            assert!(text.ends_with(&format!("{:010}", name.number)), "{text}: {}", name.number);
        }
        assert!(contenders > 100_000, "{contenders}");
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
