//! The numbers that the feature `metrics` gives a recorder.

use std::collections::HashMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use testbed::{Server, free_port};
use zookeeper_recipes::{Election, Error, Job, Loss, Mutex, RwLock, Session, metrics as names};

use crate::support::{BRIEF, World, connect_for, soon, until};

/// The values of a recorder, by name and labels such as `name{kind=lock,outcome=granted}`.
struct Numbers(Snapshotter, HashMap<String, f64>);

impl Numbers {
    /// What was added since the last look, in a gauge too, is added up.
    fn look(&mut self) {
        for (key, _, _, value) in self.0.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let mut labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            labels.sort();
            labels.retain(|label| label != "lock=");
            let name = format!("{}{{{}}}", key.name(), labels.join(","));
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.into_inner(),
                DebugValue::Histogram(samples) => samples.len() as f64,
            };
            let known = self.1.entry(name).or_default();
            *known += value;
        }
    }

    fn of(&mut self, name: &str, labels: &str) -> f64 {
        self.published(name, labels).unwrap_or_default()
    }

    /// The same; `None` if nothing was ever published under this name.
    fn published(&mut self, name: &str, labels: &str) -> Option<f64> {
        self.look();
        self.1.get(&format!("{name}{{{labels}}}")).copied()
    }

    async fn until_connected(&mut self, sessions: f64) {
        until("another state of the connection", || self.of(names::CONNECTED, "") == sessions).await;
    }
}

fn recorder() -> (Numbers, &'static DebuggingRecorder) {
    let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
    (Numbers(recorder.snapshotter(), HashMap::new()), recorder)
}

#[tokio::test]
async fn locks_and_sessions_are_counted() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    names::describe();
    let world = World::new().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    assert_eq!(numbers.of(names::HOLDS, "kind=lock"), 1.0);
    assert!(mutex.try_lock().await.expect("asked").is_none());
    assert_eq!(numbers.of(names::WAITING, "kind=lock"), 0.0);
    guard.release().await.expect("released");
    assert_eq!(numbers.of(names::HOLDS, "kind=lock"), 0.0);
    assert_eq!(numbers.of(names::ACQUISITIONS, "kind=lock,outcome=granted"), 1.0);
    assert_eq!(numbers.of(names::ACQUISITIONS, "kind=lock,outcome=contended"), 1.0);
    assert_eq!(numbers.of(names::WAIT, "kind=lock,outcome=granted"), 1.0);
    assert_eq!(numbers.of(names::HOLD, "kind=lock"), 1.0);
    until("a create is counted", || numbers.of(names::REQUESTS, "request=create") >= 1.0).await;
    until("a delete is counted", || numbers.of(names::REQUESTS, "request=delete") >= 1.0).await;

    let guard = mutex.lock().await.expect("held");
    world.expire().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    until("the loss is counted", || numbers.of(names::LOSSES, "cause=expired,kind=lock") == 1.0).await;
    mutex.lock().await.expect("held").release().await.expect("released");
    until("the renewal is counted", || numbers.of(names::RENEWALS, "") == 1.0).await;
}

#[tokio::test]
async fn gauge_counts_the_calls_that_wait_now() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    let world = World::new().await;
    let mutex = world.mutex();
    assert_eq!(numbers.published(names::WAITING, "kind=lock"), Some(0.0), "before the first call");
    let guard = mutex.lock().await.expect("held");
    let mut waits = [1, 2].map(|_| Box::pin(mutex.lock()));
    for wait in &mut waits {
        assert!(futures_util::poll!(wait).is_pending());
    }
    assert_eq!(numbers.of(names::WAITING, "kind=lock"), 2.0);
    let [first, second] = waits;
    drop(second);
    assert_eq!(numbers.of(names::WAITING, "kind=lock"), 1.0, "one was cancelled");
    guard.release().await.expect("released");
    let guard = soon("the next is granted", first).await.expect("held");
    assert_eq!(numbers.of(names::WAITING, "kind=lock"), 0.0);
    guard.release().await.expect("released");
}

