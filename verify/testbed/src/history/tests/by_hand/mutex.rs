//! At most one holder, with growing tokens.

use super::super::super::{Event, History, Model, Step};
use super::super::script::{LOCK, events};
use super::super::twin;
use super::{EXCLUSIVE, FENCED, accepts, judge, refuses, refuses_outright};

#[test]
fn one_holds_at_a_time() {
    let sentence = "b (token 20, +4ns to +8ns) was granted while inside: a (token 10, +1ns to +5ns)";
    let late =
        "0 a acquire; 1 a ok 10; 2 b acquire; 4 b ok 20; 5 a release; 6 a released; 8 b release; 9 b released";
    refuses(&EXCLUSIVE, late, sentence);
    // Its release may have happened before the grant.
    let right =
        "0 a acquire; 1 a ok 10; 2 b acquire; 3 a release; 4 b ok 20; 6 a released; 8 b release; 9 b released";
    accepts(&EXCLUSIVE, right);
}

#[test]
fn every_breach_is_reported() {
    let script = "0 a acquire; 1 a ok 10; 2 b acquire; 4 b ok 20; 5 c acquire; 6 c ok 30; 7 d acquire; 9 d ok 40";
    let [a, b, c] = ["a (token 10, from +1ns on)", "b (token 20, from +4ns on)", "c (token 30, from +6ns on)"];
    let d = "/l: d (token 40, from +9ns on) was granted while inside";
    let expected = [
        format!("/l: {b} was granted while inside: {a}"),
        format!("/l: {c} was granted while inside: {a}, {b}"),
        format!("{d}: {a}, {b}, {c}"),
    ];
    assert_eq!(judge(script, Model::FencedMutex).violations, expected);
    let more = format!("{script}; 9 e acquire; 11 e ok 50");
    let violations = judge(&more, Model::FencedMutex).violations;
    assert!(violations[3].ends_with(&format!("{a}, {b}, {c}, 1 more")), "{}", violations[3]);
}

#[test]
fn grant_that_never_ends_excludes_others() {
    let script = "0 a acquire; 1 a ok 10; 2 b acquire; 4 b ok 20";
    let sentence = "b (token 20, from +4ns on) was granted while inside: a (token 10, from +1ns on)";
    refuses(&EXCLUSIVE, script, sentence);
    // An acquire without a grant excludes nobody, wherever the history was cut.
    for cut in ["", "3 a unknown", "3 a fail", "1 a enqueued 10"] {
        accepts(&EXCLUSIVE, &format!("0 a acquire; {cut}; 2 b acquire; 4 b ok 20"));
    }
    accepts(&EXCLUSIVE, "0 a acquire; 1 a ok 10; 2 b acquire; 3 a release");
}

#[test]
fn token_grows_from_grant_to_grant() {
    let script = |token| format!("0 a acquire; 1 a ok 10; 2 a release; 3 a released; 4 b acquire; 5 b ok {token}");
    for token in [9, 10] {
        let who = format!("b (token {token}, from +5ns on)");
        let sentence =
            format!("{who} was granted after a (token 10, +1ns to +2ns), with a token that is not above");
        // In the queue, `b` also overtakes `a`, which is a second violation.
        refuses(&FENCED[..3], &script(token), &sentence);
        assert!(!judge(&script(token), Model::Fifo).is_clean());
        accepts(&[Model::Mutex], &script(token));
    }
    accepts(&FENCED, &script(11));
}

