//! Candidates that lead term after term: their end, and what they survive.

use std::future::{pending, ready};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use testbed::frames::Op;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::subscriber::DefaultGuard;
use zookeeper_recipes::zookeeper_client::{Acls, CheckWriteError, CreateMode, Permission};
use zookeeper_recipes::{Election, Error, FencingToken, HoldState, Loss, Session, Term};

use crate::support::{BRIEF, PATIENCE, ROUND_TRIP, World, at_most, children, pass, remove_path, soon, until};
use crate::warnings::Warnings;

fn election(session: &Session, path: &str) -> Election {
    Election::new(session, path).expect("an election")
}

/// What a term has come to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Leads(FencingToken),
    /// It was asked to end, and did.
    Ends,
}

/// Waits to be asked to end.
fn in_order(
    steps: UnboundedSender<Step>,
) -> impl FnMut(Term) -> futures_util::future::BoxFuture<'static, ()> + Send {
    move |term| {
        let steps = steps.clone();
        async move {
            let _ = steps.send(Step::Leads(term.fencing_token()));
            term.revoke_requested().await;
            let _ = steps.send(Step::Ends);
        }
        .boxed()
    }
}

/// A candidate that leads in a task, until it is stopped or dropped.
pub(super) struct Candidate {
    election: Election,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Candidate {
    pub(super) fn new<R>(election: Election, term: impl FnMut(Term) -> R + Send + 'static) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(election.run_until(async { drop(stopped.await) }, term));
        Self { election, stop, task }
    }

    fn is_leader(&self) -> bool {
        self.election.current_term().is_some_and(|term| term.state() == HoldState::Held)
    }

    pub(super) async fn stop(self) -> Result<(), Error> {
        drop(self.stop);
        soon("the end", self.task).await.expect("no panic")
    }

    pub(super) fn drop(self) {
        self.task.abort();
    }
}

fn run(session: &Session, path: &str) -> (Candidate, UnboundedReceiver<Step>) {
    let (send, receive) = unbounded_channel();
    (Candidate::new(election(session, path), in_order(send)), receive)
}

async fn leads(steps: &mut UnboundedReceiver<Step>) -> FencingToken {
    match soon("a term", steps.recv()).await {
        Some(Step::Leads(token)) => token,
        other => panic!("{other:?} instead of a term"),
    }
}

#[tokio::test]
async fn candidate_waits_leads_and_ends_its_term_when_it_is_stopped() {
    let world = World::new().await;
    let ahead = election(&world.other().await, &world.path).campaign().await.expect("leads");
    let (candidate, mut steps) = run(&world.session, &world.path);
    world.wait_children(2).await;
    assert!(!candidate.is_leader());
    ahead.resign().await.expect("resigned");
    let token = leads(&mut steps).await;
    assert_eq!(candidate.election.current_term().expect("it leads").fencing_token(), token);
    candidate.stop().await.expect("resigned");
    assert_eq!(steps.recv().await, Some(Step::Ends), "the term was not cut off");
    assert!(children(&world.admin, &world.path).await.is_empty(), "it has resigned");
}

#[tokio::test]
async fn candidate_that_waits_is_withdrawn_when_it_is_stopped() {
    let world = World::new().await;
    let ahead = election(&world.other().await, &world.path).campaign().await.expect("leads");
    let (candidate, mut steps) = run(&world.session, &world.path);
    world.wait_children(2).await;
    candidate.stop().await.expect("withdrawn");
    assert_eq!(steps.recv().await, None, "it never led");
    world.wait_children(1).await;
    ahead.resign().await.expect("still leads");
}

#[tokio::test]
async fn term_that_ends_is_followed_by_another() {
    let world = World::new().await;
    let (send, mut receive) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path), move |term| {
        let send = send.clone();
        async move { send.send(term.fencing_token()).expect("the test goes on") }
    });
    let mut tokens = Vec::new();
    for _ in 0..3 {
        tokens.extend(soon("a term", receive.recv()).await);
    }
    assert!(tokens.is_sorted_by(|one, other| one < other), "{tokens:?}");
    candidate.stop().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn campaign_that_fails_at_once_is_tried_again_after_a_pause() {
    let world = World::new().await;
    let warnings = Warnings::new();
    let _listens = warnings.listen();
    world.restrict(Permission::READ).await;
    let began = Instant::now();
    let (candidate, mut steps) = run(&world.session, &world.path);
    let is_create = |op: Op| matches!(op, Op::Create2 | Op::Create | Op::Multi);
    let failed =
        world.proxy.wait_until(|requests| requests.iter().filter(|request| is_create(request.op)).count() > 3);
    soon("some failures", failed).await;
    // After pauses of 100, 200 and 400 ms.
    let (took, pauses) = (began.elapsed(), Duration::from_millis(700));
    println!("four failures took {took:?}");
    assert!(took >= pauses && took <= at_most(pauses + 8 * ROUND_TRIP), "{took:?}");
    assert!(warnings.count("cannot campaign") > 0);
    assert!(!candidate.is_leader());
    remove_path(&world.admin, &world.path).await;
    leads(&mut steps).await;
    candidate.stop().await.expect("resigned");
}

