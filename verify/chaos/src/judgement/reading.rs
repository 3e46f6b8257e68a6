//! Prepares the history for the judges: removes or corrects events of processes that could not know better.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use testbed::history::{Event, History, Step};

use super::excuses::Excuses;
use super::facts::Facts;

type Attempt = (Arc<str>, u64);

/// Facts about each attempt, from the whole history.
#[derive(Debug, Default)]
struct Known {
    granted: HashMap<Attempt, (u64, i64)>,
    invoked: HashMap<Attempt, u64>,
    /// Attempts to lock again what the process already held.
    again: HashSet<Attempt>,
}

impl Known {
    fn of(events: &[Event]) -> Self {
        let mut known = Self::default();
        let mut seen = HashSet::new();
        for event in events {
            let attempt = (Arc::clone(&event.process), event.attempt);
            match event.step {
                Step::Acquire { .. } => drop(known.invoked.insert(attempt, event.at)),
                Step::Acquired { token } => {
                    if !seen.insert((&*event.object, token)) {
                        known.again.insert(attempt.clone());
                    }
                    known.granted.insert(attempt, (event.at, token));
                }
                _ => {}
            }
        }
        known
    }
}

/// Adds the losses of killed processes, and corrects events that other processes recorded while they were excused.
pub(super) fn of(facts: &Facts, excuses: &Excuses) -> Vec<Event> {
    let history = History::from_events(facts.events.clone());
    for (process, at) in excuses.killed() {
        history.killed(process, at);
    }
    let mut events = history.events();
    let known = Known::of(&events);
    let mut too_late = HashSet::new();
    events.retain_mut(|event| {
        let attempt = (Arc::clone(&event.process), event.attempt);
        let Some(grant) = known.granted.get(&attempt).copied() else { return true };
        if let Step::Enqueued { place: None } = event.step {
            return !excuses.queued_again(&event.object, event.at, grant.0);
        }
        let excuse = |at| excuses.find(&event.process, &event.object, grant, at);
        let unaware = |at| excuse(at).is_some_and(|excuse| excuse.unaware);
        // Locking again sends no request, so it proves nothing.
        if known.again.contains(&attempt) && unaware(known.invoked[&attempt]) {
            return false;
        }
        match &event.step {
            Step::Confirmed => return !unaware(event.at),
            Step::Release if excuses.deletion(&event.object, grant, event.at).is_some() => {
                too_late.insert(attempt);
            }
            Step::Released if too_late.contains(&attempt) => event.step = Step::ReleaseLost,
            Step::Lost { since } => {
                let since = excuse(event.at).map_or(*since, |excuse| excuse.since.min(*since));
                event.step = Step::Lost { since };
            }
            _ => {}
        }
        true
    });
    events
}
