//! Owns the core of a hold: what the guard, its futures and its background work share.

use std::fmt;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use zookeeper_client::SessionState;

use crate::error::{Error, Loss, Result, ZkError};
use crate::fencing_token::FencingToken;
use crate::hold::watch::watch_over;
use crate::hold::{Ended, HoldState, REVOKE, View, resigned};
use crate::path::LockPath;
use crate::session::Moment;
use crate::session::{End, Event, Failure, Lasting, OwnNodes, Phase, ServerSession, SessionOver, TrustNeed, Work};
use crate::telemetry::Held;

/// What the guard, its futures and its background work share.
pub(super) struct Core {
    /// For work in the background.
    pub(super) me: Weak<Self>,
    pub(super) zk: Arc<ServerSession>,
    /// Whether the session is being drained, which asks for all locks back.
    pub(super) draining: watch::Receiver<bool>,
    /// When the hold gives itself up, if it does.
    pub(super) limit: Option<Moment>,
    pub(super) path: LockPath,
    pub(super) token: FencingToken,
    pub(super) seen: Held,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) owned: Mutex<Option<Owned>>,
    /// Whether something watches over it in the background.
    pub(super) watched: AtomicBool,
    /// Whether somebody has asked for the lock back.
    pub(super) revoked: AtomicBool,
}

/// What a hold gives up when it ends.
pub(super) struct Owned {
    pub(super) nodes: OwnNodes,
    pub(super) trust: TrustNeed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The nodes are there; the number distinguishes those of one exchange from the next.
    Held(u32),
    /// Other nodes are taking the place of those that stand for the hold.
    Changing(u32),
    Released,
    Lost(Loss),
}

impl Stage {
    fn is_held(self) -> bool {
        matches!(self, Self::Held(_) | Self::Changing(_))
    }
}

impl Core {
    pub(super) fn state(&self) -> HoldState {
        if let Some(end) = self.found_end() {
            return end;
        }
        if let Some(loss) = self.untrusted() {
            self.lose(loss);
            // Somebody may have been faster: with another reason, or with a release, whose session has ended since.
            return self.found_end().unwrap_or(HoldState::Lost(loss));
        }
        let fresh = self.zk.ledger().is_fresh(Moment::now());
        if fresh && self.zk.is_connected() { HoldState::Held } else { HoldState::Suspended }
    }

    /// The state, if it was found already that the hold has ended.
    fn found_end(&self) -> Option<HoldState> {
        match *self.stage.borrow() {
            Stage::Lost(loss) => Some(HoldState::Lost(loss)),
            Stage::Released => Some(HoldState::Released),
            Stage::Held(_) | Stage::Changing(_) => None,
        }
    }

