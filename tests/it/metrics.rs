//! The numbers that the feature `metrics` gives a recorder.

use std::collections::HashMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use zookeeper_recipes::{Loss, metrics as names};

use crate::support::{World, soon};

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
        self.look();
        self.1.get(&format!("{name}{{{labels}}}")).copied().unwrap_or_default()
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
    guard.release().await.expect("released");
    assert_eq!(numbers.of(names::HOLDS, "kind=lock"), 0.0);
    assert_eq!(numbers.of(names::ACQUISITIONS, "kind=lock,outcome=granted"), 1.0);
    assert_eq!(numbers.of(names::ACQUISITIONS, "kind=lock,outcome=contended"), 1.0);
    assert_eq!(numbers.of(names::WAIT, "kind=lock,outcome=granted"), 1.0);
    assert_eq!(numbers.of(names::HOLD, "kind=lock"), 1.0);
    assert_eq!(numbers.of(names::AHEAD, "kind=lock"), 1.0);
    assert!(numbers.of(names::REQUESTS, "request=create") >= 1.0);
    assert!(numbers.of(names::REQUESTS, "request=delete") >= 1.0);
    soon("the clean-up", async {
        while numbers.of(names::CLEANUP, "") != 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;

    let guard = mutex.lock().await.expect("held");
    soon("trust", async {
        while numbers.of(names::TRUST, "") <= 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.expire().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    assert_eq!(numbers.of(names::LOSSES, "cause=expired,kind=lock"), 1.0);
    mutex.lock().await.expect("held").release().await.expect("released");
    assert_eq!(numbers.of(names::RENEWALS, ""), 1.0);
}
