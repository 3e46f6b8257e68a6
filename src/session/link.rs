//! Owns one ZooKeeper session from its connection to its end: its phases, what it remembers, and what it has room for.
//!
//! 1. The tasks that serve a link never keep a [`Session`](crate::Session) alive.
//! 2. The phase only moves forward: open, closing, over. Every change of the connection is announced on the same
//!    channel, so that whoever waits looks at the client's own state again.
//! 3. Nothing is sent while the connection is away: the client would keep it without bound, and send it later. One request
//!    at a time is the exception, where only that can tell that nobody is there (see `keeper`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{Notify, mpsc, watch};
use uuid::Uuid;
use zookeeper_client::{Client, SessionId};

use crate::error::Result;
use crate::path::LockPath;
use crate::session::answer::{Answer, Slot};
use crate::session::budget::{Budget, Reserved};
use crate::session::clock::Moment;
use crate::session::places::{Entered, Places};
use crate::session::requests::{Names, Requests};

/// How long to wait before a failed request is sent again over a connection that seems to stand.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// How many places that were given up are remembered; older ones are gone, or have been searched for long ago.
const MAX_STRAYS: usize = 8192;

/// Something to be done in the background.
pub(crate) type Work = BoxFuture<'static, ()>;

/// Deletes the nodes under these paths with these guids.
pub(crate) type Sweep = fn(Arc<Link>, Vec<(LockPath, Uuid)>) -> Work;

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In use, connected or not.
    Open,
    /// Being closed: no new work, but what is there is tidied up.
    Closing,
    /// Over.
    Over(End),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The server, or the client on its behalf, has ended it.
    Expired,
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

/// The session is over or about to be: no more can come of waiting on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOver;

/// The listings of one path; see [`listings`](crate::session::listings).
#[derive(Default)]
pub(super) struct Asked {
    pub(super) under_way: usize,
    /// Who waits for the next.
    pub(super) next: Vec<Slot<Names>>,
}

/// Places that were given up, oldest first.
#[derive(Default)]
struct Strays {
    order: VecDeque<Uuid>,
    guids: HashSet<Uuid>,
}

pub(crate) struct Link {
    pub(crate) requests: Requests,
    pub(super) places: Places,
    pub(crate) watches: Budget,
    /// How to delete what is entered in `places`.
    sweep: OnceLock<Sweep>,
    id: SessionId,
    pub(super) timeout: Duration,
    root_bytes: usize,
    /// Whether the session is ours to end.
    owned: bool,
    phase: watch::Sender<Phase>,
    pub(super) interest: [AtomicUsize; 2],
    strays: Mutex<Strays>,
    /// For each path of which listings are under way, as they are and tidied.
    pub(super) listings: [Mutex<HashMap<LockPath, Asked>>; 2],
    /// The nodes that are being deleted for want of anybody who wants them.
    deletions: Mutex<HashSet<String>>,
    /// Those who wait for the check that is under way, if one is.
    pub(super) checks: Mutex<Option<Vec<Slot<()>>>>,
    /// Whether somebody has a clone of the client, or had one.
    client_shared: AtomicBool,
    pub(super) slow_looks: Notify,
    pub(super) renewal_wanted: Notify,
    pub(super) close_wanted: Notify,
    pub(super) work_over: Notify,
    work: mpsc::UnboundedSender<Work>,
    not_started: Mutex<Option<mpsc::UnboundedReceiver<Work>>>,
}

impl Link {
    /// `created` is a moment before the creation of the session, if that is ours to end.
    pub(crate) fn new(client: Client, created: Option<Moment>) -> Arc<Self> {
        let (work, receiver) = mpsc::unbounded_channel();
        Arc::new(Self {
            places: Places::new(),
            sweep: OnceLock::new(),
            watches: Budget::of_watches(),
            id: client.session_id(),
            timeout: client.session_timeout(),
            // The root is `/`, and a chroot ends in none.
            root_bytes: client.path().trim_end_matches('/').len(),
            owned: created.is_some(),
            requests: Requests::new(client, created),
            phase: watch::Sender::new(Phase::Open),
            interest: Default::default(),
            strays: Mutex::default(),
            listings: Default::default(),
            deletions: Mutex::default(),
            checks: Mutex::default(),
            client_shared: AtomicBool::new(false),
            slow_looks: Notify::new(),
            renewal_wanted: Notify::new(),
            close_wanted: Notify::new(),
            work_over: Notify::new(),
            work,
            not_started: Mutex::new(Some(receiver)),
        })
    }

