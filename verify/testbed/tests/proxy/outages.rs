//! Silence, refusal, and requests that a hook holds.

use std::time::Duration;

use testbed::proxy::{Op, Verdict};
use tokio::time;
use zookeeper_client::{Client, SessionState};

use crate::{Bench, SESSION_TIMEOUT, ephemeral, limited};

#[tokio::test]
async fn black_hole_is_silent_until_healed() {
    limited(async {
        let bench = Bench::new().await;
        let mut states = bench.client.state_watcher();
        bench.proxy.black_hole();
        let options = ephemeral();
        let create = bench.client.create(&bench.path, b"", &options);
        bench.proxy.wait_for_requests(1).await;
        assert_eq!(bench.proxy.connections(), 1);
        create.await.expect_err("no answer");
        assert_eq!(states.changed().await, SessionState::Disconnected);
        assert!(bench.proxy.requests()[0].forwarded.is_none());
        assert!(!bench.exists().await);
        bench.proxy.heal();
        assert_eq!(states.changed().await, SessionState::SyncConnected);
        bench.create().await.expect("created");
    })
    .await;
}

#[tokio::test]
async fn black_hole_ends_the_session_at_the_server() {
    limited(async {
        let bench = Bench::new().await;
        bench.create().await.expect("created");
        bench.proxy.black_hole();
        while bench.exists().await {
            time::sleep(Duration::from_millis(50)).await;
        }
        bench.proxy.heal();
        let mut states = bench.client.state_watcher();
        while states.state() != SessionState::Expired {
            states.changed().await;
        }
    })
    .await;
}

#[tokio::test]
async fn black_hole_after_request_loses_its_answer() {
    limited(async {
        let bench = Bench::new().await;
        bench.proxy.black_hole_after_request(1);
        bench.create().await.expect_err("no answer");
        assert!(bench.exists().await);
        let create = &bench.proxy.requests()[0];
        assert!(create.answer.is_none_or(|answer| answer.forwarded.is_none()), "{create:?}");
        bench.proxy.heal();
        bench.reconnected().await;
    })
    .await;
}

#[tokio::test]
async fn refused_client_reconnects_when_healed() {
    limited(async {
        let bench = Bench::new().await;
        let mut states = bench.client.state_watcher();
        bench.proxy.refuse();
        assert_eq!(states.changed().await, SessionState::Disconnected);
        let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
        let connector = connector.with_fail_eagerly();
        connector.connect(&bench.proxy.hosts()).await.expect_err("refused");
        assert_eq!(bench.proxy.connections(), 0);
        bench.proxy.heal();
        assert_eq!(states.changed().await, SessionState::SyncConnected);
    })
    .await;
}

#[tokio::test]
async fn hook_drops_cuts_and_holds() {
    limited(async {
        let bench = Bench::new().await;
        let path = bench.path.clone();
        bench.proxy.on_request(move |request| if request.path == path { Verdict::Cut } else { Verdict::Forward });
        bench.create().await.expect_err("cut");
        bench.reconnected().await;

        bench.proxy.on_request(|request| if request.is_write() { Verdict::Hold } else { Verdict::Forward });
        bench.proxy.reset();
        let options = ephemeral();
        let create = bench.client.create(&bench.path, b"", &options);
        let list = bench.client.list_children("/");
        bench.proxy.wait_for_requests(2).await;
        // Longer than a silent connection stays open: pings overtake held requests.
        time::sleep(SESSION_TIMEOUT).await;
        assert_eq!(bench.client.state(), SessionState::SyncConnected);
        assert!(bench.proxy.requests().iter().all(|request| request.forwarded.is_none()));
        assert!(!bench.exists().await);
        bench.proxy.heal();
        create.await.expect("created");
        list.await.expect("listed");

        bench.proxy.on_request(|request| if request.op == Op::Sync { Verdict::Drop } else { Verdict::Forward });
        let sync = bench.client.sync("/");
        bench.proxy.wait_for(|request| request.op == Op::Sync).await;
        assert!(time::timeout(Duration::from_millis(100), sync).await.is_err());
    })
    .await;
}