/// A candidate whose terms do this, and the moments at which they begin.
fn failing(
    world: &World,
    mut fail: impl FnMut() + Send + 'static,
) -> (Candidate, UnboundedReceiver<Instant>, Warnings, DefaultGuard) {
    let (warnings, (send, begun)) = (Warnings::new(), unbounded_channel());
    let listens = warnings.listen();
    let candidate = Candidate::new(election(&world.session, &world.path), move |_| {
        let _ = send.send(Instant::now());
        fail();
        ready(())
    });
    (candidate, begun, warnings, listens)
}

#[tokio::test]
async fn terms_that_return_at_once_are_followed_by_pauses_that_grow() {
    let world = World::new().await;
    let (candidate, mut begun, warnings, _listens) = failing(&world, || {});
    let first = soon("a term", begun.recv()).await.expect("leads");
    pass(Duration::from_millis(500)).await;
    assert!(!candidate.is_leader());
    assert_eq!(world.children().await, [""; 0], "it is not in the queue during the pause");
    pass(Duration::from_secs(99)).await;
    let mut terms = vec![first];
    while let Ok(term) = begun.try_recv() {
        terms.push(term);
    }
    let pauses: Vec<_> = terms.windows(2).map(|two| two[1].duration_since(two[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30], "{} terms", terms.len());
    assert_eq!(warnings.count("the term of a candidate has ended at once"), terms.len());
    candidate.stop().await.expect("stopped in a pause");
}

/// Panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("on drop");
    }
}

#[tokio::test]
async fn candidates_go_on_after_panics_of_their_terms() {
    let world = World::new().await;
    let mut terms = 0;
    let (candidate, mut begun, warnings, _listens) = failing(&world, move || {
        terms += 1;
        match terms {
            1 => panic!("a mistake"),
            2 => panic_any(Fragile),
            _ => panic!("mistake {terms}"),
        }
    });
    for _ in 0..3 {
        soon("a term", begun.recv()).await.expect("leads");
    }
    until("the third panic", || warnings.count("the term of a candidate has panicked") == 3).await;
    assert_eq!((warnings.count("a mistake"), warnings.count("mistake 3")), (1, 1));
    assert!(!candidate.is_leader());
    world.wait_empty().await;
    candidate.stop().await.expect("stopped in a pause");
}

#[tokio::test]
async fn future_of_a_term_that_panics_when_it_is_dropped_ends_no_candidate() {
    let world = World::new().await;
    let (send, mut receive) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path), move |term| {
        let _ = send.send(term);
        async {
            let _fragile = Fragile;
            pending().await
        }
    });
    for _ in 0..2 {
        soon("a term", receive.recv()).await.expect("leads");
        let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
        world.admin.delete(&node, None).await.expect("deleted");
    }
    candidate.drop();
    world.wait_empty().await;
}

#[tokio::test]
async fn candidate_that_pauses_ends_with_its_session() {
    let world = World::new().await;
    let (candidate, mut begun, _warnings, _listens) = failing(&world, || panic!("a mistake"));
    for _ in 0..5 {
        soon("a term", begun.recv()).await.expect("leads");
    }
    until("a pause", || !candidate.is_leader()).await;
    let began = Instant::now();
    world.session.close().await.expect("closed");
    soon("the end", candidate.task).await.expect("no panic").expect("it is no error");
    // The pause is of 16 s.
    assert!(began.elapsed() < at_most(Duration::from_secs(1)), "{:?}", began.elapsed());
}

#[tokio::test]
async fn candidate_that_is_dropped_resigns_or_withdraws() {
    let world = World::new().await;
    let (leader, mut steps) = run(&world.session, &world.path);
    leads(&mut steps).await;
    let (follower, _) = run(&world.session, &world.path);
    world.wait_children(2).await;
    follower.drop();
    world.wait_children(1).await;
    leader.drop();
    world.wait_empty().await;
    assert_eq!(steps.recv().await, None, "the term was cut off");
}

#[tokio::test]
async fn term_that_goes_on_after_a_stop_is_cut_off_by_the_drop() {
    let world = World::new().await;
    let terms = Arc::new(AtomicUsize::default());
    let begun = terms.clone();
    let candidate = Candidate::new(election(&world.session, &world.path), move |_| {
        begun.fetch_add(1, Ordering::AcqRel);
        pending()
    });
    until("a term", || candidate.is_leader()).await;
    drop(candidate.stop);
    let mut task = candidate.task;
    assert!(tokio::time::timeout(BRIEF / 10, &mut task).await.is_err(), "the term does not end");
    task.abort();
    world.wait_empty().await;
    assert_eq!(terms.load(Ordering::Acquire), 1);
}

