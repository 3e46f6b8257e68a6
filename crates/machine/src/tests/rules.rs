//! A unit test for each rule whose removal breaks no case of `verify/explore`, and few or no histories.
//! `verify/explore/rules` leaves out one rule at a time.

use crate::tests::{NOW, Session, T, WRITER, created, owned};
use crate::{
    Action, Admission, Ask, Change, Connection, Counted, End, Event, HoldState, Identity, Kind, Life, Loss, Name,
    Op, Outcome, Phase, Position, Timer, Trust, Watch, WatchState, turn_of,
};

const FIRST: Op = WRITER;
const SECOND: Op = 2;

/// A node of another session.
fn foreign(number: i32) -> Name {
    Name { number, guid: 4, kind: Kind::Lock }
}

fn listing(names: &[Name]) -> Outcome {
    Outcome::Names { names: names.into(), other_children: 0, has_no_data: true }
}

/// Returns the first of these requests that is wanted.
fn one(sent: &[Ask], is_wanted: impl Fn(&Ask) -> bool) -> Ask {
    sent.iter().find(|ask| is_wanted(ask)).unwrap_or_else(|| panic!("{sent:?}")).clone()
}

fn list(sent: &[Ask]) -> Ask {
    one(sent, |ask| matches!(ask, Ask::List { .. }))
}

fn identify(sent: &[Ask]) -> Ask {
    one(sent, |ask| *ask == Ask::ListOwn)
}

impl Session {
    /// Starts an acquisition, and creates its node. Returns the name, and the requests that were sent after the create.
    fn enter(&mut self, op: Op, kind: Kind, number: i32) -> (Name, Vec<Ask>) {
        let mut sent = self.acquire(op, &[(0, kind)], Admission::First, true);
        let create = sent.remove(0);
        let Ask::Create { guid, .. } = create else { panic!("{create:?}") };
        let name = Name { number, guid, kind };
        sent.extend(self.answer(&create, created(name, Some(7))));
        (name, sent)
    }

    fn answer_late(&mut self, ask: &Ask, outcome: Outcome) -> Vec<Ask> {
        self.handle(Event::Answer { ask: ask.clone(), sent: self.1, is_stale: true, outcome })
    }

    fn reconnect(&mut self) -> Vec<Ask> {
        self.handle(Event::Connection(Connection::Down));
        self.handle(Event::Connection(Connection::Up { since: NOW }))
    }

    fn fire(&mut self, watch: Watch) -> Vec<Ask> {
        self.handle(Event::Fired { watch, is_deleted: true })
    }

    /// Starts a mutex that an old listing shows as first. Returns the request that confirms its node.
    fn confirm(&mut self) -> Ask {
        let (own, sent) = self.enter(FIRST, Kind::Lock, 3);
        let (ask, outcome) = (list(&sent), listing(&[own]));
        self.1 = NOW.plus(T / 4);
        let sent = self.handle(Event::Answer { ask, sent: NOW, is_stale: false, outcome });
        one(&sent, |ask| matches!(ask, Ask::Confirm { .. }))
    }

    /// Grants a write lock and starts its downgrade. Returns the names of writer and reader, and the request.
    fn start_downgrade(&mut self) -> (Name, Name, Ask) {
        let writer = self.hold();
        let sent = self.handle(Event::Downgrade(FIRST));
        let Ask::Replace { guid, .. } = sent[0] else { panic!("{sent:?}") };
        (writer, writer.reader(guid), sent[0].clone())
    }

    /// Loses the request of a downgrade with the connection. Returns what is sent after the reconnect, and the second
    /// attempt.
    fn lose_downgrade(&mut self, replace: &Ask) -> (Vec<Ask>, Ask) {
        self.handle(Event::Connection(Connection::Down));
        self.answer(replace, Outcome::Unknown);
        let sent = self.handle(Event::Connection(Connection::Up { since: NOW }));
        let again = one(&sent, |ask| matches!(ask, Ask::Replace { .. }));
        (sent, again)
    }

    fn stage_of(&self, op: Op) -> Phase {
        self.0.op(op).expect("it is there").phase
    }

    fn position(&self, op: Op) -> Position {
        self.0.op(op).expect("it is there").queues[0].position
    }
}

/// The node of the lost create may be there until the path may be read again.
#[test]
fn search_that_is_refused_is_repeated() {
    let mut session = Session::new();
    let lost = session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, true);
    session.handle(Event::Connection(Connection::Down));
    lost.iter().for_each(|ask| drop(session.answer(ask, Outcome::Unknown)));
    let sent = session.handle(Event::Connection(Connection::Up { since: NOW }));
    session.answer(&list(&sent), Outcome::Refused);
    assert_eq!(session.0.op(FIRST).map(|op| op.phase), Some(Phase::Over(End::Refused)));
    assert!(!session.0.is_clean(), "a close would leave it");
    let sent = session.handle(Event::Timer(Timer::SearchAgain(0)));
    let Ask::Create { guid, .. } = lost[0] else { panic!("{lost:?}") };
    let left = Name { number: 1, guid, kind: Kind::Lock };
    let sent = session.answer(&list(&sent), listing(&[left]));
    one(&sent, |ask| matches!(ask, Ask::Delete { .. }));
}

