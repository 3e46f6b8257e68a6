//! Owns [`ServerSession`]: one ZooKeeper session, from its connection to its end.
//!
//! 1. The tasks that serve it never keep a [`Session`](crate::Session) alive.
//! 2. The phase only moves forward: open, closing, over. Every change of the connection is announced on the same
//!    channel, so that every waiter looks at the client's own state again.
//! 3. Callers check the connection before they send: the client would keep requests without bound, and send them later.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc, watch};
use zookeeper_client::{Client, SessionId, SessionState, StateWatcher};

use crate::error::Result;
use crate::session::budget::{Budget, Reserved};
use crate::session::identity::Connection;
use crate::session::register::Register;
use crate::session::request::{Evidence, Requests, SessionOver};
use crate::session::shared::{CheckUnderWay, ListingsUnderWay};
use crate::session::times::Times;
use crate::session::trust::{Ledger, Moment};
use crate::session::undisturbed::Undisturbed;

/// How long to wait before a failed request is sent again over a connection that seems to stand.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Something to be done in the background.
pub(crate) type Work = BoxFuture<'static, ()>;

/// What needs the background only if it lasts: most locks are held, and released, in less time.
pub(crate) trait Lasting: Send + Sync {
    /// The work to do from now on.
    fn work(self: Arc<Self>) -> Work;
}

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In use, connected or not.
    Open,
    /// Being closed: nothing new begins, and what is there is cleaned up.
    Closing,
    /// Over.
    Over(End),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The server, or the client on its behalf, has ended it.
    Expired,
    /// The server has given the connection to another session, or closes each that it gives to this one. It will expire.
    Unusable,
    /// The server refuses its credentials.
    AuthFailed,
    /// It was closed.
    Closed(Closing),
    /// The runtime that it ran on is gone.
    Orphaned,
}

/// What is known of the end of a session that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Its nodes are gone, and the session is or will be.
    Confirmed,
    /// Its nodes are gone, but for those that may not be deleted, and the session lives for as long as somebody has a clone
    /// of its client.
    ClientKept,
    /// The servers could not be asked.
    Unconfirmed,
}

pub(crate) struct ServerSession {
    times: Times,
    /// The bytes of the chroot, which the servers see before each path.
    root_bytes: usize,
    /// Whether the session is ours to end.
    owned: bool,
    phase: watch::Sender<Phase>,
    pub(super) requests: Mutex<Requests>,
    pub(super) evidence: Arc<Evidence>,
    pub(super) undisturbed: Undisturbed,
    pub(super) nodes: Register,
    watches: Budget,
    pub(super) listings: ListingsUnderWay,
    pub(super) check_under_way: CheckUnderWay,
    /// How many holds need trust.
    pub(super) trusting: AtomicUsize,
    /// Woken whenever that becomes less.
    pub(super) trust_unneeded: Notify,
    /// Whether a create was answered, and one with parents: servers that never have may not know them.
    answered_creates: [AtomicBool; 2],
    /// Whether somebody has a clone of the client, or had one.
    client_shared: AtomicBool,
    slow_looks: Notify,
    pub(super) trust_wanted: Notify,
    pub(super) close_wanted: Notify,
    work: mpsc::UnboundedSender<Work>,
    /// What gets work in the background at a moment, if it is still there.
    lasting: Mutex<Vec<(Moment, Weak<dyn Lasting>)>>,
}

impl ServerSession {
    /// `created` is a moment before the creation of the session, if that is ours to end.
    pub(super) fn new(client: Client, created: Option<Moment>, work: mpsc::UnboundedSender<Work>) -> Arc<Self> {
        Arc::new(Self {
            times: Times::of(client.session_timeout()),
            // The root is `/`, and a chroot ends in none.
            root_bytes: client.path().trim_end_matches('/').len(),
            owned: created.is_some(),
            phase: watch::Sender::new(Phase::Open),
            evidence: Evidence::new(&client, created),
            requests: Requests::new(client),
            nodes: Register::new(),
            undisturbed: Undisturbed::default(),
            watches: Budget::of_watches(),
            listings: Mutex::default(),
            check_under_way: Mutex::default(),
            trusting: Default::default(),
            trust_unneeded: Notify::new(),
            answered_creates: Default::default(),
            client_shared: AtomicBool::new(false),
            slow_looks: Notify::new(),
            trust_wanted: Notify::new(),
            close_wanted: Notify::new(),
            work,
            lasting: Mutex::default(),
        })
    }

