//! Waits for the next state of a client. The wait is never dropped while the client may still publish a state.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use zookeeper_client::{SessionState, StateWatcher};

type Next = Pin<Box<dyn Future<Output = (SessionState, StateWatcher)> + Send>>;

/// The states of a client, one after the other.
///
/// With asyncs-sync 0.4.0, dropping a pending `StateWatcher::changed` while the client publishes a state writes to the
/// stack of the client's thread (docs/upstream.md, `dropped-watcher`). So one future is kept, and is polled until it
/// resolves, even after a `StateChanges` is dropped.
pub(crate) struct StateChanges {
    /// The state that was seen last.
    last: SessionState,
    /// The future of the next state. `None` after a state that ends the session.
    next: Option<Next>,
    /// The runtime of the client. After a drop, the wait goes on there.
    runtime: Option<Handle>,
}

impl StateChanges {
    /// Returns the current state of the client, and its later changes.
    pub(crate) fn new(mut watcher: StateWatcher) -> (SessionState, Self) {
        let state = watcher.state();
        (state, Self { last: state, next: next(state, watcher), runtime: Handle::try_current().ok() })
    }

    /// Polls for the next state. Several changes between two polls count as one. After the last state this stays pending.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SessionState> {
        let Some(pending) = &mut self.next else { return Poll::Pending };
        let (state, watcher) = std::task::ready!(pending.as_mut().poll(cx));
        (self.last, self.next) = (state, next(state, watcher));
        Poll::Ready(state)
    }

    /// Waits for the end of the session, and returns the last state of the client.
    pub(crate) async fn ended(mut self) -> SessionState {
        while self.next.is_some() {
            std::future::poll_fn(|cx| self.poll(cx)).await;
        }
        self.last
    }
}

fn next(state: SessionState, mut watcher: StateWatcher) -> Option<Next> {
    (!state.is_terminated()).then(|| -> Next { Box::pin(async move { (watcher.changed().await, watcher) }) })
}

/// A future that is leaked if it is dropped before it resolves.
struct Undropped(Option<Next>);

impl Undropped {
    async fn wait(mut self) {
        if let Some(next) = &mut self.0 {
            next.await;
        }
        self.0.take();
    }
}

impl Drop for Undropped {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}

impl Drop for StateChanges {
    fn drop(&mut self) {
        let Some(next) = self.next.take() else { return };
        let wait = Undropped(Some(next)).wait();
        // A runtime that shuts down drops the task at once, perhaps before the client's own task. Without a runtime the
        // wait is dropped here. Either way `Undropped` leaks the future.
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(wait)),
            None => drop(wait),
        }
    }
}
