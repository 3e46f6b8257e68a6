//! The lock of `zookeeper-client` itself, beside ours on the same path.

use zookeeper_recipes::zookeeper_client::{Acls, Client, LockClient, LockOptions, LockPrefix};
use zookeeper_recipes::{HoldState, Mutex, MutexGuard, Session};

use crate::support::{connect, dwell, fresh_path, hosts, soon, wait_nodes};

/// A prefix of the client's lock.
#[derive(Clone, Copy, Debug)]
enum Prefix {
    Curator,
    Custom,
    Shared(&'static str),
}

/// A session of ours and a client with its own lock.
struct Two {
    session: Session,
    client: Client,
    admin: Client,
    path: String,
}

impl Two {
    async fn new() -> Self {
        let hosts = hosts();
        Self {
            session: connect(&hosts).await,
            client: Client::connect(&hosts).await.expect("connects"),
            admin: Client::connect(&hosts).await.expect("connects"),
            path: fresh_path(),
        }
    }

    async fn ours(&self) -> MutexGuard {
        let mutex = Mutex::new(&self.session, &self.path).expect("a mutex");
        soon("our turn", mutex.lock()).await.expect("held")
    }

    async fn theirs(&self, prefix: Prefix) -> LockClient<'_> {
        let custom = format!("{}/other-lock-", self.path);
        let shared = |name| format!("{}/{name}", self.path);
        let options = LockOptions::new(Acls::anyone_all());
        let locked = match prefix {
            Prefix::Curator => {
                self.client
                    .lock(LockPrefix::new_curator(&self.path, "lock-").expect("a prefix"), b"", options)
                    .await
            }
            Prefix::Custom => {
                self.client.lock(LockPrefix::new_custom(custom, "-lock-").expect("a prefix"), b"", options).await
            }
            Prefix::Shared(name) => {
                let prefix = shared(name);
                self.client.lock(LockPrefix::new_shared(&prefix).expect("a prefix"), b"", options).await
            }
        };
        locked.expect("held")
    }

    async fn nodes(&self, count: usize) {
        wait_nodes(&self.admin, std::slice::from_ref(&self.path), count).await;
    }
}

/// Each waits for the other, and is granted the lock when that one releases it.
async fn excludes(prefix: Prefix) {
    let two = Two::new().await;
    let ours = two.ours().await;
    let waits = async {
        tokio::select! {
            biased;
            _ = two.theirs(prefix) => panic!("two holders with {prefix:?}"),
            () = async { two.nodes(2).await; dwell(&two.admin).await } => {}
        }
    };
    waits.await;
    // It was dropped.
    two.nodes(1).await;
    let (theirs, released) = tokio::join!(soon("their turn", two.theirs(prefix)), async {
        two.nodes(2).await;
        ours.release().await
    });
    released.expect("still held");
    let waits = async {
        tokio::select! {
            biased;
            _ = two.ours() => panic!("two holders with {prefix:?}"),
            () = async { two.nodes(2).await; dwell(&two.admin).await } => {}
        }
    };
    waits.await;
    drop(theirs);
    two.ours().await.release().await.expect("still held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_like_curators_excludes_ours() {
    excludes(Prefix::Curator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_with_a_name_of_its_own_that_ends_in_lock_excludes_ours() {
    excludes(Prefix::Custom).await;
}

/// It looks only at nodes that begin with its prefix, and ours do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_lock_does_not_see_ours() {
    for name in ["n-", "x-lock-"] {
        let two = Two::new().await;
        let ours = two.ours().await;
        let theirs = soon("a second holder", two.theirs(Prefix::Shared(name))).await;
        assert_eq!(ours.state(), HoldState::Held, "both hold with {name}");
        drop(theirs);
        ours.release().await.expect("still held");
    }
}
