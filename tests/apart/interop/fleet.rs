//! What must hold for every pair, in both directions.

use std::future::pending;
use std::process::Stdio;

use futures_util::FutureExt;
use testbed::proxy::Proxy;
use tokio::process::Command;
use tokio::task::JoinHandle;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{LockGuard, Session, SessionState};

use crate::ledger::Ledger;
use crate::pairs::*;
use crate::peer::Handle;
use crate::support::{connect, dwell, fresh_path, hosts, soon, wait_nodes};
use crate::watched::{Watched, proxy, watch};

const HAND_OVERS: usize = 50;
const TURNS: usize = 25;
/// The environment variable with the lock path, for a process of ours that holds until it is killed.
const HOLD: &str = "INTEROP_HOLD";

/// Both sides of a pair on one path, and an admin client.
struct Fleet {
    pair: &'static Pair,
    theirs: Watched,
    session: Session,
    proxy: Proxy,
    admin: Client,
    path: String,
    dirs: Vec<String>,
}

impl Fleet {
    async fn of(pair: &'static Pair) -> Self {
        let (proxy, path) = (proxy().await, fresh_path());
        Self {
            pair,
            theirs: Watched::start(pair.language).await,
            session: connect(&proxy.hosts()).await,
            proxy,
            admin: Client::connect(&hosts()).await.expect("connects"),
            dirs: pair.dirs.iter().map(|dir| format!("{path}{dir}")).collect(),
            path,
        }
    }

    /// Another lock of theirs, in the same process and session.
    async fn theirs(&self) -> Handle {
        self.theirs.peer.lock(self.pair.theirs, &self.path).await
    }

    /// Acquires ours in a task.
    fn ours(&self) -> JoinHandle<Box<dyn LockGuard>> {
        tokio::spawn((self.pair.ours)(&self.session, &self.path))
    }

    /// Acquires a lock that excludes both sides.
    async fn excluder(&self) -> Excluder {
        if self.pair.marks.1 == 'r' {
            return Excluder::Ours(held(self.ours()).await);
        }
        let mut theirs = self.theirs().await;
        theirs.acquire().await;
        Excluder::Theirs(theirs)
    }

    /// Waits until there are a holder and `waiters` waiters, and returns their nodes.
    async fn waiting(&self, waiters: usize) -> Vec<String> {
        wait_nodes(&self.admin, &self.dirs, (self.pair.nodes)(waiters)).await
    }

    /// Enqueues ours as the last of `waiters` waiters, checks that it waits, and also returns what it watches.
    async fn ours_waits(&self, waiters: usize) -> (JoinHandle<Box<dyn LockGuard>>, String) {
        self.proxy.reset();
        let mut ours = self.ours();
        self.waiting(waiters).await;
        let watched = tokio::select! {
            guard = &mut ours => panic!("we do not wait: {guard:?}"),
            watched = watch(&self.proxy) => watched,
        };
        dwell(&self.admin).await;
        assert!(!ours.is_finished());
        (ours, watched)
    }

    /// Does the same for theirs, with the command `acquire`.
    async fn theirs_waits(&self, theirs: &mut Handle, acquire: &str, waiters: usize) -> String {
        self.theirs.proxy.reset();
        theirs.send(acquire).await;
        self.waiting(waiters).await;
        let watched = tokio::select! {
            answer = theirs.answer() => panic!("they do not wait: {answer:?}"),
            watched = watch(&self.theirs.proxy) => watched,
        };
        // Curator creates a lease in any case, and only then checks whether it may hold.
        dwell(&self.admin).await;
        assert!(theirs.is_silent());
        watched
    }

    /// Waits until `waiters` wait, and until the client that watched `watched` has listed again if it was woken. Its
    /// proxy was reset before.
    async fn looks_again(&self, proxy: &Proxy, watched: &str, waiters: usize) {
        if !self.waiting(waiters).await.iter().any(|node| node == watched) {
            watch(proxy).await;
        }
        dwell(&self.admin).await;
    }

    /// Checks that nothing is left, and that the driver exits with success.
    async fn end(self) {
        wait_nodes(&self.admin, &self.dirs, 0).await;
        self.theirs.peer.close().await;
        self.session.close().await.expect("closed");
    }
}

enum Excluder {
    Ours(Box<dyn LockGuard>),
    Theirs(Handle),
}

impl Excluder {
    async fn release(self) {
        match self {
            Self::Ours(guard) => guard.release().await.expect("released"),
            Self::Theirs(mut handle) => handle.release().await,
        }
    }
}

async fn held(ours: JoinHandle<Box<dyn LockGuard>>) -> Box<dyn LockGuard> {
    soon("our turn", ours).await.expect("no panic")
}

