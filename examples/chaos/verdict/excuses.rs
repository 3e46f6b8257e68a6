//! What no lock can help: processes that stood still, nodes that were deleted by hand, and pings that were held back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use testbed::history::{Event, History, Step};
use testbed::nemesis::Kind;

use super::facts::Facts;
use crate::line::What;

/// What the paths of locks that are taken together begin with.
const MULTI: &str = "/chaos/multi-";

/// How long a process that goes on may take to say what it knows.
const GRACE: u64 = 250_000_000;

/// Why a loss may be told after the next grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Excuse {
    Paused,
    Starved,
    Deleted,
    PingsHeld,
}

/// A stretch of time in which something is excused.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: u64,
    end: u64,
    excuse: Excuse,
}

#[derive(Debug, Default)]
pub(super) struct Excuses {
    by_process: HashMap<Arc<str>, Vec<Stretch>>,
    /// By object and token.
    deleted: HashMap<(String, i64), u64>,
    /// When the last process of this name was killed.
    killed: Vec<(String, u64)>,
}

impl Excuses {
    pub(super) fn of(facts: &Facts, session: Duration) -> Self {
        let mut excuses = Self::default();
        let session = session.as_nanos() as u64;
        for struck in &facts.faults {
            let (begin, end) = (struck.begin, struck.end);
            let stretch = match struck.fault {
                Kind::ClientPause | Kind::LongClientPause => {
                    Stretch { begin, end: end + GRACE, excuse: Excuse::Paused }
                }
                Kind::PingsHeld => Stretch { begin, end: end + session, excuse: Excuse::PingsHeld },
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
                    let stretch = Stretch { begin: *since, end: mark.at + GRACE, excuse: Excuse::Starved };
                    excuses.by_process.entry(Arc::clone(&mark.process)).or_default().push(stretch);
                }
                What::Moved { token, node, .. } => drop(moved.insert(node.clone(), *token)),
                _ => {}
            }
        }
        for (at, node, token) in facts.deletions() {
            let token = moved.get(node).copied().unwrap_or(token);
            let dir = node.rsplit_once('/').map_or("", |(dir, _)| dir);
            let object = dir.strip_suffix("/leases").unwrap_or(dir).to_owned();
            excuses.deleted.entry((object, token)).or_insert(at);
        }
        for stretches in excuses.by_process.values_mut() {
            stretches.sort_by_key(|stretch| stretch.begin);
        }
        excuses
    }

    /// Why a process may not have known at this instant what it had lost, and since when.
    pub(super) fn find(&self, process: &str, object: &str, token: i64, at: u64) -> Option<(Excuse, u64)> {
        let deleted = self.deleted.get(&(object.to_owned(), token)).filter(|sent| **sent <= at);
        let deleted = deleted.map(|sent| (Excuse::Deleted, *sent));
        // A stretch that begins within another goes back to the begin of that.
        let mut reach = None::<(u64, u64, Excuse)>;
        for Stretch { begin, end, excuse } in self.by_process.get(process).into_iter().flatten() {
            reach = match reach {
                Some((first, last, why)) if *begin <= last => Some((first, last.max(*end), why.min(*excuse))),
                Some((_, last, _)) if at <= last => break,
                _ => Some((*begin, *end, *excuse)),
            };
        }
        let still = reach.filter(|(begin, end, _)| (*begin..=*end).contains(&at));
        let still = still.map(|(begin, _, excuse)| (excuse, begin));
        [deleted, still].into_iter().flatten().min_by_key(|(_, since)| *since)
    }

    /// Whether an operator deleted a member of the multi-locks within this time. Who waits for some of them then takes
    /// all its places anew, at the tail, and tells nobody.
    fn is_anew(&self, object: &str, begin: u64, end: u64) -> bool {
        let is_member = |object: &str| object.starts_with(MULTI);
        let deleted = self.deleted.iter().filter(|((object, _), _)| is_member(object));
        is_member(object) && deleted.map(|(_, at)| *at).any(|at| begin <= at + GRACE && at <= end)
    }

    /// The events as the judges are to read them: what could not be known is not held against anybody.
    pub(super) fn apply(&self, facts: &Facts) -> Vec<Event> {
        let history = History::from_events(facts.events.clone());
        for (process, at) in &self.killed {
            let since = self.find(process, "", 0, *at).map_or(*at, |(_, since)| since);
            history.killed(process, since);
        }
        let mut events = history.events();
        let granted = events.iter().filter(|event| matches!(event.step, Step::Acquired { .. }));
        let granted: HashMap<_, _> =
            granted.map(|event| ((Arc::clone(&event.process), event.attempt), event.at)).collect();
        let (mut tokens, mut too_late) = (HashMap::new(), HashSet::new());
        events.retain_mut(|event| {
            let attempt = (Arc::clone(&event.process), event.attempt);
            if let Step::Acquired { token } = event.step {
                tokens.insert(attempt.clone(), token);
            }
            if let (Step::Enqueued { place: None }, Some(end)) = (&event.step, granted.get(&attempt)) {
                return !self.is_anew(&event.object, event.at, *end);
            }
            let token = tokens.get(&attempt).copied().unwrap_or_default();
            let Some((excuse, since)) = self.find(&event.process, &event.object, token, event.at) else {
                return true;
            };
            let knows_not = matches!(excuse, Excuse::Deleted | Excuse::PingsHeld);
            match &mut event.step {
                Step::Lost { since: told } => *told = since.min(*told),
                Step::Confirmed => return !knows_not,
                Step::Release if excuse == Excuse::Deleted => drop(too_late.insert(attempt)),
                step @ Step::Released if too_late.contains(&attempt) => *step = Step::ReleaseLost,
                _ => {}
            }
            true
        });
        events
    }
}
