//! Owns [`HoldMonitor`], a view of a hold that does not keep the lock.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use zookeeper_client::Client;

use crate::clock::now;
use crate::driver::HoldListener;
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::core::HoldCore;
use crate::hold::{HoldState, REVOKE};
use crate::options::validate_data;

/// A view of a hold that does not keep the lock: for health checks, metrics, and tasks that work under another task's lock.
/// Every guard dereferences to the monitor of its hold.
///
/// A monitor is cheap to clone, and does not keep the session alive. A task that only has the monitor must expect
/// [`HoldState::Released`].
///
/// # Examples
///
/// ```no_run
/// # async fn example(guard: zookeeper_recipes::MutexGuard) {
/// use zookeeper_recipes::HoldState;
///
/// let monitor = guard.monitor();
/// // In the readiness probe of the service: right even for the first request after a pause of the process.
/// let is_ready = monitor.state() == HoldState::Held;
/// # }
/// ```
#[derive(Clone)]
pub struct HoldMonitor(Arc<HoldCore>);

impl HoldMonitor {
    pub(super) fn new(core: Arc<HoldCore>) -> Self {
        Self(core)
    }

    pub(super) fn core(&self) -> &HoldCore {
        &self.0
    }

    /// Returns the lock path, or the first one if there are several.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.path.as_str()
    }

    /// Returns the token of the hold. It is larger than the token of every earlier conflicting hold.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(guard: zookeeper_recipes::MutexGuard) {
    /// println!("UPDATE orders SET token = {0} WHERE token <= {0}", guard.fencing_token());
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.0.token
    }

    /// Returns the state of the hold right now.
    ///
    /// The call compares times and waits for no answer, so the state is right even directly after a pause of the process.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(guard: zookeeper_recipes::MutexGuard) {
    /// use zookeeper_recipes::HoldState;
    ///
    /// match guard.state() {
    ///     HoldState::Held => println!("go on"),
    ///     HoldState::Suspended => println!("begin nothing that takes long"),
    ///     ended => println!("stop: {ended}"),
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// Returns how long the hold stays trusted if no server answers from now on. Zero when the hold has ended.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(guard: zookeeper_recipes::MutexGuard) {
    /// use std::time::Duration;
    ///
    /// if guard.valid_for() < Duration::from_secs(1) {
    ///     println!("not now");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        if self.state().has_ended() {
            return Duration::ZERO;
        }
        let until = self.0.driver.lock().machine.valid_until(self.0.op);
        Duration::from_micros(until.since(now()))
    }

    /// Resolves when the hold has ended: with [`HoldState::Released`] by its release or the drop of its guard, or with
    /// [`HoldState::Lost`], like [`lost`](Self::lost).
    ///
    /// The future borrows neither the monitor nor the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Each call returns its own future.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(monitor: zookeeper_recipes::HoldMonitor) {
    /// use zookeeper_recipes::HoldState;
    ///
    /// if let HoldState::Lost(loss) = monitor.ended().await {
    ///     println!("stop: {loss}");
    /// }
    /// # }
    /// ```
    pub fn ended(&self) -> impl Future<Output = HoldState> + Send + 'static + use<> {
        self.0.attend();
        let core = Arc::clone(&self.0);
        async move { core.end().await }
    }

    /// Resolves when the lock is lost: while the process runs, before the servers can grant it to someone else.
    ///
    /// The future borrows neither the monitor nor the guard. After a release it never resolves; [`ended`](Self::ended)
    /// does.
    ///
    /// # Cancel safety
    ///
    /// As [`ended`](Self::ended).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) {
    /// tokio::select! {
    ///     loss = guard.lost() => println!("stop: {loss}"),
    ///     _ = tokio::signal::ctrl_c() => println!("done"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        lost(self.ended())
    }

    /// Resolves when the holder is asked to release: by a call of `revoke`, by Curator's `Revoker`, or because the session
    /// is [drained](crate::Session::drain). The holder decides whether to release.
    ///
    /// The future borrows neither the monitor nor the guard. Once the hold has ended, it never resolves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Each call returns its own future, which also resolves if the request came before
    /// the call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) -> Result<(), zookeeper_recipes::Error> {
    /// tokio::select! {
    ///     done = guard.run_until_lost(async { /* a long job */ }) => done?,
    ///     () = guard.revoke_requested() => println!("another contender wants the lock"),
    /// }
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn revoke_requested(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.attend();
        let core = Arc::clone(&self.0);
        async move {
            // No timer is needed for a loss: this future then stays pending.
            let revoked = || match core.state().has_ended() {
                true => Some(false),
                false => core.is_asked_for().then_some(true),
            };
            if !core.until_woken(revoked, pending::<()>).await {
                drop(core);
                pending().await
            }
        }
    }

    /// Asks the holder to release, without a request to the servers.
    pub(crate) fn revoke(&self) {
        self.0.saw(REVOKE);
    }

    /// Returns the first node, and the client of the session. `None` once the hold has ended or the session is closed.
    pub(crate) fn writes(&self) -> Option<(String, Arc<Client>)> {
        let state = self.0.driver.lock();
        let node = state.nodes(self.0.op).into_iter().next()?;
        Some((node, state.client.clone()?))
    }

    /// Resolves with the new state when it differs from the state at the time of the call; at once if the hold has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) {
    /// use zookeeper_recipes::HoldState;
    ///
    /// while guard.changed().await == HoldState::Suspended {
    ///     println!("disconnected");
    /// }
    /// # }
    /// ```
    pub fn changed(&self) -> impl Future<Output = HoldState> + Send + 'static + use<> {
        let (core, before) = (Arc::clone(&self.0), self.state());
        core.attend();
        let changed = move |state: &HoldState| before.has_ended() || *state != before;
        async move { core.until(|| Some(core.state()).filter(changed)).await }
    }

    pub(crate) async fn proclaim(&self, data: Vec<u8>) -> Result<()> {
        validate_data("data", &data)?;
        self.0.attend();
        self.0.write(&data).await
    }

    /// Runs `future` for as long as the lock is held. See [`Hold::run_until_lost`](crate::Hold::run_until_lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops `future`.
    ///
    /// # Errors
    ///
    /// The end of the hold, lost or released, if the hold ends before `future` is done. `future` is then dropped. A release
    /// counts as an end, because another contender may hold the lock after it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(monitor: zookeeper_recipes::HoldMonitor) {
    /// if let Err(ended) = monitor.run_until_lost(async { /* work under the lock */ }).await {
    ///     println!("cut off: {ended}");
    /// }
    /// # }
    /// ```
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, HoldState> {
        run_until(|| self.state().end(), self.ended(), future).await
    }
}

