//! Owns [`Runtime`]: the runtime of a blocking session, on a thread of its own, and how other threads wait on it.
//!
//! 1. A future is polled on the thread that waits for it. Once the session is connected, the runtime's thread only drives
//!    sockets, timers and tasks. So a call of the user that computes or blocks does not delay the session.
//! 2. The runtime's thread lives until the last clone of [`Runtime`] is dropped and the session is over. So no call
//!    finds a runtime that has ended.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Result};
use crate::session::{Session, SessionState};

#[derive(Clone)]
pub(super) struct Runtime {
    handle: Handle,
    /// Nothing is ever sent here. The runtime's thread ends only after the last clone of this sender is dropped.
    _used: mpsc::Sender<Infallible>,
}

impl Runtime {
    /// Starts a thread with a runtime, and connects a session there. Panics where tokio polls a future, as in a task.
    pub(super) fn start<F: Future<Output = Result<Session>>>(
        connect: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(Session, Self)> {
        let ended = |reason: String| Error::SessionEnded { reason };
        let (used, mut users) = mpsc::channel(1);
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
                let states = session.as_ref().ok().map(Session::states);
                // If the caller does not wait any more, this drops the session, and so closes it.
                drop(sender.send(session.map(|session| (session, Handle::current()))));
                if let Some(mut states) = states {
                    states.wait_for(|state| state == SessionState::Ended).await;
                }
                _ = users.recv().await;
            });
        };
        let started = thread::Builder::new().name("zookeeper-session".to_owned()).spawn(serve);
        started.map_err(|error| ended(format!("its thread cannot be started: {error}")))?;
        let connected = connected.blocking_recv();
        let (session, handle) =
            connected.unwrap_or_else(|_| Err(ended("its thread has panicked while it connected".to_owned())))?;
        Ok((session, Self { handle, _used: used }))
    }

    /// Blocks this thread until `future` is ready. Panics where tokio polls a future, as in a task, and then does not poll
    /// `future`.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}
