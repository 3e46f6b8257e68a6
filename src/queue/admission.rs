//! Owns the rule of admission: who of a listing holds, and whom everybody else waits for. Free of I/O.

use std::collections::HashMap;

use crate::queue::name::{Name, Ranked};

/// The `czxid`s of nodes at the end of the counter, each read once and kept by name. One that is kept may be that of an
/// older node of the same name, which keeps the younger one ahead; so whoever waits for a node looks whether it
/// [is still](is_still) the one that is known.
pub(crate) type Czxids = HashMap<String, i64>;

/// What a listing says about one contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds.
    Admit,
    /// It waits for the node `name`, the last of `ahead` that it has to wait for.
    Wait { name: String, ahead: usize },
    /// It is not in the listing.
    Missing,
    /// The numbers do not tell the order: these `czxid`s are needed first.
    Unordered(Vec<String>),
}

/// Judges `listing` for the contender `mine`.
pub(crate) fn judge(listing: &[String], mine: &str, czxids: &Czxids) -> Verdict {
    let Some(me) = listing.iter().find(|text| *text == mine).and_then(|text| Name::parse(text)) else {
        return Verdict::Missing;
    };
    let me = rank(me, czxids);
    let mut ahead: Vec<_> = contenders(listing)
        .filter(|other| other.text != mine && me.name.kind.waits_for(other.kind))
        .map(|other| rank(other, czxids))
        // Within the zone nothing is certain before the czxids are known.
        .filter(|other| (me.name.is_in_zone() && other.name.is_in_zone()) || other.precedes(&me))
        .collect();
    let unordered = unordered(ahead.iter().chain([&me]));
    if !unordered.is_empty() {
        return Verdict::Unordered(unordered);
    }
    ahead.retain(|other| other.precedes(&me));
    // Waiting for the nearest alone keeps a release from waking those it cannot admit.
    ahead
        .iter()
        .max_by(|one, other| one.cmp_before(other, me.name.number))
        .map_or(Verdict::Admit, |nearest| Verdict::Wait { name: nearest.name.text.to_owned(), ahead: ahead.len() })
}

/// The contender whose turn it is; an error names those whose `czxid`s are needed first.
pub(crate) fn first<'a>(listing: &'a [String], czxids: &Czxids) -> Result<Option<Name<'a>>, Vec<String>> {
    let line: Vec<_> = contenders(listing).map(|name| rank(name, czxids)).collect();
    let unordered = unordered(line.iter());
    if !unordered.is_empty() {
        return Err(unordered);
    }
    Ok(line.into_iter().reduce(|first, one| if one.precedes(&first) { one } else { first }).map(|one| one.name))
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
pub(crate) fn is_still(czxids: &mut Czxids, name: &str, czxid: i64) -> bool {
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
    use crate::queue::name::Kind;

    /// A contender as the test made it: its true place in line is its index.
    struct Truth {
        text: String,
        kind: Kind,
        czxid: i64,
        zone: bool,
    }

    /// The rule as a sentence: the nearest of those in line before me that exclude me.
    fn naive(line: &[Truth], me: usize) -> Verdict {
        let excludes = |other: &&Truth| line[me].kind != Kind::Read || other.kind == Kind::Write;
        let ahead: Vec<_> = line[..me].iter().filter(excludes).collect();
        ahead
            .last()
            .map_or(Verdict::Admit, |nearest| Verdict::Wait { name: nearest.text.clone(), ahead: ahead.len() })
    }

    /// A line of contenders in the order of their creation, with the numbers that servers give out from `start` on, of
    /// a counter that has 33 bits here: at its end they are the last number again and again, or a mix of that and
    /// negative ones, before they settle. Where the counter has gone over its end it comes up to 0 from below.
    fn line(random: &mut fastrand::Rng, start: i64, kinds: &[Kind], stuck: bool) -> Vec<Truth> {
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
    const ANEW: i64 = 1 << 32;
    /// Where negative numbers go from ten digits to nine.
    const NINE_DIGITS: i64 = ANEW - 1_000_000_000;

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
            ANEW - 40,
            ANEW - 10,
            ANEW - 2,
            ANEW + 5,
        ];
        for seed in 0..5_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let start = starts[random.usize(..starts.len())];
            let (kinds, stuck) = (kinds[random.usize(..3)], random.bool());
            let line = line(&mut random, start, kinds, stuck);
            let mut listing: Vec<_> = line.iter().map(|one| one.text.clone()).collect();
            listing.extend(["leases".to_owned(), "x-lock-1".to_owned(), "ü".to_owned()]);
            random.shuffle(&mut listing);
            for (index, me) in line.iter().enumerate() {
                let mut czxids = Czxids::new();
                let verdict = loop {
                    match judge(&listing, &me.text, &czxids) {
                        Verdict::Unordered(names) => {
                            assert!(!names.is_empty(), "asks for something");
                            for name in names {
                                let node = line.iter().find(|one| one.text == name).expect("asks for a contender");
                                assert!(node.zone, "seed {seed}: asks for {name}, whose number tells enough");
                                assert!(czxids.insert(name, node.czxid).is_none(), "asks once");
                            }
                        }
                        verdict => break verdict,
                    }
                };
                assert_eq!(verdict, naive(&line, index), "seed {seed}: {}", me.text);
            }
            let mut czxids = Czxids::new();
            let found = first(&listing, &czxids).unwrap_or_else(|names| {
                for name in names {
                    let node = line.iter().find(|one| one.text == name).expect("asks for a contender");
                    assert!(node.zone, "seed {seed}: asks for {name}, whose number tells enough");
                    czxids.insert(name, node.czxid);
                }
                first(&listing, &czxids).expect("knows all that it asked for")
            });
            assert_eq!(found.map(|name| name.text), Some(&*line[0].text), "seed {seed}");
        }
    }

    #[test]
    fn exactly_one_of_two_waits_whatever_the_numbers() {
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
            let verdicts = [0, 1].map(|me| judge(&names, &names[me], &czxids));
            let admitted = verdicts.iter().filter(|&verdict| *verdict == Verdict::Admit).count();
            assert_eq!(admitted, 1, "{names:?}: {verdicts:?}");
        }
    }

    #[test]
    fn reader_watches_nearest_writer() {
        let listing: Vec<_> =
            ["a__WRIT__0000000001", "b__WRIT__0000000002", "c__READ__0000000003", "d__READ__0000000004"]
                .map(String::from)
                .to_vec();
        assert_eq!(
            judge(&listing, &listing[3], &Czxids::new()),
            Verdict::Wait { name: listing[1].clone(), ahead: 2 }
        );
        assert_eq!(judge(&listing[2..], &listing[3], &Czxids::new()), Verdict::Admit);
    }

    #[test]
    fn missing_when_not_listed() {
        assert_eq!(
            judge(&["a-lock-0000000001".to_owned()], "b-lock-0000000002", &Czxids::new()),
            Verdict::Missing
        );
    }
}
