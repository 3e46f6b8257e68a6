//! One attempt to hold a lock, reconstructed from its events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::case::{Case, Clock};
use super::{Event, Mode, Step};

/// One attempt to hold a lock.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) process: Arc<str>,
    pub(super) owner: Option<Arc<str>>,
    pub(super) mode: Mode,
    pub(super) invoked: u64,
    /// When it was known to be in the queue, with the number of each place if known. The last place counts.
    pub(super) places: Vec<(u64, Option<i64>)>,
    /// When the acquire failed, or ended with an unknown outcome.
    pub(super) gave_up: Option<u64>,
    pub(super) granted: Option<Grant>,
    /// The last check that found it held.
    pub(super) confirmed: Option<u64>,
    pub(super) downgraded: Option<u64>,
    pub(super) lost: Option<Loss>,
    pub(super) release: Option<Release>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) at: u64,
    pub(super) token: i64,
}

/// The first report of a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) at: u64,
    pub(super) since: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) invoked: u64,
    pub(super) end: Option<(u64, Outcome)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    Lost,
    Unknown,
}

impl Attempt {
    fn new(event: &Event, mode: Mode, owner: Option<Arc<str>>) -> Self {
        Self {
            process: Arc::clone(&event.process),
            owner,
            mode,
            invoked: event.at,
            places: Vec::new(),
            gave_up: None,
            granted: None,
            confirmed: None,
            downgraded: None,
            lost: None,
            release: None,
        }
    }

    /// When its successful release was invoked.
    pub(super) fn released(&self) -> Option<u64> {
        self.release.filter(|release| release.is(Outcome::Ok)).map(|release| release.invoked)
    }

    fn is_open(&self) -> bool {
        self.granted.is_some() && self.lost.is_none() && self.release.is_none()
    }

    /// Applies the next event. Redundant steps change nothing, and impossible ones are returned as errors.
    fn take(&mut self, event: &Event) -> Result<(), &'static str> {
        let at = event.at;
        match &event.step {
            Step::Acquire { .. } => return Err("began two acquires with the same number"),
            Step::Enqueued { place } => self.places.push((at, *place)),
            Step::Acquired { .. } if self.granted.is_some() || self.gave_up.is_some() => {
                return Err("was granted an acquire that had ended");
            }
            Step::Acquired { token } => self.granted = Some(Grant { at, token: *token }),
            Step::AcquireFailed | Step::AcquireUnknown => self.gave_up = self.gave_up.or(Some(at)),
            Step::Confirmed => self.confirmed = self.confirmed.max(Some(at)),
            Step::Downgrade => self.downgraded = self.downgraded.or(Some(at)),
            Step::Lost { since } => self.lost = self.lost.or(Some(Loss { at, since: at.min(*since) })),
            Step::Release => self.release = self.release.or(Some(Release { invoked: at, end: None })),
            Step::Released => return self.end_release(at, Outcome::Ok),
            Step::ReleaseLost => return self.end_release(at, Outcome::Lost),
            Step::ReleaseUnknown => return self.end_release(at, Outcome::Unknown),
        }
        Ok(())
    }

    fn end_release(&mut self, at: u64, outcome: Outcome) -> Result<(), &'static str> {
        match &mut self.release {
            Some(release) if self.granted.is_some() => {
                if release.is(Outcome::Ok) && outcome == Outcome::Ok {
                    return Err("released twice what it held once");
                }
                release.end = Some((at, outcome));
                Ok(())
            }
            _ if outcome == Outcome::Ok => Err(NOT_HELD),
            _ => Ok(()),
        }
    }
}

impl Release {
    pub(super) fn is(&self, outcome: Outcome) -> bool {
        self.end.is_some_and(|(_, end)| end == outcome)
    }
}

const NOT_HELD: &str = "released what it did not hold";

/// Reads events, ordered by time, into one case per object. Steps that are impossible in every model are violations.
pub(super) fn read(events: &[Event]) -> Vec<Case> {
    let clock = Clock::from(events.first().map_or(0, |event| event.at));
    let mut cases = BTreeMap::<&str, Case>::new();
    let mut numbers = HashMap::<(&str, &str, u64), usize>::new();
    for event in events {
        let case = cases.entry(&event.object).or_insert_with(|| Case::new(Arc::clone(&event.object), clock));
        let name = (&*event.object, &*event.process, event.attempt);
        let taken = match (numbers.get(&name), &event.step) {
            (Some(&number), _) => case.attempts[number].take(event),
            (None, Step::Acquire { mode, owner }) => {
                numbers.insert(name, case.attempts.len());
                case.attempts.push(Attempt::new(event, *mode, owner.clone()));
                Ok(())
            }
            (None, Step::Acquired { .. }) => Err("was granted a lock that it had not requested"),
            (None, Step::Released) => Err(NOT_HELD),
            (None, _) => Ok(()),
        };
        if let Err(breach) = taken {
            let when = clock.format(event.at);
            case.violation(event.at, format!("{} {breach}, at {when} (attempt {})", event.process, event.attempt));
        }
    }
    cases.into_values().collect()
}

/// The losses of a killed process: its holds that it had not begun to release.
pub(super) fn losses_of_killed(events: &[Event], process: &str, since: u64) -> Vec<Event> {
    let mut events: Vec<_> = events.iter().filter(|event| &*event.process == process).cloned().collect();
    events.sort_by_key(|event| event.at);
    // Its last events are still true.
    let at = events.last().map_or(since, |event| event.at.max(since));
    let mut open = BTreeMap::<(&str, u64), Attempt>::new();
    for event in &events {
        let name = (&*event.object, event.attempt);
        if let Step::Acquire { mode, owner } = &event.step {
            open.entry(name).or_insert_with(|| Attempt::new(event, *mode, owner.clone()));
        } else if let Some(attempt) = open.get_mut(&name) {
            // The judges report impossible steps.
            let _ = attempt.take(event);
        }
    }
    open.into_iter()
        .filter(|(_, attempt)| attempt.is_open())
        .map(|((object, number), _)| Event::new(at, process, object, number, Step::Lost { since }))
        .collect()
}
