//! No server answers: every call that does not queue ends in time, and names the hosts that it asked.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::proxy::Verdict;
use testbed::{Server, free_port};
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::zookeeper_client::SessionState;
use zookeeper_recipes::{Error, Loss, Owner, ReentrantMutex, Session};

use crate::family::FAMILY;
use crate::support::{BRIEF, ROUND_TRIP, TIMEOUT, World, at_most, ends_at, hosts, pass, soon};

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, Error>, world: &World, limit: Duration) -> Unanswered {
    match result {
        Err(Error::Unavailable { hosts, after, why, .. }) => {
            assert_eq!(hosts, world.proxy.hosts());
            assert_eq!(after, limit);
            why
        }
        other => panic!("not unavailable: {other:?}"),
    }
}

#[tokio::test]
async fn try_lock_ends_at_a_session_timeout() {
    let world = World::brief().await;
    world.proxy.black_hole();
    let why = assert_unavailable(ends_at(BRIEF, world.mutex().try_lock()).await, &world, BRIEF);
    assert_eq!(why, Unanswered::Servers);
}

async fn lose_connection(world: &World) {
    let mut state = world.session.client().expect("a client").state_watcher();
    world.proxy.refuse();
    assert_eq!(soon("a disconnect", state.changed()).await, SessionState::Disconnected);
}

fn assert_unavailable_at_once<T: std::fmt::Debug>(result: Option<Result<Option<T>, Error>>, what: &str) {
    match result {
        Some(Err(Error::Unavailable { after, why: Unanswered::Servers, .. })) if after.is_zero() => {}
        other => panic!("{what}: not unavailable at the first poll: {other:?}"),
    }
}

#[tokio::test]
async fn limit_of_zero_is_over_at_once_without_a_connection() {
    let world = World::new().await;
    lose_connection(&world).await;
    let never = Session::lazy(format!("127.0.0.1:{}", free_port())).expect("a session");
    for kin in &FAMILY {
        for (session, what) in [(&world.session, "disconnected"), (&never, "never connected")] {
            let lock = kin.lock(session, &world.path);
            let tried = lock.try_hold_for(Duration::ZERO).now_or_never();
            assert_unavailable_at_once(tried, &format!("{}, {what}", kin.name));
        }
    }
    never.close().await.expect("closed");
    let closed = FAMILY.map(|kin| kin.lock(&never, &world.path).try_hold_for(Duration::ZERO).now_or_never());
    assert!(closed.iter().all(|closed| matches!(closed, Some(Err(Error::Closed)))), "{closed:?}");
}

/// It needs no server for that.
#[tokio::test]
async fn owner_that_holds_a_lock_gets_it_again_with_a_limit_of_zero_while_disconnected() {
    let world = World::new().await;
    let (owner, mutex) = (Owner::new(), ReentrantMutex::new(&world.session, &world.path).expect("a mutex"));
    let _guard = mutex.lock(&owner).await.expect("free");
    lose_connection(&world).await;
    let again = mutex.try_lock_for(&owner, Duration::ZERO).now_or_never();
    assert!(matches!(again, Some(Ok(Some(_)))), "{again:?}");
    let other = mutex.try_lock_for(&Owner::new(), Duration::ZERO).now_or_never();
    assert_unavailable_at_once(other, "another owner");
}

#[tokio::test]
async fn limit_of_zero_is_over_when_the_connection_is_lost_before_the_answer() {
    for kin in &FAMILY {
        let world = World::new().await;
        world.proxy.on_request(|_| Verdict::Hold);
        let lock = kin.lock(&world.session, &world.path);
        let tried = tokio::spawn(async move { lock.try_hold_for(Duration::ZERO).await });
        soon("a request", world.proxy.wait_for_requests(1)).await;
        assert!(!tried.is_finished(), "{}: a connected session waits for the answer", kin.name);
        // From here on it could only wait, for as long as the session lives.
        world.proxy.refuse();
        assert_unavailable_at_once(Some(soon(kin.name, tried).await.expect("no panic")), kin.name);
    }
}