/// Otherwise such paths would pile up during an outage, if each call has a path of its own.
#[test]
fn paths_of_calls_that_end_before_the_next_session_are_forgotten() {
    let mut session = Session::new();
    session.handle(Event::Connection(Connection::Down));
    session.handle(Event::Connection(Connection::Expired));
    session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, true);
    session.handle(Event::Abandon(FIRST));
    let due = session.0.next_deadline().expect("a fallback poll");
    session.0.timeout(due);
    assert!(session.0.paths.is_empty());
}

/// An earlier listing may show the path without data, and another client may have written data since.
#[test]
fn listing_over_another_connection_is_not_judged() {
    let mut session = Session::new();
    let (own, sent) = session.enter(FIRST, Kind::Lock, 3);
    session.reconnect();
    session.answer_late(&list(&sent), listing(&[own]));
    assert!(!session.0.paths[&0].has_no_data, "a create would write the data of the path");
    assert_eq!(session.position(FIRST), Position::Unknown);
}

/// The watch may have fired since.
#[test]
fn watch_on_a_path_that_came_over_another_connection_is_not_counted_on() {
    let mut session = Session::new();
    let admission = Admission::Permits { limit: 1, turn: None };
    let sent = session.acquire(FIRST, &[(0, Kind::Lease)], admission, true);
    let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
    let own = Name { number: 3, guid, kind: Kind::Lease };
    let names = [Name { kind: Kind::Lease, ..foreign(1) }, own];
    session.answer(&sent[0], created(own, Some(7)));
    let watching = session.answer(&sent[1], listing(&names));
    assert_eq!(watching, [Ask::List { op: FIRST, path: 0, watches: true }]);
    session.reconnect();
    session.answer_late(&watching[0], listing(&names));
    assert_eq!(session.0.paths[&0].watch, WatchState::Unset);
}

/// The next node of that acquisition will be behind its followers.
#[test]
fn those_that_follow_the_node_of_a_lost_create_look() {
    let mut session = Session::new();
    let sent = session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, true);
    let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
    let (own, _) = session.enter(SECOND, Kind::Lock, 2);
    let next = session.answer(&sent[1], Outcome::NoNode);
    session.answer(&list(&next), listing(&[Name { number: 1, guid, kind: Kind::Lock }, own]));
    assert_eq!(session.position(SECOND), Position::Following(FIRST));
    session.handle(Event::Connection(Connection::Down));
    session.answer(&sent[0], Outcome::Unknown);
    assert_eq!(session.position(SECOND), Position::Unknown);
}

#[test]
fn permits_granted_by_count_overtake_no_turn() {
    for (turns, stage) in [(0, Phase::Held), (1, Phase::Turning)] {
        let mut session = Session::new();
        for path in [0, 1] {
            session.0.paths.entry(path).or_default().has_no_data = true;
        }
        let admission = Admission::Permits { limit: 3, turn: Some(1) };
        let sent = session.acquire(FIRST, &[(0, Kind::Lease)], admission, true);
        let [create @ Ask::Create { guid, counts: true, .. }] = sent.as_slice() else { panic!("{sent:?}") };
        let names = [Name { number: 3, guid: *guid, kind: Kind::Lease }].into();
        let counted = Some(Counted { others: 0, turns });
        session.answer(create, Outcome::Created { names, czxid: 5, owner: Some(7), counted });
        assert_eq!(session.stage_of(FIRST), stage);
    }
}

#[test]
fn caller_that_does_not_queue_looks_before_it_writes() {
    let mut session = Session::new();
    let sent = session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, false);
    assert!(matches!(sent.as_slice(), [Ask::List { .. }]), "{sent:?}");
    session.answer(&sent[0], listing(&[foreign(1)]));
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Contended));
}

/// The node may have been deleted by hand since the listing.
/// Otherwise the waiter would learn of it from the next listing of its own nodes.
#[test]
fn waiter_that_a_listing_does_not_show_asks_a_quorum_at_once() {
    let mut session = Session::new();
    let sent = session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, true);
    let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
    let own = Name { number: 3, guid, kind: Kind::Lock };
    session.answer(&sent[0], created(own, Some(7)));
    let sent = session.answer(&list(&sent), listing(&[foreign(1)]));
    let confirm = one(&sent, |ask| matches!(ask, Ask::Confirm { .. }));
    session.answer(&confirm, Outcome::NoNode);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Evicted));
}

