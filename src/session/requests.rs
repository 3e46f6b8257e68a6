//! Owns the requests of one ZooKeeper session: the only file that calls the client.
//!
//! 1. A request is sent when its method is called; the [`Answer`] only waits. Dropping an answer takes nothing back.
//! 2. The answers of one session come in the order of the requests, so requests that do not need each other's answer
//!    are sent in one burst; see [`Link::burst`](crate::session::Link::burst).
//! 3. Every answer is entered in the trust ledger, and every failure is told apart: refused (nothing was changed),
//!    unknown (it may have been done, or may be yet), over (the session is).
//! 4. The client lives in a slot that closing empties, because every clone of it keeps the session open.

use std::fmt;
use std::future::{Future, ready};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use zookeeper_client::{
    Client, CreateMode, EventType, MultiWriteError, OneshotWatcher, SessionState, Stat, StateWatcher,
};

use crate::options::Options;
use crate::session::clock::Moment;
use crate::session::trust::{Exchange, Ledger, Request};

type ZkError = zookeeper_client::Error;

/// Why a request came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server said no; see [`Failure::is_certain`] for whether nothing was done.
    Refused(ZkError),
    /// The connection was lost, or the server was; what became of the request is not known.
    Unknown,
    /// The session is over.
    Over,
}

impl Failure {
    fn of(error: ZkError) -> Self {
        match error {
            ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed => Self::Over,
            // The texts of a client whose runtime is gone: its task neither takes requests nor answers them.
            ZkError::UnexpectedError(text)
                if text.starts_with("expect error state") || text.starts_with("BUG: ") =>
            {
                Self::Over
            }
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
            // What remains is a lost connection under its many names; a marshalling error may follow a write that was
            // done; and a throttled or read-only server is asked again like one that is away.
            _ => Self::Unknown,
        }
    }

    /// Whether a refused request has certainly changed nothing.
    pub(crate) fn is_certain(error: &ZkError) -> bool {
        !matches!(error, ZkError::UnexpectedErrorCode(_))
    }
}

/// What a client says whose runtime is gone: its task takes no requests, and its state stays what it was. A request that
/// was under way is merely lost, with a text that it also has for requests lost in a SASL handshake.
fn is_orphaned(error: &ZkError) -> bool {
    matches!(error, ZkError::UnexpectedError(text) if text.starts_with("expect error state"))
}

/// The answer to a request that has been sent, or is about to be.
#[must_use = "an answer that nobody waits for cannot tell what became of the request"]
pub(crate) struct Answer<T>(
    /// Never locked, only owned: it makes the answer `Sync`, which its future is not.
    Mutex<AnswerState<T>>,
);

enum AnswerState<T> {
    /// Somebody else sends the request and waits for its answer; see [`Slot`].
    Deferred(oneshot::Receiver<Result<T, Failure>>),
    Sent(Sent<T>),
}

struct Sent<T> {
    request: Request,
    at: Moment,
    ledger: Arc<Mutex<Ledger>>,
    orphaned: Arc<AtomicBool>,
    answer: BoxFuture<'static, Result<T, ZkError>>,
    /// The answer, if it was there as soon as the request was sent.
    early: Option<Result<T, ZkError>>,
}

/// The place of an answer that somebody else will send for and wait for.
///
/// While a request is under way its future owns a clone of the client, which keeps the session open. The futures of
/// users may be kept without being polled; so they own deferred answers only.
pub(crate) struct Slot<T>(oneshot::Sender<Result<T, Failure>>);

impl<T: Send + Unpin + 'static> Slot<T> {
    /// The work of waiting for `answer` and handing it on.
    pub(crate) fn fill(self, answer: Answer<T>) -> BoxFuture<'static, ()> {
        async move {
            let result = answer.await;
            // Whoever must not lose the answer keeps the other end.
            let _ = self.0.send(result);
        }
        .boxed()
    }
}

impl<T> Answer<T> {
    /// An answer to a request that is yet to be sent. If it never is, because the session is over, it says so.
    pub(crate) fn deferred() -> (Slot<T>, Self) {
        let (sender, receiver) = oneshot::channel();
        (Slot(sender), Self(Mutex::new(AnswerState::Deferred(receiver))))
    }
}

impl<T: Unpin> Future for Answer<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            AnswerState::Sent(sent) => sent.poll(cx),
            AnswerState::Deferred(receiver) => {
                Poll::Ready(ready!(Pin::new(receiver).poll(cx)).unwrap_or(Err(Failure::Over)))
            }
        }
    }
}

impl<T> Sent<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let result = match self.early.take() {
            Some(result) => result,
            None => ready!(self.answer.as_mut().poll(cx)),
        };
        if result.as_ref().is_err_and(is_orphaned) {
            self.orphaned.store(true, Ordering::Release);
        }
        let result = result.map_err(Failure::of);
        if !matches!(result, Err(Failure::Unknown | Failure::Over)) {
            let exchange = Exchange { request: self.request, sent: self.at, answered: Moment::now() };
            lock(&self.ledger).answered(exchange);
        }
        Poll::Ready(result)
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// A node as its creation told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    /// The name within its parent.
    pub(crate) name: String,
    pub(crate) czxid: i64,
}

/// A one-shot watch on one node. Dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: OneshotWatcher,
    orphaned: Arc<AtomicBool>,
}

/// What a watch has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    Deleted,
    Changed,
    SessionOver,
}

