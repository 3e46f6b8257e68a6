//! The order of the queue.

use super::super::super::Model;
use super::{FENCED, accepts, refuses};

#[test]
fn waiter_is_not_overtaken() {
    let script = |place: &str, tokens: [i64; 2]| {
        let [a, b] = tokens;
        format!(
            "0 h acquire; 1 h ok 1; 0 a acquire; {place}; 4 b acquire; 5 h release; 6 h released; 7 b ok {b}; \
            8 b release; 9 b released; 10 a ok {a}; 11 a release; 12 a released"
        )
    };
    let sentence = "b (token 10, +7ns to +8ns) overtook a (token 20, +10ns to +11ns): it asked at +4ns, \
        when the other had been in the queue since +3ns at the latest";
    refuses(&[Model::Fifo], &script("3 a enqueued", [20, 10]), sentence);
    refuses(&[Model::Fifo], &script("3 a enqueued 20", [20, 10]), sentence);
    // Places that were taken at the same time may have any order, and only the last place counts.
    for place in ["", "4 a enqueued", "3 a enqueued 2", "2 a enqueued; 5 a enqueued"] {
        accepts(&[Model::Fifo], &script(place, [20, 10]));
    }
    accepts(&FENCED[..3], &script("3 a enqueued", [20, 10]));
    // If the tokens follow the places, the grants have the wrong order.
    let sentence = "a (token 10, +10ns to +11ns) was granted after b (token 20, +7ns to +8ns), \
        with a token that is not above";
    refuses(&[Model::Fifo], &script("3 a enqueued", [10, 20]), sentence);
}

#[test]
fn waiter_that_gives_up_may_be_overtaken() {
    for end in ["9 a fail", "9 a unknown", ""] {
        let script = format!("0 a acquire; 3 a enqueued 1; 4 b acquire; 7 b ok 10; 8 b release; {end}");
        accepts(&[Model::Fifo], &script);
    }
}

#[test]
fn readers_overtake_readers_but_not_writers() {
    let script = |waiting: &str| {
        format!("0 a {waiting}; 3 a enqueued; 4 b share; 5 b ok 10; 8 b release; 9 b released; 10 a ok 20")
    };
    accepts(&[Model::Fifo], &script("share"));
    let sentence = "b (shared, token 10, +5ns to +8ns) overtook a (token 20, \
        from +10ns on): it asked at +4ns, when the other had been in the queue since +3ns at the latest";
    refuses(&[Model::Fifo], &script("acquire"), sentence);
}

#[test]
fn places_are_in_the_order_of_their_tokens() {
    // The writer may have queued before the last reader, or behind the first, but must have done both.
    let script = |asked| {
        format!(
            "0 c share; 3 c enqueued 30; 0 b acquire; 9 b enqueued 20; {asked} a share; 10 a ok 10; 11 a release; \
            12 a released; 13 b ok 20; 14 b release; 15 b released; 16 c ok 30"
        )
    };
    let sentence = "c (shared, token 30, from +16ns on) was in the queue by +3ns, before b (token 20, +13ns to +14ns), \
        whose token is not above, can have been there behind others";
    refuses(&[Model::Fifo], &script(4), sentence);
    accepts(&[Model::Fifo], &script(3));
}