#[test]
fn grant_by_a_listing_is_recent() {
    for (late, holds) in [(0, true), (T / 4, false)] {
        let mut session = Session::new();
        let (own, sent) = session.enter(FIRST, Kind::Lock, 3);
        let (ask, outcome) = (list(&sent), listing(&[own]));
        session.1 = NOW.plus(late);
        session.handle(Event::Answer { ask, sent: NOW, is_stale: false, outcome });
        assert_eq!(session.stage_of(FIRST) == Phase::Held, holds);
    }
}

/// The node may have been deleted by hand after the confirm, before the reconnect.
#[test]
fn proof_is_of_this_connection() {
    let mut session = Session::new();
    let proof = session.confirm();
    session.reconnect();
    session.answer_late(&proof, Outcome::Done);
    assert!(matches!(session.stage_of(FIRST), Phase::Confirming { .. }));
}

#[test]
fn sign_that_a_node_is_gone_stops_a_proof() {
    let mut session = Session::new();
    let proof = session.confirm();
    let Ask::Confirm { nodes, .. } = &proof else { panic!("{proof:?}") };
    session.fire(Watch::Own(FIRST, 0, nodes[0].1));
    session.answer(&proof, Outcome::Done);
    assert_ne!(session.stage_of(FIRST), Phase::Held, "it was asked before the deletion");
}

#[test]
fn abandoned_nodes_are_no_predecessors() {
    let mut session = Session::new();
    let (own, sent) = session.enter(FIRST, Kind::Lock, 3);
    let abandoned = Name { number: 1, guid: 9 << 64 | u128::from(SECOND) << 32, kind: Kind::Lock };
    let sent = session.answer(&list(&sent), listing(&[abandoned, own]));
    assert_eq!(session.stage_of(FIRST), Phase::Held);
    assert!(matches!(sent.as_slice(), [Ask::Delete { .. }]), "{sent:?}");
}

/// Nodes of one session are deleted in no particular order when the session ends.
#[test]
fn turn_by_deletion_is_of_another_session() {
    for (owner, holds) in [(8, true), (7, false)] {
        let mut session = Session::new();
        let (own, sent) = session.enter(FIRST, Kind::Lock, 3);
        let watches = session.answer(&list(&sent), listing(&[foreign(1), own]));
        assert_eq!(watches.len(), 2, "on the predecessor, and on its own node: {watches:?}");
        watches.iter().for_each(|ask| drop(session.answer(ask, Outcome::Stat { owner })));
        let sent = session.fire(Watch::Predecessor(FIRST, 0, foreign(1)));
        assert_eq!((session.stage_of(FIRST) == Phase::Held, sent.is_empty()), (holds, holds), "{sent:?}");
    }
}

/// After a reconnect, the event of the predecessor may come before the event of a contender ahead of it, or of the own node.
#[test]
fn turn_by_deletion_is_of_this_connection() {
    for is_reconnected in [false, true] {
        let mut session = Session::new();
        let (own, sent) = session.enter(FIRST, Kind::Lock, 3);
        let watches = session.answer(&list(&sent), listing(&[foreign(1), own]));
        watches.iter().for_each(|ask| drop(session.answer(ask, Outcome::Stat { owner: 8 })));
        if is_reconnected {
            session.reconnect();
        }
        let sent = session.fire(Watch::Predecessor(FIRST, 0, foreign(1)));
        assert_eq!(session.stage_of(FIRST) == Phase::Held, !is_reconnected);
        assert_eq!(sent.iter().any(|ask| matches!(ask, Ask::List { .. })), is_reconnected, "{sent:?}");
    }
}

/// Without a connection, no delete is sent, and no event comes from the follower's node.
#[test]
fn hand_over_needs_a_connection() {
    for (is_up, stage) in [(true, Phase::Held), (false, Phase::Waiting)] {
        let mut session = Session::new();
        let holder = session.hold();
        let (own, sent) = session.enter(SECOND, Kind::Write, 4);
        let watches = session.answer(&list(&sent), listing(&[holder, own]));
        let own = one(&watches, |ask| matches!(ask, Ask::WatchOwn { op: SECOND, .. }));
        session.answer(&own, Outcome::Stat { owner: 7 });
        if !is_up {
            session.handle(Event::Connection(Connection::Down));
        }
        session.handle(Event::Release(FIRST));
        assert_eq!(session.stage_of(SECOND), stage);
    }
}

/// Its state was already a loss before the release.
#[test]
fn release_without_trust_is_a_loss() {
    let mut session = Session::new();
    session.hold();
    session.1 = NOW.plus(T);
    session.handle(Event::Release(FIRST));
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::TrustEnded)));
}

