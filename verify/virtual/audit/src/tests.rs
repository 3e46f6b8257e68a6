//! The audit finds each difference, and none where there is none.

use std::sync::Arc;
use std::time::Instant;

use machine::{Action, Admission, Ask, Connection, Event, Kind, Ledger, Moment, Name, Outcome, Spec, Watch};
use simulation::{Request, Write};

use crate::Machine;
use crate::compare::{LATEST, compare};
use crate::record::{Entry, differences};

const NODE: &str = "/a/_c_00000000-0000-0007-0000-000000000000-lock-";
const NONCE: u64 = 7;
const GUID: u128 = (NONCE as u128) << 64;
const NAME: Name = Name { number: 3, guid: GUID, kind: Kind::Lock };

fn spec() -> Arc<Spec> {
    let queues = vec![(0, Kind::Lock)];
    Arc::new(Spec { queues, admission: Admission::First, waits: true, stall_limit: None, may_count: false })
}

fn create() -> Ask {
    Ask::Create { op: 0, guid: GUID, spec: spec(), counts: false, creates_parents: false }
}

fn watch_own() -> Ask {
    Ask::WatchOwn { op: 0, path: 0, name: NAME }
}

/// A node is created, watched and deleted: what the machine asked for and was told, and what crossed the network.
fn right() -> Vec<Entry> {
    let delete = Ask::Delete { op: 0, nodes: [(0, NAME)].into() };
    let node = format!("{NODE}{:010}", NAME.number);
    let created = Outcome::Created { names: [NAME].into(), czxid: 4, owner: Some(5), counted: None };
    let is_created =
        Write::Create { path: NODE.to_owned(), data: Vec::new(), acl: Vec::new(), flags: 3, with_stat: true };
    let is_deleted = Write::Delete { path: node.clone(), version: -1 };
    let sent = |xid, request| Entry::Sent { connection: 1, xid, request: Arc::new(request) };
    let read = |xid| Entry::Answered { connection: 1, xid, err: 0, errors: Vec::new() };
    let asked = |ask: &Ask| Entry::Asked(1, Action::Send(ask.clone()));
    let given = |ask: &Ask, outcome| {
        Entry::Given(1, Event::Answer { ask: ask.clone(), sent: Moment(1), is_stale: false, outcome })
    };
    vec![
        Entry::Connected { connection: 1, session: 5 },
        Entry::Given(1, Event::Renewed { session: 5, nonce: NONCE, created: Moment(0), timeout: 1 }),
        asked(&create()),
        sent(1, Request::Write(is_created)),
        read(1),
        given(&create(), created),
        asked(&watch_own()),
        asked(&delete),
        sent(2, Request::GetData { path: node.clone(), watch: true }),
        sent(3, Request::Write(is_deleted)),
        read(2),
        given(&watch_own(), Outcome::Stat { owner: 5 }),
        Entry::Fired { connection: 1, event: 2, path: node },
        Entry::Given(1, Event::Fired { watch: Watch::Own(0, 0, NAME), is_deleted: true }),
        read(3),
        given(&delete, Outcome::Done),
    ]
}

/// The first difference after a change. Between two entries passes a quarter of the time that an answer may take.
fn changed(change: impl FnOnce(&mut Vec<Entry>)) -> String {
    let (began, mut entries) = (Instant::now(), right());
    change(&mut entries);
    let timed: Vec<_> = (0..).zip(entries).map(|(at, entry)| (began + at * LATEST / 4, entry)).collect();
    compare(&timed).0.into_iter().next().unwrap_or_default()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(changed(|_| ()), "");
}

