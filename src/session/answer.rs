//! Owns [`Answer`]: what became of a request that was sent, or what will become of one that is about to be.
//!
//! Every answer of a server is entered in the trust ledger as what it proves: a write that was done, or a transaction whose
//! parts were judged, as a write; everything else as a read. Failures are refused (nothing was changed), unknown (it may
//! have been done, or may be yet) or over (the session is).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

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
    pub(super) fn of(error: ZkError) -> Self {
        match error {
            ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed => Self::Over,
            error if is_orphaned(&error) => Self::Over,
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
/// was under way is merely lost, with a text that it also has for requests lost in a SASL handshake; the next one tells.
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

pub(super) struct Sent<T> {
    pub(super) request: Request,
    pub(super) at: Moment,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) orphaned: Arc<AtomicBool>,
    pub(super) answer: BoxFuture<'static, Result<T, ZkError>>,
    /// The answer, if it was there as soon as the request was sent.
    pub(super) early: Option<Result<T, ZkError>>,
}

/// The place of an answer that somebody else will send for and wait for.
///
/// While a request is under way its future owns a clone of the client, which keeps the session open. The futures of
/// users may be kept without being polled; so they own deferred answers only.
pub(crate) struct Slot<T>(oneshot::Sender<Result<T, Failure>>);

impl<T: Send + Unpin + 'static> Slot<T> {
    /// Hands on what somebody else has waited for.
    pub(crate) fn put(self, result: Result<T, Failure>) {
        // Whoever must not lose the answer keeps the other end.
        let _ = self.0.send(result);
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }

    /// The work of waiting for `answer` and handing it on.
    pub(crate) fn fill(self, answer: Answer<T>) -> BoxFuture<'static, ()> {
        async move {
            let result = answer.await;
            self.put(result);
        }
        .boxed()
    }
}

impl<T> Answer<T> {
    pub(super) fn sent(sent: Sent<T>) -> Self {
        Self(Mutex::new(AnswerState::Sent(sent)))
    }

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
        let (result, is_servers) = match self.early.take() {
            // No server answers so fast: this is the client's own word.
            Some(result) => (result, false),
            None => (ready!(self.answer.as_mut().poll(cx)), true),
        };
        if result.as_ref().is_err_and(is_orphaned) {
            self.orphaned.store(true, Ordering::Release);
        }
        let result = result.map_err(Failure::of);
        let proven = match result {
            Ok(_) => Some(self.request),
            // A server may refuse a write by itself, without a quorum.
            Err(Failure::Refused(_)) => Some(Request::Read),
            Err(Failure::Unknown | Failure::Over) => None,
        };
        if let Some(request) = proven.filter(|_| is_servers) {
            let exchange = Exchange { request, sent: self.at, answered: Moment::now() };
            self.ledger.lock().unwrap_or_else(PoisonError::into_inner).answered(exchange);
        }
        Poll::Ready(result)
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}
