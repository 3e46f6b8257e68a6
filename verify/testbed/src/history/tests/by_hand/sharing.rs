//! Readers and writers, and permits.

use super::super::super::Model;
use super::{SHARING, accepts, judge, refuses};

#[test]
fn writer_excludes_others_and_readers_do_not() {
    let script = |one: &str, other: &str| {
        format!(
            "0 a {one}; 1 a ok 10; 2 b {other}; 3 b ok 20; 4 a release; 5 a released; 6 b release; 7 b released"
        )
    };
    accepts(&SHARING, &script("share", "share"));
    let sentence = "b (token 20, +3ns to +6ns) was granted while inside: a (shared, token 10, +1ns to +4ns)";
    refuses(&SHARING, &script("share", "acquire"), sentence);
    let sentence = "b (shared, token 20, +3ns to +6ns) was granted while inside: a (token 10, +1ns to +4ns)";
    refuses(&SHARING, &script("acquire", "share"), sentence);
    assert!(!judge(&script("share", "share"), Model::FencedMutex).is_clean());
}

#[test]
fn tokens_order_readers_and_writers() {
    let script = |one: &str, other: &str| {
        format!(
            "0 a {one}; 1 a ok 10; 4 a release; 5 a released; 6 b {other}; 7 b ok 9; 8 b release; 9 b released"
        )
    };
    let why = "with a token that is not above";
    let after_reader = "was granted after a (shared, token 10, +1ns to +4ns)";
    refuses(
        &[Model::ReadWrite],
        &script("share", "acquire"),
        &format!("b (token 9, +7ns to +8ns) {after_reader}, {why}"),
    );
    let after_writer = "was granted after a (token 10, +1ns to +4ns)";
    refuses(
        &[Model::ReadWrite],
        &script("acquire", "share"),
        &format!("b (shared, token 9, +7ns to +8ns) {after_writer}, {why}"),
    );
    accepts(&SHARING, &script("share", "share"));
    accepts(&SHARING, &script("share", "acquire").replace("ok 9", "ok 11"));
    accepts(&SHARING, &script("acquire", "share").replace("ok 9", "ok 11"));
}

#[test]
fn writer_becomes_a_reader() {
    let script = |downgrade: &str, other: &str| {
        format!(
            "0 a acquire; 1 a ok 10; {downgrade}; 2 b {other}; 4 b ok 20; 6 a release; 7 a released; \
            8 b release; 9 b released"
        )
    };
    accepts(&SHARING, &script("3 a downgrade", "share"));
    let early = "b (shared, token 20, +4ns to +8ns) was granted while inside: a (token 10, +1ns to +6ns)";
    refuses(&SHARING, &script("5 a downgrade", "share"), early);
    refuses(&SHARING, &script("", "share"), early);
    let writer = "b (token 20, +4ns to +8ns) was granted while inside: a (token 10, +1ns to +6ns)";
    refuses(&SHARING, &script("3 a downgrade", "acquire"), writer);
    let old = script("3 a downgrade", "share").replace("ok 20", "ok 5");
    let sentence = "b (shared, token 5, +4ns to +8ns) was granted after a (token 10, +1ns to +6ns), \
        with a token that is not above";
    refuses(&[Model::ReadWrite], &old, sentence);
}

#[test]
fn permits_have_a_limit() {
    let script = "0 a permits 2; 1 a ok 10; 2 b permits 1; 3 b ok 9; 4 c permits 1; 5 c ok 30; 6 a release; \
        7 a released; 8 b release; 9 b released; 8 c release; 9 c released";
    accepts(&[Model::Permits(4)], script);
    let sentence = "c (permits 1, token 30, +5ns to +8ns) was granted while inside: a (permits 2, token 10, \
        +1ns to +6ns), b (permits 1, token 9, +3ns to +8ns)";
    refuses(&[Model::Permits(3)], script, sentence);
    accepts(&[Model::Permits(3)], &script.replace("5 c ok", "6 c ok"));
    refuses(
        &[Model::Permits(3)],
        "0 a permits 4; 1 a ok 1",
        "a (permits 4, token 1, from +1ns on) was granted more than the 3 there are",
    );
}