    pub(crate) fn id(&self) -> SessionId {
        self.evidence.id()
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.times.session_timeout()
    }

    /// Whether the session is ours to end.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
    }

    /// Whether paths begin below a node of the servers.
    pub(super) fn has_chroot(&self) -> bool {
        self.root_bytes > 0
    }

    /// The bytes that a node or a watch with this path costs the server, which sees the chroot too.
    pub(crate) fn cost(&self, path_bytes: usize) -> usize {
        self.root_bytes + path_bytes
    }

    /// The state that the client is in.
    pub(crate) fn state(&self) -> SessionState {
        self.evidence.state()
    }

    pub(super) fn state_watcher(&self) -> StateWatcher {
        self.evidence.state_watcher()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.evidence.is_connected()
    }

    /// The present connection.
    pub(crate) fn connection(&self) -> Connection {
        self.evidence.connection()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.evidence.ledger()
    }

    /// Reserves what a watch of a path costs. A waiter keeps it from one watch to the next: it is not turned away in favour
    /// of others that came later.
    pub(crate) fn reserve_watch(&self, reserved: &mut Option<Reserved>, path_bytes: usize) -> Result<()> {
        let bytes = self.cost(path_bytes);
        match reserved {
            Some(reserved) => self.watches.widen(reserved, bytes)?,
            None => *reserved = Some(self.watches.reserve(bytes)?),
        }
        Ok(())
    }

    /// Reserves a watch of a path if there is plenty of room, for callers that can do without.
    pub(crate) fn reserve_spare_watch(&self, path_bytes: usize) -> Option<Reserved> {
        self.watches.reserve_spare(self.cost(path_bytes))
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// A receiver of every change of the phase and of the connection.
    pub(crate) fn changes(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Waits until the session is no longer open.
    pub(crate) async fn left_open(&self) -> Phase {
        self.wait_for(|phase| phase != Phase::Open).await
    }

    /// Waits until the session is over.
    pub(super) async fn over(&self) -> End {
        match self.wait_for(|phase| matches!(phase, Phase::Over(_))).await {
            Phase::Over(end) => end,
            Phase::Open | Phase::Closing => unreachable!("waited for the end"),
        }
    }

    async fn wait_for(&self, condition: impl Fn(Phase) -> bool) -> Phase {
        let mut changes = self.phase.subscribe();
        let found = changes.wait_for(|phase| condition(*phase)).await.ok().map(|phase| *phase);
        match found {
            Some(phase) => phase,
            // The sender lives in `self`.
            None => pending().await,
        }
    }

    /// Waits until requests can be sent.
    pub(crate) async fn connected(&self) -> Result<(), SessionOver> {
        if self.is_connected() && self.phase() == Phase::Open {
            return Ok(());
        }
        let mut changes = self.phase.subscribe();
        loop {
            if let Phase::Over(_) = *changes.borrow_and_update() {
                return Err(SessionOver);
            }
            if self.is_connected() {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Err(SessionOver);
            }
        }
    }

    /// Notes that the server has answered a create, or one with parents.
    pub(crate) fn has_answered_create(&self, with_parents: bool) {
        self.answered_creates[usize::from(with_parents)].store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub(crate) fn knows_create(&self, with_parents: bool) -> bool {
        self.answered_creates[usize::from(with_parents)].load(Ordering::Relaxed)
    }

    /// Waits, after this number of requests in a row with an unknown outcome, until another can be sent. The more there were, the
    /// longer: a server may close the connection on each.
    pub(crate) async fn reconnected(&self, lost: u32) -> Result<(), SessionOver> {
        if lost > 1 || self.is_connected() {
            tokio::time::sleep(PAUSE * (1 << lost.saturating_sub(1).min(4))).await;
        }
        self.connected().await
    }

    /// Runs `work` in the background, for as long as the session lives. Never blocks and never panics.
    pub(crate) fn background(&self, work: Work) {
        // It fails when the session is over. The nodes of a given client may remain.
        let _ = self.work.send(work);
    }

    /// Runs the work of `lasting` in the background, if it is still there after an eighth of a session timeout.
    pub(crate) fn background_if_it_lasts(&self, lasting: Weak<dyn Lasting>) {
        self.lock_lasting().push((Moment::now().plus(self.times.lasting()), lasting));
        if self.phase() != Phase::Open {
            // The close has looked already.
            self.begin_lasting(Moment::now().plus(self.timeout()));
        }
    }

    /// Begins the work of what has lasted until `now`; called now and then.
    pub(super) fn begin_lasting(&self, now: Moment) {
        let mut due = Vec::new();
        self.lock_lasting().retain(|(at, lasting)| {
            let is_due = *at <= now;
            if is_due {
                due.extend(lasting.upgrade());
            }
            !is_due && lasting.strong_count() > 0
        });
        due.into_iter().for_each(|lasting| self.background(lasting.work()));
    }

    fn lock_lasting(&self) -> MutexGuard<'_, Vec<(Moment, Weak<dyn Lasting>)>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is time to look at the servers without having been woken, in case an event was never sent. All
    /// waiters of a session look at the same time, and share their listings.
    pub(crate) async fn slow_look(&self) {
        self.slow_looks.notified().await;
    }

    pub(super) fn look_slowly(&self) {
        self.slow_looks.notify_waiters();
    }

    /// A clone of the client for somebody else, unless the session was closed.
    pub(crate) fn share_client(&self) -> Option<Arc<Client>> {
        self.client_shared.store(true, Ordering::Release);
        self.client()
    }

    /// Whether somebody else has a clone of the client, or had one.
    pub(super) fn is_client_shared(&self) -> bool {
        self.client_shared.load(Ordering::Acquire)
    }

    /// Begins an orderly end, which [`over`](Self::over) waits for.
    pub(crate) fn close(&self) {
        self.advance(Phase::Closing);
        self.close_wanted.notify_one();
    }

    /// Ends at once, whatever is under way.
    pub(super) fn end(&self, end: End) {
        // After any other end than a closing the client is dead, and stays for callers who ask for the client of this
        // session. One that is not ours may live on, and can still take a delete from a `Drop`.
        if self.advance(Phase::Over(end)) && matches!(end, End::Closed(_)) {
            self.drop_client();
        }
    }

    /// Ends if a request or a watch has found that it is over. Of any other end the keeper learns from the client.
    pub(crate) fn end_if_over(&self) {
        if let Some(end) = self.evidence.over() {
            self.end(end);
        }
    }

    fn advance(&self, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let forward = match (*phase, to) {
                (Phase::Over(_), _) | (Phase::Closing, Phase::Open | Phase::Closing) => false,
                (Phase::Open, to) => to != Phase::Open,
                (Phase::Closing, Phase::Over(_)) => true,
            };
            if forward {
                *phase = to;
            }
            forward
        })
    }

    /// Makes every waiter look again.
    pub(super) fn announce(&self) {
        self.phase.send_modify(|_| {});
    }

    /// Keeps trust up for as long as the value lives.
    pub(crate) fn need_trust(self: &Arc<Self>) -> TrustNeed {
        self.trusting.fetch_add(1, Ordering::AcqRel);
        // If there is time, the next beat is soon enough.
        if self.ledger().renewal_due() <= Moment::now().plus(2 * self.times.beat()) {
            self.trust_wanted.notify_one();
        }
        TrustNeed(self.clone())
    }

    /// Whether trust lasts long enough for one renewal.
    pub(crate) fn is_trusted_for_long(&self) -> bool {
        let (now, ledger) = (Moment::now(), self.ledger());
        ledger.until() > now.plus(self.times.hand_over()) && ledger.suffices(now)
    }

    /// Whether the session is trusted for long enough to begin a hold.
    pub(crate) fn is_trusted(&self) -> bool {
        self.ledger().suffices(Moment::now())
    }

    /// Waits until the session is trusted for long enough to begin a hold; a [`TrustNeed`] must be there to make it so.
    pub(crate) async fn trusted(&self) -> Result<(), SessionOver> {
        while !self.is_trusted() {
            if let Phase::Over(_) = self.phase() {
                return Err(SessionOver);
            }
            // Rare (a first hold after a stall), so it is asked now and then.
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// Keeps up the trust in a session, for a hold.
#[derive(Debug)]
pub(crate) struct TrustNeed(Arc<ServerSession>);

impl Drop for TrustNeed {
    fn drop(&mut self) {
        self.0.trusting.fetch_sub(1, Ordering::AcqRel);
        self.0.trust_unneeded.notify_waiters();
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession")
            .field("id", &self.id())
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}
