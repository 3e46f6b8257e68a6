//! The blocking locks, from plain threads.

use std::future::pending;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;
use zookeeper_recipes::blocking::{Election, Mutex, MutexGuard, ReentrantMutex, RwLock, Semaphore, Session, Term};
use zookeeper_recipes::{Error, FencingToken, HoldState, Loss, Options, Owner, Servers};

use crate::support::{BRIEF, PATIENCE, TIMEOUT, World};

/// A world whose tasks run on a thread of their own, so that the test may block.
struct Threads {
    tokio: Runtime,
    world: World,
}

impl Threads {
    fn new() -> Self {
        let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let world = tokio.block_on(World::new());
        Self { tokio, world }
    }

    /// A blocking session through the proxy.
    fn session(&self) -> Session {
        connect(&self.world.proxy.hosts())
    }

    /// A blocking session straight to the server.
    fn other(&self) -> Session {
        connect(&self.world.hosts)
    }

    fn mutex(&self, session: &Session) -> Mutex {
        Mutex::new(session, &self.world.path).expect("a mutex")
    }

    fn election(&self, session: &Session, name: &str) -> Election {
        let options = Options::new().with_identifier(name);
        Election::with_options(session, &self.world.path, options).expect("an election")
    }

    fn wait_children(&self, count: usize) -> Vec<String> {
        self.tokio.block_on(self.world.wait_children(count))
    }
}

fn connect(hosts: &str) -> Session {
    connect_for(hosts, TIMEOUT)
}

fn connect_for(hosts: &str, timeout: Duration) -> Session {
    Session::connect(Servers::new(hosts).with_session_timeout(timeout)).expect("connects")
}

/// What a thread works on.
struct Work<T>(mpsc::Receiver<thread::Result<T>>);

fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Work<T> {
    let (send, done) = mpsc::channel();
    thread::spawn(move || drop(send.send(catch_unwind(AssertUnwindSafe(work)))));
    Work(done)
}