    /// The loss, if it was found already.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.found_end().and_then(HoldState::loss)
    }

    /// Why the hold cannot be trusted at this moment, if so.
    pub(super) fn untrusted(&self) -> Option<Loss> {
        match self.zk.phase() {
            Phase::Closing | Phase::Over(End::Closed(_)) => return Some(Loss::Closed),
            Phase::Over(End::Expired | End::Unusable | End::AuthFailed | End::Orphaned) => {
                return Some(Loss::Expired);
            }
            Phase::Open => {}
        }
        match self.zk.state() {
            SessionState::Expired | SessionState::AuthFailed => Some(Loss::Expired),
            SessionState::Closed => Some(Loss::Closed),
            _ => {
                let now = Moment::now();
                let over = self.limit.is_some_and(|limit| limit <= now).then_some(Loss::MaxHold);
                if self.zk.ledger().until() <= now {
                    Some(Loss::Expired)
                } else {
                    over.or_else(|| self.was_deleted().then_some(Loss::Deleted))
                }
            }
        }
    }

    /// Whether the watch on which the grant was based has seen a deletion. If it has seen something else, it will see no more, so
    /// the nodes are looked at from now on.
    fn was_deleted(&self) -> bool {
        let seen = self.lock_owned().as_ref().and_then(|owned| owned.nodes.seen_since_grant());
        if seen == Some(Event::Changed)
            && let Some(core) = self.me.upgrade()
        {
            core.watch();
        }
        seen == Some(Event::Deleted)
    }

    pub(super) fn trusted_until(&self) -> Moment {
        let until = self.zk.ledger().until();
        self.limit.map_or(until, |limit| until.min(limit))
    }

    pub(super) fn lose(&self, loss: Loss) {
        if self.advance(|stage| stage.is_held().then_some(Stage::Lost(loss))) {
            self.lost(loss);
        }
    }

    /// Releases the hold; returns its nodes to the first caller only.
    pub(super) fn give_up(&self) -> Option<Owned> {
        let is_trusted = self.untrusted().is_none();
        let ended = self.advance(|stage| stage.is_held().then_some(Stage::Released));
        if ended {
            self.seen.ended(None);
        }
        let mut owned = ended.then(|| self.take_owned()).flatten()?;
        if is_trusted {
            owned.nodes.still_hold();
        }
        Some(owned)
    }

    /// Loses the hold, if its stage is still `watched`.
    pub(super) fn lose_at(&self, watched: Stage, loss: Loss) {
        if self.advance(|stage| (stage == watched).then_some(Stage::Lost(loss))) {
            self.lost(loss);
        }
    }

    fn lost(&self, loss: Loss) {
        match loss {
            // The caller's own doing.
            Loss::Closed => {}
            loss => {
                let (path, token, cause) = (&self.path, self.token, loss.as_str());
                tracing::warn!(parent: self.seen.span(), %path, %token, %loss, cause, "lock is lost");
            }
        }
        self.seen.ended(Some(loss));
        drop(self.take_owned());
    }

    /// Lends what it owns to a caller that puts other nodes in the place of these; `None` if the hold is not held any more.
    pub(super) fn lend(&self) -> Option<Owned> {
        let lent = self.advance(|stage| match stage {
            Stage::Held(turn) => Some(Stage::Changing(turn)),
            Stage::Changing(_) | Stage::Released | Stage::Lost(_) => None,
        });
        lent.then(|| self.take_owned()).flatten()
    }

    /// Takes back what was lent, unless the hold was lost in the meantime.
    pub(super) fn put_back(&self, owned: Owned) {
        let before = self.lock_owned().replace(owned);
        debug_assert!(before.is_none(), "it was lent");
        let held = self.advance(|stage| match stage {
            Stage::Changing(turn) => Some(Stage::Held(turn.wrapping_add(1))),
            Stage::Held(_) | Stage::Released | Stage::Lost(_) => None,
        });
        if !held {
            drop(self.take_owned());
        }
    }

    fn advance(&self, next: impl FnOnce(Stage) -> Option<Stage>) -> bool {
        self.stage.send_if_modified(|stage| match next(*stage) {
            Some(next) => {
                *stage = next;
                true
            }
            None => false,
        })
    }

    fn take_owned(&self) -> Option<Owned> {
        self.lock_owned().take()
    }

    /// The nodes that stand for the hold, and the transactions that created them; none while it does not hold.
    pub(super) fn nodes(&self) -> Vec<(String, i64)> {
        self.lock_owned().as_ref().map_or_else(Vec::new, |owned| owned.nodes.paths())
    }

    /// The lock path and what created it, if the lock was granted without a look at it.
    pub(super) fn path_unseen(&self) -> Option<(LockPath, i64)> {
        let owned = self.lock_owned();
        owned.as_ref()?.nodes.path_unseen().map(|(path, czxid)| (path.clone(), czxid))
    }

    fn lock_owned(&self) -> MutexGuard<'_, Option<Owned>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the data of the hold's first node, but overwrites nothing that was not seen: somebody may have asked for the
    /// lock back.
    async fn write(&self, data: &[u8]) -> Result<()> {
        let ended = || match self.found_end() {
            Some(HoldState::Released) => resigned(),
            end => end.and_then(HoldState::loss).unwrap_or(Loss::Expired).into(),
        };
        let Some((node, czxid)) = self.nodes().into_iter().next() else {
            return Err(ended());
        };
        let (zk, node) = (&self.zk, &node);
        let write = || async move {
            let (before, stat) = zk.read(node).await?;
            if stat.czxid != czxid {
                return Err(Failure::Refused(ZkError::NoNode));
            }
            self.saw(&before);
            zk.write(node, data, stat.version).await
        };
        let written = async {
            loop {
                match zk.retry(write).await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(ZkError::BadVersion)) => {}
                    Ok(Err(ZkError::NoNode)) => return Err(Loss::Deleted.into()),
                    Ok(Err(error)) => return Err(Error::refused("write", node, error)),
                    Err(SessionOver) => return Err(Loss::Expired.into()),
                }
            }
        };
        tokio::select! {
            biased;
            _ = self.end() => Err(ended()),
            written = written => written,
        }
    }

    /// Watches over the hold from now on, because somebody wants to learn of its loss at once.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.watched.swap(true, Ordering::AcqRel) {
            self.zk.background(watch_over(self.clone()).boxed());
        }
    }

    /// Waits for the end of the hold.
    pub(super) async fn end(&self) -> Ended {
        self.until(|| self.state().ended()).await
    }

    /// Waits for another state.
    pub(super) async fn state_other_than(&self, before: HoldState) -> HoldState {
        self.until(|| Some(self.state()).filter(|state| *state != before)).await
    }

    /// Waits until the hold cannot be trusted any more, also when it is being released.
    pub(super) async fn trust_ended(&self) -> Loss {
        self.until(|| self.untrusted()).await
    }

    /// Waits until `look` finds something: looks whenever something happened, or could have by the clock.
    pub(super) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        let mut changes = self.zk.changes();
        let mut stage = self.stage.subscribe();
        loop {
            changes.mark_unchanged();
            stage.mark_unchanged();
            if let Some(found) = look() {
                return found;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return pending().await },
                changed = stage.changed() => if changed.is_err() { return pending().await },
                () = tokio::time::sleep_until(self.next_look()) => {}
            }
        }
    }

    pub(super) fn next_look(&self) -> Instant {
        let now = Moment::now();
        let ledger = self.zk.ledger();
        let until = ledger.until();
        let end = self.limit.map_or(until, |limit| until.min(limit)).since(now);
        let wait = if ledger.is_fresh(now) {
            end.min(ledger.fresh_until().since(now))
        } else {
            // No event announces the next answer, so look often.
            end.min(self.zk.times().suspended_look())
        };
        // Timers tick in milliseconds; less would only spin.
        Instant::now() + wait.max(Duration::from_millis(1))
    }
}