#[test]
fn each_difference_is_found() {
    let finds = |words: &str, change: fn(&mut Vec<Entry>)| {
        let difference = changed(change);
        assert!(difference.contains(words), "{words}: {difference}");
    };
    finds("is on the wire before", |entries| entries.swap(8, 9));
    finds("is not on the wire", |entries| drop(entries.remove(9)));
    finds("was not asked for", |entries| {
        entries.remove(5);
        entries.remove(2);
    });
    finds("has the outcome Some((Done", |entries| {
        entries[14] = Entry::Answered { connection: 1, xid: 3, err: -101, errors: Vec::new() };
    });
    finds("has the outcome Some((Unknown", |entries| {
        let Entry::Given(_, Event::Answer { outcome, .. }) = &mut entries[15] else { panic!("it is the answer") };
        *outcome = Outcome::Unknown;
    });
    // Behind the last one is time enough.
    let idle = || std::iter::repeat_n(Entry::Given(1, Event::Beat { slept: 0 }), 8);
    finds("has the outcome None", |entries| {
        entries.truncate(15);
        entries.extend(std::iter::repeat_n(Entry::Given(1, Event::Beat { slept: 0 }), 8));
    });
    assert_eq!(changed(|entries| entries.extend(idle())), "");
    finds("the machine was not told", |entries| {
        entries.remove(13);
        entries.extend(std::iter::repeat_n(Entry::Given(1, Event::Beat { slept: 0 }), 8));
    });
}

/// Plays a driver, and returns the first rule that it breaks.
fn broken(drive: impl FnOnce(&mut Machine<Ledger>, Vec<Ask>)) -> String {
    let mut machine = Machine::default();
    machine
        .handle(Moment(10), Event::Renewed { session: 5, nonce: NONCE, created: Moment(5), timeout: 2_000_000 });
    assert_eq!(machine.next_action(), None);
    machine.handle(Moment(20), Event::Acquire { op: 0, spec: spec() });
    let asks = std::iter::from_fn(|| machine.next_action()).filter_map(|action| match action {
        Action::Send(ask) => Some(ask),
        _ => None,
    });
    let asks = asks.collect();
    drive(&mut machine, asks);
    // Nothing has crossed a network, so only the rules count.
    let found = differences().0;
    found.into_iter().next().filter(|what| !what.contains("on the wire")).unwrap_or_default()
}

fn answer(ask: &Ask, sent: u64, is_stale: bool) -> Event {
    Event::Answer { ask: ask.clone(), sent: Moment(sent), is_stale, outcome: Outcome::Unknown }
}

#[test]
fn each_rule_is_kept() {
    assert_eq!(broken(|machine, asks| machine.handle(Moment(30), answer(&asks[0], 25, false))), "");
    let finds = |words: &str, drive: fn(&mut Machine<Ledger>, Vec<Ask>)| {
        let rule = broken(drive);
        assert!(rule.contains(words), "{words}: {rule}");
    };
    finds("is answered before", |machine, asks| machine.handle(Moment(30), answer(&asks[1], 25, false)));
    finds("was not asked for", |machine, _| machine.handle(Moment(30), answer(&Ask::Check, 25, false)));
    finds("is_stale: true", |machine, asks| machine.handle(Moment(30), answer(&asks[0], 25, true)));
    finds("is_stale: false", |machine, asks| {
        machine.handle(Moment(30), Event::Connection(Connection::Down));
        machine.handle(Moment(40), answer(&asks[0], 25, false));
    });
    finds("sent at", |machine, asks| machine.handle(Moment(30), answer(&asks[0], 15, false)));
    finds("was not set", |machine, _| {
        machine.handle(Moment(30), Event::Fired { watch: Watch::Own(0, 0, NAME), is_deleted: true });
    });
    finds("nothing is due", |machine, _| machine.handle(Moment(30), Event::Timeout));
    finds("has not been done", |machine, _| {
        let due = machine.next_deadline().expect("a fallback poll");
        [10_000, 20_000].into_iter().for_each(|late| machine.handle(due.plus(late), Event::Beat { slept: 0 }));
    });
    finds("has not done", |machine, _| {
        machine.handle(Moment(30), Event::Acquire { op: 1, spec: spec() });
        machine.handle(Moment(40), Event::Beat { slept: 0 });
    });
}
