//! What no lock can help: processes that stood still, nodes that were deleted by hand, and pings that were held back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use testbed::nemesis::Kind;

use super::facts::{Deletion, Facts};
use crate::line::What;

/// What the paths of locks that are taken together begin with.
const MULTI: &str = "/chaos/multi-";

/// How long a process that goes on may take to say what it knows.
const GRACE: u64 = 250_000_000;

/// Why a loss may be told after the next grant; of two at the same time the later one here weighs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    PingsHeld,
    Starved,
    Deleted,
    Paused,
}

/// What is excused of a process at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excuse {
    pub(super) reason: Reason,
    /// Since when it may not have known what it had lost.
    pub(super) since: u64,
    /// Whether it may even have gone on as if it held, though it ran.
    pub(super) unaware: bool,
}

impl Excuse {
    fn and(self, other: Self) -> Self {
        Self {
            reason: self.reason.max(other.reason),
            since: self.since.min(other.since),
            unaware: self.unaware || other.unaware,
        }
    }
}

/// A stretch of time in which something is excused.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: u64,
    end: u64,
    reason: Reason,
    unaware: bool,
}

impl Stretch {
    fn new(begin: u64, end: u64, reason: Reason) -> Self {
        Self { begin, end, reason, unaware: reason == Reason::PingsHeld }
    }
}

/// When the node of a hold was deleted by hand, or may have been.
#[derive(Clone, Copy, Debug)]
struct Removal {
    sent: u64,
    /// Until when its holder may not have known.
    known: u64,
}

#[derive(Debug, Default)]
pub(super) struct Excuses {
    by_process: HashMap<Arc<str>, Vec<Stretch>>,
    /// By object and token.
    deleted: HashMap<(String, i64), Removal>,
    killed: Vec<(String, u64)>,
}

impl Excuses {
    pub(super) fn of(facts: &Facts, session: Duration) -> Self {
        let mut excuses = Self::default();
        let session = session.as_nanos() as u64;
        // The answer before may have been given a while ago, and servers count time in ticks.
        let lonely = session / 4 * 3;
        for struck in &facts.faults {
            let (begin, end) = (struck.begin, struck.end);
            let stretch = match struck.fault {
                Kind::ClientPause | Kind::LongClientPause => Stretch::new(begin, end, Reason::Paused),
                // No session can have ended before, and none does once the pings are answered again.
                Kind::PingsHeld if end - begin >= lonely => Stretch::new(begin + lonely, end, Reason::PingsHeld),
                Kind::ClientKill => {
                    excuses.killed.extend(struck.clients.iter().map(|client| (client.clone(), begin)));
                    continue;
                }
                _ => continue,
            };
            for client in &struck.clients {
                excuses.by_process.entry(client.as_str().into()).or_default().push(stretch);
            }
        }
        let mut moved = HashMap::new();
        for mark in &facts.marks {
            match &mark.what {
                What::Stalled { since } => {
                    let stretch = Stretch::new(*since, mark.at, Reason::Starved);
                    excuses.by_process.entry(Arc::clone(&mark.process)).or_default().push(stretch);
                }
                What::Moved { token, node, .. } => drop(moved.insert(node.clone(), *token)),
                _ => {}
            }
        }
        for Deletion { node, token, sent, done } in facts.deletions() {
            let token = moved.get(node).copied().unwrap_or(token);
            let dir = node.rsplit_once('/').map_or("", |(dir, _)| dir);
            let object = dir.strip_suffix("/leases").unwrap_or(dir).to_owned();
            // What was not answered may yet be done until the operator's own session is over.
            let known = done.unwrap_or(sent + session) + session + GRACE;
            let removal = excuses.deleted.entry((object, token)).or_insert(Removal { sent, known });
            removal.known = removal.known.max(known);
        }
        excuses.by_process.values_mut().for_each(merge);
        excuses
    }

    /// What is excused of a process, and of its hold with this token, at an instant.
    pub(super) fn find(&self, process: &str, object: &str, token: i64, at: u64) -> Option<Excuse> {
        let deleted = self.deletion(process, object, token, at);
        let deleted = deleted.map(|since| Excuse { reason: Reason::Deleted, since, unaware: true });
        self.still(process, at).into_iter().chain(deleted).reduce(Excuse::and)
    }

    /// When the node of a hold was deleted by hand, or may have been, if its process may not know it at an instant.
    pub(super) fn deletion(&self, process: &str, object: &str, token: i64, at: u64) -> Option<u64> {
        let removal = self.deleted.get(&(object.to_owned(), token))?;
        // Who stood still before it had to know need not know it since.
        let ran = self.still(process, at).map_or(at, |still| still.since);
        (removal.sent <= at && ran <= removal.known).then_some(removal.sent)
    }

    /// What is excused of a process, whatever it holds.
    fn still(&self, process: &str, at: u64) -> Option<Excuse> {
        let stretches = self.by_process.get(process).into_iter().flatten();
        let still = stretches.filter(|stretch| (stretch.begin..=stretch.end + GRACE).contains(&at));
        let still = still.map(|Stretch { begin, reason, unaware, .. }| Excuse {
            reason: *reason,
            since: *begin,
            unaware: *unaware,
        });
        still.reduce(Excuse::and)
    }

    /// The processes that were killed, and the last instants at which they certainly ran.
    pub(super) fn killed(&self) -> impl Iterator<Item = (&str, u64)> {
        let ran = |process, at| self.still(process, at).map_or(at, |excuse| excuse.since);
        self.killed.iter().map(move |(process, at)| (process.as_str(), ran(process, *at)))
    }

    /// Whether an operator deleted a member of the multi-locks within this time. Who waits for some of them then takes
    /// all its places anew, at the tail, and tells nobody.
    pub(super) fn is_anew(&self, object: &str, begin: u64, end: u64) -> bool {
        let is_member = |object: &str| object.starts_with(MULTI);
        let deleted = self.deleted.iter().filter(|((object, _), _)| is_member(object));
        is_member(object) && deleted.map(|(_, removal)| removal.sent).any(|at| begin <= at + GRACE && at <= end)
    }
}

/// Makes one stretch of those that overlap.
fn merge(stretches: &mut Vec<Stretch>) {
    stretches.sort_by_key(|stretch| stretch.begin);
    stretches.dedup_by(|next, stretch| {
        let overlaps = next.begin <= stretch.end;
        if overlaps {
            stretch.end = stretch.end.max(next.end);
            stretch.reason = stretch.reason.max(next.reason);
            stretch.unaware |= next.unaware;
        }
        overlaps
    });
}
