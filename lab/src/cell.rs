//! One cell of the table: a way under a fault, and the words for what was counted.

use std::fmt::Display;
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
    /// A property that is neither good nor bad.
    Shown,
    /// It could not be played.
    NotRun,
    /// It makes no sense for the way.
    NotApplicable,
}

impl Finding {
    /// Whether updates were lost.
    pub fn has_lost(self) -> bool {
        matches!(self, Self::Lost | Self::LostAndStuck)
    }

    /// Whether the others waited for too long.
    pub fn is_stuck(self) -> bool {
        matches!(self, Self::Stuck | Self::LostAndStuck)
    }

    /// Whether it was played.
    pub fn is_played(self) -> bool {
        !matches!(self, Self::NotRun | Self::NotApplicable)
    }

    fn of(has_lost: bool, is_stuck: bool) -> Self {
        match (has_lost, is_stuck) {
            (false, false) => Self::Safe,
            (true, false) => Self::Lost,
            (false, true) => Self::Stuck,
            (true, true) => Self::LostAndStuck,
        }
    }
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
    /// Requests of the faulty holder that the store has refused.
    pub late_refused: usize,
    /// Requests of the other contenders that the store has refused.
    pub honest_refused: usize,
    /// Whether the holder noticed the loss before it wrote.
    pub noticed: bool,
    /// How long the next grant to another contender came after it could be expected, in seconds.
    pub waited_s: Option<f64>,
    /// For how long it was observed, in seconds.
    pub observed_s: f64,
    /// The steps, in nanoseconds since the run began.
    pub events: Vec<Event>,
    /// The single runs of a cell that was played several times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plays: Vec<Self>,
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
        let Outcomes { lost, late_refused, honest_refused, noticed, waited, observed, property, events } =
            outcomes;
        // Where a property is asked for, the wait is part of it. Nobody waits for a version.
        let is_late = property.is_none() && !optimistic && waited.is_none_or(|waited| waited > PATIENCE);
        let is_stuck = property.map_or(is_late, |property| property.is_fault);
        let finding = match Finding::of(lost > 0, is_stuck) {
            Finding::Safe if property.is_some() => Finding::Shown,
            finding => finding,
        };
        let mut words = Vec::new();
        if lost > 0 {
            words.push(format!("{} lost", counted(lost, "update")));
        }
        if let Some(property) = property {
            words.push(property.text.to_owned());
        } else if is_stuck {
            words.push(waited.map_or_else(
                || format!("stuck for over {}", seconds(observed)),
                |waited| format!("stuck for {}", seconds(waited)),
            ));
        }
        if words.is_empty() {
            words.push("safe".to_owned());
        }
        match late_refused {
            0 => (),
            1 => words.push("late write refused".to_owned()),
            many => words.push(format!("{many} late writes refused")),
        }
        match honest_refused {
            0 => (),
            1 => words.push("an honest writer refused".to_owned()),
            many => words.push(format!("honest writers refused {many} times")),
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
            late_refused,
            honest_refused,
            noticed,
            waited_s: waited.map(|waited| waited.as_secs_f64()),
            observed_s: observed.as_secs_f64(),
            events,
            plays: Vec::new(),
        }
    }

    /// Several runs as one cell, which counts what they showed. Its steps are those of the worst.
    pub fn of_several(run: &str, plays: Vec<Self>) -> Option<Self> {
        let badness = |cell: &Self| (cell.finding.has_lost(), cell.finding.is_stuck(), cell.finding.is_played());
        let worst = plays.iter().max_by_key(|cell| badness(cell))?.clone();
        let played: Vec<_> = plays.iter().filter(|cell| cell.finding.is_played()).collect();
        if plays.len() == 1 || played.is_empty() {
            return Some(Self { run: if worst.run.is_empty() { String::new() } else { run.to_owned() }, ..worst });
        }
        let count = |is: fn(&Self) -> bool| played.iter().filter(|cell| is(cell)).count();
        let (lost, stuck) = (count(|cell| cell.finding.has_lost()), count(|cell| cell.finding.is_stuck()));
        let kinds = [
            ("updates lost", lost),
            ("stuck", stuck),
            ("safe", count(|cell| cell.finding == Finding::Safe)),
            ("late write refused", count(|cell| cell.late_refused > 0)),
            ("honest writers refused", count(|cell| cell.honest_refused > 0)),
            ("noticed", count(|cell| cell.noticed)),
        ];
        let shown = kinds.iter().filter(|(_, times)| *times > 0);
        let words: Vec<_> = shown.map(|(what, times)| format!("{what} in {times} of {}", played.len())).collect();
        let finding = Finding::of(lost > 0, stuck > 0);
        Some(Self { run: run.to_owned(), finding, text: words.join(", "), plays, ..worst })
    }

    /// A run that was not played.
    pub fn missing(way: &'static str, fault: &'static str, finding: Finding, why: &str) -> Self {
        let text = match finding {
            Finding::NotRun => format!("not run: {why}"),
            _ => "n/a".to_owned(),
        };
        Self {
            way,
            fault,
            run: String::new(),
            finding,
            text,
            lost: 0,
            late_refused: 0,
            honest_refused: 0,
            noticed: false,
            waited_s: None,
            observed_s: 0.0,
            events: vec![Event::now(0, crate::event::What::Fault).with_text(why)],
            plays: Vec::new(),
        }
    }
}

