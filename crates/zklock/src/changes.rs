//! Owns [`Changes`]: when it is worth looking at a queue again.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use zookeeper_recipes::Session;
use zookeeper_recipes::session::SessionStates;
use zookeeper_recipes::zookeeper_client::{AddWatchMode, PersistentWatcher, SessionState};

/// Looks are at least that far apart, however fast the queue moves.
const APART: Duration = Duration::from_millis(100);

/// Without an event, the next look comes then: servers send none for nodes that an ACL hides.
const SLOW: Duration = Duration::from_secs(10);

/// Changes below a path, seen by one watch.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    session: &'a Session,
    path: &'a str,
    watcher: Option<PersistentWatcher>,
    /// A watch does not outlive its connection.
    states: SessionStates,
}

impl<'a> Changes<'a> {
    pub(crate) fn of(session: &'a Session, path: &'a str) -> Self {
        Self { session, path, watcher: None, states: session.states() }
    }

    /// Sets the watch if there is none. What changes after that ends [`next`](Self::next).
    pub(crate) async fn arm(&mut self) {
        if let (None, Some(client)) = (&self.watcher, self.session.client()) {
            // Without a watch the fallback polls are left.
            self.watcher = client.watch(self.path, AddWatchMode::PersistentRecursive).await.ok();
        }
    }

    /// Waits for a change, or a while.
    pub(crate) async fn next(&mut self) {
        let apart = Instant::now() + APART;
        tokio::select! {
            () = changed(&mut self.watcher) => {
                // What comes together is one change.
                while timeout_at(apart, changed(&mut self.watcher)).await.is_ok() {}
            }
            _ = self.states.changed() => {
                self.watcher = None;
                sleep(APART).await;
            }
            () = sleep(SLOW) => {}
        }
    }
}

/// The next event; never without a watch.
async fn changed(watcher: &mut Option<PersistentWatcher>) {
    let Some(watching) = watcher else {
        return std::future::pending().await;
    };
    // It must not be asked again after the end of its session.
    if watching.changed().await.session_state != SessionState::SyncConnected {
        *watcher = None;
    }
}
