//! Names of children that anybody may have written, and the order of the contenders among them.
//!
//! 1. A name is a contender's only if its end is what a server prints; what a server prints is read back.
//! 2. Contenders that a server has numbered, less than half of all numbers apart, are totally ordered, as they were created.
//! 3. In every listing, a contender waits for one that is there, and of two that exclude each other at most one holds.

#![no_main]

#[expect(dead_code, reason = "the library uses the rest")]
#[path = "../../src/queue"]
mod queue {
    pub(crate) mod order;
}

use std::cmp::Ordering;
use std::collections::HashSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

use queue::order::{Czxids, Kind, Name, Position, Ranked, Undecided, first, position};

const KINDS: [Kind; 5] = [Kind::Lock, Kind::Read, Kind::Write, Kind::Lease, Kind::Latch];
/// Of the counter, with the bit that a server does not have: where it ends.
const END: i64 = i32::MAX as i64;
/// How far apart two live nodes may be.
const WINDOW: i64 = 1 << 30;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    texts: [&'a str; 2],
    /// Of three contenders, one after the other.
    created: [Created<'a>; 3],
    counter: u32,
    listing: Vec<Child<'a>>,
    pivot: i32,
}

#[derive(Arbitrary, Debug)]
struct Created<'a> {
    prefix: &'a str,
    kind: u8,
    later: u32,
    /// What a server gives out at the end of the counter.
    at_the_end: Option<u8>,
}

