//! The rule that simultaneous holds never exceed the room of the lock.
//!
//! A hold takes some of the room; an exclusive hold takes all of it. It certainly takes its part from its grant to the
//! earliest possible end. If these certain intervals fit, the whole history fits, because the lock chooses when to grant
//! and when to end. A hold without a certain interval still needs room at one instant.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::case::Case;
use super::hold::Hold;
use super::loads::Loads;

/// A change of the room that a hold certainly takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    at: u64,
    what: What,
    hold: usize,
}

/// The kind of a change. Changes of the same instant are applied in this order, which needs the least room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Leave,
    Downgrade,
    /// Needs room at one instant up to this one, but takes none.
    Look,
    Enter,
}

/// Adds a violation for each hold that began without enough room. `takes` returns the room that a hold takes if it is
/// not exclusive.
pub(super) fn check(case: &mut Case, holds: &[Hold], room: u64, takes: impl Fn(&Case, &Hold) -> u64) {
    let mut changes: Vec<_> = (0..).zip(holds).flat_map(|(index, hold)| changes(index, hold)).collect();
    changes.sort_unstable();
    let mut loads = Loads::new();
    let mut inside = Inside::default();
    for Change { at, what, hold: index } in changes {
        let hold = &holds[index];
        let shared = |case: &Case| takes(case, hold);
        // A hold that became shared at the instant of its grant was checked before it enters.
        let is_shared = !hold.exclusive || (what == What::Enter && hold.exclusive_until <= at);
        let needs = if is_shared { shared(case) } else { room };
        let load = loads.now();
        match what {
            What::Leave => loads.change(at, load - inside.set(index, 0)),
            What::Downgrade => loads.change(at, load - inside.set(index, shared(case)) + shared(case)),
            What::Look | What::Enter => {
                let least = if what == What::Look { loads.least_since(hold.until.min(at)) } else { load };
                if least + needs > room {
                    let breach = match needs > room {
                        true => format!("{} was granted more than the {room} there are", case.describe(hold)),
                        false => describe(case, hold, &inside, holds),
                    };
                    case.violation(hold.granted, breach);
                }
                if what == What::Enter {
                    inside.set(index, needs);
                    loads.change(at, load + needs);
                }
            }
        }
    }
}

/// The room that each hold certainly takes.
#[derive(Debug, Default)]
struct Inside {
    has: HashMap<usize, u64>,
    /// Ordered by room: the largest holds explain a violation best, such as a writer beside several readers.
    by_most: BTreeSet<(Reverse<u64>, usize)>,
}

impl Inside {
    /// Sets the room of a hold, and returns its previous room.
    fn set(&mut self, hold: usize, has: u64) -> u64 {
        let had = self.has.remove(&hold).unwrap_or_default();
        self.by_most.remove(&(Reverse(had), hold));
        if has > 0 {
            self.has.insert(hold, has);
            self.by_most.insert((Reverse(has), hold));
        }
        had
    }
}

fn changes(hold: usize, of: &Hold) -> Vec<Change> {
    let change = |at, what| Change { at, what, hold };
    if of.until <= of.granted {
        return vec![change(of.granted, What::Look)];
    }
    let mut changes = vec![change(of.granted, What::Enter), change(of.until, What::Leave)];
    if of.exclusive && of.exclusive_until < of.until {
        let what = if of.exclusive_until <= of.granted { What::Look } else { What::Downgrade };
        changes.push(change(of.exclusive_until.max(of.granted), what));
    }
    changes
}

fn describe(case: &Case, hold: &Hold, inside: &Inside, holds: &[Hold]) -> String {
    const NAMED: usize = 3;
    let others: Vec<_> = inside.by_most.iter().take(NAMED).map(|(_, other)| &holds[*other]).collect();
    let mut names: Vec<_> = others.iter().map(|other| case.describe(other)).collect();
    if inside.by_most.len() > NAMED {
        names.push(format!("{} more", inside.by_most.len() - NAMED));
    }
    let owner = |hold: &Hold| (&case.attempts[hold.attempt].process, &case.attempts[hold.attempt].owner);
    let again = owner(hold).1.is_some() && others.iter().any(|other| owner(other) == owner(hold));
    let what = if again { "entered again with another token" } else { "was granted" };
    format!("{} {what} while inside: {}", case.describe(hold), names.join(", "))
}