/// The first delete was lost, so the node may have been deleted with the session.
#[test]
fn release_whose_node_is_gone_without_trust_is_a_loss() {
    let mut session = Session::new();
    let name = session.hold();
    let delete = session.handle(Event::Release(FIRST)).remove(0);
    session.handle(Event::Connection(Connection::Down));
    session.answer(&delete, Outcome::Unknown);
    session.handle(Event::Connection(Connection::Up { since: NOW }));
    session.1 = NOW.plus(T);
    session.answer(&Ask::Delete { op: FIRST, nodes: [(0, name)].into() }, Outcome::NoNode);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::TrustEnded)));
}

#[test]
fn release_ends_with_its_last_node() {
    let mut session = Session::new();
    let sent = session.acquire(FIRST, &[(0, Kind::Lock), (1, Kind::Lock)], Admission::First, true);
    let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
    let own = Name { number: 3, guid, kind: Kind::Lock };
    let names = [own, Name { guid: guid + 1, ..own }];
    let outcome = Outcome::Created { names: names.into(), czxid: 5, owner: Some(7), counted: None };
    session.answer(&sent[0], outcome);
    session.answer(&sent[1], listing(&names[..1]));
    let sent = session.answer(&sent[2], listing(&names[1..]));
    session.answer(&one(&sent, |ask| matches!(ask, Ask::Confirm { .. })), Outcome::Done);
    assert_eq!(session.stage_of(FIRST), Phase::Held);
    let together = session.handle(Event::Release(FIRST));
    let one_by_one = session.answer(&together[0], Outcome::Refused);
    let [first, second] = one_by_one.as_slice() else { panic!("{one_by_one:?}") };
    session.answer(first, Outcome::Done);
    assert_eq!(session.stage_of(FIRST), Phase::Releasing);
    session.answer(second, Outcome::Done);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Released));
}

/// A hold that is lost stays lost, even if trust is renewed.
#[test]
fn end_of_trust_ends_holds() {
    let mut session = Session::new();
    session.hold();
    session.1 = NOW.plus(T);
    session.handle(Event::Timer(Timer::TrustEnds));
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::TrustEnded)));
}

#[test]
fn state_of_a_hold_is_computed() {
    let mut session = Session::new();
    session.hold();
    assert_eq!(session.0.state(NOW.plus(T), FIRST), Some(HoldState::Lost(Loss::TrustEnded)), "no timer has fired");
}

/// Returns whether an answer in the middle of the timeout renews trust. `before`: changes the connection first.
fn renews(ask: Ask, before: impl Fn(&mut Session), is_stale: bool, outcome: Outcome) -> bool {
    let mut session = Session::new();
    session.hold();
    // The process is seen running.
    for step in 1..=38 {
        session.1 = NOW.plus(T / 64 * step);
        session.0.trust.beat(session.1, 0, true);
    }
    before(&mut session);
    let until = session.0.trust.until();
    session.handle(Event::Answer { ask, sent: session.1, is_stale, outcome });
    session.0.trust.until() > until
}

#[test]
fn answer_over_another_connection_is_no_proof() {
    assert!(renews(Ask::Check, |_| (), false, Outcome::Done));
    assert!(!renews(Ask::Check, |_| (), true, Outcome::Done));
}

/// One server may refuse a write without a quorum.
#[test]
fn refused_write_is_no_proof() {
    for outcome in
        [Outcome::Refused, Outcome::NoNode, Outcome::Exists, Outcome::UnknownError, Outcome::DataRefused]
    {
        assert!(!renews(Ask::Check, |_| (), false, outcome));
    }
}

/// A refusal by the driver is no answer of a server. The driver lacked budget for the watch, or the node's name.
#[test]
fn word_of_the_driver_is_no_answer() {
    let (path, name) = (0, foreign(1));
    let watch = Ask::Watch { op: FIRST, path, name };
    let own = Ask::WatchOwn { op: FIRST, path, name };
    let refusals = [(&watch, Outcome::Refused), (&watch, Outcome::NoNode), (&own, Outcome::Refused)];
    let mut session = Session::new();
    session.hold();
    session.1 = NOW.plus(T / 3);
    let before = session.0.trust.clone();
    for (ask, outcome) in refusals {
        session.answer(ask, outcome);
        assert_eq!(session.0.trust, before, "{ask:?}");
    }
    session.answer(&watch, Outcome::Stat { owner: 1 });
    assert_ne!(session.0.trust, before, "a server has answered");
}

#[test]
fn read_is_no_proof() {
    assert!(!renews(Ask::Read, |_| (), false, Outcome::Done));
}