impl fmt::Debug for HoldMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldMonitor")
            .field("path", &self.path())
            .field("token", &self.fencing_token())
            .field("state", &self.state())
            .finish()
    }
}

/// Returns the error for a leader that proclaims data after it has resigned.
pub(super) fn resigned() -> Error {
    Error::invalid("leadership", "it was resigned; proclaim while it lasts")
}

/// Waits for the loss of a hold. Stays pending after a release.
pub(super) async fn lost(ended: impl Future<Output = HoldState>) -> Loss {
    match ended.await {
        HoldState::Lost(loss) => loss,
        _ => pending().await,
    }
}

/// Runs `future` until the hold ends. `end` returns the end of the hold, and is called before each poll of `future`.
/// `ended` resolves with the end, and wakes the task between polls.
pub(crate) async fn run_until<F: Future, E>(
    end: impl Fn() -> Option<E>,
    ended: impl Future<Output = E>,
    future: F,
) -> Result<F::Output, E> {
    let (mut ended, mut future) = (pin!(ended), pin!(future));
    poll_fn(|cx| {
        if let Some(end) = end() {
            return Poll::Ready(Err(end));
        }
        if let Poll::Ready(end) = ended.as_mut().poll(cx) {
            return Poll::Ready(Err(end));
        }
        future.as_mut().poll(cx).map(Ok)
    })
    .await
}