/// The client closes a silent connection after a fifth of the session timeout, which is long here.
#[tokio::test]
async fn time_limit_too_short_for_an_answer_is_the_reason() {
    let world = World::at(&hosts(), Duration::from_secs(30)).await;
    world.proxy.hold_answers(Duration::from_secs(2));
    for kin in &FAMILY {
        for limit in [Duration::from_micros(100), Duration::from_millis(20)] {
            let lock = kin.lock(&world.session, &world.path);
            let why = assert_unavailable(ends_at(limit, lock.try_hold_for(limit)).await, &world, limit);
            assert_eq!(why, Unanswered::TimeLimit, "{}: {limit:?}", kin.name);
        }
    }
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn missing_connection_is_the_reason_when_a_time_limit_passes_without_one() {
    let world = World::new().await;
    lose_connection(&world).await;
    let limit = Duration::from_millis(20);
    for kin in &FAMILY {
        let lock = kin.lock(&world.session, &world.path);
        let why = assert_unavailable(ends_at(limit, lock.try_hold_for(limit)).await, &world, limit);
        assert_eq!(why, Unanswered::Servers, "{}", kin.name);
    }
}

/// The server keeps its connections open, so no client notices the pause.
#[tokio::test]
async fn time_limits_of_every_recipe_are_kept_while_the_server_is_paused() {
    let server = Server::start().await.expect("a server");
    let (limit, brief) = (Duration::from_secs(6), Duration::from_millis(400));
    let waiting = FAMILY.iter().map(async |kin| {
        let mut world = World::at(&server.hosts(), TIMEOUT).await;
        world.path = format!("/{}", kin.name.replace(' ', "-"));
        let guard = kin.rival(&world.other().await, &world.path).hold().await.expect("held");
        let lock = kin.lock(&world.session, &world.path);
        let waiting = tokio::spawn(async move { ends_at(limit, lock.try_hold_for(limit)).await });
        soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
        (kin, world, guard, waiting)
    });
    let waiting = join_all(waiting).await;
    server.pause();
    let ended = waiting.into_iter().map(async |(kin, world, guard, waiting)| {
        let newcomer = kin.lock(&world.session, &world.path);
        match ends_at(brief, newcomer.try_hold_for(brief)).await {
            Err(Error::Unavailable { after, .. }) if after == brief => {}
            other => panic!("{}: nobody was seen: {other:?}", kin.name),
        }
        let waited = waiting.await.expect("no panic").expect("somebody was seen");
        assert!(waited.is_none(), "{}", kin.name);
        (kin, world, guard)
    });
    let ended = join_all(ended).await;
    server.resume();
    for (kin, world, guard) in ended {
        kin.wait_nodes(&world, guard.nodes().len()).await;
        guard.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn release_ends_with_trust() {
    let world = World::brief().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.black_hole();
    let error = ends_at(guard.valid_for(), guard.release()).await.expect_err("no answer");
    assert!(matches!(error, Error::Lost(Loss::TrustEnded)), "{error:?}");
}

#[tokio::test]
async fn only_lock_waits_without_a_limit() {
    let world = World::brief().await;
    world.proxy.black_hole();
    let mutex = world.mutex();
    let mut waiting = tokio::spawn(async move { mutex.lock().await });
    let early = tokio::time::timeout(2 * BRIEF, &mut waiting).await;
    assert!(early.is_err(), "it waits for the servers as for the lock");
    world.proxy.heal();
    let guard = soon("the servers", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn try_lock_while_the_session_is_being_renewed_is_bounded() {
    let world = World::brief().await;
    world.proxy.black_hole();
    let guard = world.mutex();
    // The client ends the session after 1.4 timeouts.
    let watcher = world.session.client().expect("a client").state_watcher();
    let expired = async {
        let mut watcher = watcher;
        while !watcher.state().is_terminated() {
            watcher.changed().await;
        }
    };
    soon("the expiry", expired).await;
    let why = assert_unavailable(ends_at(BRIEF, guard.try_lock()).await, &world, BRIEF);
    assert_eq!(why, Unanswered::Servers);
    world.session.close().await.expect("there is no session to close");
}

#[tokio::test]
async fn release_that_is_answered_late_returns_with_the_answer() {
    let timeout = Duration::from_secs(16);
    let world = World::at(&hosts(), timeout).await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.on_request(|request| if request.op == Op::Delete { Verdict::Hold } else { Verdict::Forward });
    let release = tokio::spawn(guard.release());
    soon("the delete", world.proxy.wait_for(|request| request.op == Op::Delete)).await;
    pass(timeout / 4).await;
    world.let_pass();
    // Half a timeout after the last answer it would look at its state anyway.
    let released = tokio::time::timeout(at_most(ROUND_TRIP), release).await.expect("it is woken by the answer");
    released.expect("no panic").expect("released");
}

#[tokio::test]
async fn session_that_lost_its_servers_reports_why_each_cannot_be_reached() {
    let world = World::brief().await;
    let mutex = world.mutex();
    mutex.lock().await.expect("held").release().await.expect("released");
    world.proxy.refuse();
    world.proxy.cut_now();
    let reported = async {
        loop {
            match mutex.try_lock_for(BRIEF / 4).await {
                Err(Error::Unavailable { failures, .. }) if !failures.is_empty() => break failures,
                Err(Error::Unavailable { .. }) => {}
                other => panic!("nobody can be asked: {other:?}"),
            }
        }
    };
    let failures = soon("a reason", reported).await;
    assert!(world.proxy.hosts().contains(&failures[0].host), "{failures:?}");
    world.proxy.heal();
    let guard = soon("the lock", mutex.lock()).await.expect("held again");
    guard.release().await.expect("released");
}