#[test]
fn no_answer_is_a_proof_before_the_connection_is_known_to_be_ours() {
    let unknown = |session: &mut Session| drop(session.reconnect());
    assert!(!renews(Ask::Check, unknown, false, Outcome::Done));
    let known = |session: &mut Session| {
        let sent = session.reconnect();
        let nodes = session.0.op(FIRST).expect("it is there").nodes();
        session.answer(&identify(&sent), owned(&nodes.iter().map(|(_, name)| *name).collect::<Vec<_>>()));
    };
    assert!(renews(Ask::Check, known, false, Outcome::Done));
}

#[test]
fn connection_that_another_session_answers_ends_the_session() {
    let mut session = Session::new();
    session.hold();
    let ask = identify(&session.reconnect());
    let sent = session.answer(&ask, owned(&[]));
    let ask = one(&sent, |ask| matches!(ask, Ask::Confirm { .. }));
    session.0.handle(NOW, Event::Answer { ask, sent: NOW, is_stale: false, outcome: Outcome::Done });
    assert!(session.0.out.drain(..).any(|action| action == Action::Replace));
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::Expired)));
}

/// The node may have been deleted by hand between the confirm and the listing.
#[test]
fn proof_that_was_sent_before_a_node_was_missing_ends_no_session() {
    let mut session = Session::new();
    session.hold();
    let sent = session.reconnect();
    let nodes = session.0.op(FIRST).expect("it is there").nodes();
    let old = Ask::Confirm { op: FIRST, nodes };
    session.1 = NOW.plus(10);
    session.answer(&identify(&sent), owned(&[]));
    let early = Event::Answer { ask: old.clone(), sent: NOW, is_stale: false, outcome: Outcome::Done };
    assert_eq!(session.handle(early), std::slice::from_ref(&old), "it is asked for again");
    session.answer(&old, Outcome::NoNode);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::Deleted)));
}

/// The answer to a create came over the earlier connection. It is read after the new connection's listing of our nodes
/// was sent.
#[test]
fn connection_is_asked_for_by_a_node_that_is_known_late() {
    for is_answered_before in [true, false] {
        let mut session = Session::new();
        let create = session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, true).remove(0);
        let Ask::Create { guid, .. } = create else { panic!("{create:?}") };
        let own = Name { number: 3, guid, kind: Kind::Lock };
        let root = identify(&session.reconnect());
        let late = |session: &mut Session| session.answer_late(&create, created(own, Some(7)));
        let sent = if is_answered_before {
            let until = session.0.trust.until();
            session.1 = NOW.plus(T / 4);
            session.answer(&root, owned(&[]));
            session.1 = NOW.plus(T);
            session.answer(&Ask::Check, Outcome::Done);
            assert_eq!(session.0.trust.until(), until, "no proof for a node that is known later");
            late(&mut session)
        } else {
            late(&mut session);
            session.answer(&root, owned(&[]))
        };
        assert_eq!(identify(&sent), Ask::ListOwn);
    }
}

#[test]
fn lost_question_whose_connection_it_is_is_asked_again() {
    let mut session = Session::new();
    session.hold();
    let ask = identify(&session.reconnect());
    session.answer(&ask, Outcome::Unknown);
    assert_eq!(identify(&session.handle(Event::Timer(Timer::Resume))), ask);
    assert_ne!(session.0.identity, Identity::Known);
}

#[test]
fn downgrade_finds_the_reader_of_its_first_attempt() {
    let mut session = Session::new();
    let (_, reader, lost) = session.start_downgrade();
    let (_, again) = session.lose_downgrade(&lost);
    session.answer(&again, Outcome::Exists);
    assert_eq!(session.stage_of(FIRST), Phase::Held);
    assert_eq!(session.0.op(FIRST).expect("it is there").queues[0].name, Some(reader));
}

#[test]
fn reader_of_a_lost_downgrade_is_looked_for() {
    let mut session = Session::new();
    let (_, reader, lost) = session.start_downgrade();
    let (sent, again) = session.lose_downgrade(&lost);
    // The reader's node is found while it is still wanted.
    session.answer(&list(&sent), listing(&[reader]));
    session.handle(Event::Timer(Timer::Stall(FIRST)));
    session.answer(&again, Outcome::Refused);
    let sent = session.handle(Event::Timer(Timer::Resume));
    let sent = session.answer(&list(&sent), listing(&[reader]));
    assert_eq!(sent, [Ask::Delete { op: FIRST, nodes: [(0, reader)].into() }]);
}

/// The first attempt may have been done. Then the reader's node is about to be deleted as one of nobody, so this is no hold.
#[test]
fn downgrade_that_is_refused_after_a_lost_attempt_is_confirmed_by_a_quorum() {
    let mut session = Session::new();
    let (_, _, lost) = session.start_downgrade();
    let (_, again) = session.lose_downgrade(&lost);
    let sent = session.answer(&again, Outcome::Refused);
    let confirm = one(&sent, |ask| matches!(ask, Ask::Confirm { .. }));
    session.answer(&confirm, Outcome::NoNode);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::Deleted)));
}