#[tokio::test]
async fn candidate_ends_with_its_session() {
    for drains in [false, true] {
        let world = World::new().await;
        let (candidate, mut steps) = run(&world.session, &world.path);
        leads(&mut steps).await;
        if drains {
            assert_eq!(soon("the drain", world.session.drain(PATIENCE)).await, Ok(0), "the term ends by itself");
            assert_eq!(steps.recv().await, Some(Step::Ends));
        } else {
            world.session.close().await.expect("closed");
        }
        soon("the end", candidate.task).await.expect("no panic").expect("it is no error");
    }
}

#[tokio::test]
async fn writes_of_a_term_fail_when_the_leadership_is_gone() {
    let world = World::new().await;
    let (send, mut terms) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path), move |term| {
        send.send(term.clone()).expect("the test goes on");
        async move {
            let _ = term.ended().await;
        }
    });
    let term = soon("a term", terms.recv()).await.expect("the candidate goes on");
    let (data, open) = (format!("{}-data", world.path), CreateMode::Persistent.with_acls(Acls::anyone_all()));
    world.admin.create(&data, b"", &open).await.expect("created");
    let mut writer = term.check_writer().expect("it leads");
    writer.add_set_data(&data, b"first", None).expect("a valid path");
    writer.commit().await.expect("written");
    let mut late = term.check_writer().expect("it leads");
    late.add_set_data(&data, b"late", None).expect("a valid path");
    let node = world.wait_children(1).await.remove(0);
    world.admin.delete(&format!("{}/{node}", world.path), None).await.expect("deleted");
    let error = late.commit().await.expect_err("the node is gone");
    assert!(matches!(error, CheckWriteError::CheckFailed { .. }), "{error:?}");
    soon("the end", term.ended()).await;
    assert_eq!(term.check_writer().err(), Some(HoldState::Lost(Loss::Deleted)));
    assert_eq!(world.admin.get_data(&data).await.expect("it is there").0, b"first");
    drop(terms);
    candidate.drop();
}

/// How a term goes on after it has spawned a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Returns,
    Panics,
    IsLost,
}

/// A candidate whose terms spawn a task each, which has ended when the receiver of its term is closed, or ends when that is sent
/// `true`.
fn spawning(world: &World, rest: Rest) -> (Candidate, UnboundedReceiver<watch::Sender<bool>>) {
    let (send, terms) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path), move |term| {
        let (ends, mut end) = watch::channel(false);
        drop(term.spawn(async move { end.wait_for(|ends| *ends).await.is_ok() }));
        let _ = send.send(ends);
        async move {
            match rest {
                Rest::Returns => {}
                Rest::Panics => panic!("a mistake"),
                Rest::IsLost => drop(term.ended().await),
            }
        }
    });
    (candidate, terms)
}

#[tokio::test]
async fn leadership_lasts_until_the_tasks_of_its_term_have_ended() {
    let world = World::new().await;
    let warnings = Warnings::new();
    let _listens = warnings.listen();
    let (candidate, mut terms) = spawning(&world, Rest::Returns);
    let lost = soon("a term", terms.recv()).await.expect("leads");
    let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
    world.admin.delete(&node, None).await.expect("deleted");
    let task = soon("another term", terms.recv()).await.expect("leads");
    assert!(lost.is_closed());
    pass(Duration::from_secs(65)).await;
    assert!(candidate.is_leader() && !task.is_closed());
    assert_eq!(warnings.count("term"), 0, "neither a short term nor tasks that are to end");
    let leader = candidate.election.leader().await.expect("asked").expect("it leads");
    candidate.election.revoke(&leader).await.expect("asked");
    pass(Duration::from_secs(65)).await;
    assert_eq!(warnings.count("tasks of a term still run"), 2);
    task.send_replace(true);
    soon("the next term", terms.recv()).await.expect("leads").send_replace(true);
    candidate.stop().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn tasks_of_a_term_end_with_its_leadership_and_before_the_next_term() {
    for rest in [Rest::Panics, Rest::IsLost] {
        let world = World::new().await;
        let (candidate, mut terms) = spawning(&world, rest);
        let task = soon("a term", terms.recv()).await.expect("leads");
        if rest == Rest::IsLost {
            let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
            world.admin.delete(&node, None).await.expect("deleted");
        }
        let next = soon("the next term", terms.recv()).await.expect("leads");
        assert!(task.is_closed(), "it was dropped");
        candidate.drop();
        soon("the end of the last task", next.closed()).await;
        world.wait_empty().await;
    }
}
