//! The final table.

use std::collections::BTreeMap;

use testbed::history::History;

use super::Course;
use super::facts::Facts;
use super::findings::{Findings, Promise};

/// How many violations of each promise are printed; the file has all.
const SHOWN: usize = 5;

pub(super) fn print(course: &Course, facts: &Facts, findings: &Findings) {
    let summary = History::from_events(facts.events.clone()).summary();
    println!("\nOperations");
    println!("{summary}");
    println!("{} times the machine did not schedule a client for more than 40 ms", facts.stalls());

    println!("\n{:<46}{:>8}", "Faults", "times");
    let mut kinds = BTreeMap::<_, usize>::new();
    facts.faults.iter().for_each(|struck| *kinds.entry(struck.fault).or_default() += 1);
    kinds.iter().for_each(|(kind, times)| println!("{kind:<46}{times:>8}"));
    println!("{:<46}{:>8}", "all", facts.faults.len());

    println!("\n{:<46}{:>8}", "Granted by", "times");
    facts.ways().iter().for_each(|(way, times)| println!("{way:<46}{times:>8}"));

    println!("\n{:<46}{:>14}{:>8}{:>9}", "Updates of a set", "acknowledged", "lost", "refused");
    for (name, updates) in [("tokens checked", course.checked), ("tokens ignored", course.ignored)] {
        println!("{name:<46}{:>14}{:>8}{:>9}", updates.acknowledged, updates.lost, updates.refused);
    }

    println!("\n{:<46}{:>8}", "Broken promises", "times");
    for promise in Promise::ALL {
        println!("{promise:<46}{:>8}", findings.of(promise).len());
    }
    for sentence in Promise::ALL.iter().flat_map(|promise| findings.of(*promise).iter().take(SHOWN)) {
        println!("VIOLATION {sentence}");
    }
    let minutes = course.duration.as_secs_f64() / 60.0;
    println!("\nchaos: seed {}, {minutes:.1} minutes, {} clients", course.seed, course.clients);
}
