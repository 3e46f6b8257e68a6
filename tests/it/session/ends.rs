//! How things end: guards dropped outside a runtime, programs with and without `close`, sessions closed while in use.

use std::time::{Duration, Instant};

use testbed::frames::Op;
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, SessionState};
use zookeeper_recipes::{Election, Error, HoldState, Loss, Mutex, SessionState as State};

use crate::support::{BRIEF, ROUND_TRIP, World, at_most, connect_for, ends_at, hosts, soon};
use crate::warnings::Warnings;

#[tokio::test]
async fn guard_dropped_by_a_panic_releases() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let panicking = tokio::spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicking.await.expect_err("panics").is_panic());
    world.wait_empty().await;
}

#[tokio::test]
async fn last_handle_dropped_ends_the_session() {
    let world = World::new().await;
    let session = world.other().await;
    let guard = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    drop(session);
    assert_eq!(guard.state(), HoldState::Held, "a guard keeps its session");
    let owner = world.wait_children(1).await;
    assert_eq!(owner.len(), 1);
    drop(guard);
    world.wait_empty().await;
}

#[tokio::test]
async fn close_ends_guards_and_waiters_and_leaves_nothing() {
    let world = World::new().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    let lost = guard.lost();
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.lock().await })
        })
        .collect();
    world.wait_children(6).await;
    let began = Instant::now();
    let (first, second) = soon("both", async { tokio::join!(world.session.close(), world.session.close()) }).await;
    assert!(began.elapsed() <= at_most(6 * ROUND_TRIP), "{:?}, not as for answers alone", began.elapsed());
    first.expect("closed");
    second.expect("closed");
    assert!(world.children().await.is_empty(), "nothing is left when it returns");
    assert_eq!(lost.await, Loss::Closed);
    assert_eq!(guard.state(), HoldState::Lost(Loss::Closed));
    for waiter in waiters {
        let error = soon("a waiter", waiter).await.expect("no panic").expect_err("closed");
        assert!(matches!(error, Error::Closed), "{error:?}");
    }
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Closed))));
    assert!(matches!(mutex.lock().await, Err(Error::Closed)));
    assert!(matches!(mutex.try_lock().await, Err(Error::Closed)));
    world.session.close().await.expect("still closed");
}

#[tokio::test]
async fn close_without_a_server_is_bounded() {
    let world = World::brief().await;
    let _guard = world.mutex().lock().await.expect("held");
    world.proxy.black_hole();
    let error = ends_at(BRIEF / 2, world.session.close()).await.expect_err("no answer");
    let Error::Unavailable { hosts, why, .. } = error else { panic!("{error:?}") };
    assert_eq!((hosts, why), (world.proxy.hosts(), Unanswered::Servers));
}

#[tokio::test]
async fn close_while_disconnected_cleans_up_after_the_reconnect() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let mut state = world.session.client().expect("a client").state_watcher();
    world.proxy.refuse();
    assert_eq!(soon("a disconnect", state.changed()).await, SessionState::Disconnected);
    world.proxy.reset();
    let session = world.session.clone();
    let close = tokio::spawn(async move { session.close().await });
    tokio::task::yield_now().await;
    world.proxy.heal();
    soon("the end", close).await.expect("no panic").expect("closed");
    let ops: Vec<_> = world.proxy.requests().iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::GetEphemerals, Op::Delete, Op::CloseSession], "it does not wait for anything else");
}

#[tokio::test]
async fn clone_of_the_client_keeps_the_session_but_not_the_locks() {
    let world = World::new().await;
    let session = world.other().await;
    let client = session.client().expect("a client");
    let _guard = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    let node = format!("{}-of-mine", world.path);
    client.create(&node, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.expect("created");
    session.close().await.expect("its locks are released");
    assert!(world.children().await.is_empty(), "no lock is left when it returns");
    assert!(
        world.admin.check_stat(&node).await.expect("asked").is_some(),
        "the session lives, with its other nodes"
    );
    let state = client.state_watcher();
    drop(client);
    soon("the end of the session", async {
        let mut state = state;
        while state.changed().await != SessionState::Closed {}
    })
    .await;
}

#[tokio::test]
async fn dropped_clone_of_the_client_keeps_nothing() {
    let world = World::new().await;
    drop(world.session.client().expect("a client"));
    let _guard = world.mutex().lock().await.expect("held");
    world.session.close().await.expect("closed");
}

/// It lets the client go when it learns of the close.
#[tokio::test]
async fn observer_that_runs_does_not_hold_the_session() {
    let world = World::new().await;
    let mut observer = Election::new(&world.session, &world.path).expect("an election").observe();
    world.make_path().await;
    let observes = tokio::spawn(async move { while observer.changed().await.is_ok() {} });
    soon("the watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
    assert_closes(&world).await;
    soon("its end", observes).await.expect("no panic");
}

/// Closes the session. The servers have ended it then.
async fn assert_closes(world: &World) {
    let (node, mode) = (&format!("{}-of-mine", world.path), &CreateMode::Ephemeral.with_acls(Acls::anyone_all()));
    world.make_path().await;
    let create = |client: Client| async move { client.create(node, b"", mode).await };
    world.session.request(None, create).await.expect("answered").expect("created");
    assert_eq!(soon("the close", world.session.close()).await, Ok(()));
    assert_eq!(world.admin.check_stat(node).await, Ok(None));
}

/// What was refused is tried again: it may have been put right. The old node stays until the servers expire the old session.
#[tokio::test]
async fn session_whose_credentials_are_refused_is_renewed() {
    let world = World::brief().await;
    let (guard, mut states) = (world.mutex().lock().await.expect("held"), world.session.states());
    let (client, before) = (world.session.client().expect("a client"), world.session.id());
    assert_eq!(soon("a state", states.changed()).await, Some(State::Connected(before)));
    let refused = client.auth("nonsense", b"").await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    assert_eq!(client.state(), SessionState::AuthFailed);
    assert_eq!(guard.check_writer().err(), Some(Loss::Expired));
    assert_eq!(soon("a state", states.changed()).await, Some(State::Refused));
    let next = soon("a lock", world.mutex().lock()).await.expect("held");
    assert_ne!(world.session.id(), before);
    assert_eq!(soon("a state", states.changed()).await, Some(State::Connected(world.session.id())));
    next.release().await.expect("released");
}

/// Trust depends on two ticks, which a client cannot query.
#[tokio::test]
async fn session_timeout_under_two_default_ticks_causes_a_warning() {
    for (timeout, warned) in [(2, 1), (5, 0)] {
        let warnings = Warnings::new();
        let listening = warnings.listen();
        let session = connect_for(&hosts(), Duration::from_secs(timeout)).await;
        drop(listening);
        assert_eq!(warnings.count("two ticks"), warned, "{timeout} s");
        session.close().await.expect("closed");
    }
}

#[tokio::test]
async fn calls_that_race_with_the_close_return_and_do_not_panic() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.session.close().await.expect("closed");
    assert!(world.session.client().is_none());
    assert_eq!(guard.check_writer().err(), Some(Loss::Closed));
    world.wait_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_cancels_unpolled_futures_beside_a_clone_of_the_client() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let client = world.session.client().expect("a client");
    let waiting = soon("a place", world.mutex().enqueue()).await.expect("enqueued");
    soon("the end", world.session.close()).await.expect("its locks are released");
    assert_eq!(world.children().await.len(), 1, "only the node of the holder is left");
    assert_eq!(client.state(), SessionState::SyncConnected, "the clone keeps it");
    assert!(matches!(waiting.await, Err(Error::Closed)));
    ahead.release().await.expect("released");
    world.wait_empty().await;
}
