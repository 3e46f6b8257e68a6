//! Owns [`Watch`], of one waiter, and [`StandingWatch`], on a node's data, for all who ask whether it has fired.

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use zookeeper_client::{EventType, OneshotWatcher, Stat};

use crate::session::budget::Reserved;
use crate::session::identity::Connection;
use crate::session::request::{Answer, Evidence, Failure, SessionOver};
use crate::session::server_session::{End, ServerSession};
use crate::session::trust::Moment;

/// A one-shot watch on one node. Dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: OneshotWatcher,
    evidence: Arc<Evidence>,
}

/// What a watch has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Deleted,
    Changed,
}

impl Watch {
    pub(super) fn new(watcher: OneshotWatcher, evidence: Arc<Evidence>) -> Self {
        Self { watcher, evidence }
    }

    pub(crate) async fn fired(self) -> Result<Event, SessionOver> {
        // The client's watcher panics when the runtime of its session is dropped under it.
        match AssertUnwindSafe(self.watcher.changed()).catch_unwind().await.map(|event| event.event_type) {
            Ok(EventType::NodeDeleted) => Ok(Event::Deleted),
            Ok(EventType::Session) => Err(SessionOver),
            Ok(_) => Ok(Event::Changed),
            Err(_) => {
                self.evidence.found_over(End::Orphaned);
                Err(SessionOver)
            }
        }
    }
}

/// A watch on a node's data that is being set.
#[derive(Debug)]
pub(crate) struct Arming {
    answer: Answer<(Vec<u8>, Stat, Watch)>,
    connection: Connection,
    sent: Moment,
    room: Reserved,
}

impl Arming {
    /// Sends the request. It is a read, and not `exists`, which some servers answer to a client that will see no event.
    pub(crate) fn send(zk: &ServerSession, path: &str, room: Reserved) -> Self {
        let (connection, sent) = (zk.connection(), Moment::now());
        Self { answer: zk.watch_data(path), connection, sent, room }
    }

    /// The stat of the node and its watch.
    pub(crate) async fn answered(self) -> Result<(Stat, StandingWatch), Failure> {
        let Self { answer, connection, sent, room } = self;
        let (_, stat, watch) = answer.await?;
        let fired = watch.fired().boxed().shared();
        Ok((stat, StandingWatch { fired, polled: Arc::default(), connection, sent, _room: Arc::new(room) }))
    }
}

/// A watch that was set.
#[derive(Clone)]
pub(crate) struct StandingWatch {
    fired: Shared<BoxFuture<'static, Result<Event, SessionOver>>>,
    /// Locked while `fired` is polled: by whom else polls it meanwhile, it would be found pending.
    polled: Arc<Mutex<()>>,
    connection: Connection,
    sent: Moment,
    _room: Arc<Reserved>,
}

impl StandingWatch {
    /// Whether it has not fired, for any reason, on the connection on which it was set.
    pub(crate) fn stands(&self) -> bool {
        let _polled = self.lock();
        self.fired.clone().now_or_never().is_none() && self.connection.stands()
    }

    /// What it has seen, if it has fired.
    pub(crate) fn seen(&self) -> Option<Event> {
        let _polled = self.lock();
        self.fired.clone().now_or_never()?.ok()
    }

    pub(crate) async fn fired(&self) -> Result<Event, SessionOver> {
        let mut fired = self.fired.clone();
        poll_fn(|cx| {
            let _polled = self.lock();
            fired.poll_unpin(cx)
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it was sent.
    pub(crate) fn sent(&self) -> Moment {
        self.sent
    }
}

impl fmt::Debug for StandingWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandingWatch").field("sent", &self.sent).finish_non_exhaustive()
    }
}
