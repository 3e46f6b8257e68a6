//! Threads that meet in one session.

use std::sync::{Arc, Mutex as Shared, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use testbed::frames::Op;
use testbed::proxy::Verdict;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use zookeeper_groups::KeptNode;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Election, Mutex, Session, blocking};

use super::runtime;
use crate::support::{TIMEOUT, World, pass, polled, soon, until};

#[tokio::test]
async fn guard_dropped_on_a_plain_thread_releases() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    thread::spawn(move || drop(guard)).join().expect("no panic");
    world.wait_empty().await;
}

/// The servers have a thread of their own, so a test that blocks does not stop them.
#[test]
fn blocking_sessions_work_with_local_servers() {
    let runtime = runtime();
    let local = runtime.block_on(async {
        let servers = Session::local().await.expect("servers");
        servers.another_with(|servers| servers.with_session_timeout(TIMEOUT)).await.expect("connects")
    });
    let session = blocking::Session::connect(local.hosts()).expect("connects");
    let guard = blocking::Mutex::new(&session, "/jobs/bills").expect("a lock").lock().expect("held");
    let other = Mutex::new(&local, "/jobs/bills").expect("a lock");
    assert!(runtime.block_on(other.try_lock()).expect("asked").is_none());
    drop(guard);
    drop(runtime.block_on(soon("the lock", other.lock())).expect("held"));
}

/// Holds up the task that wakes it, in the middle of its poll, until the other end of `wait` is dropped.
struct HoldsUp {
    is_woken: UnboundedSender<()>,
    wait: Shared<mpsc::Receiver<()>>,
}

impl Wake for HoldsUp {
    fn wake(self: Arc<Self>) {
        let _ = self.is_woken.send(());
        let _ = self.wait.lock().expect("no panic").recv_timeout(Duration::from_secs(10));
    }
}

/// The task that keeps the node reports that it is absent, and creates it in the same poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn removal_waits_for_a_create_that_is_about_to_be_sent() {
    let world = World::with_path().await;
    let path = format!("{}/member", world.path);
    let foreign = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(&path, b"theirs", &foreign).await.expect("created");
    let node = KeptNode::keep(&world.session, &path, b"ours").expect("a valid path");
    soon("a look", world.proxy.wait_for(|one| one.watch && one.path == path && one.answer.is_some())).await;
    // While the next look is under way, it has nothing to report.
    world.proxy.on_request(|one| if one.op == Op::GetData { Verdict::Hold } else { Verdict::Forward });
    world.admin.delete(&path, None).await.expect("deleted");
    soon("another look", world.proxy.wait_for(|one| one.watch && one.path == path && one.forwarded.is_none()))
        .await;
    let ((is_woken, mut wakes), (goes_on, wait)) = (unbounded_channel(), mpsc::channel());
    let waker = Waker::from(Arc::new(HoldsUp { is_woken, wait: Shared::new(wait) }));
    let mut created = Box::pin(node.created());
    assert!(created.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    world.let_pass();
    soon("the task that keeps it", wakes.recv()).await;
    drop(created);
    let mut removal = Box::pin(node.remove());
    let early = polled(1, &mut removal).await;
    // If it has looked for the node, it has the answer now.
    soon("an answer", world.session.client().expect("a client").check_stat("/")).await.expect("answered");
    drop(goes_on);
    let removed = if let Some(early) = early { early } else { soon("the removal", removal).await };
    removed.expect("removed");
    soon(
        "the create",
        world.proxy.wait_for(|one| {
            matches!(one.op, Op::Create | Op::Create2) && one.path == path && one.answer.is_some()
        }),
    )
    .await;
    assert!(world.admin.check_stat(&path).await.expect("asked").is_none(), "it is there still");
}

/// Waits, when it is woken by the thread that releases, until the servers are sent the delete. A wake-up by the client is no
/// hand-over, and to wait in it would keep the client from sending.
struct WaitsForDelete {
    world: World,
    releasing: Shared<Option<ThreadId>>,
    seen: Shared<Vec<bool>>,
}

impl Wake for WaitsForDelete {
    fn wake(self: Arc<Self>) {
        if *self.releasing.lock().expect("no panic") != Some(thread::current().id()) {
            return;
        }
        let end = Instant::now() + Duration::from_secs(10);
        while self.world.count(Op::Delete) == 0 && Instant::now() < end {
            thread::yield_now();
        }
        self.seen.lock().expect("no panic").push(self.world.count(Op::Delete) > 0);
    }
}

/// The client runs on another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_task_is_not_woken_before_the_delete_is_sent() {
    let world = World::with_path().await;
    let held = world.mutex().lock().await.expect("held");
    let mutex = world.mutex();
    let woken = Arc::new(WaitsForDelete { world, releasing: Shared::default(), seen: Shared::default() });
    let world = &woken.world;
    let waker = Waker::from(woken.clone());
    let mut next = Box::pin(async move { mutex.lock().await });
    let polls = async {
        loop {
            assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            tokio::task::yield_now().await;
        }
    };
    let watched = async {
        world.wait_children(2).await;
        world.own_watch(1).await;
        // The session reads answers in their order, so it has read that the watch is set.
        let other = Mutex::new(&world.session, &format!("{}-other", world.path)).expect("a mutex");
        other.lock().await.expect("held").release().await.expect("released");
    };
    tokio::select! {
        () = polls => {}
        () = watched => {}
    }
    world.proxy.reset();
    *woken.releasing.lock().expect("no panic") = Some(thread::current().id());
    drop(held);
    *woken.releasing.lock().expect("no panic") = None;
    let seen = std::mem::take(&mut *woken.seen.lock().expect("no panic"));
    assert!(!seen.is_empty() && !seen.contains(&false), "{seen:?}");
    drop(next);
    world.wait_empty().await;
}

/// A thread cannot be cut off, so the next term waits for it.
#[tokio::test]
async fn next_term_waits_for_the_blocking_work_of_the_last() {
    for panics in [false, true] {
        let world = World::new().await;
        let election = Election::new(&world.session, &world.path).expect("an election");
        let (send, mut terms) = unbounded_channel();
        let leading = tokio::spawn(election.run(move |term| {
            let (goes_on, wait) = mpsc::channel::<()>();
            drop(term.spawn_blocking(move || wait.recv()));
            let _ = send.send(goes_on);
            async move {
                assert!(!panics, "a mistake");
                let _ = term.ended().await;
            }
        }));
        let goes_on = soon("a term", terms.recv()).await.expect("leads");
        if !panics {
            let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
            world.admin.delete(&node, None).await.expect("deleted");
        }
        until("the end of the leadership", || election.current_term().is_none()).await;
        // Another candidate leads meanwhile, and this one is not in the queue, not even after the pause that follows a panic.
        let other = Election::new(&world.other().await, &world.path).expect("an election");
        other.campaign().await.expect("leads").resign().await.expect("resigned");
        pass(Duration::from_millis(1500)).await;
        assert!(terms.try_recv().is_err(), "there is no second term");
        drop(goes_on);
        drop(soon("the next term", terms.recv()).await.expect("leads"));
        leading.abort();
        world.wait_empty().await;
    }
}
