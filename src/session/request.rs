//! Owns one request to the servers: [`Answer`], from its sending to its answer, and how to [`retry`](ServerSession::retry).
//!
//! 1. A request is sent when it is made; its answer is polled by the task that waits for it. Requests that are made in one poll
//!    reach the client together, and are answered in their order.
//! 2. The future of a request owns a clone of the client, and every clone keeps the session open. A user may keep a future
//!    without polling it, so the client's future lives in a slot, which the end of the session empties.
//! 3. Every answer of a server is entered in the trust ledger as what it proves: a write that was done, or a transaction
//!    whose parts were judged, as a write; everything else as a read.
//! 4. Failures are refused (the server returned an error; [`is_certain`] reports whether it changed nothing), unknown (it may
//!    have been done, or may be yet), or the session is over.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::{Client, SessionId, SessionState, StateWatcher};

use crate::error::{Error, ZkError};
use crate::session::identity::Connection;
use crate::session::server_session::{End, ServerSession};
use crate::session::trust::Moment;
use crate::session::trust::{Exchange, Ledger, Request};
use crate::telemetry;

/// The ZooKeeper session is over or about to be: waiting for anything in it is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionOver;

/// Why an attempt in one ZooKeeper session failed.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// The session is over; there may be another.
    SessionOver,
    Failed(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<SessionOver> for Interrupt {
    fn from(SessionOver: SessionOver) -> Self {
        Self::SessionOver
    }
}

/// Why a request was not done, as far as is known.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused it; see [`is_certain`] for whether nothing was done.
    Refused(ZkError),
    /// The connection was lost, or the server was; what became of the request is not known.
    Unknown,
    SessionOver,
}

impl From<SessionOver> for Failure {
    fn from(SessionOver: SessionOver) -> Self {
        Self::SessionOver
    }
}

impl Failure {
    pub(super) fn of(error: ZkError) -> Self {
        match error {
            ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed => Self::SessionOver,
            error if is_orphaned(&error) => Self::SessionOver,
            ZkError::NoNode
            | ZkError::NoAuth
            | ZkError::BadVersion
            | ZkError::BadArguments(_)
            | ZkError::NoChildrenForEphemerals
            | ZkError::NodeExists
            | ZkError::NotEmpty
            | ZkError::InvalidAcl
            | ZkError::QuotaExceeded
            | ZkError::Unimplemented
            | ZkError::UnexpectedErrorCode(_) => Self::Refused(error),
            // The rest are connection errors, after which a write may have been done, marshalling errors, which may follow a
            // write, and those of a throttled or read-only server, where a retry may help.
            _ => Self::Unknown,
        }
    }
}

/// Whether a request that was refused with this error has certainly changed nothing.
pub(crate) fn is_certain(error: &ZkError) -> bool {
    !matches!(error, ZkError::UnexpectedErrorCode(_))
}

/// The error of a client whose runtime is gone: its task takes no requests, and its state stays what it was. A request that
/// was under way is merely lost, with a text that the client also has for requests lost in a SASL handshake; the next one
/// shows the difference.
fn is_orphaned(error: &ZkError) -> bool {
    matches!(error, ZkError::UnexpectedError(text) if text.starts_with("expect error state"))
}

/// What the answers of a session have shown.
#[derive(Debug)]
pub(super) struct Evidence {
    id: SessionId,
    ledger: Mutex<Ledger>,
    /// The connection that is known to be one of this session; see `identity`.
    ours: Mutex<Option<Connection>>,
    /// How the session has ended, if a request or a watch has found it.
    over: OnceLock<End>,
    state: StateWatcher,
}

impl Evidence {
    pub(super) fn new(client: &Client, created: Option<Moment>) -> Arc<Self> {
        let ledger = Ledger::new(client.session_timeout(), created, Moment::now());
        // A session that was just created has no other connection yet; of a given one nothing is known.
        let ours = created.map(|_| Connection::now(client.state_watcher()));
        Arc::new(Self {
            id: client.session_id(),
            ledger: Mutex::new(ledger),
            ours: Mutex::new(ours),
            over: OnceLock::new(),
            state: client.state_watcher(),
        })
    }

    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn state(&self) -> SessionState {
        self.state.peek_state()
    }

    pub(super) fn state_watcher(&self) -> StateWatcher {
        self.state.clone()
    }