#[tokio::test]
async fn tokens_that_fall_are_counted() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    let mut server = Server::start().await.expect("a server");
    let session = connect_for(&server.hosts(), BRIEF).await;
    let mutex = Mutex::new(&session, "/falls/lock").expect("a mutex");
    for _ in 0..20 {
        mutex.lock().await.expect("held").release().await.expect("released");
    }
    assert_eq!(numbers.published(names::FALLS, ""), Some(0.0));
    server.restart_empty().await.expect("a server without data");
    soon("a grant in a renewed session", mutex.lock()).await.expect("held").release().await.expect("released");
    assert_eq!(numbers.of(names::FALLS, ""), 1.0);
}

#[tokio::test]
async fn counters_of_a_session_and_its_locks_begin_at_zero() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    let hosts = format!("127.0.0.1:{}", free_port());
    let session = Session::lazy(&hosts).expect("a session");
    assert_eq!(numbers.published(names::RENEWALS, ""), Some(0.0));
    assert_eq!(numbers.published(names::CONNECTED, ""), Some(0.0));
    let _lock = RwLock::new(&session, "/locks/prices").expect("a lock");
    for kind in ["reader", "writer"] {
        for cause in ["expired", "trust_ended", "deleted", "closed", "stalled"] {
            assert_eq!(
                numbers.published(names::LOSSES, &format!("cause={cause},kind={kind}")),
                Some(0.0),
                "{cause}"
            );
        }
        for outcome in ["granted", "contended", "cancelled", "unavailable", "session_full"] {
            let labels = format!("kind={kind},outcome={outcome}");
            assert_eq!(numbers.published(names::ACQUISITIONS, &labels), Some(0.0), "{outcome}");
        }
    }
}

#[tokio::test]
async fn gauge_follows_the_connection_of_a_session() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    let world = World::new().await;
    numbers.until_connected(1.0).await;
    world.proxy.refuse();
    numbers.until_connected(0.0).await;
    world.proxy.heal();
    numbers.until_connected(1.0).await;
    world.expire().await;
    world.mutex().lock().await.expect("held in the next session").release().await.expect("released");
    until("the renewal is counted", || numbers.of(names::RENEWALS, "") == 1.0).await;
    numbers.until_connected(1.0).await;
    world.session.close().await.expect("closed");
    numbers.until_connected(0.0).await;
}

#[tokio::test]
async fn fires_of_jobs_are_counted_by_their_outcome() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    let world = World::new().await;
    let job = Job::new(&world.session, &world.path).expect("a job");
    for outcome in ["ran", "ran_already", "superseded", "running", "too_early", "failed"] {
        assert_eq!(numbers.published(names::JOBS, &format!("outcome={outcome}")), Some(0.0));
    }
    for slot in [5_u64, 5, 3] {
        let _ = job.run(slot, async |_| Ok::<_, Error>(())).await.expect("an outcome");
    }
    for outcome in ["ran", "ran_already", "superseded"] {
        assert_eq!(numbers.of(names::JOBS, &format!("outcome={outcome}")), 1.0, "{outcome}");
    }
    let failed = job.run(7_u64, async |_| Err::<(), _>(Error::from(Loss::Deleted))).await;
    assert!(matches!(failed, Err(Error::Lost(Loss::Deleted))), "{failed:?}");
    assert_eq!(numbers.of(names::JOBS, "outcome=failed"), 1.0);
}

#[tokio::test]
async fn pauses_of_candidates_are_counted_by_their_cause() {
    let (mut numbers, recorder) = recorder();
    let _records = metrics::set_default_local_recorder(recorder);
    let world = World::new().await;
    let election = Election::new(&world.session, &world.path).expect("an election");
    let mut terms = 0;
    let leads = tokio::spawn(election.run(move |_| {
        terms += 1;
        assert!(terms > 1, "a mistake");
        std::future::ready(())
    }));
    world.wait_children(1).await;
    for cause in ["returned", "panicked"] {
        assert_eq!(numbers.published(names::PAUSES, &format!("cause={cause}")), Some(0.0));
    }
    for cause in ["panicked", "returned"] {
        until(cause, || numbers.of(names::PAUSES, &format!("cause={cause}")) == 1.0).await;
    }
    leads.abort();
}
