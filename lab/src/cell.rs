//! One cell of the table: a way under a fault, and the words for what was counted.

use std::time::Duration;

use serde::Serialize;

use crate::event::Event;
use crate::stage::{Outcomes, PATIENCE};

/// What was counted, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Finding {
    /// No update was lost, and the others waited no longer than a lease explains.
    Safe,
    /// Updates were lost.
    Lost,
    /// The others waited for longer.
    Stuck,
    /// Both.
    LostAndStuck,
    /// It could not be played.
    NotRun,
    /// It makes no sense for the way.
    NotApplicable,
}

/// A way under a fault.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// The way.
    pub way: &'static str,
    /// The fault.
    pub fault: &'static str,
    /// The run that shows it.
    pub run: String,
    /// What was counted.
    pub finding: Finding,
    /// In words.
    pub text: String,
    /// Increments that were acknowledged and are not in the counter.
    pub lost: i64,
    /// Requests that the store has refused.
    pub refused: usize,
    /// Whether the holder noticed the loss before it wrote.
    pub noticed: bool,
    /// How long the next grant to another contender came after it could be expected, in seconds.
    pub waited_s: Option<f64>,
    /// For how long it was observed, in seconds.
    pub observed_s: f64,
    /// The steps, in nanoseconds since the run began.
    pub events: Vec<Event>,
}

impl Cell {
    /// A run that was played.
    pub fn played(
        way: &'static str,
        fault: &'static str,
        run: String,
        outcomes: Outcomes,
        optimistic: bool,
    ) -> Self {
        let Outcomes { lost, refused, noticed, waited, observed, events } = outcomes;
        // Nobody waits for a version.
        let stuck = !optimistic && waited.is_none_or(|waited| waited > PATIENCE);
        let finding = match (lost > 0, stuck) {
            (false, false) => Finding::Safe,
            (true, false) => Finding::Lost,
            (false, true) => Finding::Stuck,
            (true, true) => Finding::LostAndStuck,
        };
        let mut words = Vec::new();
        if lost > 0 {
            words.push(format!("{lost} updates lost"));
        }
        if stuck {
            words.push(waited.map_or_else(
                || format!("stuck for over {}", seconds(observed)),
                |waited| format!("stuck for {}", seconds(waited)),
            ));
        }
        if words.is_empty() {
            words.push("safe".to_owned());
        }
        if refused > 0 {
            words.push(format!("{refused} refused"));
        }
        if noticed {
            words.push("noticed".to_owned());
        }
        Self {
            way,
            fault,
            run,
            finding,
            text: words.join(", "),
            lost,
            refused,
            noticed,
            waited_s: waited.map(|waited| waited.as_secs_f64()),
            observed_s: observed.as_secs_f64(),
            events,
        }
    }

    /// A run that was not played.
    pub fn missing(way: &'static str, fault: &'static str, finding: Finding, why: &str) -> Self {
        let text = match finding {
            Finding::NotRun => format!("not run: {why}"),
            _ => "n/a".to_owned(),
        };
        let note = vec![Event::now(0, crate::event::What::Fault).with_text(why)];
        let (run, lost, refused, noticed) = (String::new(), 0, 0, false);
        Self {
            way,
            fault,
            run,
            finding,
            text,
            lost,
            refused,
            noticed,
            waited_s: None,
            observed_s: 0.0,
            events: note,
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
