//! Every case of the table, each to its end.

use std::time::Duration;

use crate::cases::{self, Case, Expected};
use crate::explore::{Limits, explore};

/// More steps than any case has. Only they decide, on any machine.
const TO_THE_END: Limits = Limits { steps: 20_000_000, time: Duration::from_secs(600) };

/// A counterexample is found within these.
const SEARCH: Limits = Limits { steps: 1_000_000, time: Duration::from_secs(60) };

fn all() -> impl Iterator<Item = &'static Case> {
    cases::TODAY.iter().chain(cases::NEW)
}

#[test]
fn all_properties_hold_with_all_rules() {
    for case in all().filter(|case| matches!(case.expected, Expected::Holds | Expected::NotNeeded(_))) {
        let found = explore(case, TO_THE_END);
        assert!(found.complete, "{}: {}, without {:?}, was cut short", case.of, case.scenario.name, case.off);
        assert_eq!(
            found.failed.map(|(name, _)| name),
            None,
            "{} without {:?}, {}",
            case.of,
            case.off,
            case.scenario.name
        );
    }
}

#[test]
fn every_rule_that_is_needed_gives_a_counterexample_when_it_is_off() {
    for case in all().filter(|case| matches!(case.expected, Expected::Fails | Expected::Known(_))) {
        let found = explore(case, SEARCH);
        assert!(found.failed.is_some(), "{} without {:?}, {}", case.of, case.off, case.scenario.name);
    }
}
