//! Sessions that are ended from outside, and proxies that outlive their runtime.

use testbed::expire::expire;
use testbed::proxy::{Op, Proxy};
use zookeeper_client::SessionState;

use crate::{Bench, connect, limited, server};

#[tokio::test]
async fn expired_session_is_over_for_its_client() {
    limited(async {
        let bench = Bench::new().await;
        bench.create().await.expect("created");
        let session = bench.proxy.session().expect("a session");
        let mut states = bench.client.state_watcher();
        expire(&server(), session.clone()).await.expect("expired");
        assert!(!bench.exists().await);
        while states.state() != SessionState::Expired {
            states.changed().await;
        }
        expire(&server(), session).await.expect("expired already");
    })
    .await;
}

#[tokio::test]
async fn drop_closes_the_port() {
    limited(async {
        let bench = Bench::new().await;
        let hosts = bench.proxy.hosts();
        let mut states = bench.client.state_watcher();
        drop(bench.proxy);
        tokio::net::TcpStream::connect(&hosts).await.expect_err("the port is closed");
        assert_eq!(states.changed().await, SessionState::Disconnected);
    })
    .await;
}

#[test]
fn proxy_outlives_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let proxy = first.block_on(Proxy::start(&server())).expect("a proxy");
    drop(first);
    runtime().block_on(limited(async {
        let client = connect(&proxy.hosts()).await;
        let mut states = client.state_watcher();
        drop(client);
        while !states.state().is_terminated() {
            states.changed().await;
        }
    }));
    assert!(proxy.requests().iter().any(|request| request.op == Op::CloseSession));
}
