//! What a member logs and counts: functions that return, panics, a pause of its process, and an outage.

use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tracing::Level;
use zookeeper_groups::metrics as names;

use crate::metrics::Numbers;
use crate::support::{Fleet, TIMEOUT};
use crate::warnings::Warnings;

/// As with a store that refuses the owner's token each time.
#[tokio::test]
async fn function_that_returns_each_time_is_a_warning_and_is_counted() {
    let (numbers, logged) = (Numbers::default(), Warnings::of("zookeeper_groups"));
    let (_records, _listens) = (metrics::set_default_local_recorder(&numbers), logged.listen());
    let fleet = Fleet::new(1).await.working(|service, _| async move { drop(service) });
    let _member = fleet.start("a").await;
    // Pauses of one second and of two.
    numbers.until(names::RETURNED, 3.0).await;
    assert_eq!(logged.count("the function of a shard has returned unasked"), 3);
}

struct PanicsAgain(Arc<AtomicUsize>);

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}

#[tokio::test]
async fn panic_whose_value_panics_when_it_is_dropped_ends_one_shard() {
    let dropped = Arc::<AtomicUsize>::default();
    let counts = dropped.clone();
    let fleet = Fleet::new(8).await.working(move |service, shard| {
        let counts = counts.clone();
        async move {
            if shard.number() == 3 && counts.load(Ordering::SeqCst) == 0 {
                drop(service);
                panic_any(PanicsAgain(counts));
            }
            shard.revoke_requested().await;
            drop(service);
        }
    });
    let member = fleet.start("a").await;
    fleet.settled(&["a"]).await;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    member.stop().await;
    fleet.ledger.judge();
}

/// All shards are lost and come back: two changes of the set.
#[tokio::test]
async fn pause_of_a_process_is_logged_once_and_so_is_its_return() {
    let logged = Warnings::of("zookeeper_groups").down_to(Level::INFO);
    let _listens = logged.listen();
    let fleet = Fleet::new(15).await;
    let _members = fleet.started(&["a"]).await;
    sleep(Duration::from_secs(1)).await;
    let before = logged.count("");
    // No task runs meanwhile.
    std::thread::sleep(TIMEOUT * 2);
    fleet.ledger.until("a loss", |book| book.owned_by("a").is_empty()).await;
    fleet.settled(&["a"]).await;
    sleep(Duration::from_secs(1)).await;
    assert!(logged.count("") <= before + 2, "{:#?}", logged.with(""));
    assert!(logged.count("owned=15") >= 2 && logged.count("owned=0") == 1, "{:#?}", logged.with(""));
}

#[tokio::test]
async fn outage_is_no_fault_of_the_plan_node() {
    let (numbers, logged) = (Numbers::default(), Warnings::of("zookeeper_groups"));
    let (_records, _listens) = (metrics::set_default_local_recorder(&numbers), logged.listen());
    let fleet = Fleet::new(8).await;
    let _members = fleet.started(&["a"]).await;
    fleet.root.make_unavailable();
    for _ in 0..24 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(numbers.of(names::PLAN_NODE_REFUSED), 0.0);
    }
    fleet.root.make_available();
    fleet.settled(&["a"]).await;
    assert_eq!(logged.count("plan node"), 0, "{:#?}", logged.with("plan node"));
}