    /// What is handed to [`background`](Self::background), for the one that runs it; nothing the second time.
    pub(super) fn take_work(&self) -> Option<mpsc::UnboundedReceiver<Work>> {
        self.not_started.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The bytes that a node or a watch with this path costs the server, which sees the chroot too.
    pub(crate) fn cost(&self, path_bytes: usize) -> usize {
        self.root_bytes + path_bytes
    }

    /// Enters a node among those of the session, before its create is sent; `sweep` deletes it if the session is closed
    /// and its owner does not.
    pub(crate) fn enter(&self, parent: &LockPath, guid: Uuid, path_bytes: usize, sweep: Sweep) -> Result<Entered> {
        let _ = self.sweep.set(sweep);
        self.places.enter(parent, guid, self.cost(path_bytes))
    }

    /// Deletes the nodes that are left, whoever owns them.
    pub(super) async fn sweep(self: &Arc<Self>) {
        if let Some(sweep) = self.sweep.get() {
            sweep(self.clone(), self.places.all()).await;
        }
    }

    /// Makes room for a watch of a path. Who has one watch after the other keeps the room from one to the next: whoever
    /// is in line is not turned away for somebody who came later.
    pub(crate) fn make_room(&self, room: &mut Option<Reserved>, path_bytes: usize) -> Result<()> {
        let bytes = self.cost(path_bytes);
        match room {
            Some(room) => self.watches.widen(room, bytes)?,
            None => *room = Some(self.watches.reserve(bytes)?),
        }
        Ok(())
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// A receiver that is told of every change of the phase and of the connection.
    pub(crate) fn changes(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Waits until the session is no longer open.
    pub(crate) async fn left_open(&self) -> Phase {
        self.wait_for(|phase| phase != Phase::Open).await
    }

    /// Waits until the session is over.
    pub(crate) async fn over(&self) -> End {
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
    pub(crate) async fn connected(&self) -> Result<(), LinkOver> {
        let mut changes = self.phase.subscribe();
        loop {
            if let Phase::Over(_) = *changes.borrow_and_update() {
                return Err(LinkOver);
            }
            if self.requests.is_connected() {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Err(LinkOver);
            }
        }
    }

    /// Waits, after a request with an unknown outcome, until another can be sent.
    pub(crate) async fn settled(&self) -> Result<(), LinkOver> {
        if self.requests.is_connected() {
            tokio::time::sleep(PAUSE).await;
        }
        self.connected().await
    }

    /// Runs `work` in the background, for as long as the session lives. Never blocks and never panics.
    pub(crate) fn background(&self, work: Work) {
        // It fails when the session is over, and its nodes with it.
        let _ = self.work.send(work);
    }

    /// Sends requests that belong together.
    ///
    /// From one poll of a task of the session's own runtime, so that all of them are there before the client's task
    /// looks, which then can write them in one segment. (It does so half the time. The client leaves Nagle's algorithm
    /// on, so a second segment waits for the acknowledgement of the first.)
    ///
    /// What `send` returns waits for the answers, and is run in the background.
    pub(crate) fn burst(self: &Arc<Self>, send: impl FnOnce(&Requests) -> Vec<Work> + Send + 'static) {
        let link = self.clone();
        self.background(
            async move {
                let answers = send(&link.requests);
                drop(link);
                join_all(answers).await;
            }
            .boxed(),
        );
    }

    /// Sends one request for a future of a user, which may be kept without being polled; see
    /// [`Slot`](crate::session::answer::Slot).
    pub(crate) fn ask<T: Send + Unpin + 'static>(
        self: &Arc<Self>,
        send: impl FnOnce(&Requests) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (slot, answer) = Answer::deferred();
        self.burst(move |requests| vec![slot.fill(send(requests))]);
        answer
    }

    /// Waits until it is time to look at the servers without having been woken, in case an event was never sent. All who
    /// wait in a session look at the same time, and share their listings.
    pub(crate) async fn slow_look(&self) {
        self.slow_looks.notified().await;
    }

    /// A clone of the client for somebody else, unless the session was closed.
    pub(crate) fn share_client(&self) -> Option<Arc<Client>> {
        self.client_shared.store(true, Ordering::Release);
        self.requests.client()
    }

    /// Whether somebody else has a clone of the client, or had one.
    pub(super) fn is_client_shared(&self) -> bool {
        self.client_shared.load(Ordering::Acquire)
    }

    /// Remembers a place that was given up: a listing that is under way may still show its node.
    pub(crate) fn remember_stray(&self, guid: Uuid) {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        if strays.guids.insert(guid) {
            strays.order.push_back(guid);
        }
        if strays.order.len() > MAX_STRAYS
            && let Some(oldest) = strays.order.pop_front()
        {
            strays.guids.remove(&oldest);
        }
    }

    /// Those of `guids` that were remembered as strays.
    pub(crate) fn strays<'a>(&self, guids: impl Iterator<Item = (Uuid, &'a str)>) -> Vec<&'a str> {
        let strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        if strays.guids.is_empty() {
            return Vec::new();
        }
        guids.filter(|(guid, _)| strays.guids.contains(guid)).map(|(_, name)| name).collect()
    }

    /// Whether nobody is deleting this node; then the caller is, until [`end_deletion`](Self::end_deletion).
    pub(crate) fn begin_deletion(&self, path: &str) -> bool {
        self.deletions.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned())
    }

    pub(crate) fn end_deletion(&self, path: &str) {
        self.deletions.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Begins an orderly end; [`Link::over`] tells when it has come.
    pub(crate) fn close(&self) {
        self.advance(Phase::Closing);
        self.close_wanted.notify_one();
        // The keeper looks at the phase when it is woken.
        self.renewal_wanted.notify_one();
        let not_started = self.not_started.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if not_started {
            self.end(End::Closed(Closing::Confirmed));
        }
    }

    /// Ends at once, whatever is under way.
    pub(crate) fn end(&self, end: End) {
        // After any other end than a closing the client is dead, and stays for whoever asks for the client of this
        // session. One that is not ours may live on, and can still take a delete from a `Drop`.
        if self.advance(Phase::Over(end)) && matches!(end, End::Closed(_)) {
            self.requests.give_up();
        }
    }

    /// A request or a watch said that the session is over. The keeper hears of it from the client, unless the client's
    /// runtime is gone.
    pub(crate) fn found_over(&self) {
        if self.requests.is_orphaned() {
            self.end(End::Orphaned);
        }
    }

    /// Whether the session is ours to end.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
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

    pub(super) fn announce(&self) {
        self.phase.send_modify(|_| {});
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).field("phase", &self.phase()).finish_non_exhaustive()
    }
}
