//! Re-entry.

use super::super::super::Model;
use super::{accepts, judge, refuses};

#[test]
fn owner_re_enters_with_the_same_token() {
    let script = |token, left: &str| {
        format!(
            "0 a/x acquire; 1 a/x ok 10; 2 a/x#2 acquire; 3 a/x#2 ok {token}; 4 a/x#2 release; \
            5 a/x#2 released; {left}; 7 b/x acquire; 9 b/x ok 20"
        )
    };
    let left = "6 a/x release; 7 a/x released";
    let again = [Model::ReentrantMutex, Model::Fifo];
    accepts(&again, &script(10, left));
    let sentence = "a as x (token 15, +3ns to +4ns) entered again with another token while inside: \
        a as x (token 10, +1ns to +6ns)";
    refuses(&again, &script(15, left), sentence);
    // Without re-entry the owner is like any other contender.
    assert!(!judge(&script(10, left), Model::FencedMutex).is_clean());
    // The lock is free only after as many releases.
    let inside = "b as x (token 20, from +9ns on) was granted while inside: a as x (token 10, from +1ns on)";
    refuses(&again, &script(10, ""), inside);
}

#[test]
fn owner_is_local_to_its_process() {
    let script = |other: &str| {
        format!(
            "0 a/x acquire; 1 a/x ok 10; 2 {other} acquire; 3 {other} ok 10; 4 {other} release; 5 {other} released"
        )
    };
    accepts(&[Model::ReentrantMutex], &script("a/x#2"));
    for other in ["a/y#2", "b/x", "a#2"] {
        assert!(!judge(&script(other), Model::ReentrantMutex).is_clean(), "{other}");
    }
}

#[test]
fn owner_that_left_needs_a_new_token() {
    let script = |invoked, token| {
        format!(
            "0 a/x acquire; 1 a/x ok 10; 2 a/x release; 4 a/x released; {invoked} a/x#2 acquire; \
            6 a/x#2 ok {token}; 7 a/x#2 release; 8 a/x#2 released"
        )
    };
    let sentence = "a as x entered again at +5ns with token 10, whose hold it had left by +4ns";
    refuses(&[Model::ReentrantMutex], &script(5, 10), sentence);
    accepts(&[Model::ReentrantMutex], &script(5, 11));
    accepts(&[Model::ReentrantMutex], &script(4, 10));
}

#[test]
fn owner_loses_all_entries_at_once() {
    let script = |report: &str| {
        format!("0 a/x acquire; 1 a/x ok 10; 2 a/x#2 acquire; 3 a/x#2 ok 10; {report}; 5 b/x acquire; 7 b/x ok 20")
    };
    accepts(&[Model::ReentrantMutex], &script("6 a/x lost"));
    accepts(&[Model::ReentrantMutex], &script("6 a/x#2 release; 7 a/x#2 release-lost"));
    let sentence = "a as x entered again at +5ns (token 10), after it learned of its loss at +4ns";
    let late = "4 a/x lost; 5 a/x#3 acquire; 6 a/x#3 ok 10";
    refuses(&[Model::ReentrantMutex], &script(late), sentence);
}
