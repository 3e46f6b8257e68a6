//! Owns the core of a hold. The guard, its monitors and the session share the core.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::clock::now;
use crate::driver::{self, HoldListener, State};
use crate::error::{Error, Loss, Result, ZkError};
use crate::fencing_token::FencingToken;
use crate::hold::{HoldState, REVOKE};
use crate::machine::{Change, Event, Kind, Life, Op};
use crate::path::LockPath;
use crate::session::Zk;
use crate::telemetry::{AcquireSpan, Held};

/// What the guard and the monitors of a hold share: how the hold has ended, and whether it was revoked.
pub(super) struct HoldCore {
    pub(super) driver: Arc<driver::Core>,
    pub(super) op: Op,
    pub(super) path: LockPath,
    pub(super) token: FencingToken,
    pub(super) seen: Arc<Held>,
    /// The end of the hold, which is set once. A downgrade and a revocation also wake its subscribers. A change of the connection
    /// does not: see `driver.changes`.
    end: watch::Sender<Option<HoldState>>,
}

impl HoldCore {
    pub(super) fn new(
        driver: &Arc<driver::Core>,
        op: Op,
        path: &LockPath,
        token: FencingToken,
        acquisition: &AcquireSpan,
    ) -> Arc<Self> {
        let core = Arc::new(Self {
            driver: Arc::clone(driver),
            op,
            path: path.clone(),
            token,
            seen: Arc::new(acquisition.hold(path.as_str(), token)),
            end: watch::Sender::new(None),
        });
        let holder: Weak<Self> = Arc::downgrade(&core);
        driver.lock().set_listener(op, holder);
        core
    }

    /// Records the end of the hold. Returns whether the hold had not ended before.
    pub(super) fn note_end(&self, end: HoldState) -> bool {
        self.end.send_if_modified(|before| before.replace(before.unwrap_or(end)).is_none())
    }

    /// Records an end that the holder did not ask for, and reports it. `is_one_of_several`: other holds are lost at the same
    /// time.
    fn note_loss(&self, end: HoldState, is_one_of_several: bool) {
        let warns_of = self.warns_of(end);
        if !self.note_end(end) {
            return;
        }
        let (path, token, seen) = (self.path.clone(), self.token, Arc::clone(&self.seen));
        match warns_of {
            Some(loss) if is_one_of_several => self.driver.reports.push(move || {
                tracing::debug!(parent: &seen.span, %path, %token, %loss, "lock is lost with others");
            }),
            Some(loss) => self.driver.reports.push(move || {
                tracing::warn!(parent: &seen.span, %path, %token, %loss, cause = loss.as_str(), "lock is lost");
            }),
            None => {}
        }
        let (loss, seen) = (end.loss(), Arc::clone(&self.seen));
        self.driver.reports.push(move || seen.ended(loss));
    }

    /// Watches the hold's nodes from now on, so that a deletion or a revocation is noticed at once.
    pub(super) fn attend(&self) {
        if self.end.borrow().is_none() {
            self.driver.handle(&mut self.driver.lock(), Event::WatchForLoss(self.op));
        }
    }

    /// Resolves when the hold has ended.
    pub(super) async fn end(&self) -> HoldState {
        self.until(|| self.state().end()).await
    }

