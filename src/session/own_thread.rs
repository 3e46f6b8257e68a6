//! Owns [`Session::connect_on_own_thread`]: a session that a blocked runtime cannot hold up.

use std::future::{Future, ready};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::sync::watch;
use zookeeper_client::Connector;

use crate::error::Result;
use crate::session::{Current, ORPHANED, Session, ended};

impl Session {
    /// As [`connect_with`](Self::connect_with), with the tasks of the session on a thread of their own.
    ///
    /// A session lives on the runtime on which it was connected. If that runtime is blocked, nothing renews the trust in its
    /// locks, and their loss is noticed late. A thread of its own keeps both going. It ends with the
    /// session. The locks are used as any others, on any runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As [`connect_with`](Self::connect_with); [`Error::SessionEnded`](crate::Error::SessionEnded) if the thread cannot be started.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Session;
    /// use zookeeper_recipes::zookeeper_client::Client;
    ///
    /// let session = Session::connect_on_own_thread(Client::connector(), "zk1:2181,zk2:2181,zk3:2181").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_on_own_thread(connector: Connector, hosts: &str) -> Result<Self> {
        let hosts = hosts.to_owned();
        let connected = on_own_thread(async move || Self::connect_with(connector, &hosts).await, ready(()))?;
        let (session, _) = connected.await.unwrap_or_else(|_| Err(ended(ORPHANED)))?;
        Ok(session)
    }
}

/// Connects on a new thread, which drives a runtime until the session is over and `unused` is ready.
pub(crate) fn on_own_thread<F: Future<Output = Result<Session>>>(
    connect: impl FnOnce() -> F + Send + 'static,
    unused: impl Future<Output = ()> + Send + 'static,
) -> Result<oneshot::Receiver<Result<(Session, Handle)>>> {
    let (sender, connected) = oneshot::channel();
    let serve = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = sender.send(Err(ended(format!("its thread has no runtime: {error}"))));
                return;
            }
        };
        runtime.block_on(async move {
            let session = connect().await;
            let current = session.as_ref().ok().map(|session| session.inner.current.subscribe());
            // If nobody waits for it any more, it is dropped here, and so closed.
            drop(sender.send(session.map(|session| (session, Handle::current()))));
            if let Some(current) = current {
                until_over(current).await;
            }
            unused.await;
        });
    };
    let started = thread::Builder::new().name("zookeeper-session".to_owned()).spawn(serve);
    started.map_err(|error| ended(format!("its thread cannot be started: {error}")))?;
    Ok(connected)
}

/// Waits until a session has ended, and its last ZooKeeper session with it.
async fn until_over(mut current: watch::Receiver<Current>) {
    // An error is the drop of the last handle.
    let _ = current.wait_for(|current| matches!(current, Current::Ended(..))).await;
    let last = current.borrow().zk().cloned();
    if let Some(zk) = last {
        zk.over().await;
    }
}
