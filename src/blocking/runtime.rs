//! Owns [`Runtime`]: the runtime of a blocking session, on a thread of its own, and how other threads wait on it.
//!
//! 1. Futures are polled on the thread that waits for them. The runtime's thread only drives sockets, timers and the tasks
//!    of the session. So nothing that a user does in a call can delay them.
//! 2. The thread lives until the last clone of [`Runtime`] is dropped and the session is over. So no call finds a runtime
//!    that has ended.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::thread;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::{Error, Result};
use crate::session::{Session, SessionState};

#[derive(Clone)]
pub(super) struct Runtime {
    handle: Handle,
    /// Nothing is ever sent. The thread waits until the last clone is dropped.
    _used: mpsc::Sender<Infallible>,
}

impl Runtime {
    /// Starts a thread with a runtime, and connects a session there.
    pub(super) fn start<F: Future<Output = Result<Session>>>(
        connect: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(Session, Self)> {
        refuse_to_block_tasks()?;
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
                // If no thread waits for the answer any more, this drops the session, and so closes it.
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

    /// Blocks this thread until `future` is ready.
    pub(super) fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        refuse_to_block_tasks()?;
        Ok(self.drive(future))
    }

    /// Blocks this thread until `future` is ready. The caller must have called [`refuse_to_block_tasks`].
    pub(super) fn drive<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Blocks this thread until a call of the async API returns.
    pub(super) fn wait<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.block_on(call)?
    }
}

/// More operations than tokio lets a task do in one poll, which are 128.
const MORE_THAN_A_BUDGET: usize = 256;

/// Fails where tokio polls a future on this thread: blocking would also stop the other tasks there.
///
/// While tokio polls a future, and only then, it limits how many operations may succeed in one poll: 128, the budget of the
/// poll. So this function acquires a free semaphore more often than that. If an acquisition has to wait, tokio is polling a
/// future here, and the call is refused. A thread of `spawn_blocking` also has a runtime, but no budget, and may block.
/// Under `unconstrained`, or with another version of tokio, a future may go unnoticed. Then [`Handle::block_on`] panics.
pub(super) fn refuse_to_block_tasks() -> Result<()> {
    if Handle::try_current().is_err() {
        return Ok(());
    }
    let free = Semaphore::const_new(1);
    let has_budget = (0..MORE_THAN_A_BUDGET).any(|_| free.acquire().now_or_never().is_none());
    if has_budget {
        let reason = "it would block a thread on which tokio runs tasks; use the async API there, or make the call in \
                      tokio::task::spawn_blocking";
        return Err(Error::invalid("call", reason));
    }
    Ok(())
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Handle};
    use tokio::task::spawn_blocking;

    use super::refuse_to_block_tasks;

    #[test]
    fn refusal_is_for_threads_that_poll_futures() {
        let may_block = || refuse_to_block_tasks().is_ok();
        assert!(may_block(), "a plain thread");
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let runtime = builder.build().expect("a runtime");
            let entered = runtime.enter();
            assert!(may_block(), "a thread that has entered a runtime and polls nothing");
            drop(entered);
            runtime.block_on(async move {
                assert!(!may_block(), "the body of main");
                assert!(!tokio::spawn(async move { may_block() }).await.expect("a task"));
                assert!(spawn_blocking(may_block).await.expect("a thread that may block"));
                let nested = spawn_blocking(move || Handle::current().block_on(async move { may_block() }));
                assert!(!nested.await.expect("a future on a thread that may block"));
            });
        }
        let runtime = Builder::new_multi_thread().build().expect("a runtime");
        let in_place = runtime.spawn(async move { tokio::task::block_in_place(may_block) });
        assert!(runtime.block_on(in_place).expect("a task"), "a worker that has handed over its tasks");
    }

    #[test]
    fn refusal_names_the_way_out() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let refused = runtime.block_on(async { refuse_to_block_tasks() }).expect_err("refused");
        let text = refused.to_string();
        assert!(text.starts_with("invalid call: ") && text.contains("spawn_blocking"), "{text}");
    }
}
