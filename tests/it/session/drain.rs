//! A session that is drained: waiters leave, holders finish, and the rest is cut off.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use testbed::frames::Op;
use testbed::proxy::{Request, Verdict};
use tokio::task::JoinHandle;
use tracing::subscriber::set_default;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Owner, ReentrantMutex, Result, Session, SessionState};

use crate::recipes::*;
use crate::support::{BRIEF, PATIENCE, ROUND_TRIP, World, at_most, children, locking, polled, soon};
use crate::warnings::have_several_subscribers;

macro_rules! table {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            rows!($of => waiters_get_closed_and_holders_finish, calls_that_nobody_polls_get_closed_at_once);
        }
    )*};
}

for_all_recipes!(table);

fn is_closed<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Closed))
}

/// Begins to drain; returns when that has begun.
async fn drain(session: &Session, limit: Duration) -> JoinHandle<Result<usize>> {
    let session = session.clone();
    let mut drain = Box::pin(async move { session.drain(limit).await });
    let done = polled(1, &mut drain).await;
    tokio::spawn(async move {
        match done {
            Some(done) => done,
            None => drain.await,
        }
    })
}

async fn drained(drain: JoinHandle<Result<usize>>) -> Result<usize> {
    soon("the end of the drain", drain).await.expect("no panic")
}

async fn waiters_get_closed_and_holders_finish(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let guard = soon("the lock", lock.lock()).await.expect("held");
    let other = (recipe.other)(&world.session, &world.path);
    let waits = tokio::spawn(async move { other.lock().await });
    world.wait_children((recipe.nodes)(1)).await;

    let drain = drain(&world.session, PATIENCE).await;
    assert!(is_closed(soon("the end of the wait", waits).await.expect("no panic")), "a waiter");
    assert!(is_closed(lock.lock().await), "lock");
    assert!(is_closed(lock.try_lock().await), "try_lock");
    assert!(is_closed(lock.try_lock_for(PATIENCE).await), "try_lock_for");
    soon("the request to release", guard.revoke_requested()).await;
    assert_eq!(guard.state(), HoldState::Held);
    world.wait_children((recipe.nodes)(0)).await;
    guard.release().await.expect("still held");
    assert_eq!(drained(drain).await, Ok(0));
    assert!(is_closed(lock.lock().await), "after the drain");
    world.wait_empty().await;
}

/// Drains, which waits for nothing but answers, and returns what was cut off.
async fn drained_at_once(session: &Session) -> usize {
    let began = Instant::now();
    let cut_off = soon("the drain", session.drain(2 * PATIENCE)).await.expect("drained");
    assert!(began.elapsed() <= at_most(6 * ROUND_TRIP), "{:?}", began.elapsed());
    cut_off
}

/// Each call of a free lock is kept after 1, 2, 3… polls, as `select!` keeps one that it polls by reference. Its answers are
/// read without it.
async fn calls_that_nobody_polls_get_closed_at_once(recipe: &Recipe) {
    for polls in 1.. {
        let world = World::of(recipe).await;
        let lock = (recipe.lock)(&world.session, &world.path);
        let mut call = lock.lock();
        if soon("polls", polled(polls, &mut call)).await.is_some() {
            assert!(polls > 1, "something was kept");
            return;
        }
        // While the session is open, the answers are left to the caller for longer.
        assert_eq!(drained_at_once(&world.session).await, 0, "after {polls} polls");
        world.wait_empty().await;
        assert!(is_closed(soon("its end", call).await), "after {polls} polls");
    }
}

#[tokio::test]
async fn holds_that_outlast_the_limit_are_cut_off_and_counted() {
    let world = World::new().await;
    let lock = |name: &str| Mutex::new(&world.session, &format!("{}-{name}", world.path)).expect("a mutex");
    let mut guards = Vec::new();
    for name in ["one", "two", "lost", "released"] {
        guards.push(lock(name).lock().await.expect("held"));
    }
    guards.pop().expect("the last").release().await.expect("released");
    world.admin.delete(&guards[2].nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", guards[2].lost()).await, Loss::Deleted);

    assert_eq!(soon("the drain", world.session.drain(BRIEF / 10)).await, Ok(2));
    let states: Vec<_> = guards.iter().map(|guard| guard.state()).collect();
    assert_eq!(states, [Loss::Closed, Loss::Closed, Loss::Deleted].map(HoldState::Lost));
    for guard in &guards {
        assert!(children(&world.admin, guard.path()).await.is_empty(), "{guard:?}");
    }
}

#[tokio::test]
async fn drain_without_holds_closes_at_once() {
    let world = World::new().await;
    let mutex = world.mutex();
    mutex.lock().await.expect("held").release().await.expect("released");
    assert_eq!(soon("the drain", world.session.drain(Duration::MAX)).await, Ok(0));
    assert!(world.session.client().is_none(), "it is closed");
    assert_eq!(soon("another drain", world.session.drain(Duration::MAX)).await, Ok(0), "of a closed session");
}

#[tokio::test]
async fn guard_that_is_dropped_ends_the_drain() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let drain = drain(&world.session, Duration::MAX).await;
    drop(guard);
    assert_eq!(drained(drain).await, Ok(0));
    world.wait_empty().await;
}

#[tokio::test]
async fn hold_that_is_lost_ends_the_drain_although_its_guard_is_kept() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let drain = drain(&world.session, Duration::MAX).await;
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    assert_eq!(drained(drain).await, Ok(0));
    assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
}

