//! Owns [`HoldMonitor`], a view of a hold that does not keep the lock.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use zookeeper_client::{CheckWriter, Client};

use crate::clock::now;
use crate::error::{Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::HoldState;
use crate::hold::core::HoldCore;
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
pub struct HoldMonitor {
    pub(super) core: Arc<HoldCore>,
    /// The client that [`HoldMonitor::check_writer`] borrows, set by its first call. Inner `None`: the session had no client.
    client: OnceLock<Option<Arc<Client>>>,
}

impl HoldMonitor {
    pub(super) fn new(core: Arc<HoldCore>) -> Self {
        Self { core, client: OnceLock::new() }
    }

    /// Returns the lock path, or the first one if there are several.
    #[must_use]
    pub fn path(&self) -> &str {
        self.core.path.as_str()
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
        self.core.token
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
        self.core.state()
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
        let until = self.core.driver.lock().machine.valid_until(self.core.op);
        Duration::from_micros(until.since(now()))
    }

    /// Reports that the work under the lock moves, so that its [stall limit](crate::Options::with_stall_limit) begins again.
    /// Does nothing without a limit, or when the hold has ended.
    ///
    /// The call sends nothing and does not wait, but it takes the lock of the session's state. Call it once for each piece of
    /// work, not for each byte. Call it where the work moves, not from a timer beside the work: that would only prove once
    /// more that the process lives.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn copy(_: u32) {}
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) -> Result<(), zookeeper_recipes::Loss> {
    /// guard
    ///     .run_until_lost(async {
    ///         for table in 0..40 {
    ///             copy(table).await;
    ///             guard.progress();
    ///         }
    ///     })
    ///     .await
    /// # }
    /// ```
    pub fn progress(&self) {
        self.core.progress();
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
        self.core.attend();
        let core = Arc::clone(&self.core);
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
        self.core.attend();
        let core = Arc::clone(&self.core);
        async move {
            // No timer is needed to notice a loss, because this future then stays pending.
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

    /// Resolves [`revoke_requested`](Self::revoke_requested) for this hold, without a request to the servers.
    pub(crate) fn revoke(&self) {
        self.core.revoke();
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
        let (core, before) = (Arc::clone(&self.core), self.state());
        core.attend();
        let changed = move |state: &HoldState| before.has_ended() || *state != before;
        async move { core.until(|| Some(core.state()).filter(changed)).await }
    }

    /// Writes `data` over the identifier in the hold's first node. A leader shows observers its address or the progress of
    /// its work that way.
    ///
    /// Observers see the identifier first, as [`Contender::identifier`](crate::Contender::identifier), and then `data`. If
    /// you know `data` from the beginning, use it as the identifier.
    ///
    /// A revocation overwrites the identifier or `data`. If `proclaim` overwrites a revocation in turn, the holder still
    /// receives the revocation: [`revoke_requested`](Self::revoke_requested) resolves.
    ///
    /// # Cancel safety
    ///
    /// After dropping the future, `data` may have been written or not.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before the servers answered;
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `data` cannot be written, or the lock was released;
    /// [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs deny it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(leadership: zookeeper_recipes::Leadership) -> Result<(), zookeeper_recipes::Error> {
    /// leadership.proclaim("10.0.0.7:8080").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        let data = data.into();
        validate_data("data", &data)?;
        self.core.attend();
        self.core.write(&data).await
    }

    /// Begins a transaction that succeeds only while every node of the hold exists. See
    /// [`Hold::check_writer`](crate::Hold::check_writer).
    ///
    /// From the first call on, this monitor keeps the client until the monitor is dropped, and so do clones that are made
    /// later.
    ///
    /// # Errors
    ///
    /// The end of the hold, lost or released, if it has ended already.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(term: zookeeper_recipes::HoldMonitor) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut writer = term.check_writer()?;
    /// writer.add_set_data("/shards/7/owner", b"10.0.0.7:8080", None)?;
    /// writer.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_writer(&self) -> Result<CheckWriter<'_>, HoldState> {
        if let Some(ended) = self.state().end() {
            return Err(ended);
        }
        let (nodes, client) = {
            let state = self.core.driver.lock();
            (state.nodes(self.core.op), self.client.get_or_init(|| state.client.clone()))
        };
        let (Some((first, rest)), Some(client)) = (nodes.split_first(), client) else {
            return Err(HoldState::Lost(Loss::Closed));
        };
        let mut writer = client.new_check_writer(first, None).expect("the path of a node is valid");
        for node in rest {
            writer.add_check_version(node, -1).expect("the path of a node is valid");
        }
        Ok(writer)
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