/// One holds at a time, by the ledger that all write to.
async fn exclusion(pair: &'static Pair) {
    let fleet = Fleet::of(pair).await;
    let ledger = Ledger::new();
    let (our_mark, their_mark) = pair.marks;
    let file = ledger.path();
    let mut theirs = [fleet.theirs().await, fleet.theirs().await];
    for handle in &theirs {
        handle.send(&format!("work {} {their_mark} 1 {TURNS}", file.display())).await;
    }
    let ours = (0..2).map(|who| {
        let (fleet, ledger, theirs) = (&fleet, &ledger, &theirs);
        async move {
            let who = format!("ours-{who}");
            // A driver may start late, so ours continue until theirs are done.
            let mut turns = 0..;
            while turns.next().expect("no end") < TURNS || theirs.iter().any(Handle::is_silent) {
                let guard = held(fleet.ours()).await;
                ledger.enter(our_mark, &who, 1);
                dwell(&fleet.admin).await;
                ledger.leave(our_mark, &who);
                guard.release().await.expect("released");
            }
        }
    });
    soon("all turns", futures_util::future::join_all(ours)).await;
    for handle in &mut theirs {
        let answer = handle.answer().await;
        assert_eq!(answer.word, "ok", "{}", answer.rest);
    }
    ledger.check(1);
    assert!(ledger.entries().len() >= 4 * TURNS);
    fleet.end().await;
}

/// Contenders are admitted in queue order, on either side.
async fn order(pair: &'static Pair) {
    let fleet = Fleet::of(pair).await;
    let (mut first, mut third) = (fleet.theirs().await, fleet.theirs().await);
    first.acquire().await;
    let (second, _) = fleet.ours_waits(1).await;
    let watched = fleet.theirs_waits(&mut third, "acquire", 2).await;
    let (fourth, watched_by_fourth) = fleet.ours_waits(3).await;
    assert!(third.is_silent() && !second.is_finished());
    fleet.theirs.proxy.reset();
    first.release().await;
    let second = held(second).await;
    // A waiter for a permit is woken twice: for its turn and for the lease.
    fleet.looks_again(&fleet.theirs.proxy, &watched, 2).await;
    assert!(third.is_silent() && !fourth.is_finished());
    fleet.proxy.reset();
    second.release().await.expect("released");
    third.held().await;
    fleet.looks_again(&fleet.proxy, &watched_by_fourth, 1).await;
    assert!(!fourth.is_finished());
    third.release().await;
    held(fourth).await.release().await.expect("released");
    fleet.end().await;
}

/// The lock changes sides fifty times each way.
async fn hand_over(pair: &'static Pair) {
    let fleet = Fleet::of(pair).await;
    let mut theirs = fleet.theirs().await;
    theirs.acquire().await;
    for _ in 0..HAND_OVERS {
        let (ours, _) = fleet.ours_waits(1).await;
        theirs.release().await;
        let guard = held(ours).await;
        fleet.theirs_waits(&mut theirs, "acquire", 1).await;
        guard.release().await.expect("released");
        theirs.held().await;
    }
    theirs.release().await;
    fleet.end().await;
}

/// Their process is killed while it holds: we acquire when its session has expired.
async fn their_holder_is_killed(pair: &'static Pair) {
    let fleet = Fleet::of(pair).await;
    let mut theirs = fleet.theirs().await;
    theirs.acquire().await;
    let (ours, _) = fleet.ours_waits(1).await;
    let Fleet { theirs: Watched { peer, .. }, session, admin, dirs, proxy: _proxy, .. } = fleet;
    peer.kill().await;
    held(ours).await.release().await.expect("released");
    wait_nodes(&admin, &dirs, 0).await;
    session.close().await.expect("closed");
}