#[tokio::test]
async fn release_that_is_under_way_is_waited_for() {
    let world = World::new().await;
    world.make_path().await;
    let guard = world.mutex().lock().await.expect("held");
    let hold_deletes = |request: &Request| if request.op == Op::Delete { Verdict::Hold } else { Verdict::Forward };
    world.proxy.on_request(hold_deletes);
    let release = tokio::spawn(guard.release());
    soon("the delete", world.proxy.wait_for(|request| request.op == Op::Delete)).await;
    let drain = drain(&world.session, PATIENCE).await;
    world.proxy.heal();
    soon("the release", release).await.expect("no panic").expect("held to the end");
    assert_eq!(drained(drain).await, Ok(0));
}

#[tokio::test]
async fn release_that_nobody_polls_does_not_delay_the_drain() {
    let world = World::new().await;
    let mut release = Box::pin(world.mutex().lock().await.expect("held").release());
    assert!(futures_util::poll!(&mut release).is_pending());
    assert_eq!(drained_at_once(&world.session).await, 0);
    release.await.expect("released");
}

#[tokio::test]
async fn place_in_the_queue_that_nobody_awaits_gets_closed() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let waiting = world.mutex().enqueue().await.expect("enqueued");
    assert_eq!(soon("the drain", world.session.drain(PATIENCE)).await, Ok(0));
    assert!(is_closed(soon("its end", waiting).await));
    ahead.release().await.expect("still held");
    world.wait_empty().await;
}

#[tokio::test]
async fn place_at_a_free_lock_is_a_hold_that_the_drain_waits_for() {
    let world = World::new().await;
    let waiting = world.mutex().enqueue().await.expect("enqueued");
    assert_eq!(waiting.position(), 0);
    let drain = drain(&world.session, PATIENCE).await;
    let guard = soon("its guard", waiting).await.expect("held");
    guard.release().await.expect("released");
    assert_eq!(drained(drain).await, Ok(0));
    world.wait_empty().await;
}

#[tokio::test]
async fn owner_locks_again_what_it_holds_while_the_session_is_drained() {
    let world = World::new().await;
    let (mutex, owner) = (ReentrantMutex::new(&world.session, &world.path).expect("a mutex"), Owner::new());
    let outer = mutex.lock(&owner).await.expect("held");
    let drain = drain(&world.session, PATIENCE).await;
    let inner = mutex.lock(&owner).await.expect("it is held already");
    assert!(is_closed(mutex.lock(&Owner::new()).await), "another owner");
    inner.release().await.expect("released");
    outer.release().await.expect("still held");
    assert_eq!(drained(drain).await, Ok(0));
}

#[tokio::test]
async fn dropped_drain_undoes_nothing_and_another_ends_the_session() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    assert!(polled(1, world.session.drain(PATIENCE)).await.is_none(), "it waits for the guard");
    soon("the request to release", guard.revoke_requested()).await;
    assert!(is_closed(world.mutex().try_lock().await));
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(soon("a drain", world.session.drain(Duration::ZERO)).await, Ok(1));
    assert_eq!(guard.state(), HoldState::Lost(Loss::Closed));
    world.wait_empty().await;
}

#[tokio::test]
async fn close_ends_the_drains_that_are_under_way() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let drains = [drain(&world.session, Duration::MAX).await, drain(&world.session, Duration::MAX).await];
    soon("the close", world.session.close()).await.expect("closed");
    for drain in drains {
        assert_eq!(drained(drain).await, Ok(0), "it was the close that cut the hold off");
    }
    assert_eq!(guard.state(), HoldState::Lost(Loss::Closed));
}

#[tokio::test]
async fn session_that_is_being_renewed_is_drained_at_once() {
    let world = World::brief().await;
    let guard = world.mutex().lock().await.expect("held");
    let waits = locking(world.mutex());
    world.wait_children(2).await;
    world.kill().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::TrustEnded);
    let mut states = world.session.states();
    soon("a renewal", states.wait_for(|state| state == SessionState::Renewing)).await.expect("not closed");
    assert_eq!(soon("the drain", world.session.drain(Duration::MAX)).await, Ok(0));
    assert!(is_closed(soon("the end of the wait", waits).await.expect("no panic")));
}

#[tokio::test]
async fn contenders_are_listed_while_the_session_is_drained() {
    let world = World::new().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    let drain = drain(&world.session, PATIENCE).await;
    assert_eq!(mutex.contenders().await.expect("listed").len(), 1);
    guard.release().await.expect("still held");
    assert_eq!(drained(drain).await, Ok(0));
}

/// Drains a session in the middle of a poll of an acquisition: when that logs that it holds.
struct DrainsAtGrant(Session);

impl<S: Subscriber> Layer<S> for DrainsAtGrant {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let logs_token = event.metadata().fields().field("token").is_some();
        if logs_token && event.metadata().target().starts_with("zookeeper_recipes") {
            assert!(self.0.drain(Duration::MAX).now_or_never().is_none(), "there is a hold");
        }
    }
}

#[tokio::test]
async fn lock_that_is_granted_while_the_drain_begins_is_a_hold_that_it_waits_for() {
    let world = World::with_path().await;
    have_several_subscribers();
    let listening = set_default(Registry::default().with(DrainsAtGrant(world.session.clone())));
    let guard = soon("an answer", world.mutex().lock()).await.expect("held");
    drop(listening);
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
    world.wait_empty().await;
    assert_eq!(soon("the drain", world.session.drain(Duration::MAX)).await, Ok(0));
}