#[test]
fn deletion_of_the_writer_by_its_downgrade_is_no_loss() {
    let mut session = Session::new();
    let (writer, reader, replace) = session.start_downgrade();
    session.handle(Event::WatchForLoss(FIRST)).iter().for_each(|ask| {
        session.answer(ask, Outcome::Stat { owner: 7 });
    });
    session.fire(Watch::Own(FIRST, 0, writer));
    assert_eq!(session.stage_of(FIRST), Phase::Held);
    session.answer(&replace, created(reader, Some(7)));
    assert_eq!(session.0.state(NOW, FIRST), Some(HoldState::Held));
    assert_eq!(session.0.op(FIRST).expect("it is there").change, Change::None);
}

/// The writer in an older listing is now the reader, and no orphan.
#[test]
fn listing_from_before_a_downgrade_shows_its_reader() {
    let mut session = Session::new();
    let (writer, reader, replace) = session.start_downgrade();
    let (next, sent) = session.enter(SECOND, Kind::Write, 4);
    session.answer(&replace, created(reader, Some(7)));
    session.answer(&list(&sent), listing(&[writer, next]));
    assert_eq!(session.position(SECOND), Position::Following(FIRST));
}

/// A reader that followed the writer's node would not be listed again before the first reader is released.
#[test]
fn reader_does_not_follow_a_writer_that_has_become_a_reader() {
    let mut session = Session::new();
    let (writer, reader, replace) = session.start_downgrade();
    let (next, sent) = session.enter(SECOND, Kind::Read, 4);
    session.answer(&replace, created(reader, Some(7)));
    session.answer(&list(&sent), listing(&[writer, next]));
    assert_eq!(session.stage_of(SECOND), Phase::Held);
}

/// The answer to the downgrade decides what becomes of the reader's node, and the release ends with it.
#[test]
fn reader_of_a_downgrade_under_way_is_not_abandoned() {
    let mut session = Session::new();
    let (_, reader, replace) = session.start_downgrade();
    let (next, sent) = session.enter(SECOND, Kind::Write, 4);
    let writer = one(&session.handle(Event::Release(FIRST)), |ask| matches!(ask, Ask::Delete { .. }));
    session.answer(&list(&sent), listing(&[reader, next]));
    let delete = session.answer(&replace, created(reader, Some(7)));
    assert_eq!(delete, [Ask::Delete { op: FIRST, nodes: [(0, reader)].into() }]);
    session.answer(&writer, Outcome::NoNode);
    assert_eq!(session.stage_of(FIRST), Phase::Releasing, "the reader is there");
    session.answer(&delete[0], Outcome::Done);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Released));
}

/// The first attempt has deleted the writer's node.
#[test]
fn connection_is_known_by_the_reader_of_a_lost_downgrade() {
    let mut session = Session::new();
    let (_, reader, lost) = session.start_downgrade();
    let (sent, again) = session.lose_downgrade(&lost);
    session.answer(&identify(&sent), owned(&[reader]));
    assert_eq!(session.0.identity, Identity::Known);
    session.answer(&again, Outcome::Exists);
    assert_eq!(session.stage_of(FIRST), Phase::Held);
}

/// Another client may have written data since.
#[test]
fn count_over_another_connection_does_not_show_that_the_path_is_empty() {
    let mut session = Session::new();
    session.0.paths.entry(0).or_default().has_no_data = true;
    let sent = session.acquire(FIRST, &[(0, Kind::Lock)], Admission::First, true);
    let [create @ Ask::Create { guid, counts: true, .. }] = sent.as_slice() else { panic!("{sent:?}") };
    session.reconnect();
    let names = [Name { number: 3, guid: *guid, kind: Kind::Lock }].into();
    let counted = Some(Counted { others: 0, turns: 0 });
    session.answer_late(create, Outcome::Created { names, czxid: 5, owner: Some(7), counted });
    assert!(!session.0.paths[&0].has_no_data);
}

/// The follower's node may have been deleted by hand since.
#[test]
fn hand_over_waits_for_no_answer_of_a_lost_connection() {
    let mut session = Session::new();
    let holder = session.hold();
    let (own, sent) = session.enter(SECOND, Kind::Write, 4);
    let watches = session.answer(&list(&sent), listing(&[holder, own]));
    let own = one(&watches, |ask| matches!(ask, Ask::WatchOwn { op: SECOND, .. }));
    session.handle(Event::Release(FIRST));
    assert_eq!(session.position(SECOND), Position::HandedOver);
    session.reconnect();
    session.answer_late(&own, Outcome::Stat { owner: 7 });
    assert_ne!(session.stage_of(SECOND), Phase::Held);
}

