//! The numbers that the feature `metrics` gives a recorder.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use testbed::next_look;
use zookeeper_groups::metrics as names;
use zookeeper_recipes::Mutex;

use crate::support::{Fleet, PATH, soon};

const TWO: [&str; 2] = ["orders-0", "orders-1"];

/// The values by name.
#[derive(Clone, Default)]
pub(crate) struct Numbers(Arc<StdMutex<BTreeMap<String, Value>>>);

/// Whether it is a gauge, which has bits of floating point, and the value.
type Value = (bool, Arc<AtomicU64>);

impl Numbers {
    fn register(&self, key: &Key, is_gauge: bool) -> Arc<AtomicU64> {
        // Where the whole workspace is built, the library has the feature too, and reports to the same recorder.
        if !key.name().starts_with("zookeeper_shards_") {
            return Arc::default();
        }
        assert!(key.labels().all(|label| (label.key(), label.value()) == ("group", PATH)), "{key}");
        let mut values = self.0.lock().expect("no panic");
        values.entry(key.name().to_owned()).or_insert_with(|| (is_gauge, Arc::default())).1.clone()
    }

    /// The value; it is not a number before the first report.
    pub(crate) fn of(&self, name: &str) -> f64 {
        let values = self.0.lock().expect("no panic");
        let Some((is_gauge, value)) = values.get(name) else { return f64::NAN };
        let value = value.load(Ordering::SeqCst);
        if *is_gauge { f64::from_bits(value) } else { value as f64 }
    }

    pub(crate) async fn until(&self, name: &str, value: f64) {
        let is_so = async {
            while self.of(name) != value {
                next_look().await;
            }
        };
        soon(&format!("{name} is {value}"), is_so).await;
    }
}

impl Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key, false))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key, true))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        assert!(!key.name().starts_with("zookeeper_shards_"), "a histogram: {key}");
        Histogram::noop()
    }
}

/// The recorder is that of this thread, so all tasks run on it.
#[tokio::test]
async fn shards_moves_cuts_and_a_refused_plan_node_are_counted() {
    let numbers = Numbers::default();
    let _records = metrics::set_default_local_recorder(&numbers);
    names::describe();
    // One function does not end by itself.
    let fleet = Fleet::new(24).await.set(|builder| builder.drain_limit(Duration::from_millis(300)));
    let stubborn = fleet.plan(&TWO).shards_of(TWO[1]).next().expect("a shard");
    let fleet = fleet.working(move |service, shard| async move {
        shard.revoke_requested().await;
        if shard.number() == stubborn {
            std::future::pending::<()>().await;
        }
        drop(service);
    });
    let _first = fleet.started(&TWO[..1]).await;
    numbers.until(names::OWNED, 24.0).await;
    assert_eq!((numbers.of(names::MOVES), numbers.of(names::CUTS)), (0.0, 0.0));
    assert_eq!((numbers.of(names::UNASSIGNED), numbers.of(names::PLAN_NODE_REFUSED)), (0.0, 0.0));
    let second = fleet.start(TWO[1]).await;
    fleet.settled(&TWO).await;
    // Of both members.
    numbers.until(names::OWNED, 24.0).await;
    let moves = fleet.plan(&TWO).shards_of(TWO[1]).count() as f64;
    assert_eq!((numbers.of(names::MOVES), numbers.of(names::CUTS)), (moves, 1.0));
    fleet.write_rules("rubbish").await;
    numbers.until(names::PLAN_NODE_REFUSED, 2.0).await;
    fleet.write_rules("version 1\n").await;
    numbers.until(names::PLAN_NODE_REFUSED, 0.0).await;
    second.stop().await;
    fleet.settled(&TWO[..1]).await;
    numbers.until(names::OWNED, 24.0).await;
    assert_eq!(numbers.of(names::UNASSIGNED), 0.0);
}

/// Their planned owner is in the group, and takes none.
#[tokio::test]
async fn shards_without_an_owner_are_counted_once_over_all_members() {
    let numbers = Numbers::default();
    let _records = metrics::set_default_local_recorder(&numbers);
    let fleet = Fleet::new(24)
        .await
        .set(|builder| builder.grace(Duration::from_secs(600)).patience(Duration::from_secs(1)));
    let session = fleet.session().await;
    let group = zookeeper_groups::Members::new(&session, &format!("{PATH}/members")).expect("a path");
    let _hung = soon("a join", group.join("orders-2", b"24")).await.expect("joined");
    let _members = [fleet.start(TWO[0]).await, fleet.start(TWO[1]).await];
    let plan = fleet.plan(&["orders-0", "orders-1", "orders-2"]);
    let orphans: Vec<_> = plan.shards_of("orders-2").collect();
    numbers.until(names::UNASSIGNED, orphans.len() as f64).await;
    let lock = Mutex::new(&fleet.root, &format!("{PATH}/{}", orphans[0])).expect("a path");
    let _guard = soon("a lock", lock.lock()).await.expect("held");
    numbers.until(names::UNASSIGNED, orphans.len() as f64 - 1.0).await;
}
