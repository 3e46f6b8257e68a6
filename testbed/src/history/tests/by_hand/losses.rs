//! What is lost, and who is told when.

use super::super::super::{History, Model, Step};
use super::super::script::events;
use super::{EXCLUSIVE, accepts, refuses};

#[test]
fn loss_is_told_before_the_next_grant() {
    let script = |told: &str| {
        format!(
            "0 a acquire; 1 a ok 10; 2 b acquire; 5 b ok 20; 6 b release; 7 b released; {told}; 8 a release; \
            9 a release-lost"
        )
    };
    let sentence = "b (token 20, +5ns to +6ns) was granted while inside: a (token 10, +1ns to +7ns)";
    refuses(&EXCLUSIVE, &script("7 a lost"), sentence);
    accepts(&EXCLUSIVE, &script("5 a lost"));
    // A process that stood still is told late.
    accepts(&EXCLUSIVE, &script("7 a lost-since 4"));
    // Who was told nothing may have been lost long ago, unless it looked.
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
    assert_eq!(lost, 2, "an acquire under way loses nothing");
}

#[test]
fn who_was_told_of_a_loss_holds_no_more() {
    let script = |told: &str, answer: &str| {
        format!("0 a acquire; 1 a ok 10; {told}; 5 a release; 6 a {answer}; 7 b acquire; 8 b ok 20")
    };
    let released = "a released in time at +5ns (token 10), told at +4ns that it was lost";
    refuses(&EXCLUSIVE, &script("4 a lost", "released"), released);
    accepts(&EXCLUSIVE, &script("4 a lost", "release-lost"));
    accepts(&EXCLUSIVE, &script("4 a lost", "release-unknown"));
    let looked = "a still held at +4ns (token 10), told at +3ns that it was lost";
    refuses(&EXCLUSIVE, &script("3 a lost; 4 a confirmed", "release-lost"), looked);
    accepts(&EXCLUSIVE, &script("3 a confirmed; 4 a lost", "release-lost"));
    // The release was on its way.
    let raced = "0 a acquire; 1 a ok 10; 4 a release; 5 a lost; 6 a released; 5 b acquire; 5 b ok 20";
    accepts(&EXCLUSIVE, raced);
}
