//! Sequences of events that the world of `verify/explore` does not play.

mod rules;

use std::sync::Arc;

use crate::{
    Action, Admission, Ask, Change, Connection, End, Event, HoldState, Identity, Kind, Ledger, Life, Loss,
    Machine, Moment, Name, Op, Outcome, Path, Phase, Spec, Timer, named_nonce,
};

const T: u64 = 10_000_000;
const NOW: Moment = Moment(1_000);
const WRITER: Op = 1;

/// A machine, and the time.
struct Session(Machine<Ledger>, Moment);

impl Session {
    fn new() -> Self {
        Self(Machine::new(7, 9, T, Ledger::new(T, Some(NOW), NOW)), NOW)
    }

    /// Handles an event. Returns the requests that the machine sends.
    fn handle(&mut self, event: Event) -> Vec<Ask> {
        self.0.handle(self.1, event);
        let sent = self.0.out.drain(..).filter_map(|action| match action {
            Action::Send(ask) => Some(ask),
            _ => None,
        });
        sent.collect()
    }

    fn answer(&mut self, ask: &Ask, outcome: Outcome) -> Vec<Ask> {
        self.handle(Event::Answer { ask: ask.clone(), sent: self.1, is_stale: false, outcome })
    }

    fn acquire(&mut self, op: Op, queues: &[(Path, Kind)], admission: Admission, waits: bool) -> Vec<Ask> {
        let spec = Spec {
            queues: queues.into(),
            admission,
            waits,
            stall_limit: Some(crate::StallLimit { first: 3 * T, next: 3 * T }),
            may_count: true,
        };
        self.handle(Event::Acquire { op, spec: Arc::new(spec) })
    }

    /// Grants a write lock. Returns the name of the node.
    fn hold(&mut self) -> Name {
        let sent = self.acquire(WRITER, &[(0, Kind::Write)], Admission::First, true);
        let [create @ Ask::Create { guid, .. }, list @ Ask::List { .. }] = sent.as_slice() else {
            panic!("{sent:?}")
        };
        let name = Name { number: 3, guid: *guid, kind: Kind::Write };
        self.answer(create, created(name, Some(7)));
        self.answer(list, Outcome::Names { names: [name].into(), other_children: 0, has_no_data: true });
        assert_eq!(self.0.state(NOW, WRITER), Some(HoldState::Held));
        name
    }

    fn phase(&self) -> Option<Phase> {
        self.0.op(WRITER).map(|one| one.phase)
    }
}

/// Returns the answer to a listing of the session's nodes.
fn owned(names: &[Name]) -> Outcome {
    Outcome::Names { names: names.into(), other_children: 0, has_no_data: false }
}

fn created(name: Name, owner: Option<u64>) -> Outcome {
    Outcome::Created { names: [name].into(), czxid: 5, owner, counted: None }
}

#[test]
fn second_call_of_a_downgrade_joins_the_first() {
    let mut session = Session::new();
    session.hold();
    let sent = session.handle(Event::Downgrade(WRITER));
    assert_eq!(session.handle(Event::Downgrade(WRITER)), [], "the first is under way");
    session.answer(&sent[0], created(Name { number: 3, guid: 1, kind: Kind::Read }, None));
    assert_eq!(session.0.state(NOW, WRITER), Some(HoldState::Held));
    let one = session.0.op(WRITER).expect("it is there");
    assert_eq!((one.change, one.queues[0].kind), (Change::None, Kind::Read));
}

#[test]
fn create_that_another_session_owns_ends_the_session_and_no_more() {
    let mut session = Session::new();
    let sent = session.acquire(WRITER, &[(0, Kind::Lock)], Admission::First, true);
    session.answer(&sent[0], created(Name { number: 0, guid: 1, kind: Kind::Lock }, Some(8)));
    assert!(!session.0.is_up, "the session counts as over");
    session.handle(Event::Renewed { session: 9, nonce: 10, created: NOW, timeout: T });
    assert!(session.0.paths.values().all(|row| row.creating == 1), "only the next create is under way");
}

#[test]
fn release_ends_with_a_session_whose_servers_do_not_answer() {
    let mut session = Session::new();
    session.hold();
    session.handle(Event::Release(WRITER));
    session.handle(Event::Close);
    assert_eq!(session.phase(), Some(Phase::Releasing));
    session.handle(Event::Timer(Timer::CloseBy));
    assert_eq!(session.phase(), Some(Phase::Over(End::Lost(Loss::Closed))));
}

