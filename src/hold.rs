//! Owns [`Hold`]: a lock that is held, from its admission to its release or loss. The body of every guard.
//!
//! 1. A hold is held, released or lost, and leaves the first of these for good, once.
//! 2. Its stakes are taken out of it once: by the release, by the drop of the guard, or by the loss, whichever comes
//!    first; so a hold that is lost while its session lives gives its node to clean-up at once.
//! 3. What it says of itself is computed when it is asked, from a clock and from the client's own state, and never
//!    from events that have yet to arrive: the first look after a pause tells the truth.

mod change;
mod core;
pub(crate) mod guard;
mod state;
pub(crate) mod token;
mod watch;

use std::fmt;
use std::future::Future;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use zookeeper_client::{CheckWriter, Client};

use crate::cleanup::{Deletion, Stakes};
use crate::error::{Error, Loss, Result};
use crate::hold::core::{Core, Grip, Stage};
use crate::hold::token::FencingToken;
use crate::options::Options;
use crate::path::LockPath;
use crate::session::clock::Moment;
use crate::session::{Failure, Interest, LinkOver, Session};

pub use self::state::HoldState;
pub(crate) use self::state::REVOKE;
pub(crate) use self::watch::Looks;

type ZkError = zookeeper_client::Error;

/// A lock that is held.
///
/// Every guard dereferences to one. While the process runs, a hold says that it is lost *before* the servers can give
/// the lock to somebody else. A process that stands still cannot be told; that is what the
/// [fencing token](Self::fencing_token) is for.
pub struct Hold {
    core: Arc<Core>,
    /// The full paths of the nodes.
    nodes: Vec<String>,
    /// What created each of them.
    czxids: Vec<i64>,
    /// For [`Hold::check_writer`], which borrows one.
    client: OnceLock<Arc<Client>>,
    /// A live guard keeps its session alive.
    _session: Session,
}

/// Runs `future`; looks at `state` before every step of it, and is woken by `lost` when it takes no steps.
pub(crate) async fn until_lost<F: Future>(
    state: impl Fn() -> HoldState,
    lost: impl Future<Output = Loss>,
    future: F,
) -> Result<F::Output, Loss> {
    let (mut lost, mut future) = (pin!(lost), pin!(future));
    poll_fn(|cx| {
        if let HoldState::Lost(loss) = state() {
            return Poll::Ready(Err(loss));
        }
        if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(loss));
        }
        future.as_mut().poll(cx).map(Ok)
    })
    .await
}

impl Hold {
    /// Turns stakes that have been admitted into a hold of the lock at `path`.
    pub(crate) fn new(
        session: &Session,
        path: &LockPath,
        options: &Options,
        stakes: Stakes,
        interest: Interest,
    ) -> Self {
        let nodes = stakes.nodes();
        // Nodes of one transaction have one number. Of several, the smallest is the one that no later holder of any
        // of the paths has surpassed before us.
        let token = nodes.iter().map(|(_, czxid)| *czxid).min().expect("an admitted stake has a node");
        let core = Arc::new(Core {
            trust: options.trust(),
            limit: options.max_hold().map(|limit| Moment::now().plus(limit)),
            path: path.clone(),
            token: FencingToken::new(token, 0),
            stage: tokio::sync::watch::Sender::new(Stage::Held(0)),
            link: stakes.link().clone(),
            grip: Mutex::new(Some(Grip { stakes, interest })),
            watch_wanted: Notify::new(),
            revoked: tokio::sync::watch::Sender::new(false),
        });
        core.link.background(watch::guard(core.clone()).boxed());
        let (nodes, czxids) = nodes.into_iter().unzip();
        Self { core, nodes, czxids, client: OnceLock::new(), _session: session.clone() }
    }

