//! What needs threads: a member that stands still alone, functions that block, and code of the user's that may hang.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Dispatch, Event, Metadata, Subscriber};
use zookeeper_groups::Shards;

use crate::faults::busy;
use crate::ledger::Ledger;
use crate::support::{Fleet, soon};

const TWO: [&str; 2] = ["orders-0", "orders-1"];
const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

/// A member whose whole process can be stopped: a thread with a runtime of its own.
struct Process {
    stop: mpsc::Sender<mpsc::Receiver<()>>,
    end: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Process {
    fn start(fleet: &Fleet, name: &'static str) -> Self {
        let ((stop, stops), (end, ended)) =
            (mpsc::channel::<mpsc::Receiver<()>>(), tokio::sync::oneshot::channel());
        let fleet = fleet.clone();
        let work = async move || {
            let member = fleet.start(name).await;
            let stopping = async {
                let mut turns = tokio::time::interval(Duration::from_millis(10));
                loop {
                    turns.tick().await;
                    if let Ok(goes_on) = stops.try_recv() {
                        // The runtime has no other thread.
                        goes_on.recv().expect("goes on");
                    }
                }
            };
            tokio::select! {
                _ = ended => {}
                () = stopping => {}
            }
            member.stop().await;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { stop, end, thread: std::thread::spawn(move || runtime.block_on(work())) }
    }

    /// Stops it until the value that is returned is dropped or sent something.
    fn stop(&self, ledger: &Ledger, name: &str) -> mpsc::Sender<()> {
        let (go_on, goes_on) = mpsc::channel();
        ledger.stopped(name);
        self.stop.send(goes_on).expect("it runs");
        go_on
    }

    fn end(self) {
        self.end.send(()).expect("it runs");
        self.thread.join().expect("no panic");
    }
}

/// Another member has joined meanwhile, so the plan that the stopped one has is old.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_member_that_wakes_with_an_old_plan_does_no_step_and_keeps_nothing_of_others() {
    let fleet = busy(Fleet::new(48).await);
    let stopped = Process::start(&fleet, "orders-0");
    let _second = fleet.start("orders-1").await;
    fleet.settled(&TWO).await;
    let go_on = stopped.stop(&fleet.ledger, "orders-0");
    let _third = fleet.start("orders-2").await;
    fleet.settled(&["orders-1", "orders-2"]).await;
    fleet.ledger.goes_on("orders-0");
    go_on.send(()).expect("it waits");
    fleet.settled(&THREE).await;
    fleet.ledger.judge();
    tokio::task::spawn_blocking(|| stopped.end()).await.expect("ended");
    fleet.ledger.judge();
}

/// Each shard has a thread of `spawn_blocking` until it is to end, and there are fewer threads than shards.
#[test]
fn functions_that_fill_the_pool_of_blocking_threads_are_asked_to_end() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let fleet = Fleet::new(6).await.working(|service, shard| async move {
            let (ends, ended) = std::sync::mpsc::channel::<()>();
            let _blocks = spawn_blocking(move || ended.recv());
            shard.revoke_requested().await;
            drop(ends);
            service.step();
        });
        let first = fleet.started(&THREE[..1]).await.remove(0);
        let second = fleet.start(THREE[1]).await;
        fleet.settled(&THREE[..2]).await;
        first.stop().await;
        fleet.settled(&THREE[1..2]).await;
        second.stop().await;
        fleet.ledger.judge();
    });
}

#[tokio::test]
async fn member_runs_on_a_thread_without_async() {
    let fleet = Fleet::new(8).await;
    let (hosts, builder) = (fleet.root.hosts(), fleet.builder("orders-0"));
    let (send, receive) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || -> zookeeper_recipes::Result<()> {
        let session = zookeeper_recipes::blocking::Session::connect(hosts.as_str())?;
        let shards = builder.build(session.as_async())?;
        send.send(shards.clone()).expect("the test waits for it");
        session.block_on(shards.run(async |shard| shard.revoke_requested().await))?;
        session.close()
    });
    let shards = soon("a member", receive).await.expect("connected");
    let all = soon("all", shards.changes().wait_for(|owned| owned.len() == 8)).await;
    assert_eq!(all, Some((0..8).collect()));
    shards.stop();
    let joined = tokio::task::spawn_blocking(|| thread.join().expect("no panic"));
    soon("its end", joined).await.expect("no panic").expect("stopped and closed");
}

/// Asks what a member owns, whenever a span ends.
#[derive(Clone, Default)]
struct Asks {
    shards: Arc<OnceLock<Shards>>,
    times: Arc<AtomicUsize>,
}

impl Subscriber for Asks {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        if let Some(shards) = self.shards.get() {
            let _ = shards.owned();
            self.times.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

#[test]
fn layer_that_asks_what_is_owned_when_a_span_ends_does_not_hang() {
    let (ends, ended) = mpsc::channel();
    // Not this thread, because it might hang.
    thread::spawn(move || {
        let asks = Asks::default();
        // With one subscriber alone, `tracing` remembers for all threads what the first of them wants.
        let _another = Dispatch::new(Asks::default());
        let _scope = set_default(asks.clone());
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let fleet = Fleet::new(48).await.set(|builder| builder.moves_at_once(48));
            let first = fleet.started(&TWO[..1]).await.remove(0);
            assert!(asks.shards.set(first.shards.clone()).is_ok());
            let second = fleet.start(TWO[1]).await;
            fleet.settled(&TWO).await;
            first.stop().await;
            fleet.settled(&TWO[1..]).await;
            second.stop().await;
            fleet.ledger.judge();
        });
        ends.send(asks.times.load(Ordering::Relaxed)).expect("it waits");
    });
    let times = ended.recv_timeout(Duration::from_secs(60)).expect("it does not hang");
    assert!(times > 0);
}