impl<T> Work<T> {
    /// What it came to; fails the test when it takes longer than anything should.
    fn done(self, what: &str) -> T {
        let done = self.0.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("timed out: {what}"));
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[test]
fn eight_threads_of_two_sessions_and_a_task_exclude_each_other() {
    const TIMES: usize = 10;
    let threads = Threads::new();
    let held = Arc::new(AtomicBool::new(false));
    let (send, tokens) = mpsc::channel::<FencingToken>();
    let task = threads.tokio.spawn({
        let (mutex, held, send) = (threads.world.mutex(), held.clone(), send.clone());
        async move {
            for _ in 0..TIMES {
                let guard = mutex.lock().await.expect("held");
                assert!(!held.swap(true, Ordering::SeqCst), "two holders");
                send.send(guard.fencing_token()).expect("counted");
                tokio::task::yield_now().await;
                held.store(false, Ordering::SeqCst);
                guard.release().await.expect("released");
            }
        }
    });
    let sessions = [threads.session(), threads.other()];
    let works: Vec<_> = (0..8)
        .map(|thread| {
            let (mutex, held, send) = (threads.mutex(&sessions[thread % 2]), held.clone(), send.clone());
            start(move || {
                for _ in 0..TIMES {
                    let guard = mutex.lock().expect("held");
                    assert!(!held.swap(true, Ordering::SeqCst), "two holders");
                    send.send(guard.fencing_token()).expect("counted");
                    thread::yield_now();
                    held.store(false, Ordering::SeqCst);
                    guard.release().expect("released");
                }
            })
        })
        .collect();
    works.into_iter().for_each(|work| work.done("a thread"));
    threads.tokio.block_on(task).expect("no panic");
    drop(send);
    let tokens: Vec<_> = tokens.iter().collect();
    assert_eq!(tokens.len(), 9 * TIMES);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    threads.wait_children(0);
    sessions.iter().for_each(|session| session.close().expect("closed"));
}

#[test]
fn readers_share_and_a_writer_excludes() {
    let threads = Threads::new();
    let sessions = [threads.session(), threads.other()];
    let [one, other] =
        sessions.each_ref().map(|session| RwLock::new(session, &threads.world.path).expect("a lock"));
    let (first, second) = (one.read().expect("held"), other.read().expect("held"));
    assert!(one.try_write().expect("answered").is_none(), "others read");
    first.release().expect("released");
    second.release().expect("released");
    let writing = other.try_write_for(PATIENCE).expect("answered").expect("free");
    assert!(one.try_read().expect("answered").is_none(), "another writes");
    let (token, waiting) = (writing.fencing_token(), start(move || one.read()));
    threads.wait_children(2);
    let reading = writing.downgrade().map_err(|(_, error)| error).expect("a reader");
    assert_eq!(reading.fencing_token(), token);
    let beside = waiting.done("a reader beside").expect("held");
    drop((reading, beside));
    threads.wait_children(0);
}

#[test]
fn permits_are_all_or_none() {
    let threads = Threads::new();
    let sessions = [threads.session(), threads.other()];
    let [one, other] =
        sessions.each_ref().map(|session| Semaphore::new(session, &threads.world.path, 3).expect("permits"));
    let two = one.acquire_many(2).expect("held");
    assert_eq!((two.count(), other.available_permits().expect("answered")), (2, 1));
    assert!(other.try_acquire_many(2).expect("answered").is_none());
    let third = other.acquire().expect("held");
    assert!(one.try_acquire().expect("answered").is_none());
    let waiting = start(move || one.acquire_many(2));
    third.release().expect("released");
    two.release().expect("released");
    assert_eq!(waiting.done("permits").expect("held").count(), 2);
    assert!(matches!(other.acquire_many(4), Err(Error::InvalidInput { what: "permits", .. })));
}

#[test]
fn owner_locks_again_and_another_does_not() {
    let threads = Threads::new();
    let session = threads.session();
    let mutex = ReentrantMutex::new(&session, &threads.world.path).expect("a mutex");
    let owner = Owner::new();
    let outer = mutex.lock(&owner).expect("held");
    let inner = start({
        let (mutex, owner) = (mutex.clone(), owner.clone());
        move || mutex.lock(&owner)
    });
    let inner = inner.done("the same owner").expect("held");
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert!(mutex.try_lock(&Owner::new()).expect("answered").is_none());
    inner.release().expect("a guard is left");
    assert_eq!(outer.state(), HoldState::Held);
    outer.release().expect("released");
    threads.wait_children(0);
}

#[test]
fn loss_is_noticed_by_a_thread_that_waits_for_it_and_by_one_that_looks() {
    let threads = Threads::new();
    let session = connect_for(&threads.world.proxy.hosts(), BRIEF);
    let guard = threads.mutex(&session).lock().expect("held");
    let monitor = guard.monitor();
    let noticed = start({
        let session = session.clone();
        move || session.block_on(monitor.ended())
    });
    // Nothing is answered any more.
    threads.world.proxy.refuse();
    assert_eq!(noticed.done("the loss"), HoldState::Lost(Loss::TrustEnded));
    assert_eq!(guard.state(), HoldState::Lost(Loss::TrustEnded));
    assert!(matches!(guard.release(), Err(Error::Lost(Loss::TrustEnded))));
}

#[test]
fn guard_and_session_can_be_dropped_in_a_task() {
    let threads = Threads::new();
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let session = threads.other();
        let guard = threads.mutex(&session).lock().expect("held");
        threads.wait_children(1);
        let runtime = builder.build().expect("a runtime");
        // The session ends with its last handle, and its thread with it.
        runtime.block_on(async { tokio::spawn(async move { drop((session, guard)) }).await }).expect("no panic");
        threads.wait_children(0);
    }
}

type Call = fn(&Session, &Mutex, MutexGuard);

/// Tokio panics by itself, before the call sends anything. Only a call that connects has begun by then.
#[test]
fn calls_in_a_task_panic_and_those_of_spawn_blocking_do_not() {
    let calls: [(&str, Call); 5] = [
        ("connect", |_, _, _| drop(Session::connect("localhost:1"))),
        ("lock", |_, mutex, _| drop(mutex.lock())),
        ("release", |_, _, guard| drop(guard.release())),
        ("close", |session, _, _| drop(session.close())),
        ("block_on", |session, _, _| session.block_on(async {})),
    ];
    let threads = Threads::new();
    let session = threads.session();
    let mutex = threads.mutex(&session);
    let panics = |call: &str, ended: thread::Result<()>| {
        let panic = ended.expect_err(call);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).expect("a text");
        assert!(text.contains("the current thread"), "{call}: {text}");
        // What the call consumed is released in the background.
        threads.wait_children(0);
    };
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().expect("a runtime");
        for (name, call) in calls {
            let guard = mutex.lock().expect("held");
            let in_main = || runtime.block_on(async { call(&session, &mutex, guard) });
            panics(name, catch_unwind(AssertUnwindSafe(in_main)));
            let (session, mutex, guard) = (session.clone(), mutex.clone(), mutex.lock().expect("held"));
            let task = runtime.spawn(async move { call(&session, &mutex, guard) });
            panics(name, runtime.block_on(task).map_err(tokio::task::JoinError::into_panic));
        }
        let mutex = mutex.clone();
        let allowed = runtime.spawn(async move { spawn_blocking(move || mutex.lock()?.release()).await });
        runtime.block_on(allowed).expect("no panic").expect("no panic").expect("held and released");
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let in_place = async move { tokio::task::block_in_place(|| mutex.lock()?.release()) };
    runtime.block_on(runtime.spawn(in_place)).expect("no panic").expect("held and released");
    session.close().expect("closed");
}