    /// The token of this hold: larger than that of every conflicting hold before it.
    ///
    /// Of a [sequential](crate::MultiLock::sequential) multi-lock it is the smallest of its members' tokens; there, each
    /// resource compares that of [its member](crate::MultiLockGuard::members).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.core.token
    }

    /// What can be said of the hold right now.
    ///
    /// It compares clocks and asks nobody, so it tells the truth at once after a pause of the process.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.core.state()
    }

    /// Resolves with the new state when it is another than at the time of the call; at once if the hold is lost, which
    /// is for good.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub fn state_changed(&self) -> impl Future<Output = HoldState> + Send + use<'_> {
        let before = self.state();
        self.core.watch_wanted.notify_one();
        async move {
            match before {
                HoldState::Lost(_) => before,
                HoldState::Held | HoldState::Suspended => match self.core.state_other_than(before).await {
                    Some(state) => state,
                    // Unreachable while the guard that is borrowed here exists.
                    None => pending().await,
                },
            }
        }
    }

    /// How long the hold is trusted from now on, if nothing more is heard from the servers. Zero when it is lost.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        match self.state() {
            HoldState::Lost(_) => Duration::ZERO,
            HoldState::Held | HoldState::Suspended => self.core.trusted_until().since(Moment::now()),
        }
    }

    /// Resolves when the lock is lost, before the servers can give it to somebody else, as long as the process runs.
    ///
    /// The future does not borrow the guard. Once the guard is released it never resolves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; each call gives one of its own.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        self.core.watch_wanted.notify_one();
        let core = self.core.clone();
        async move {
            match core.lost().await {
                Some(loss) => loss,
                None => {
                    // Nothing is kept for a signal that will not come.
                    drop(core);
                    pending().await
                }
            }
        }
    }

    /// Runs `future` for as long as the lock is held.
    ///
    /// Before every step of `future` it is asked whether the lock is still held, also right after a pause of the
    /// process. A step itself is not interrupted.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops `future`. The guard stays.
    ///
    /// # Errors
    ///
    /// The [`Loss`], if it comes before `future` is done; `future` is dropped.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        until_lost(|| self.state(), self.lost(), future).await
    }

    /// Resolves when somebody asks for the lock back, with `revoke` or with Curator's `Revoker`. To let go or not is up to
    /// the holder.
    ///
    /// The future does not borrow the guard. Once the guard is released, or the hold is lost, it never resolves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; each call gives one of its own, which resolves also if somebody has asked
    /// before.
    pub fn revoke_requested(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.core.watch_wanted.notify_one();
        let mut revoked = self.core.revoked.subscribe();
        let core = Arc::downgrade(&self.core);
        async move {
            let asked = revoked.wait_for(|revoked| *revoked).await.is_ok();
            let state = core.upgrade().and_then(|core| core.unreleased_state());
            if !(asked && matches!(state, Some(HoldState::Held | HoldState::Suspended))) {
                pending().await
            }
        }
    }

    /// Takes note that somebody has asked for the lock back.
    pub(crate) fn revoke(&self) {
        self.core.saw(REVOKE);
    }

    /// What runs a future for as long as the lock is held, without owning the hold.
    pub(crate) fn leash(&self) -> Leash {
        self.core.watch_wanted.notify_one();
        Leash(self.core.clone())
    }

    /// Sets the data of the hold's first node, but overwrites nothing that was not seen: somebody may have asked for the
    /// lock back.
    pub(crate) async fn write(&self, data: Vec<u8>) -> Result<()> {
        let link = &self.core.link;
        let write = async || {
            let node = self.nodes[0].clone();
            let (before, stat) = link.ask(move |requests| requests.read(&node)).await?;
            if stat.czxid != self.czxids[0] {
                return Err(Failure::Refused(ZkError::NoNode));
            }
            self.core.saw(&before);
            let (node, data) = (self.nodes[0].clone(), data.clone());
            link.ask(move |requests| requests.write(&node, data, Some(stat.version))).await
        };
        let written = async {
            link.connected().await.map_err(|LinkOver| Loss::Expired)?;
            loop {
                match write().await {
                    Ok(()) => return Ok(()),
                    Err(Failure::Refused(ZkError::BadVersion)) => {}
                    Err(Failure::Refused(ZkError::NoNode)) => return Err(Loss::Deleted.into()),
                    Err(Failure::Refused(error)) => return Err(Error::refused("write", &self.nodes[0], error)),
                    Err(Failure::Unknown) => link.settled().await.map_err(|LinkOver| Loss::Expired)?,
                    Err(Failure::Over) => return Err(Loss::Expired.into()),
                }
            }
        };
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss.into()),
            written = written => written,
        }
    }

    /// The lock path; of a hold with several, the first.
    #[must_use]
    pub fn path(&self) -> &str {
        self.core.path.as_str()
    }

    /// The full paths of the nodes that stand for the hold.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The nodes, each with the token that it would give alone.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        let tokens = self.czxids.iter().map(|&czxid| FencingToken::new(czxid, 0));
        self.nodes.iter().map(String::as_str).zip(tokens)
    }

    /// A transaction that only succeeds while every node of the hold exists.
    ///
    /// Data that lives in the same ZooKeeper needs no fencing token: a write through this fails when the lock is gone.
    /// When a node of the hold is gone, its `commit` fails with `CheckFailed`, or, of a hold with several, with
    /// `OperationFailed` at the index of a node's check, which come first; what the caller has added is counted after them.
    ///
    /// The client is kept until the guard is dropped, and with it the session, should it be closed. After the session has
    /// ended in any other way, the transaction fails.
    ///
    /// # Panics
    ///
    /// If the session was closed before the first call: there is no client any more then, and the hold says
    /// [`Lost(Closed)`](Loss::Closed).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: &zookeeper_recipes::MutexGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut writer = guard.check_writer();
    /// writer.add_set_data("/stock/item-7", b"41", None)?;
    /// writer.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn check_writer(&self) -> CheckWriter<'_> {
        let client = self.client.get_or_init(|| {
            self.core.link.share_client().expect("session was closed, or has panicked, before check_writer()")
        });
        let (first, rest) = self.nodes.split_first().expect("a hold has a node");
        let mut writer = client.new_check_writer(first, None).expect("the path of a node is valid");
        for node in rest {
            writer.add_check_version(node, -1).expect("the path of a node is valid");
        }
        writer
    }

    /// Deletes the nodes and waits until that is certain, or trust has ended.
    pub(crate) async fn release(self) -> Result<()> {
        if let HoldState::Lost(loss) = self.state() {
            return Err(loss.into());
        }
        let Some(grip) = self.core.let_go(Stage::Released) else {
            return Err(self.core.loss().unwrap_or(Loss::Expired).into());
        };
        // From here on clean-up sees to the nodes, whether anybody waits for it or not.
        let deletion = grip.stakes.release();
        let deletion = tokio::select! {
            biased;
            loss = self.core.trust_ended() => return Err(loss.into()),
            deletion = deletion => deletion,
        };
        match deletion {
            Deletion::Done => Ok(()),
            Deletion::Absent => Err(Loss::Deleted.into()),
            Deletion::Over => Err(self.core.untrusted().unwrap_or(Loss::Expired).into()),
            Deletion::Refused { parent, error } => Err(Error::refused("delete a node of", &parent, error)),
        }
    }
}

/// Watches over a hold that somebody else owns.
pub(crate) struct Leash(Arc<Core>);

impl Leash {
    /// Runs `future` until it is done or the hold is lost; a hold that was released cannot be lost any more.
    pub(crate) async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        let lost = async {
            match self.0.lost().await {
                Some(loss) => loss,
                None => pending().await,
            }
        };
        until_lost(|| self.0.unreleased_state().unwrap_or(HoldState::Held), lost, future).await
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Dropping the stakes sends the deletes.
        drop(self.core.let_go(Stage::Released));
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("nodes", &self.nodes)
            .field("token", &self.core.token)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