impl View for Core {
    fn path(&self) -> &str {
        self.path.as_str()
    }

    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn state(&self) -> HoldState {
        self.state()
    }

    fn valid_for(&self) -> Duration {
        match self.state().ended() {
            Some(_) => Duration::ZERO,
            None => self.trusted_until().since(Moment::now()),
        }
    }

    fn ended(self: Arc<Self>) -> BoxFuture<'static, Ended> {
        self.watch();
        async move { self.end().await }.boxed()
    }

    fn revoke(&self) {
        self.saw(REVOKE);
    }

    fn revoke_requested(self: Arc<Self>) -> BoxFuture<'static, ()> {
        self.when_revoked().boxed()
    }

    fn changed_from(self: Arc<Self>, before: HoldState) -> BoxFuture<'static, HoldState> {
        self.watch();
        async move { self.state_other_than(before).await }.boxed()
    }

    fn proclaim(self: Arc<Self>, data: Vec<u8>) -> BoxFuture<'static, Result<()>> {
        self.watch();
        async move { self.write(&data).await }.boxed()
    }
}

impl Lasting for Core {
    fn work(self: Arc<Self>) -> Work {
        if self.watched.swap(true, Ordering::AcqRel) { ready(()).boxed() } else { watch_over(self).boxed() }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("path", &self.path)
            .field("stage", &*self.stage.borrow())
            .finish_non_exhaustive()
    }
}