#[test]
fn connection_is_asked_for_no_longer_when_all_nodes_were_deleted_by_hand() {
    let mut session = Session::new();
    session.hold();
    session.handle(Event::Connection(Connection::Down));
    let sent = session.handle(Event::Connection(Connection::Up { since: NOW }));
    assert_eq!(sent.first(), Some(&Ask::ListOwn), "it asks whose it is");
    let sent = session.answer(&Ask::ListOwn, owned(&[]));
    let [prove @ Ask::Confirm { .. }] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(session.0.identity, Identity::Doubted);
    let sent = session.answer(prove, Outcome::NoNode);
    assert!(matches!(sent.as_slice(), [Ask::ListOwn, Ask::Delete { .. }]), "{sent:?}");
    assert_eq!(session.phase(), Some(Phase::Over(End::Lost(Loss::Deleted))));
    assert_eq!(session.answer(&Ask::ListOwn, owned(&[])), [], "there is no node to ask by");
}

#[test]
fn question_of_the_last_connection_has_its_answer_before_another_is_asked() {
    let mut session = Session::new();
    session.hold();
    let reconnect = |session: &mut Session| {
        session.handle(Event::Connection(Connection::Down));
        let mut sent = session.handle(Event::Connection(Connection::Up { since: NOW }));
        sent.retain(|ask| *ask == Ask::ListOwn);
        sent
    };
    let asked = reconnect(&mut session);
    let [identify] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(reconnect(&mut session), []);
    let (ask, outcome) = (identify.clone(), Outcome::Unknown);
    session.handle(Event::Answer { ask, sent: NOW, is_stale: true, outcome });
    assert_eq!(session.handle(Event::Timer(Timer::Resume)), asked);
    assert_eq!(reconnect(&mut session), []);
    let (ask, outcome) = (identify.clone(), Outcome::Done);
    let sent = session.handle(Event::Answer { ask, sent: NOW, is_stale: true, outcome });
    assert_eq!(sent, asked, "an answer over another connection shows nothing of this one");
}

#[test]
fn end_of_a_session_that_was_not_closed_by_its_servers_is_not_clean() {
    let mut session = Session::new();
    session.hold();
    session.handle(Event::Drain);
    session.0.handle(NOW, Event::Connection(Connection::Expired));
    assert!(session.0.out.drain(..).any(|action| action == Action::End { is_clean: false }));
}

#[test]
fn event_that_is_no_deletion_gives_no_turn() {
    let mut session = Session::new();
    let sent = session.acquire(WRITER, &[(0, Kind::Lock)], Admission::First, true);
    let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
    let (ahead, own) = (Name { number: 1, guid: 4, kind: Kind::Lock }, Name { number: 2, guid, kind: Kind::Lock });
    session.answer(&sent[0], created(own, Some(7)));
    for ask in session
        .answer(&sent[1], Outcome::Names { names: [ahead, own].into(), other_children: 0, has_no_data: true })
    {
        session.answer(&ask, Outcome::Stat { owner: 8 });
    }
    let watch = crate::Watch::Predecessor(WRITER, 0, ahead);
    let sent = session.handle(Event::Fired { watch, is_deleted: false });
    assert!(matches!(sent.as_slice(), [Ask::List { .. }]), "it looks: {sent:?}");
}

/// The number of contenders ahead is the largest of all queues.
#[test]
fn waiter_in_several_queues_is_placed_when_it_is_in_all() {
    let kind = Kind::Lock;
    for last in [0, 2] {
        let mut session = Session::new();
        let sent = session.acquire(WRITER, &[(0, kind), (1, kind)], Admission::First, true);
        let Ask::Create { guid, .. } = sent[0] else { panic!("{sent:?}") };
        let own = Name { number: 9, guid, kind };
        let outcome = Outcome::Created { names: [own, own].into(), czxid: 5, owner: Some(7), counted: None };
        session.answer(&sent[0], outcome);
        for (path, ahead) in [(0, 1), (1, last)] {
            let list = sent.iter().find(|ask| matches!(ask, Ask::List { path: its, .. } if *its == path));
            let ahead = (1..=ahead).map(|number| Name { number, guid: 4, kind });
            let names = ahead.chain([own]).collect();
            let outcome = Outcome::Names { names, other_children: 0, has_no_data: true };
            let ask = list.expect("it lists").clone();
            session.0.handle(NOW, Event::Answer { ask, sent: NOW, is_stale: false, outcome });
            let is_placed = session.0.out.drain(..).any(|action| action == Action::Placed(WRITER));
            assert_eq!(is_placed, path == 1);
        }
        assert_eq!(session.0.op(WRITER).map(|one| one.ahead()), Some(last.max(1) as usize));
    }
}

