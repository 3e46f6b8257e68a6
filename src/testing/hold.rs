//! Owns [`LocalHold`]: a lock that is held within the process.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::distributed_lock::{LeaderGuard, LockGuard, WriteGuard};
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{Ended, HoldMonitor, HoldState, View, lost, resigned};
use crate::owner::Owner;
use crate::testing::servers::{Link, Node, Stage};

/// How long a hold is trusted at any time, as with a session timeout of this length.
const TIMEOUT: Duration = Duration::from_secs(10);

impl View for Node {
    fn path(&self) -> &str {
        self.path.as_str()
    }

    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn state(&self) -> HoldState {
        // Not borrowed while the servers are locked: they borrow it while they are.
        let stage = *self.stage.borrow();
        match stage {
            Stage::Ended(Ended::Lost(loss)) => HoldState::Lost(loss),
            Stage::Ended(Ended::Released) => HoldState::Released,
            Stage::Waiting | Stage::Held => match self.servers.link(self.session) {
                Link::Connected => HoldState::Held,
                Link::Disconnected | Link::Closed => HoldState::Suspended,
            },
        }
    }

    fn valid_for(&self) -> Duration {
        self.state().ended().map_or(TIMEOUT, |_| Duration::ZERO)
    }

    fn ended(self: Arc<Self>) -> BoxFuture<'static, Ended> {
        let mut stages = self.stage.subscribe();
        async move {
            loop {
                if let Stage::Ended(ended) = *stages.borrow_and_update() {
                    return ended;
                }
                if stages.changed().await.is_err() {
                    return Ended::Released;
                }
            }
        }
        .boxed()
    }

    fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.stage.send_modify(|_| {});
    }

    fn changed_from(self: Arc<Self>, before: HoldState) -> BoxFuture<'static, HoldState> {
        let look = move |node: &Self| Some(View::state(node)).filter(|state| *state != before);
        async move { self.servers.until(|| look(&self)).await }.boxed()
    }

    fn revoke_requested(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async move {
            let revoked = |stage: &Stage| matches!(stage, Stage::Ended(_)) || self.revoked.load(Ordering::Acquire);
            let ended = match self.stage.subscribe().wait_for(revoked).await {
                Ok(stage) => matches!(*stage, Stage::Ended(_)),
                Err(_) => true,
            };
            if ended {
                pending::<()>().await;
            }
        }
        .boxed()
    }

    fn proclaim(self: Arc<Self>, data: Vec<u8>) -> BoxFuture<'static, Result<()>> {
        async move {
            if View::state(&*self) == HoldState::Released {
                return Err(resigned());
            }
            self.connected().await?;
            if self.servers.proclaim(&self, data) { Ok(()) } else { Err(self.loss().into()) }
        }
        .boxed()
    }
}

impl Node {
    /// Waits for a connection; fails if the hold has ended.
    async fn connected(&self) -> Result<(), Loss> {
        let look = || {
            let stage = *self.stage.borrow();
            match (stage, self.servers.link(self.session)) {
                (Stage::Ended(_), _) => Some(Err(self.loss())),
                (Stage::Waiting | Stage::Held, Link::Connected) => Some(Ok(())),
                (Stage::Waiting | Stage::Held, Link::Disconnected | Link::Closed) => None,
            }
        };
        self.servers.until(look).await
    }

    fn loss(&self) -> Loss {
        View::state(self).loss().unwrap_or(Loss::Expired)
    }
}

/// A node that waits or holds, and leaves its queues when this is dropped.
pub(super) struct LocalHold(pub(super) Arc<Node>);

impl Drop for LocalHold {
    fn drop(&mut self) {
        self.0.servers.leave(&self.0);
    }
}

/// A guard of any recipe; of a re-entrant lock there may be several of one hold.
pub(super) struct LocalGuard {
    hold: Arc<LocalHold>,
    /// Kept, so that no other owner is taken for it.
    _owner: Option<Owner>,
}

impl LocalGuard {
    pub(super) fn new(hold: LocalHold) -> Box<Self> {
        Box::new(Self { hold: Arc::new(hold), _owner: None })
    }

    pub(super) fn owned(hold: Arc<LocalHold>, owner: &Owner) -> Result<Box<dyn LockGuard>> {
        match View::state(&*hold.0).loss() {
            Some(loss) => Err(loss.into()),
            None => Ok(Box::new(Self { hold, _owner: Some(owner.clone()) })),
        }
    }

    fn node(&self) -> &Arc<Node> {
        &self.hold.0
    }
}

#[async_trait]
impl LockGuard for LocalGuard {
    fn fencing_token(&self) -> FencingToken {
        self.node().token
    }

    fn state(&self) -> HoldState {
        View::state(&**self.node())
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        lost(self.node().clone().ended()).boxed()
    }

    async fn release(self: Box<Self>) -> Result<()> {
        if let Some(loss) = self.state().loss() {
            return Err(loss.into());
        }
        let Some(hold) = Arc::into_inner(self.hold) else { return Ok(()) };
        hold.0.connected().await?;
        match hold.0.servers.leave(&hold.0) {
            Ended::Released => Ok(()),
            Ended::Lost(loss) => Err(loss.into()),
        }
    }

    fn path(&self) -> &str {
        self.node().path.as_str()
    }

    fn valid_for(&self) -> Duration {
        self.node().valid_for()
    }

    fn monitor(&self) -> HoldMonitor {
        HoldMonitor::new(self.node().clone())
    }

    fn revoke_requested(&self) -> BoxFuture<'static, ()> {
        View::revoke_requested(self.node().clone())
    }
}

#[async_trait]
impl WriteGuard for LocalGuard {
    async fn downgrade(self: Box<Self>) -> Result<Box<dyn LockGuard>, (Box<dyn WriteGuard>, Error)> {
        let connected = self.node().connected().await;
        match connected {
            Ok(()) if self.node().servers.downgrade(self.node()) => Ok(self),
            Ok(()) => {
                let loss = self.node().loss();
                Err((self, loss.into()))
            }
            Err(loss) => Err((self, loss.into())),
        }
    }
}

#[async_trait]
impl LeaderGuard for LocalGuard {
    async fn proclaim(&self, data: Vec<u8>) -> Result<()> {
        self.monitor().proclaim(data).await
    }
}

impl fmt::Debug for LocalGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalGuard").field("token", &self.fencing_token()).field("state", &self.state()).finish()
    }
}