#[test]
fn reader_of_a_downgrade_with_an_odd_answer_is_looked_for() {
    for is_released in [false, true] {
        let mut session = Session::new();
        let (_, _, replace) = session.start_downgrade();
        if is_released {
            session.handle(Event::Release(FIRST));
        }
        session.answer(&replace, Outcome::UnknownError);
        assert!(!session.0.paths[&0].is_clean());
    }
}

/// Starts a semaphore's caller that has its turn. Returns the name of the turn's node, and what is sent for the permits.
fn in_turn(session: &mut Session) -> (Name, Vec<Ask>) {
    let admission = Admission::Permits { limit: 1, turn: Some(1) };
    let sent = session.acquire(FIRST, &[(0, Kind::Lease)], admission, true);
    let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
    let own = Name { number: 3, guid, kind: Kind::Lock };
    session.answer(&sent[0], created(own, Some(7)));
    let permits = session.answer(&sent[1], listing(&[own]));
    (own, permits)
}

#[test]
fn turn_of_a_semaphore_does_not_keep_a_drained_session_open() {
    let mut session = Session::new();
    let (_, permits) = in_turn(&mut session);
    assert_eq!((session.stage_of(turn_of(FIRST)), session.stage_of(FIRST)), (Phase::Held, Phase::Creating));
    let sent = session.handle(Event::Drain);
    assert!(matches!(sent.as_slice(), [Ask::Delete { .. }]), "{sent:?}");
    session.answer(&sent[0], Outcome::Done);
    session.answer(&permits[0], Outcome::Refused);
    assert_eq!(session.0.life, Life::Over);
}

/// Other callers wait behind the turn, also if its own caller is not polled.
#[test]
fn turn_is_given_up_when_its_caller_ends() {
    let mut session = Session::new();
    let (turn, permits) = in_turn(&mut session);
    let sent = session.answer(&permits[0], Outcome::Refused);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Refused));
    assert!(matches!(sent.as_slice(), [Ask::Delete { nodes, .. }] if nodes[..] == [(1, turn)]), "{sent:?}");
}

/// Other callers may get permits while these are held.
#[test]
fn turn_is_given_up_when_the_permits_are_held() {
    let mut session = Session::new();
    let (turn, permits) = in_turn(&mut session);
    let (Ask::Create { guid, .. }, look) = (&permits[0], list(&permits)) else { panic!("{permits:?}") };
    let own = Name { number: 4, guid: *guid, kind: Kind::Lease };
    let mut sent = session.answer(&permits[0], created(own, Some(7)));
    sent.extend(session.answer(&look, listing(&[own])));
    assert_eq!(session.stage_of(FIRST), Phase::Held);
    let is_turn = |ask: &Ask| matches!(ask, Ask::Delete { nodes, .. } if nodes[..] == [(1, turn)]);
    assert!(sent.iter().any(is_turn), "{sent:?}");
}

/// It queues for its turn again, behind the callers that have queued meanwhile.
#[test]
fn caller_has_no_turn_after_the_end_of_its_session() {
    let mut session = Session::new();
    in_turn(&mut session);
    session.handle(Event::Connection(Connection::Expired));
    let sent = session.handle(Event::Renewed { session: 8, nonce: 10, created: NOW, timeout: T });
    let is_turn = |ask: &Ask| matches!(ask, Ask::Create { spec, .. } if spec.queues == [(1, Kind::Lock)]);
    assert!(sent.iter().any(is_turn) && session.stage_of(FIRST) == Phase::Turning, "{sent:?}");
}

/// Only a server of another kind refuses it.
#[test]
fn refused_listing_of_the_own_nodes_ends_the_session() {
    let mut session = Session::new();
    session.hold();
    let ask = identify(&session.reconnect());
    session.0.handle(NOW, Event::Answer { ask, sent: NOW, is_stale: false, outcome: Outcome::Refused });
    assert!(session.0.out.drain(..).any(|action| action == Action::Replace));
}

#[test]
fn downgrade_that_is_refused_again_and_again_does_not_run_out_of_numbers() {
    let mut session = Session::new();
    session.hold();
    for _ in 0..=u16::MAX {
        let sent = session.handle(Event::Downgrade(FIRST));
        session.answer(&sent[0], Outcome::Refused);
    }
    assert_eq!(session.stage_of(FIRST), Phase::Held);
}