/// From the third on a while after the reconnect, because it may be what makes the server close the connection.
#[test]
fn create_that_is_lost_is_sent_again_for_ever() {
    let mut session = Session::new();
    let mut sent = session.acquire(WRITER, &[(0, Kind::Lock)], Admission::First, true);
    for lost in 1..100 {
        if sent.contains(&Ask::ListOwn) {
            session.answer(&Ask::ListOwn, owned(&[]));
        }
        session.handle(Event::Connection(Connection::Down));
        for ask in sent.iter().filter(|ask| **ask != Ask::ListOwn) {
            session.answer(ask, Outcome::Unknown);
        }
        let creates = |sent: &[Ask]| sent.iter().filter(|ask| matches!(ask, Ask::Create { .. })).count();
        sent = session.handle(Event::Connection(Connection::Up { since: NOW }));
        assert_eq!(creates(&sent), usize::from(lost == 1), "{sent:?}");
        sent.extend(session.handle(Event::Timer(Timer::Resume)));
        assert_eq!(creates(&sent), 1, "{sent:?}");
    }
}

/// A session with a unique name, and the names of nodes that another session of it, and one of another name, have left.
fn named() -> (Session, Name, Name) {
    let [ours, earlier, other] =
        [(5 << 16, 1), (5 << 16, 2), (6 << 16, 2)].map(|(hash, random)| named_nonce(hash, random));
    let left = |nonce, number| Name { number, guid: u128::from(nonce) << 64 | 7 << 32, kind: Kind::Write };
    (Session(Machine::new(7, ours, T, Ledger::new(T, Some(NOW), NOW)), NOW), left(earlier, 1), left(other, 2))
}

/// Starts a lock whose listing also shows these nodes. Returns what is sent then.
fn meet(session: &mut Session, number: i32, others: &[Name]) -> Vec<Ask> {
    let sent = session.acquire(WRITER, &[(0, Kind::Write)], Admission::First, true);
    let [create @ Ask::Create { guid, .. }, list @ Ask::List { .. }] = sent.as_slice() else { panic!("{sent:?}") };
    let name = Name { number, guid: *guid, kind: Kind::Write };
    session.answer(create, created(name, Some(7)));
    session.answer(list, owned(&[others, &[name]].concat()))
}

/// Whether these requests delete this node, and whether they watch it.
fn touched(sent: &[Ask], at: Name) -> (bool, bool) {
    let deletes = |ask: &Ask| matches!(ask, Ask::Delete { nodes, .. } if nodes.contains(&(0, at)));
    let watches = |ask: &Ask| matches!(ask, Ask::Watch { name, .. } if *name == at);
    (sent.iter().any(deletes), sent.iter().any(watches))
}

#[test]
fn nodes_of_our_unique_name_are_deleted_and_waited_for_until_they_are_gone() {
    let (mut session, same, other) = named();
    let sent = meet(&mut session, 3, &[same]);
    assert_eq!((touched(&sent, same), session.phase()), ((true, true), Some(Phase::Waiting)));
    // Not the nodes of another name, and none at all without a name.
    let sent = meet(&mut named().0, 3, &[other]);
    assert_eq!(touched(&sent, other), (false, true));
    let sent = meet(&mut Session::new(), 3, &[same]);
    assert_eq!(touched(&sent, same), (false, true));
}

#[test]
fn session_that_ends_leaves_the_nodes_of_its_unique_name() {
    let (mut session, same, _) = named();
    let sent = session.acquire(WRITER, &[(0, Kind::Write)], Admission::First, true);
    let [create @ Ask::Create { .. }, list @ Ask::List { .. }] = sent.as_slice() else { panic!("{sent:?}") };
    session.handle(Event::Close);
    session.answer(create, Outcome::Unknown);
    let sent = session.answer(list, owned(&[same]));
    assert_eq!(touched(&sent, same), (false, false), "{sent:?}");
}

#[test]
fn session_that_lost_a_node_ends_when_it_meets_one_of_its_unique_name_there() {
    let (mut session, same, _) = named();
    meet(&mut session, 0, &[]);
    assert_eq!(session.phase(), Some(Phase::Held));
    session.handle(Event::WatchForLoss(WRITER));
    session.0.finish(NOW, WRITER, End::Lost(Loss::Deleted));
    session.handle(Event::Abandon(WRITER));
    let sent = meet(&mut session, 3, &[same]);
    assert_eq!(touched(&sent, same), (false, false), "{sent:?}");
    assert_eq!((session.phase(), session.0.life()), (Some(Phase::Over(End::Closed)), Life::Closing));
}
