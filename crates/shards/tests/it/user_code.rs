//! A `tracing` layer of the user's that calls the handle of a member back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Dispatch, Event, Metadata, Subscriber};
use zookeeper_shards::Shards;

use crate::support::Fleet;

const TWO: [&str; 2] = ["orders-0", "orders-1"];

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