/// The ACLs may permit the delete later. Other nodes of the session are not affected.
#[test]
fn refused_delete_is_tried_again_at_slow_looks_and_at_the_close() {
    let mut session = Session::new();
    session.hold();
    let sent = session.handle(Event::Release(FIRST));
    session.answer(&sent[0], Outcome::Refused);
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Refused));
    session.handle(Event::Abandon(FIRST));
    let is_delete = |ask: &Ask| matches!(ask, Ask::Delete { .. });
    for _ in 0..2 {
        let sent = session.handle(Event::Timer(Timer::FallbackPoll));
        let delete = one(&sent, is_delete);
        let sent = session.handle(Event::Timer(Timer::FallbackPoll));
        assert!(!sent.iter().any(is_delete), "one at a time: {sent:?}");
        session.answer(&delete, Outcome::Refused);
    }
    let delete = one(&session.handle(Event::Close), is_delete);
    assert_ne!(session.0.life, Life::Over);
    session.answer(&delete, Outcome::Done);
    assert_eq!(session.0.life, Life::Over);
    assert!(session.0.refused.is_empty());
}

#[test]
fn close_whose_delete_is_refused_is_not_clean() {
    for (outcome, is_clean) in [(Outcome::Done, true), (Outcome::Refused, false)] {
        let mut session = Session::new();
        session.hold();
        let ask = one(&session.handle(Event::Close), |ask| matches!(ask, Ask::Delete { .. }));
        session.0.handle(NOW, Event::Answer { ask, sent: NOW, is_stale: false, outcome });
        assert!(session.0.out.drain(..).any(|action| action == Action::End { is_clean }));
    }
}

#[test]
fn refused_delete_is_not_tried_again_once_the_node_is_gone_or_the_session_over() {
    for is_expired in [false, true] {
        let mut session = Session::new();
        session.hold();
        let sent = session.handle(Event::Release(FIRST));
        session.answer(&sent[0], Outcome::Refused);
        session.handle(Event::Abandon(FIRST));
        if is_expired {
            session.handle(Event::Connection(Connection::Expired));
        } else {
            let sent = session.handle(Event::Timer(Timer::FallbackPoll));
            session.answer(&one(&sent, |ask| matches!(ask, Ask::Delete { .. })), Outcome::NoNode);
        }
        assert!(session.0.refused.is_empty());
    }
}

/// The limit begins at the grant, also if the caller does not look at its lock for a while.
#[test]
fn hold_ends_at_its_limit() {
    let mut session = Session::new();
    session.hold();
    let limit = NOW.plus(3 * T);
    assert!(
        session.0.is_due(Timer::Stall(FIRST), limit) && !session.0.is_due(Timer::Stall(FIRST), limit.minus(1))
    );
    session.handle(Event::Timer(Timer::Stall(FIRST)));
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::Stalled)));
}

#[test]
fn progress_begins_the_limit_again() {
    let mut session = Session::new();
    session.hold();
    session.0.handle(NOW.plus(2 * T), Event::Progress(FIRST));
    let limit = NOW.plus(5 * T);
    assert!(
        session.0.is_due(Timer::Stall(FIRST), limit) && !session.0.is_due(Timer::Stall(FIRST), limit.minus(1))
    );
}

/// A paused process cannot move its work.
#[test]
fn limit_that_passes_in_a_pause_is_extended() {
    let mut session = Session::new();
    session.hold();
    // Trust would end before.
    session.0.trust = crate::Ledger::new(100 * T, Some(NOW), NOW);
    let first_look = NOW.plus(3 * T + T / 64 + 1);
    assert_eq!(session.0.state(first_look, FIRST), Some(HoldState::Held));
    session.0.handle(first_look, Event::Timer(Timer::Stall(FIRST)));
    assert_eq!(session.stage_of(FIRST), Phase::Held);
    let second = first_look.plus(T / 16);
    assert_eq!(session.0.state(second, FIRST), Some(HoldState::Lost(Loss::Stalled)));
    session.0.handle(second, Event::Timer(Timer::Stall(FIRST)));
    assert_eq!(session.stage_of(FIRST), Phase::Over(End::Lost(Loss::Stalled)));
}

/// The event may be that of the end of the session. Then the caller queues again in the next one.
#[test]
fn deletion_of_a_turn_is_confirmed_by_a_quorum() {
    for outcome in [Outcome::NoNode, Outcome::Done] {
        let mut session = Session::new();
        let (name, _) = in_turn(&mut session);
        let turn = turn_of(FIRST);
        session.handle(Event::WatchForLoss(turn)).iter().for_each(|ask| {
            session.answer(ask, Outcome::Stat { owner: 7 });
        });
        let sent = session.fire(Watch::Own(turn, 1, name));
        let [confirm @ Ask::Confirm { .. }] = sent.as_slice() else { panic!("{sent:?}") };
        session.answer(confirm, outcome.clone());
        let end = if outcome == Outcome::NoNode { Phase::Over(End::Evicted) } else { Phase::Waiting };
        assert_eq!(session.stage_of(turn), end);
    }
}