#[derive(Arbitrary, Debug)]
enum Child<'a> {
    Foreign(&'a str),
    Numbered { prefix: &'a str, kind: u8, number: i32 },
    AtTheEnd { prefix: &'a str, kind: u8, back: u8 },
}

fn kind(kind: u8) -> Kind {
    KINDS[usize::from(kind) % KINDS.len()]
}

fn print(prefix: &str, kind: Kind, number: i32) -> String {
    format!("{prefix}{}{number:010}", kind.separator())
}

impl Child<'_> {
    fn name(&self) -> String {
        match *self {
            Child::Foreign(name) => name.to_owned(),
            Child::Numbered { prefix, kind: of, number } => print(prefix, kind(of), number),
            Child::AtTheEnd { prefix, kind: of, back } => {
                print(prefix, kind(of), i32::MAX.wrapping_add(64 - i32::from(back)))
            }
        }
    }
}

/// What is read is at the end of the name, as a server prints it, behind a separator.
fn is_read_as_printed(text: &str) {
    if let Some(name) = Name::parse(text) {
        assert_eq!(name.text, text);
        let printed = format!("{:010}", name.number);
        let head = text.strip_suffix(&printed).unwrap_or_else(|| panic!("{text:?} is not {printed}"));
        assert!(head.ends_with(['-', '_']), "{text:?}");
    }
}

fn is_read_back(prefix: &str, kind: Kind, number: i32) {
    let text = print(prefix, kind, number);
    let name = Name::parse(&text).unwrap_or_else(|| panic!("{text:?} is a contender's"));
    assert_eq!((name.text, name.kind, name.number), (&*text, kind, number), "{text:?}");
}

/// The number of a node that is created when the counter, of 33 bits, is there.
fn number_at(counter: i64, at_the_end: Option<u8>) -> i32 {
    match at_the_end {
        Some(_) if !(END..END + 256).contains(&counter) => counter as i32,
        Some(0..128) => i32::MAX,
        Some(after) => i32::MIN + i32::from(after),
        None => counter as i32,
    }
}

fn are_in_order(input: &Input<'_>) {
    let (mut counter, mut names) = (i64::from(input.counter), Vec::new());
    for (index, created) in input.created.iter().enumerate() {
        counter += 1 + i64::from(created.later) % (WINDOW / 3);
        let number = number_at(counter, created.at_the_end);
        names.push((print(&index.to_string(), kind(created.kind), number), index as i64));
    }
    let ranked: Vec<_> = names
        .iter()
        .map(|(text, czxid)| Ranked { name: Name::parse(text).expect("printed"), czxid: Some(*czxid) })
        .collect();
    for (earlier, one) in ranked.iter().enumerate() {
        assert!(!one.precedes(one), "{one:?}");
        for other in &ranked[earlier + 1..] {
            assert!(one.precedes(other) && !other.precedes(one), "{one:?} is older than {other:?}");
        }
    }
}

/// Distances from one point are a total order, of all that can be written.
fn are_sorted_from_one_point(ranked: &[Ranked<'_>], pivot: i32) {
    for one in ranked {
        assert_eq!(one.cmp_before(one, pivot), Ordering::Equal);
        for other in ranked {
            assert_eq!(one.cmp_before(other, pivot), other.cmp_before(one, pivot).reverse());
            for third in ranked {
                let sorted = one.cmp_before(other, pivot).is_le() && other.cmp_before(third, pivot).is_le();
                assert!(!sorted || one.cmp_before(third, pivot).is_le(), "{one:?}, {other:?}, {third:?}");
            }
        }
    }
}

/// The position, once all is known that is asked for.
fn decided(listing: &[String], mine: &str, czxids: &mut Czxids) -> Option<Position> {
    let asked = match position(listing, mine, czxids) {
        Ok(position) => return Some(position),
        Err(Undecided::Unlisted) => return None,
        Err(Undecided::Unordered(names)) => names,
    };
    read(listing, asked, czxids);
    match position(listing, mine, czxids) {
        Ok(position) => Some(position),
        Err(undecided) => panic!("{mine:?} was answered, and is {undecided:?}"),
    }
}

fn read(listing: &[String], asked: Vec<String>, czxids: &mut Czxids) {
    assert!(!asked.is_empty());
    for name in asked {
        let at = listing.iter().position(|text| *text == name).expect("it asks for what is listed");
        assert!(Name::parse(&name).expect("and a contender's").is_in_zone());
        czxids.insert(name, at as i64);
    }
}

fn are_positions_sound(listing: &[String]) {
    let mut czxids = Czxids::new();
    let mut holders = Vec::new();
    for mine in listing {
        let Some(me) = Name::parse(mine) else {
            assert_eq!(position(listing, mine, &czxids), Err(Undecided::Unlisted), "{mine:?}");
            continue;
        };
        match decided(listing, mine, &mut czxids).expect("it is listed") {
            Position::Granted => holders.push(me),
            Position::Behind { predecessor, ahead } => {
                assert!(listing.contains(&predecessor) && predecessor != *mine && ahead > 0);
                assert!(me.kind.waits_for(Name::parse(&predecessor).expect("a contender's").kind));
            }
            Position::Full { .. } => panic!("there are no permits here"),
        }
    }
    for (index, one) in holders.iter().enumerate() {
        for other in &holders[index + 1..] {
            // No server gives out numbers that are the same, but at the end, or half of them all apart.
            let unlike = one.number.wrapping_sub(other.number);
            let is_of_a_server = unlike != i32::MIN && (unlike != 0 || one.is_in_zone());
            assert!(!is_of_a_server || !excludes(one, other), "{one:?} and {other:?} hold");
        }
    }
    match first(listing, &czxids) {
        Ok(first) => assert_eq!(first.is_some(), listing.iter().any(|text| Name::parse(text).is_some())),
        Err(asked) => {
            read(listing, asked, &mut czxids);
            first(listing, &czxids).expect("it was answered");
        }
    }
}

fn excludes(one: &Name<'_>, other: &Name<'_>) -> bool {
    one.kind.waits_for(other.kind) && other.kind.waits_for(one.kind)
}

fuzz_target!(|input: Input<'_>| {
    input.texts.iter().for_each(|text| is_read_as_printed(text));
    for created in &input.created {
        is_read_back(created.prefix, kind(created.kind), created.later as i32);
    }
    are_in_order(&input);
    let mut listing: Vec<_> = input.listing.iter().take(12).map(Child::name).collect();
    // Siblings have different names.
    let mut seen = HashSet::new();
    listing.retain(|name| seen.insert(name.clone()));
    listing.iter().for_each(|name| is_read_as_printed(name));
    let names = listing.iter().filter_map(|text| Name::parse(text));
    let ranked: Vec<_> = names.zip(0..).map(|(name, czxid)| Ranked { name, czxid: Some(czxid) }).collect();
    are_sorted_from_one_point(&ranked, input.pivot);
    are_positions_sound(&listing);
});