#[test]
fn tokens_order_grants_whose_order_is_not_known() {
    // It is unknown how long either held, but b was invoked after a was granted.
    let script = |invoked| {
        format!(
            "0 a acquire; 5 a ok 10; 7 a release; 8 a release-lost; {invoked} b acquire; 6 b ok 9; 7 b release"
        )
    };
    accepts(&FENCED, &script(1));
    assert!(!judge(&script(6), Model::FencedMutex).is_clean());
    assert!(!twin::explains(&events(&script(6)), Model::FencedMutex));
    // A third hold, which was in between by its token, makes the difference.
    let between = "0 r share; 1 r ok 5; 4 r release; 4 r released; 0 w acquire; 9 w ok 6; 9 w release; \
        9 w release-lost; 0 s share; 3 s ok 7; 3 s release; 3 s released";
    let why = "whose token is not above, nor those of others in between, can have ended";
    let sentence =
        format!("s (shared, token 7, +3ns to +3ns) was granted before w (token 6, granted by +9ns), {why}");
    refuses(&[Model::ReadWrite], between, &sentence);
    accepts(&[Model::ReadWrite], &between.replace("3 s", "4 s"));
}

#[test]
fn token_is_unique() {
    let script = |token| {
        format!(
            "0 a acquire; 5 a ok 10; 6 a release; 7 a release-unknown; 1 b acquire; 5 b ok {token}; 6 b release"
        )
    };
    accepts(&FENCED, &script(11));
    assert!(FENCED.iter().all(|model| !judge(&script(10), *model).is_clean()));
}

#[test]
fn only_the_holder_releases() {
    let grant = "0 a acquire; 1 a ok 10; 2 a release; 3 a released";
    for (also, sentence) in [
        ("2 b#7 release; 4 b#7 released", "b released what it did not hold, at +4ns (attempt 7)"),
        (
            "0 b acquire; 1 b fail; 2 b release; 4 b released",
            "b released what it did not hold, at +4ns (attempt 1)",
        ),
        ("4 a released", "a released twice what it held once, at +4ns (attempt 1)"),
        ("4 a acquire", "a began two acquires with the same number, at +4ns (attempt 1)"),
        ("4 b ok 3", "b was granted a lock that it had not requested, at +4ns (attempt 1)"),
        ("0 b acquire; 1 b fail; 5 b ok 20", "b was granted an acquire that had ended, at +5ns (attempt 1)"),
    ] {
        refuses_outright(
            &[Model::Mutex, Model::FencedMutex, Model::Permits(5)],
            &format!("{grant}; {also}"),
            sentence,
        );
    }
    // A failed attempt to release is not a violation.
    let attempted = format!("{grant}; 2 b#7 release; 4 b#7 release-lost");
    EXCLUSIVE.into_iter().for_each(|model| judge(&attempted, model).assert_clean());
}

#[test]
fn hold_that_was_lost_at_once_needed_room_at_one_instant() {
    // It is unknown when it was lost, but it was granted.
    let script = |invoked| {
        format!(
            "0 a acquire; 1 a ok 10; 5 a release; 6 a released; {invoked} b acquire; 4 b ok 20; 8 b release; \
            9 b release-lost"
        )
    };
    let sentence = "b (token 20, granted by +4ns) was granted while inside: a (token 10, +1ns to +5ns)";
    refuses(&EXCLUSIVE, &script(2), sentence);
    accepts(&[Model::Mutex], &script(0));
    accepts(&[Model::Mutex, Model::FencedMutex], &script(0).replace("ok 20", "ok 5"));
    assert!(!judge(&script(0), Model::FencedMutex).is_clean(), "its token is that of a later hold");
}

#[test]
fn objects_are_judged_one_by_one() {
    let mut events = events("0 a acquire; 1 a ok 10; 2 b acquire; 3 b ok 10");
    assert_eq!(History::from_events(events.clone()).judge(Model::Mutex).violations.len(), 1);
    events[2..].iter_mut().for_each(|event| event.object = "/other".into());
    History::from_events(events.clone()).judge(Model::FencedMutex).assert_clean();
    events.push(Event::new(2, "c", "/other", 0, events[0].step.clone()));
    events.push(Event::new(9, "c", "/other", 0, Step::Acquired { token: 11 }));
    let violations = History::from_events(events).judge(Model::FencedMutex).violations;
    assert_eq!(
        violations,
        ["/other: c (token 11, from +9ns on) was granted while inside: b (token 10, from +3ns on)"]
    );
    assert_ne!(LOCK, "/other");
}
