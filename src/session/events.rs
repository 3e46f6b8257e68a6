//! Owns [`SessionEvents`]: what becomes of a session, for logs, metrics and readiness probes.
//!
//! Nothing is queued: an event is the difference between what was reported last and what is so now.

use std::fmt;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt, Stream};
use tokio::sync::watch;
use zookeeper_client::SessionId;

use crate::session::server_session::{End, Phase, ServerSession};
use crate::session::{Current, Session, Trial};

/// What has become of a [`Session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// It is connected to a server.
    Connected,
    /// It has no connection. Its holds are suspended, and are lost unless a server is reached in time.
    Suspended,
    /// The ZooKeeper session has expired, and with it all holds. Another is made.
    Expired {
        /// The id of the session that has expired.
        old: SessionId,
    },
    /// Another ZooKeeper session has taken the place of one that had expired.
    Renewed {
        /// The id of the new session.
        id: SessionId,
    },
    /// The servers refuse the credentials. A ZooKeeper session that there was is over with all its holds. They are tried again.
    AuthFailed,
    /// The session was closed, or cannot be renewed. This is the last event.
    Ended,
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Suspended => f.write_str("suspended"),
            Self::Expired { old } => write!(f, "session {old} has expired"),
            Self::Renewed { id } => write!(f, "renewed as session {id}"),
            Self::AuthFailed => f.write_str("credentials refused"),
            Self::Ended => f.write_str("ended"),
        }
    }
}

/// A stream of what becomes of a session, from [`Session::events`]. It does not keep the session alive.
pub struct SessionEvents {
    seen: Seen,
    current: watch::Receiver<Current>,
    /// Waits for the next change.
    change: Mutex<Option<BoxFuture<'static, ()>>>,
}

/// What was reported last.
#[derive(Debug)]
struct Seen {
    id: Option<SessionId>,
    is_connected: Option<bool>,
    is_over: bool,
    is_refused: bool,
    has_ended: bool,
}

impl SessionEvents {
    pub(super) fn new(current: watch::Receiver<Current>) -> Self {
        let id = current.borrow().zk().map(|zk| zk.id());
        let seen = Seen { id, is_connected: None, is_over: false, is_refused: false, has_ended: false };
        Self { seen, current, change: Mutex::default() }
    }

    /// The next event; `None` after [`Ended`](SessionEvent::Ended). The first reports whether the session is connected; that of a
    /// [`lazy`](Session::lazy) session comes when a server is reached.
    ///
    /// What has passed between two calls is not reported: of a connection that was lost and came back there is no event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for SessionEvents {
    type Item = SessionEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        let Self { seen, current, change } = &mut *self;
        if seen.has_ended {
            return Poll::Ready(None);
        }
        let change = change.get_mut().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(waiting) = change {
                ready!(waiting.poll_unpin(cx));
                *change = None;
            }
            // What is watched is subscribed to before it is looked at.
            let (mut outer, now) = (current.clone(), current.borrow_and_update().clone());
            let mut inner = now.zk().map(|zk| zk.changes());
            if let Some(inner) = &mut inner {
                inner.borrow_and_update();
            }
            let event = seen.next(&now);
            if event.is_some() {
                return Poll::Ready(event);
            }
            // That is so until the last handle is dropped, which closes it.
            let is_open = now.zk().is_some_and(|zk| !matches!(zk.phase(), Phase::Over(_)));
            if !is_open && current.has_changed().is_err() {
                seen.has_ended = true;
                return Poll::Ready(Some(SessionEvent::Ended));
            }
            drop(now);
            *change = Some(
                async move {
                    let inner = async {
                        match &mut inner {
                            Some(inner) => drop(inner.changed().await),
                            None => pending().await,
                        }
                    };
                    let (outer, inner) = (pin!(outer.changed()), pin!(inner));
                    // An error is the drop of the last handle.
                    if let Either::Left((Err(_), inner)) = select(outer, inner).await
                        && is_open
                    {
                        inner.await;
                    }
                }
                .boxed(),
            );
        }
    }
}

impl Seen {
    /// The difference to what is so now.
    fn next(&mut self, now: &Current) -> Option<SessionEvent> {
        if matches!(now, Current::Ended(..)) {
            self.has_ended = true;
            return Some(SessionEvent::Ended);
        }
        let Some(zk) = now.zk() else {
            return self.refusal(now);
        };
        let id = zk.id();
        match self.id {
            Some(old) if old != id && !self.is_over => {
                self.is_over = true;
                return Some(SessionEvent::Expired { old });
            }
            Some(old) if old != id => {
                let is_connected = Some(true);
                *self = Self { id: Some(id), is_connected, is_over: false, is_refused: false, has_ended: false };
                return Some(SessionEvent::Renewed { id });
            }
            _ => self.id = Some(id),
        }
        match zk.phase() {
            Phase::Over(End::Closed(_) | End::Orphaned) => {
                self.has_ended = true;
                Some(SessionEvent::Ended)
            }
            Phase::Over(_) if self.is_over => self.refusal(now),
            Phase::Over(End::AuthFailed) => {
                (self.is_over, self.is_refused) = (true, true);
                Some(SessionEvent::AuthFailed)
            }
            Phase::Over(_) => {
                self.is_over = true;
                Some(SessionEvent::Expired { old: id })
            }
            Phase::Open | Phase::Closing => {
                self.is_refused = false;
                self.connection(zk)
            }
        }
    }

    fn refusal(&mut self, now: &Current) -> Option<SessionEvent> {
        let is_new = now.trial() == Some(Trial::Refused) && !std::mem::replace(&mut self.is_refused, true);
        is_new.then_some(SessionEvent::AuthFailed)
    }

    fn connection(&mut self, zk: &ServerSession) -> Option<SessionEvent> {
        let is_connected = zk.is_connected();
        (self.is_connected.replace(is_connected) != Some(is_connected)).then_some(if is_connected {
            SessionEvent::Connected
        } else {
            SessionEvent::Suspended
        })
    }
}

impl fmt::Debug for SessionEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEvents").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Session {
    /// What becomes of the session from now on: a stream of its connections, renewals and its end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) {
    /// let mut events = session.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         println!("ZooKeeper: {event}");
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> SessionEvents {
        SessionEvents::new(self.inner.current.subscribe())
    }
}
