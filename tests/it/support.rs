//! What all tests stand on: a server, a path of their own, and conditions to wait for.

use std::sync::Arc;
use std::time::Duration;

use testbed::proxy::Proxy;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError};
use zookeeper_recipes::{DistributedLock, Mutex, Options, Session};

/// The session timeout of the tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);

/// Far longer than anything takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The server that the suite was given.
pub(crate) fn hosts() -> String {
    std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`")
}

pub(crate) async fn connect(hosts: &str) -> Session {
    connect_for(hosts, TIMEOUT).await
}

pub(crate) async fn connect_for(hosts: &str, timeout: Duration) -> Session {
    let connector = Client::connector().with_session_timeout(timeout);
    Session::connect_with(connector, hosts).await.expect("connects")
}

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain: {what}"),
    }
}

/// A session through a proxy, an eye on the server beside it, and a path that nobody else uses.
pub(crate) struct World {
    pub(crate) session: Session,
    pub(crate) proxy: Proxy,
    pub(crate) admin: Client,
    pub(crate) path: String,
    pub(crate) hosts: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::at(&hosts(), TIMEOUT).await
    }

    pub(crate) async fn at(hosts: &str, timeout: Duration) -> Self {
        let proxy = Proxy::start(hosts.split(',').next().expect("a host")).await.expect("a proxy");
        let session = connect_for(&proxy.hosts(), timeout).await;
        let admin = Client::connect(hosts).await.expect("connects");
        let path = format!("/it-{}/lock", Uuid::new_v4().simple());
        Self { session, proxy, admin, path, hosts: hosts.to_owned() }
    }

    pub(crate) fn mutex(&self) -> Mutex {
        Mutex::new(&self.session, &self.path).expect("a mutex")
    }

    /// Another session, straight to the server.
    pub(crate) async fn other(&self) -> Session {
        connect(&self.hosts).await
    }

    pub(crate) async fn other_mutex(&self) -> Mutex {
        Mutex::new(&self.other().await, &self.path).expect("a mutex")
    }

    /// The names under the lock path, in the order of their numbers.
    pub(crate) async fn children(&self) -> Vec<String> {
        children(&self.admin, &self.path).await
    }

    /// Waits until there are `count` names under the lock path, and returns them.
    pub(crate) async fn wait_children(&self, count: usize) -> Vec<String> {
        wait_children(&self.admin, &self.path, count).await
    }

    /// Waits until no node is left.
    pub(crate) async fn wait_empty(&self) {
        self.wait_children(0).await;
    }

    /// Makes the lock path, so that a test can count without the making.
    pub(crate) async fn make_path(&self) {
        let guard = self.other_mutex().await.lock().await.expect("free");
        guard.release().await.expect("released");
    }

    /// Ends the present session, for real, behind the library's back.
    pub(crate) async fn expire(&self) {
        let session = self.proxy.session().expect("a session went through the proxy");
        // The client would take its session back while it is being ended.
        self.proxy.refuse();
        testbed::expire::expire(&self.hosts, session).await.expect("expires");
        self.proxy.heal();
    }
}

pub(crate) async fn children(admin: &Client, path: &str) -> Vec<String> {
    match admin.list_children(path).await {
        Ok(names) => sorted(names),
        Err(ZkError::NoNode) => Vec::new(),
        Err(error) => panic!("cannot list {path}: {error}"),
    }
}

pub(crate) async fn wait_children(admin: &Client, path: &str, count: usize) -> Vec<String> {
    let counted = async {
        loop {
            match admin.list_and_watch_children(path).await {
                Ok((names, _)) if names.len() == count => return sorted(names),
                Ok((_, watcher)) => drop(watcher.changed().await),
                Err(ZkError::NoNode) if count == 0 => return Vec::new(),
                Err(ZkError::NoNode) => match admin.check_and_watch_stat(path).await {
                    Ok((None, watcher)) => drop(watcher.changed().await),
                    Ok((Some(_), _)) => {}
                    Err(error) => panic!("cannot watch {path}: {error}"),
                },
                Err(error) => panic!("cannot list {path}: {error}"),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, counted).await {
        Ok(names) => names,
        Err(_) => panic!("waited in vain for {count} nodes: {:?}", children(admin, path).await),
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
    names
}

/// A kind of lock, as the sweeps and the contract see it.
pub(crate) struct Recipe {
    pub(crate) lock: fn(&Session, &str) -> Arc<dyn DistributedLock>,
    /// How many nodes a holder has.
    pub(crate) nodes: usize,
}

pub(crate) const MUTEX: Recipe = Recipe { lock: |session, path| lock_of(Mutex::new(session, path)), nodes: 1 };

/// The same lock with the weaker trust, which must make no difference while nothing fails.
pub(crate) const TRUSTING_MUTEX: Recipe = Recipe {
    lock: |session, path| {
        let options = Options::new().with_trust(zookeeper_recipes::Trust::Connection);
        lock_of(Mutex::with_options(session, path, options))
    },
    nodes: 1,
};

fn lock_of(lock: Result<Mutex, zookeeper_recipes::Error>) -> Arc<dyn DistributedLock> {
    Arc::new(lock.expect("a lock"))
}

/// Polls `future` so many times at most, as its wakers ask for it, and drops it; `None` if it was not done by then.
pub(crate) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    use std::task::Poll;

    let mut future = std::pin::pin!(future);
    let mut left = times;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