#[test]
fn limit_of_zero_is_over_at_once_without_a_connection() {
    let session = Session::lazy("localhost:1").expect("a session");
    let mutex = Mutex::new(&session, "/it-nowhere/lock").expect("a mutex");
    let tried = mutex.try_lock_for(Duration::ZERO);
    let Err(Error::Unavailable { after, .. }) = &tried else { panic!("{tried:?}") };
    assert!(after.is_zero(), "{tried:?}");
    session.close().expect("closed");
}

#[test]
fn thread_that_waits_is_woken_by_drain_and_by_close() {
    let threads = Threads::new();
    let holder = threads.mutex(&threads.other()).lock().expect("held");
    for end in [|session: &Session| session.close(), |session: &Session| session.drain(PATIENCE).map(drop)] {
        let session = threads.session();
        let mutex = threads.mutex(&session);
        let waiting = start(move || mutex.lock());
        threads.wait_children(2);
        end(&session).expect("ended");
        assert!(matches!(waiting.done("the thread"), Err(Error::Closed)));
        threads.wait_children(1);
    }
    holder.release().expect("released");
}

#[test]
fn thread_of_a_session_ends_with_its_last_handle_and_not_before() {
    let threads = Threads::new();
    let session = threads.other();
    let (alive, ended) = mpsc::channel::<()>();
    // It is dropped with the runtime.
    let task = async move {
        tokio::spawn(async move {
            let _alive = alive;
            pending::<()>().await
        });
    };
    session.block_on(task);
    let mutex = threads.mutex(&session);
    session.close().expect("closed");
    drop(session);
    // Needs the timers of the runtime.
    assert!(matches!(mutex.try_lock_for(PATIENCE), Err(Error::Closed)));
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty), "the mutex needs the thread");
    drop(mutex);
    assert_eq!(ended.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn waiter_keeps_its_position_between_its_waits() {
    let threads = Threads::new();
    let session = threads.session();
    let mutex = threads.mutex(&session);
    let holder = threads.mutex(&threads.other()).lock().expect("held");
    let mut waiting = mutex.enqueue().expect("queued");
    let queued = threads.wait_children(2);
    for _ in 0..3 {
        assert!(waiting.wait_for(Duration::from_millis(50)).expect("it waits").is_none());
    }
    assert_eq!((waiting.position(), threads.wait_children(2)), (1, queued.clone()));
    holder.release().expect("released");
    let guard = waiting.wait_for(PATIENCE).expect("granted").expect("in time");
    assert_eq!(threads.wait_children(1), queued[1..]);
    assert!(matches!(waiting.wait_for(PATIENCE), Err(Error::InvalidInput { what: "waiter", .. })));
    let (left, last) = (mutex.enqueue().expect("queued"), mutex.enqueue().expect("queued"));
    threads.wait_children(3);
    drop(left);
    threads.wait_children(2);
    let last = start(move || last.wait());
    guard.release().expect("released");
    last.done("the last").expect("granted").release().expect("released");
}

#[test]
fn leader_leads_again_whenever_its_closure_returns() {
    let threads = Threads::new();
    let election = threads.election(&threads.session(), "one");
    let of_closure = election.clone();
    let mut tokens = Vec::new();
    let led = election.run(|term: &Term| {
        assert_eq!(of_closure.leader().expect("answered").expect("it").identifier(), b"one");
        assert_eq!(of_closure.current_term().expect("it leads").fencing_token(), term.fencing_token());
        tokens.push(term.fencing_token());
        if tokens.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    led.expect("resigned");
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(election.current_term().is_none());
    threads.wait_children(0);
}

/// Leads on a thread until its session is drained or closed, and reports the beginning and the end of each term.
fn run(election: Election) -> (Work<Result<(), Error>>, mpsc::Receiver<&'static str>) {
    let (send, steps) = mpsc::channel();
    let leads = move |term: &Term| {
        let _ = send.send("leads");
        assert!(term.wait_over_for(PATIENCE) && term.is_over());
        let _ = send.send("ends");
        ControlFlow::Continue(())
    };
    (start(move || election.run(leads)), steps)
}

#[test]
fn threads_and_tasks_share_one_session() {
    let threads = Threads::new();
    let session = threads.session();
    let shared = session.as_async().clone();
    assert_eq!(shared.id(), session.id(), "no other session is made");
    let mutex = threads.mutex(&session);
    let of_tasks = zookeeper_recipes::Mutex::new(&shared, &threads.world.path).expect("a mutex");
    let guard = mutex.lock().expect("held");
    let (send, granted) = mpsc::channel();
    let task = threads.tokio.spawn({
        let of_tasks = of_tasks.clone();
        async move {
            let guard = of_tasks.lock().await.expect("held");
            send.send(()).expect("received");
            guard.revoke_requested().await;
            guard.release().await.expect("released");
        }
    });
    threads.wait_children(2);
    assert!(granted.try_recv().is_err(), "a thread holds it");
    guard.release().expect("released");
    assert_eq!(granted.recv_timeout(PATIENCE), Ok(()));
    assert!(mutex.try_lock().expect("asked").is_none(), "a task holds it");
    assert!(mutex.revoke(&mutex.contenders().expect("listed")[0]).expect("revoked"));
    threads.tokio.block_on(task).expect("no panic");
    // Its thread lives on for the tasks.
    drop((mutex, session));
    threads.tokio.block_on(async {
        of_tasks.lock().await.expect("held").release().await.expect("released");
        shared.close().await.expect("closed");
    });
}

#[test]
fn release_with_a_limit_goes_on_in_the_background() {
    let threads = Threads::new();
    let session = threads.session();
    let mutex = threads.mutex(&session);
    mutex.lock().expect("held").release_within(PATIENCE).expect("released");
    let guard = mutex.lock().expect("held");
    threads.world.proxy.refuse();
    let error = guard.release_within(BRIEF / 10).expect_err("no server answers");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    threads.world.proxy.heal();
    threads.wait_children(0);
    let guard = mutex.lock().expect("held");
    threads.tokio.block_on(threads.world.expire_that_of(session.as_async()));
    assert_eq!(session.block_on(guard.monitor().ended()), HoldState::Lost(Loss::Expired));
    assert_eq!(guard.release_within(PATIENCE), Err(Error::Lost(Loss::Expired)));
    let leadership = threads.election(&session, "leader").campaign().expect("leads");
    assert_eq!(leadership.resign_within(PATIENCE), Ok(()));
}

#[test]
fn candidate_leads_when_the_session_of_the_leader_is_drained() {
    let threads = Threads::new();
    let sessions = [threads.session(), threads.other()];
    let (leader, of_leader) = run(threads.election(&sessions[0], "leader"));
    assert_eq!(of_leader.recv_timeout(PATIENCE), Ok("leads"));
    let (follower, of_follower) = run(threads.election(&sessions[1], "follower"));
    threads.wait_children(2);
    assert_eq!(sessions[0].drain(PATIENCE).expect("drained"), 0);
    leader.done("the end").expect("that the session is closed is no error");
    assert_eq!(of_leader.iter().collect::<Vec<_>>(), ["ends"], "its closure is not called again");
    assert_eq!(of_follower.recv_timeout(PATIENCE), Ok("leads"));
    assert_eq!(sessions[1].drain(PATIENCE).expect("drained"), 0);
    follower.done("the end").expect("that the session is closed is no error");
    threads.wait_children(0);
}

#[test]
fn candidate_loses_its_leadership_and_leads_again() {
    let threads = Threads::new();
    let session = threads.session();
    let (candidate, steps) = run(threads.election(&session, "candidate"));
    assert_eq!(steps.recv_timeout(PATIENCE), Ok("leads"));
    let [node] = &threads.wait_children(1)[..] else { panic!("one node") };
    let node = format!("{}/{node}", threads.world.path);
    threads.tokio.block_on(threads.world.admin.delete(&node, None)).expect("deleted");
    assert_eq!(steps.recv_timeout(PATIENCE), Ok("ends"));
    assert_eq!(steps.recv_timeout(PATIENCE), Ok("leads"));
    session.close().expect("closed");
    candidate.done("the end").expect("that the session is closed is no error");
}

#[test]
fn candidate_goes_on_after_a_panic_of_its_closure() {
    let threads = Threads::new();
    let election = threads.election(&threads.session(), "candidate");
    let mut terms = 0;
    let led = start(move || {
        election.run(|_: &Term| {
            terms += 1;
            assert!(terms > 1, "a fault");
            ControlFlow::Break(())
        })
    });
    led.done("the end").expect("resigned");
    threads.wait_children(0);
}
