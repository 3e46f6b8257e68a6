//! Connections that are closed at chosen frames.

use std::time::Duration;

use testbed::proxy::Cut;
use zookeeper_client::SessionState;

use crate::{Bench, CLOSINGS, limited};

#[tokio::test]
async fn cut_before_request_keeps_it_from_the_server() {
    limited(async {
        for closing in CLOSINGS {
            let bench = Bench::new().await;
            bench.proxy.close_by(closing);
            bench.proxy.cut(Cut::BeforeRequest(1));
            assert!(!bench.proxy.cut_fired());
            bench.create().await.expect_err("the connection was cut");
            assert!(bench.proxy.cut_fired());
            assert!(!bench.exists().await);
            assert!(bench.proxy.requests()[0].forwarded.is_none());
            bench.reconnected().await;
            assert_eq!(bench.client.state(), SessionState::SyncConnected);
        }
    })
    .await;
}

/// A server may drop requests from a connection that has been closed meanwhile
/// (`zookeeper.request_stale_connection_check`), so one cut proves nothing.
#[tokio::test]
async fn cut_after_request_loses_the_answer_and_mostly_not_the_request() {
    limited(async {
        for closing in CLOSINGS {
            let mut executed = 0;
            for _ in 0..5 {
                let bench = Bench::new().await;
                bench.proxy.close_by(closing);
                bench.client.check_stat("/").await.expect("an answer");
                bench.proxy.cut(Cut::AfterRequest(2));
                bench.create().await.expect_err("the connection was cut");
                assert!(bench.proxy.cut_fired());
                let create = &bench.proxy.requests()[1];
                assert!(create.forwarded.is_some() && create.answer.is_none(), "{create:?}");
                bench.reconnected().await;
                executed += usize::from(bench.exists().await);
            }
            assert!(executed > 0, "{closing:?}: none of 5 requests reached the server");
        }
    })
    .await;
}

#[tokio::test]
async fn cut_before_answer_comes_after_the_server_has_answered() {
    limited(async {
        for closing in CLOSINGS {
            let bench = Bench::new().await;
            bench.proxy.close_by(closing);
            bench.proxy.hold_answers(Duration::from_millis(20));
            bench.client.check_stat("/").await.expect("an answer");
            bench.proxy.cut(Cut::BeforeAnswer(2));
            bench.create().await.expect_err("the connection was cut");
            assert!(bench.proxy.cut_fired());
            let answer = bench.proxy.requests()[1].answer.expect("an answer");
            assert!(answer.err == 0 && answer.forwarded.is_none(), "{answer:?}");
            assert!(bench.exists().await);
            bench.reconnected().await;
        }
    })
    .await;
}

#[tokio::test]
async fn cut_after_answer_lets_it_through() {
    limited(async {
        let bench = Bench::new().await;
        let mut states = bench.client.state_watcher();
        bench.proxy.cut(Cut::AfterAnswer(1));
        bench.create().await.expect("the answer came first");
        assert_eq!(states.changed().await, SessionState::Disconnected);
        assert!(bench.proxy.cut_fired());
        assert_eq!(states.changed().await, SessionState::SyncConnected);
        bench.reconnected().await;
        assert!(bench.exists().await);
    })
    .await;
}

#[tokio::test]
async fn cut_happens_once() {
    limited(async {
        let bench = Bench::new().await;
        bench.proxy.cut(Cut::BeforeRequest(1));
        bench.create().await.expect_err("the connection was cut");
        bench.proxy.reset();
        bench.create().await.expect("not cut again");
        assert!(!bench.proxy.cut_fired());
    })
    .await;
}

#[tokio::test]
async fn cut_now_closes_and_lets_reconnect() {
    limited(async {
        let bench = Bench::new().await;
        assert_eq!(bench.proxy.connections(), 1);
        let mut states = bench.client.state_watcher();
        bench.proxy.cut_now();
        assert_eq!(bench.proxy.connections(), 0);
        assert_eq!(states.changed().await, SessionState::Disconnected);
        assert_eq!(states.changed().await, SessionState::SyncConnected);
        bench.create().await.expect("created");
        assert_eq!(bench.proxy.connections(), 1);
    })
    .await;
}
