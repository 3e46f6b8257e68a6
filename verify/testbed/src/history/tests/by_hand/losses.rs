//! Losses, and when the holder learns of them.

use super::super::super::{History, Model, Step};
use super::super::script::events;
use super::{EXCLUSIVE, accepts, refuses};

#[test]
fn loss_is_reported_before_the_next_grant() {
    let script = |report: &str| {
        format!(
            "0 a acquire; 1 a ok 10; 2 b acquire; 5 b ok 20; 6 b release; 7 b released; {report}; 8 a release; \
            9 a release-lost"
        )
    };
    let sentence = "b (token 20, +5ns to +6ns) was granted while inside: a (token 10, +1ns to +7ns)";
    refuses(&EXCLUSIVE, &script("7 a lost"), sentence);
    accepts(&EXCLUSIVE, &script("5 a lost"));
    // A paused process learns of it late.
    accepts(&EXCLUSIVE, &script("7 a lost-since 4"));
    // A hold without a reported loss may have been lost long ago, unless it was confirmed.
    accepts(&EXCLUSIVE, &script(""));
    accepts(&EXCLUSIVE, &script("5 a confirmed"));
    let looked = "b (token 20, +5ns to +6ns) was granted while inside: a (token 10, +1ns to +6ns)";
    refuses(&EXCLUSIVE, &script("6 a confirmed"), looked);
}

#[test]
fn killed_process_lost_what_it_held() {
    let script = "0 a acquire; 1 a ok 10; 0 a#2 acquire; 2 b acquire; 5 b ok 20";
    let history = History::from_events(events(script));
    assert!(!history.judge(Model::FencedMutex).is_clean());
    let late = History::from_events(history.events());
    late.killed("a", 6);
    assert!(!late.judge(Model::FencedMutex).is_clean());
    history.killed("b", 9);
    history.killed("a", 4);
    history.judge(Model::FencedMutex).assert_clean();
    let lost = history.events().iter().filter(|event| matches!(event.step, Step::Lost { .. })).count();
    assert_eq!(lost, 2, "an acquire in progress loses nothing");
}

#[test]
fn holder_that_learned_of_a_loss_no_longer_holds() {
    let script = |report: &str, answer: &str| {
        format!("0 a acquire; 1 a ok 10; {report}; 5 a release; 6 a {answer}; 7 b acquire; 8 b ok 20")
    };
    let released = "a released in time at +5ns (token 10), after it learned of its loss at +4ns";
    refuses(&EXCLUSIVE, &script("4 a lost", "released"), released);
    accepts(&EXCLUSIVE, &script("4 a lost", "release-lost"));
    accepts(&EXCLUSIVE, &script("4 a lost", "release-unknown"));
    let looked = "a still held at +4ns (token 10), after it learned of its loss at +3ns";
    refuses(&EXCLUSIVE, &script("3 a lost; 4 a confirmed", "release-lost"), looked);
    accepts(&EXCLUSIVE, &script("3 a confirmed; 4 a lost", "release-lost"));
    // The release was already in progress.
    let raced = "0 a acquire; 1 a ok 10; 4 a release; 5 a lost; 6 a released; 5 b acquire; 5 b ok 20";
    accepts(&EXCLUSIVE, raced);
}
