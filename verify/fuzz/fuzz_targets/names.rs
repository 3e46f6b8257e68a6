//! Names of children that anybody may have written, and the order of the contenders among them.
//!
//! 1. A name is a contender's only if its end is what a server prints; what a server prints is read back.
//! 2. Contenders that a server has numbered, less than half of all numbers apart, are sorted as they were created.
//! 3. Nobody can change that by a name of his choice, and any listing has one order, however it came.

#![no_main]

#[expect(dead_code, reason = "the library uses the rest")]
#[path = "../../../src/queue"]
mod queue {
    pub(crate) mod order;
}

use std::collections::HashSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

use zookeeper_machine as machine;

use machine::{Kind, is_near_wrap};
use queue::order::{NodeName, is_before_zero, sort};

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
    /// How the listing is turned.
    turn: u8,
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
    if let Some(name) = NodeName::parse(text) {
        assert_eq!(name.text, text);
        let printed = format!("{:010}", name.number);
        let head = text.strip_suffix(&printed).unwrap_or_else(|| panic!("{text:?} is not {printed}"));
        assert!(head.ends_with(['-', '_']), "{text:?}");
    }
}

fn is_read_back(prefix: &str, kind: Kind, number: i32) {
    let text = print(prefix, kind, number);
    let name = NodeName::parse(&text).unwrap_or_else(|| panic!("{text:?} is a contender's"));
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

/// The names in their order, with the `czxid` of those that are known.
fn sorted(names: &[(String, i64)]) -> Vec<&str> {
    let mut contenders: Vec<_> =
        names.iter().filter_map(|(text, czxid)| Some((NodeName::parse(text)?, *czxid))).collect();
    sort(&mut contenders, |(name, czxid)| (name.number, Some(*czxid).filter(|_| name.is_near_wrap()), name.text));
    contenders.into_iter().map(|(name, _)| name.text).collect()
}

fn are_in_order(input: &Input<'_>, others: &[(String, i64)]) {
    let (mut counter, mut names, mut numbers) = (i64::from(input.counter), Vec::new(), Vec::new());
    for (index, created) in input.created.iter().enumerate() {
        counter += 1 + i64::from(created.later) % (WINDOW / 3);
        let number = number_at(counter, created.at_the_end);
        names.push((print(&format!("created-{index}"), kind(created.kind), number), index as i64));
        numbers.push(number);
    }
    let created: Vec<&str> = names.iter().map(|(text, _)| text.as_str()).collect();
    let turned: Vec<_> = names.iter().rev().cloned().collect();
    // Where all of them are beyond the end, they are half of all numbers from 0 for a moment.
    let sides: HashSet<bool> =
        numbers.iter().filter(|number| is_near_wrap(**number)).map(|number| is_before_zero(*number)).collect();
    if sides.len() < 2 || numbers.iter().all(|number| is_near_wrap(*number)) {
        assert_eq!(sorted(&turned), created);
    }
    if sides.len() < 2 {
        let all: Vec<_> = others.iter().chain(&turned).cloned().collect();
        let mut left = sorted(&all);
        left.retain(|text| created.contains(text));
        assert_eq!(left, created, "{all:?}");
    }
}

fn have_one_order(listing: &[(String, i64)], turn: u8) {
    let mut turned = listing.to_vec();
    if !turned.is_empty() {
        turned.rotate_left(usize::from(turn) % listing.len());
    }
    assert_eq!(sorted(&turned), sorted(listing));
}

fuzz_target!(|input: Input<'_>| {
    input.texts.iter().for_each(|text| is_read_as_printed(text));
    for created in &input.created {
        is_read_back(created.prefix, kind(created.kind), created.later as i32);
    }
    let mut listing: Vec<_> = input.listing.iter().take(12).map(Child::name).collect();
    // Siblings have different names.
    let mut seen = HashSet::new();
    listing.retain(|name| seen.insert(name.clone()) && !name.starts_with("created-"));
    listing.iter().for_each(|name| is_read_as_printed(name));
    let listing: Vec<_> = listing.into_iter().zip(100..).collect();
    are_in_order(&input, &listing);
    have_one_order(&listing, input.turn);
});