    /// Calls `look` until it returns a value: now, at every change, and when the state may have changed by time alone.
    pub(super) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        self.until_woken(look, || sleep_until(self.next_look())).await
    }

    /// Calls `look` until it returns a value: now, at every change, and whenever a future that `again` returns resolves.
    pub(super) async fn until_woken<T, F: Future>(
        &self,
        look: impl Fn() -> Option<T>,
        again: impl Fn() -> F,
    ) -> T {
        let (mut end, mut changes) = (self.end.subscribe(), self.driver.changes.subscribe());
        loop {
            end.mark_unchanged();
            changes.mark_unchanged();
            if let Some(found) = look() {
                return found;
            }
            tokio::select! {
                // The first two branches do not fail, because `self` keeps the senders alive.
                _ = end.changed() => {}
                _ = changes.changed() => {}
                _ = again() => {}
            }
        }
    }

    fn next_look(&self) -> Instant {
        let at = now();
        let until = self.driver.lock().machine.changes_at(at, self.op);
        // Timers tick in milliseconds, so a shorter sleep would only spin.
        Instant::now() + Duration::from_micros(until.since(at)).max(Duration::from_millis(1))
    }

    /// Asks the holder to release.
    pub(super) fn revoke(&self) {
        self.driver.handle(&mut self.driver.lock(), Event::AskedBack(self.op));
    }

    /// Returns whether the holder was asked to release.
    pub(super) fn is_asked_for(&self) -> bool {
        let state = self.driver.lock();
        state.machine.life() == Life::Draining
            || state.machine.op(self.op).is_some_and(|acquisition| acquisition.asked_back)
    }

    /// Turns the writer into a reader. Returns the new nodes.
    pub(super) async fn downgraded(&self) -> Result<Vec<String>> {
        self.driver.handle(&mut self.driver.lock(), Event::Downgrade(self.op));
        let found = |state: &mut State| {
            let acquisition = state.machine.op(self.op)?;
            let kind = acquisition.single().map(|queue| queue.kind);
            match acquisition.change {
                Change::None if kind == Some(Kind::Read) => Some(Ok(state.nodes(self.op))),
                Change::None | Change::Refused => {
                    let refusal = state.take_refusal(self.op);
                    Some(Err(refusal.unwrap_or_else(|| {
                        Error::refused("change the node of", self.path.as_str(), ZkError::NoAuth)
                    })))
                }
                Change::Wanted { .. } | Change::Sending { .. } => None,
            }
        };
        self.until(|| {
            let mut changed = None;
            let state = self.state_and(|state| changed = found(state));
            state.loss().map(|loss| Err(loss.into())).or(changed)
        })
        .await
    }

    /// Writes `data` to the first node.
    pub(super) async fn write(&self, data: &[u8]) -> Result<()> {
        let ended = || match self.state() {
            HoldState::Released => Error::invalid("hold", "it was released; proclaim while it lasts"),
            HoldState::Lost(loss) => loss.into(),
            _ => Loss::Expired.into(),
        };
        let (node, czxid, zk) = {
            let state = self.driver.lock();
            let czxid = state.machine.op(self.op).map(|acquisition| acquisition.czxid.0);
            (state.nodes(self.op).into_iter().next(), czxid, Zk::present(&self.driver, &state))
        };
        let (Some(node), Some(czxid), Some(zk)) = (node, czxid, zk) else {
            return Err(ended());
        };
        let (zk, node) = (&zk, &node);
        let write = || async move {
            loop {
                let (before, stat) = zk.data(node).await?;
                if stat.czxid != czxid {
                    return Err(ZkError::NoNode);
                }
                if before == REVOKE {
                    self.revoke();
                }
                match zk.write(node, data, stat.version).await {
                    Err(ZkError::BadVersion) => {}
                    written => return written,
                }
            }
        };
        let written = async {
            match zk.retry("write", write).await {
                Ok(Err(ZkError::NoNode)) => Err(Loss::Deleted.into()),
                Ok(written) => written.map_err(|error| Error::refused("write", node, error)),
                Err(_) => Err(Loss::Expired.into()),
            }
        };
        tokio::select! {
            biased;
            _ = self.end() => Err(ended()),
            written = written => written,
        }
    }
}

impl HoldListener for HoldCore {
    fn changed(&self, state: HoldState, is_one_of_several: bool) {
        if state.has_ended() { self.note_loss(state, is_one_of_several) } else { self.end.send_modify(|_| {}) }
    }

    fn warns_of(&self, state: HoldState) -> Option<Loss> {
        // A close is the caller's own doing, so it needs no warning.
        state.loss().filter(|loss| *loss != Loss::Closed && self.end.borrow().is_none())
    }
}

impl HoldCore {
    pub(super) fn state(&self) -> HoldState {
        self.state_and(|_| {})
    }

    /// Begins the stall limit again, unless the hold has ended.
    pub(super) fn progress(&self) {
        self.state_and(|state| self.driver.decide(state, Event::Progress(self.op)));
    }

    /// Begins the release, unless the hold has ended, and returns the state before. `caller` is woken at the end of the
    /// release; see [`driver::poll_released`].
    pub(super) fn begin_release(&self, caller: Waker) -> HoldState {
        self.state_and(|state| {
            // The waker is set first: if trust in the session ends just now, the release ends at once and wakes the caller.
            state.await_op(self.op, caller);
            self.driver.decide(state, Event::Release(self.op));
        })
    }

    /// Returns the state. If the hold has not ended, calls `then` under the same lock as the check.
    fn state_and(&self, then: impl FnOnce(&mut State)) -> HoldState {
        if let Some(end) = *self.end.borrow() {
            return end;
        }
        let mut state = self.driver.lock_current();
        let at = now();
        self.driver.end_hold(&mut state, self.op, at);
        let found = state.machine.state(at, self.op).unwrap_or(HoldState::Lost(Loss::Expired));
        if !found.has_ended() {
            then(&mut state);
            return found;
        }
        drop(state);
        self.note_loss(found, false);
        self.driver.reports.flush();
        // Another call may have recorded an end earlier, with another reason.
        self.end.borrow().unwrap_or(HoldState::Released)
    }
}