    pub(super) fn is_connected(&self) -> bool {
        // A read-only server cannot take a lock.
        self.state() == SessionState::SyncConnected
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// The present connection.
    pub(super) fn connection(&self) -> Connection {
        Connection::now(self.state_watcher())
    }

    /// Whether the present connection is known to be one of this session.
    pub(super) fn is_ours(&self) -> bool {
        self.is_connected() && lock(&self.ours).as_ref().is_some_and(Connection::stands)
    }

    /// Notes that a connection is known to be one of this session.
    pub(super) fn found_ours(&self, connection: Connection) {
        *lock(&self.ours) = Some(connection);
    }

    /// How the session has ended, if a request or a watch has found it.
    pub(super) fn over(&self) -> Option<End> {
        self.over.get().copied()
    }

    pub(super) fn found_over(&self, end: End) {
        // What was found first stays.
        let _ = self.over.set(end);
    }

    /// Enters what the answer to a request proves.
    fn enter<T>(&self, request: Request, sent: Moment, result: Result<T, ZkError>) -> Result<T, Failure> {
        let result = self.classify(result);
        let proven = match result {
            Ok(_) => Some(request),
            // A server may refuse a write by itself, without a quorum.
            Err(Failure::Refused(_)) => Some(Request::Read),
            Err(Failure::Unknown | Failure::SessionOver) => None,
        };
        // If the connection was lost before the answer was polled, the answer proves nothing; nor does one of another session.
        if let Some(request) = proven.filter(|_| self.is_ours()) {
            self.ledger().answered(Exchange { request, sent, answered: Moment::now() });
        }
        result
    }

    fn classify<T>(&self, result: Result<T, ZkError>) -> Result<T, Failure> {
        if result.as_ref().is_err_and(is_orphaned) {
            self.found_over(End::Orphaned);
        }
        result.map_err(Failure::of)
    }
}

/// The answer to a request that was sent. Dropping it takes nothing back.
#[must_use = "nobody else learns what became of the request"]
pub(crate) struct Answer<T>(Arc<Slot<T>>);

struct Slot<T> {
    request: Request,
    sent: Moment,
    evidence: Arc<Evidence>,
    state: Mutex<State<T>>,
}

enum State<T> {
    UnderWay(BoxFuture<'static, Result<T, ZkError>>, Waker),
    /// The client's own word: no server answers so fast.
    Early(Result<T, Failure>),
    /// The session was closed, or the answer was taken.
    Emptied,
}

/// A slot of any type of answer.
trait Empty: Send + Sync {
    fn empty(&self);
}

impl<T: Send> Empty for Slot<T> {
    fn empty(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Emptied);
        if let State::UnderWay(_, waker) = before {
            waker.wake();
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = &*self.0;
        let mut state = lock(&slot.state);
        match std::mem::replace(&mut *state, State::Emptied) {
            State::UnderWay(mut answer, mut waker) => match answer.poll_unpin(cx) {
                Poll::Ready(result) => Poll::Ready(slot.evidence.enter(slot.request, slot.sent, result)),
                Poll::Pending => {
                    waker.clone_from(cx.waker());
                    *state = State::UnderWay(answer, waker);
                    Poll::Pending
                }
            },
            State::Early(result) => Poll::Ready(result),
            State::Emptied => Poll::Ready(Err(Failure::SessionOver)),
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// The client of a session, and the requests that are under way in it.
pub(super) struct Requests {
    client: Option<Arc<Client>>,
    slots: Vec<Weak<dyn Empty>>,
    /// How many slots there may be before those are looked for that are not needed any more.
    room: usize,
}

impl Requests {
    pub(super) fn new(client: Client) -> Mutex<Self> {
        Mutex::new(Self { client: Some(Arc::new(client)), slots: Vec::new(), room: 64 })
    }
}

impl ServerSession {
    /// The client, unless the session was closed.
    pub(super) fn client(&self) -> Option<Arc<Client>> {
        lock(&self.requests).client.clone()
    }

    /// Drops the client, and the clones of it that belong to requests. The session ends when the last clone is dropped.
    pub(super) fn drop_client(&self) {
        let (client, slots) = {
            let mut requests = lock(&self.requests);
            (requests.client.take(), std::mem::take(&mut requests.slots))
        };
        slots.iter().filter_map(Weak::upgrade).for_each(|slot| slot.empty());
        drop(client);
    }

    /// Sends what `call` asks of the client; `name` is for people.
    pub(super) fn send<T: Send + 'static>(
        &self,
        name: &'static str,
        request: Request,
        call: impl FnOnce(Arc<Client>) -> BoxFuture<'static, Result<T, ZkError>>,
    ) -> Answer<T> {
        let sent = Moment::now();
        let mut requests = lock(&self.requests);
        let (state, is_under_way) = match requests.client.clone() {
            None => (State::Early(Err(Failure::SessionOver)), false),
            Some(client) => {
                telemetry::requested(name);
                let mut answer = call(client);
                // The first poll calls the client, and so sends the request.
                match answer.poll_unpin(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => (State::Early(self.evidence.classify(result)), false),
                    Poll::Pending => (State::UnderWay(answer, Waker::noop().clone()), true),
                }
            }
        };
        let slot = Arc::new(Slot { request, sent, evidence: self.evidence.clone(), state: Mutex::new(state) });
        if is_under_way {
            if requests.slots.len() >= requests.room {
                requests.slots.retain(|slot| slot.strong_count() > 0);
                requests.room = 64.max(2 * requests.slots.len());
            }
            let weak: Weak<Slot<T>> = Arc::downgrade(&slot);
            requests.slots.push(weak);
        }
        Answer(slot)
    }

    /// Sends a request again until its answer is known; only for requests that may be done twice. The inner error is the
    /// server's refusal.
    pub(crate) async fn retry<T, F>(&self, mut send: impl FnMut() -> F) -> Result<Result<T, ZkError>, SessionOver>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.connected().await?;
        let mut lost = 0;
        loop {
            match send().await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Failure::Refused(error)) => return Ok(Err(error)),
                Err(Failure::Unknown) => {
                    lost += 1;
                    self.reconnected(lost).await?;
                }
                Err(Failure::SessionOver) => return Err(SessionOver),
            }
        }
    }
}

/// A lock is held for a few instructions that do not panic, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