impl Watch {
    pub(crate) async fn fired(self) -> Fired {
        // The client's watcher panics when the runtime of its session is dropped under it.
        match AssertUnwindSafe(self.watcher.changed()).catch_unwind().await.map(|event| event.event_type) {
            Ok(EventType::NodeDeleted) => Fired::Deleted,
            Ok(EventType::Session) => Fired::SessionOver,
            Ok(_) => Fired::Changed,
            Err(_) => {
                self.orphaned.store(true, Ordering::Release);
                Fired::SessionOver
            }
        }
    }
}

pub(crate) struct Requests {
    slot: Mutex<Option<Arc<Client>>>,
    state: StateWatcher,
    ledger: Arc<Mutex<Ledger>>,
    /// Whether a request or a watch has found that the client's runtime is gone.
    orphaned: Arc<AtomicBool>,
}

impl Requests {
    pub(crate) fn new(client: Client) -> Self {
        let ledger = Ledger::new(client.session_timeout(), Moment::now());
        let state = client.state_watcher();
        Self {
            slot: Mutex::new(Some(Arc::new(client))),
            state,
            ledger: Arc::new(Mutex::new(ledger)),
            orphaned: Arc::default(),
        }
    }

    /// The client, unless the session was closed.
    pub(crate) fn client(&self) -> Option<Arc<Client>> {
        lock(&self.slot).clone()
    }

    /// Gives up the client; the session ends when the last clone of it is gone.
    pub(crate) fn give_up(&self) {
        let client = lock(&self.slot).take();
        drop(client);
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(crate) fn state(&self) -> SessionState {
        self.state.peek_state()
    }

    pub(crate) fn state_watcher(&self) -> StateWatcher {
        self.state.clone()
    }

    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    pub(crate) fn is_connected(&self) -> bool {
        // A read-only server cannot take a lock.
        self.state() == SessionState::SyncConnected
    }

    /// Creates an ephemeral sequential child of `parent` whose name begins with `prefix`.
    pub(crate) fn create(&self, parent: &str, prefix: &str, options: &Options) -> Answer<Created> {
        let (path, prefix, options) = (format!("{parent}/{prefix}"), prefix.to_owned(), options.clone());
        self.send(Request::Write, move |client| {
            async move {
                let mode = CreateMode::EphemeralSequential.with_acls(options.acls());
                let (stat, sequence) = client.create(&path, options.identifier(), &mode).await?;
                Ok(Created { name: format!("{prefix}{sequence}"), czxid: stat.czxid })
            }
            .boxed()
        })
    }

    /// Creates an empty container, which the server deletes some time after its last child is gone.
    pub(crate) fn create_container(&self, path: &str, options: &Options) -> Answer<()> {
        let (path, options) = (path.to_owned(), options.clone());
        self.send(Request::Write, move |client| {
            async move {
                client.create(&path, &[], &CreateMode::Container.with_acls(options.acls())).await?;
                Ok(())
            }
            .boxed()
        })
    }

    pub(crate) fn delete(&self, path: &str) -> Answer<()> {
        let path = path.to_owned();
        self.send(Request::Write, move |client| async move { client.delete(&path, None).await }.boxed())
    }

    /// The names of the children.
    pub(crate) fn list(&self, path: &str) -> Answer<Vec<String>> {
        let path = path.to_owned();
        self.send(Request::Read, move |client| async move { client.list_children(&path).await }.boxed())
    }

    pub(crate) fn read(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        let path = path.to_owned();
        self.send(Request::Read, move |client| async move { client.get_data(&path).await }.boxed())
    }

    /// Watches a node that exists; unlike `exists`, it leaves no watch on one that does not.
    pub(crate) fn watch(&self, path: &str) -> Answer<(Stat, Watch)> {
        let (path, orphaned) = (path.to_owned(), self.orphaned.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (_, stat, watcher) = client.get_and_watch_data(&path).await?;
                Ok((stat, Watch { watcher, orphaned }))
            }
            .boxed()
        })
    }

    /// Asks a quorum whether a node exists: a transaction of one check, which changes nothing and wakes no watch.
    ///
    /// It needs a quorum either way, so it is a barrier for all that was sent before it, which `sync` is not: a leader
    /// that was deposed without noticing answers `sync`.
    pub(crate) fn check(&self, path: &str) -> Answer<bool> {
        let path = path.to_owned();
        self.send(Request::Write, move |client| {
            async move {
                let mut writer = client.new_multi_writer();
                writer.add_check_version(&path, -1)?;
                match writer.commit().await {
                    Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => Ok(false),
                    // Whatever else the check stumbles on (it needs READ), a quorum has answered.
                    Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(true),
                    Err(MultiWriteError::RequestFailed { source }) => Err(source),
                }
            }
            .boxed()
        })
    }

    /// Asks the connected server for a sign of life.
    pub(crate) fn ping(&self) -> Answer<bool> {
        self.send(Request::Read, |client| async move { Ok(client.check_stat("/").await?.is_some()) }.boxed())
    }

    fn send<T>(
        &self,
        request: Request,
        call: impl FnOnce(Arc<Client>) -> BoxFuture<'static, Result<T, ZkError>>,
    ) -> Answer<T>
    where
        T: Send + Unpin + 'static,
    {
        let at = Moment::now();
        let mut answer = match self.client() {
            None => ready(Err(ZkError::ClientClosed)).boxed(),
            Some(client) => call(client),
        };
        // The first poll calls the client, and so sends the request.
        let early = match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        };
        Answer(Mutex::new(AnswerState::Sent(Sent {
            request,
            at,
            ledger: self.ledger.clone(),
            orphaned: self.orphaned.clone(),
            answer,
            early,
        })))
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// A lock is held for a few instructions that do not panic, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
