//! What all tests here stand on.

use std::time::Duration;

use uuid::Uuid;
use zookeeper_recipes::Session;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError};

/// The session timeout on our side.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(8);

/// Far longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// The server that the tests were given.
pub(crate) fn hosts() -> String {
    std::env::var("ZK_HOSTS")
        .expect("no ZK_HOSTS: run these as `zk-docker/run --peers cargo test --features interop --test interop`")
}

pub(crate) async fn connect(hosts: &str) -> Session {
    let connector = Client::connector().with_session_timeout(TIMEOUT);
    Session::connect_with(connector, hosts).await.expect("connects")
}

/// A path that nobody else uses.
pub(crate) fn fresh_path() -> String {
    format!("/interop-{}/lock", Uuid::new_v4().simple())
}

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain: {what}"),
    }
}

/// Waits until there are so many nodes in these folders together, and returns their paths.
pub(crate) async fn wait_nodes(admin: &Client, dirs: &[String], count: usize) -> Vec<String> {
    let counted = async {
        'again: loop {
            let (mut all, mut watchers) = (Vec::new(), Vec::new());
            for dir in dirs {
                match admin.list_and_watch_children(dir).await {
                    Ok((names, watcher)) => {
                        all.extend(names.into_iter().map(|name| format!("{dir}/{name}")));
                        watchers.push(watcher);
                    }
                    Err(ZkError::NoNode) => match admin.check_and_watch_stat(dir).await {
                        Ok((None, watcher)) => watchers.push(watcher),
                        // It was made since, and this watch would not tell of its children.
                        Ok((Some(_), _)) => continue 'again,
                        Err(error) => panic!("cannot watch {dir}: {error}"),
                    },
                    Err(error) => panic!("cannot list {dir}: {error}"),
                }
            }
            if all.len() == count {
                return all;
            }
            let watchers = watchers.into_iter().map(|watcher| Box::pin(watcher.changed()));
            futures_util::future::select_all(watchers).await;
        }
    };
    soon(&format!("{count} nodes in {dirs:?}"), counted).await
}

/// Stays for longer than the next in line would need to come in: some requests, one after the other.
pub(crate) async fn dwell(admin: &Client) {
    for _ in 0..10 {
        admin.check_stat("/").await.expect("asked");
    }
}