/// A number of things, of which one is no plural.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Property;

    fn cell(run: &str, lost: i64, noticed: bool) -> Cell {
        let outcomes = Outcomes { lost, noticed, waited: Some(Duration::ZERO), ..Outcomes::default() };
        Cell::played("a-way", "a-fault", run.to_owned(), outcomes, false)
    }

    #[test]
    fn several_runs_are_counted() {
        let plays = vec![cell("r1.1", 0, true), cell("r1.2", 6, false), cell("r1.3", 6, false)];
        let all = Cell::of_several("r1", plays).expect("three runs");
        assert_eq!(all.text, "updates lost in 2 of 3, safe in 1 of 3, noticed in 1 of 3");
        assert_eq!((all.finding, all.run.as_str(), all.plays.len()), (Finding::Lost, "r1", 3));
    }

    #[test]
    fn runs_that_were_not_played_do_not_count() {
        let missing = Cell::missing("a-way", "a-fault", Finding::NotRun, "no server");
        let all = Cell::of_several("r1", vec![missing.clone(), cell("r1.2", 0, false)]).expect("two runs");
        assert_eq!(all.text, "safe in 1 of 1");
        let all = Cell::of_several("r1", vec![missing.clone(), missing]).expect("two runs");
        assert_eq!((all.finding, all.text.as_str()), (Finding::NotRun, "not run: no server"));
    }

    #[test]
    fn one_lost_update_is_no_plural() {
        assert_eq!(cell("r1", 1, false).text, "1 update lost");
        assert_eq!(cell("r1", 2, false).text, "2 updates lost");
    }

    #[test]
    fn refusals_of_honest_writers_are_shown() {
        let outcomes =
            Outcomes { honest_refused: 4, late_refused: 1, waited: Some(Duration::ZERO), ..Outcomes::default() };
        let cell = Cell::played("a-way", "a-fault", "r1".to_owned(), outcomes, false);
        assert_eq!(cell.text, "safe, late write refused, honest writers refused 4 times");
    }

    #[test]
    fn property_is_no_wait() {
        for (is_fault, finding) in [(false, Finding::Shown), (true, Finding::Stuck)] {
            let property = Some(Property { text: "so it is", is_fault });
            let cell = Cell::played(
                "a-way",
                "a-fault",
                "r1".to_owned(),
                Outcomes { property, ..Outcomes::default() },
                false,
            );
            assert_eq!((cell.finding, cell.text.as_str()), (finding, "so it is"));
        }
    }
}
