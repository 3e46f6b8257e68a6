//! The unit of judgement: the attempts to hold one object, and their violations.

use std::sync::Arc;
use std::time::Duration;

use super::Mode;
use super::attempt::Attempt;
use super::hold::{Hold, NEVER};

/// One object's part of a history.
#[derive(Debug)]
pub(super) struct Case {
    object: Arc<str>,
    clock: Clock,
    pub(super) attempts: Vec<Attempt>,
    violations: Vec<(u64, String)>,
}

/// Formats times relative to the start of the whole history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: u64,
}

impl Clock {
    pub(super) fn from(start: u64) -> Self {
        Self { start }
    }

    pub(super) fn format(self, at: u64) -> String {
        format!("+{:?}", Duration::from_nanos(at.saturating_sub(self.start)))
    }
}

impl Case {
    pub(super) fn new(object: Arc<str>, clock: Clock) -> Self {
        Self { object, clock, attempts: Vec::new(), violations: Vec::new() }
    }

    /// Adds a violation, and when it happened.
    pub(super) fn violation(&mut self, at: u64, breach: impl AsRef<str>) {
        self.violations.push((at, format!("{}: {}", self.object, breach.as_ref())));
    }

    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    pub(super) fn into_violations(self) -> Vec<(u64, String)> {
        self.violations
    }

    pub(super) fn time(&self, at: u64) -> String {
        self.clock.format(at)
    }

    /// The process, and owner if any, of an attempt.
    pub(super) fn who(&self, attempt: usize) -> String {
        let Attempt { process, owner, .. } = &self.attempts[attempt];
        match owner {
            Some(owner) => format!("{process} as {owner}"),
            None => process.to_string(),
        }
    }

    /// Describes a hold: its holder, token and time.
    pub(super) fn describe(&self, hold: &Hold) -> String {
        let mode = match self.attempts[hold.attempt].mode {
            Mode::Exclusive => String::new(),
            Mode::Shared => "shared, ".to_owned(),
            Mode::Permits(permits) => format!("permits {permits}, "),
        };
        let from = self.time(hold.granted);
        let time = match hold.until {
            NEVER => format!("from {from} on"),
            until if until < hold.granted => format!("granted by {from}"),
            until => format!("{from} to {}", self.time(until)),
        };
        format!("{} ({mode}token {}, {time})", self.who(hold.attempt), hold.token)
    }
}
