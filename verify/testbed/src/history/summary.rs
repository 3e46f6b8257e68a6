//! Counts of operations and their outcomes, and the longest waits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Event, Step};

/// Counts of operations, and the longest waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// From the first event to the last.
    pub duration: Duration,
    /// Acquires that were invoked.
    pub acquires: usize,
    /// Acquires that succeeded.
    pub acquired: usize,
    /// Acquires that failed.
    pub acquire_failed: usize,
    /// Acquires with an unknown outcome.
    pub acquire_unknown: usize,
    /// Exclusive holds that became shared.
    pub downgrades: usize,
    /// Losses that were reported to a holder.
    pub lost: usize,
    /// Releases that were invoked.
    pub releases: usize,
    /// Releases that succeeded.
    pub released: usize,
    /// Releases that found the hold lost.
    pub release_lost: usize,
    /// Releases with an unknown outcome.
    pub release_unknown: usize,
    /// The longest time from the invocation of an acquire to its success.
    pub longest_wait: Option<Wait>,
    /// The longest time without a grant of any object, from the first event to the last.
    pub longest_gap: Option<Gap>,
}

/// How long an acquire took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// From its invocation to its success.
    pub duration: Duration,
    /// The process that waited.
    pub process: Arc<str>,
    /// The path of the lock.
    pub object: Arc<str>,
    /// The token of its hold.
    pub token: i64,
}

/// A time without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// When it began, from the start of the history.
    pub start: Duration,
    /// How long it lasted.
    pub duration: Duration,
}

/// Summarizes events, which are ordered by time.
pub(super) fn summarize(events: &[Event]) -> Summary {
    let mut summary = Summary::default();
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return summary;
    };
    summary.duration = Duration::from_nanos(last.at - first.at);
    let mut invoked = HashMap::<(&str, &str, u64), u64>::new();
    let mut granted = first.at;
    for event in events {
        let name = (&*event.object, &*event.process, event.attempt);
        match event.step {
            Step::Acquire { .. } => {
                summary.acquires += 1;
                invoked.insert(name, event.at);
            }
            Step::Acquired { token } => {
                summary.acquired += 1;
                if let Some(begin) = invoked.remove(&name) {
                    summary.wait(event, token, begin);
                }
                summary.gap(first.at, granted, event.at);
                granted = event.at;
            }
            Step::AcquireFailed => summary.acquire_failed += 1,
            Step::AcquireUnknown => summary.acquire_unknown += 1,
            Step::Downgrade => summary.downgrades += 1,
            Step::Lost { .. } => summary.lost += 1,
            Step::Release => summary.releases += 1,
            Step::Released => summary.released += 1,
            Step::ReleaseLost => summary.release_lost += 1,
            Step::ReleaseUnknown => summary.release_unknown += 1,
            Step::Enqueued { .. } | Step::Confirmed => {}
        }
    }
    summary.gap(first.at, granted, last.at);
    summary
}

impl Summary {
    fn wait(&mut self, event: &Event, token: i64, begin: u64) {
        let duration = Duration::from_nanos(event.at - begin);
        if self.longest_wait.as_ref().is_none_or(|longest| longest.duration < duration) {
            let (process, object) = (Arc::clone(&event.process), Arc::clone(&event.object));
            self.longest_wait = Some(Wait { duration, process, object, token });
        }
    }

    fn gap(&mut self, start: u64, begin: u64, end: u64) {
        let gap = Gap { start: Duration::from_nanos(begin - start), duration: Duration::from_nanos(end - begin) };
        if self.longest_gap.is_none_or(|longest| longest.duration < gap.duration) {
            self.longest_gap = Some(gap);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { duration, acquires, acquired, acquire_failed, acquire_unknown, downgrades, .. } = self;
        let Self { lost, releases, released, release_lost, release_unknown, .. } = self;
        let outcomes = format!("{acquired} ok, {acquire_failed} failed, {acquire_unknown} unknown");
        write!(f, "{acquires} acquires in {duration:?}: {outcomes}")?;
        let outcomes = format!("{released} ok, {release_lost} lost, {release_unknown} unknown");
        write!(f, "\n{releases} releases: {outcomes}; {lost} losses reported, {downgrades} downgrades")?;
        if let Some(Wait { duration, process, object, token }) = &self.longest_wait {
            write!(f, "\nlongest wait: {duration:?}, of {process} for {object} (token {token})")?;
        }
        if let Some(Gap { start, duration }) = &self.longest_gap {
            write!(f, "\nlongest time without a grant: {duration:?}, from +{start:?} on")?;
        }
        Ok(())
    }
}