/// Our process is killed while it holds: they acquire when its session has expired. The process is this binary, run
/// again with only the test `name`, which [holds](hold) there.
async fn our_holder_is_killed(pair: &'static Pair, name: &str) {
    let fleet = Fleet::of(pair).await;
    let mut theirs = fleet.theirs().await;
    let mut ours = Command::new(std::env::current_exe().expect("the path of this binary"))
        .args(["--exact", name.split_once("::").expect("the crate and a path").1])
        .env(HOLD, &fleet.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("this binary runs again");
    fleet.waiting(0).await;
    fleet.theirs_waits(&mut theirs, "acquire", 1).await;
    ours.kill().await.expect("killed");
    theirs.held().await;
    theirs.release().await;
    fleet.end().await;
}

/// Holds the lock at `path` until the process is killed.
async fn hold(pair: &'static Pair, path: &str) {
    let session = connect(&hosts()).await;
    let _guard = (pair.ours)(&session, path).await;
    pending::<()>().await;
}

/// We are cut off from all servers while we hold: they acquire when our session has expired, and we know it.
async fn our_holder_is_cut_off(pair: &'static Pair) {
    let fleet = Fleet::of(pair).await;
    let mut theirs = fleet.theirs().await;
    let guard = held(fleet.ours()).await;
    fleet.theirs_waits(&mut theirs, "acquire", 1).await;
    let lost = guard.lost();
    fleet.proxy.refuse();
    theirs.held().await;
    assert!(lost.now_or_never().is_some(), "they hold before we knew");
    fleet.proxy.heal();
    theirs.release().await;
    // Before that a close cannot be certain of its nodes.
    let connected = |state: SessionState| state.is_connected();
    soon("the renewal", fleet.session.states().wait_for(connected)).await.expect("not closed");
    fleet.end().await;
}

/// We cancel while we wait: nobody waits for us.
async fn our_waiter_is_cancelled(pair: &'static Pair) {
    let fleet = Fleet::of(pair).await;
    let mut third = fleet.theirs().await;
    let first = fleet.excluder().await;
    let (second, _) = fleet.ours_waits(1).await;
    let watched = fleet.theirs_waits(&mut third, "acquire", 2).await;
    fleet.theirs.proxy.reset();
    second.abort();
    // It waits for the holder now; a reader of Curator, which watches the first writer, did before.
    fleet.looks_again(&fleet.theirs.proxy, &watched, 1).await;
    assert!(third.is_silent());
    first.release().await;
    third.held().await;
    third.release().await;
    fleet.end().await;
}

/// They cancel or time out while they wait: nobody waits for them.
async fn their_waiter_is_cancelled(pair: &'static Pair) {
    for (acquire, cancel) in [("acquire", true), ("acquire 5000", false)] {
        let fleet = Fleet::of(pair).await;
        let mut second = fleet.theirs().await;
        let first = held(fleet.ours()).await;
        fleet.theirs_waits(&mut second, acquire, 1).await;
        let (third, _) = fleet.ours_waits(2).await;
        if cancel {
            second.send("cancel").await;
        }
        let answer = second.answer().await;
        assert_eq!(answer.word, if cancel { "cancelled" } else { "timeout" }, "{}", answer.rest);
        first.release().await.expect("released");
        held(third).await.release().await.expect("released");
        fleet.end().await;
    }
}

macro_rules! tests {
    ($pair:ident: $($test:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::$test(&super::$pair).await;
        }
    )*};
}

macro_rules! killed {
    ($pair:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn our_holder_is_killed() {
            match std::env::var(super::HOLD) {
                Ok(path) => super::hold(&super::$pair, &path).await,
                Err(_) => {
                    let name = concat!(module_path!(), "::our_holder_is_killed");
                    super::our_holder_is_killed(&super::$pair, name).await;
                }
            }
        }
    };
}

macro_rules! pairs {
    ($($name:ident => $pair:ident $(but $cannot:ident)?;)*) => {$(
        mod $name {
            tests!($pair: exclusion, order, hand_over, their_holder_is_killed, our_holder_is_cut_off,
                our_waiter_is_cancelled);
            killed!($pair);
            pairs!(@cancel $pair $($cannot)?);
        }
    )*};
    (@cancel $pair:ident) => { tests!($pair: their_waiter_is_cancelled); };
    (@cancel $pair:ident cannot_cancel) => {};
}

pairs! {
    go_lock => GO_LOCK but cannot_cancel;
    kazoo_lock => KAZOO_LOCK;
    kazoo_renamed_lock => KAZOO_RENAMED_LOCK;
    kazoo_writer_beside_writer => KAZOO_WRITER_BESIDE_WRITER;
    kazoo_writer_beside_reader => KAZOO_WRITER_BESIDE_READER;
    kazoo_reader_beside_writer => KAZOO_READER_BESIDE_WRITER;
    zookeeper_lock => ZOOKEEPER_LOCK;
    curator_mutex => CURATOR_MUTEX;
    curator_mutex_beside_reentrant => CURATOR_MUTEX_BESIDE_REENTRANT;
    curator_mutex_beside_path_removal => CURATOR_MUTEX_BESIDE_PATH_REMOVAL;
    curator_writer_beside_writer => CURATOR_WRITER_BESIDE_WRITER;
    curator_writer_beside_reader => CURATOR_WRITER_BESIDE_READER;
    curator_reader_beside_writer => CURATOR_READER_BESIDE_WRITER;
    curator_semaphore => CURATOR_SEMAPHORE;
    curator_semaphore_mutex => CURATOR_SEMAPHORE_MUTEX;
    curator_multi_lock => CURATOR_MULTI_LOCK;
    curator_latch => CURATOR_LATCH;
    curator_selector => CURATOR_SELECTOR;
}
