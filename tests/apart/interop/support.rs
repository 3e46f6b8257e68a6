//! Helpers of all tests here.

use std::time::Duration;

use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Servers, Session};

use crate::wait;

/// The session timeout on our side.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(8);

/// Far longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// The server given to the tests.
pub(crate) fn hosts() -> String {
    std::env::var("ZK_HOSTS")
        .expect("no ZK_HOSTS: run these as `zk-docker/run --peers cargo test -p apart --test interop`")
}

pub(crate) async fn connect(hosts: &str) -> Session {
    let servers = Servers::new(hosts).with_session_timeout(TIMEOUT);
    Session::connect(servers).await.expect("connects")
}

/// A fresh path.
pub(crate) fn fresh_path() -> String {
    format!("/interop-{}/lock", Uuid::new_v4().simple())
}

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out: {what}"),
    }
}

/// Waits until these folders have `count` nodes together, and returns their paths.
pub(crate) async fn wait_nodes(admin: &Client, dirs: &[String], count: usize) -> Vec<String> {
    soon(&format!("{count} nodes in {dirs:?}"), wait::for_nodes(admin, dirs, count)).await
}

/// Waits for longer than the next in the queue would need to acquire: some requests, one after the other.
pub(crate) async fn dwell(admin: &Client) {
    for _ in 0..10 {
        admin.check_stat("/").await.expect("asked");
    }
}
