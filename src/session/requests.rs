//! Owns the requests of one ZooKeeper session. Only this file and its transactions call the client.
//!
//! 1. A request is sent when its method is called; the [`Answer`] only waits. Dropping an answer takes nothing back.
//! 2. The answers of one session come in the order of the requests, so requests that do not need each other's answer
//!    are sent in one burst; see [`Link::burst`](crate::session::Link::burst).
//! 3. The client lives in a slot that closing empties, because every clone of it keeps the session open.

use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::{
    Client, CreateMode, CreateOptions, CreateSequence, EventType, MultiWriter, OneshotWatcher, SessionState, Stat,
    StateWatcher,
};

use crate::options::Options;
use crate::path::LockPath;
use crate::session::answer::{Answer, Sent};
use crate::session::clock::Moment;
use crate::session::trust::{Ledger, Request};

type ZkError = zookeeper_client::Error;

/// An ephemeral node that is to be created.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) parent: LockPath,
    /// The name; the server adds a number to it if it is a sequential node.
    pub(crate) name: String,
    pub(crate) is_sequential: bool,
    pub(crate) options: Options,
}

impl Draft {
    fn mode(&self) -> CreateOptions<'_> {
        let mode = if self.is_sequential { CreateMode::EphemeralSequential } else { CreateMode::Ephemeral };
        mode.with_acls(self.options.acls())
    }

    /// Adds the create of a container, which has the ACLs of the node and no data.
    pub(super) fn add_container_to(&self, writer: &mut MultiWriter<'_>, path: &str) -> Result<(), ZkError> {
        writer.add_create(path, &[], &CreateMode::Container.with_acls(self.options.acls()))
    }

    pub(super) fn add_to(&self, writer: &mut MultiWriter<'_>) -> Result<(), ZkError> {
        writer.add_create(&self.path(), self.options.identifier(), &self.mode())
    }

    /// The path, without the number that the server adds.
    pub(super) fn path(&self) -> String {
        self.parent.child(&self.name)
    }

    /// Sends the create; `path` is the [`path`](Self::path).
    pub(super) fn send<'a>(
        &self,
        client: &'a Client,
        path: &'a str,
    ) -> impl Future<Output = Result<(Stat, CreateSequence), ZkError>> + Send + use<'a> {
        client.create(path, self.options.identifier(), &self.mode())
    }
}

/// A node as its creation told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    /// The name within its parent.
    pub(crate) name: String,
    pub(crate) czxid: i64,
}

/// The names of the children of a node, for all who asked.
pub(crate) type Names = Arc<Vec<String>>;

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
    /// `created` is a moment before the creation of the session, if one is known.
    pub(crate) fn new(client: Client, created: Option<Moment>) -> Self {
        let ledger = Ledger::new(client.session_timeout(), created, Moment::now());
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

    pub(crate) fn create(&self, draft: Draft) -> Answer<Created> {
        self.send(Request::Write, move |client| {
            async move {
                let path = draft.path();
                let (stat, sequence) = draft.send(&client, &path).await?;
                let name = if draft.is_sequential { format!("{}{sequence}", draft.name) } else { draft.name };
                Ok(Created { name, czxid: stat.czxid })
            }
            .boxed()
        })
    }

    pub(crate) fn delete(&self, path: &str) -> Answer<()> {
        self.delete_version(path, None)
    }

    /// Deletes a node, if it still has this version.
    pub(crate) fn delete_version(&self, path: &str, version: Option<i32>) -> Answer<()> {
        let path = path.to_owned();
        self.send(Request::Write, move |client| async move { client.delete(&path, version).await }.boxed())
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

    /// The stat of a node, if it exists. Unlike [`read`](Self::read) it needs no permission.
    pub(crate) fn stat(&self, path: &str) -> Answer<Option<Stat>> {
        let path = path.to_owned();
        self.send(Request::Read, move |client| async move { client.check_stat(&path).await }.boxed())
    }

    /// Reads a node that exists, and watches it; unlike `exists`, it leaves no watch on one that does not.
    pub(crate) fn watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, Watch)> {
        let (path, orphaned) = (path.to_owned(), self.orphaned.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
                Ok((data, stat, Watch { watcher, orphaned }))
            }
            .boxed()
        })
    }

    /// Watches a node that exists for its deletion, and not for changes of its data: by its children, of which the node of a
    /// contender has none.
    pub(crate) fn watch_deletion(&self, path: &str) -> Answer<(Stat, Watch)> {
        let (path, orphaned) = (path.to_owned(), self.orphaned.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (_, stat, watcher) = client.get_and_watch_children(&path).await?;
                Ok((stat, Watch { watcher, orphaned }))
            }
            .boxed()
        })
    }

    /// Lists the children of a node that exists, and watches for others.
    pub(crate) fn watch_children(&self, path: &str) -> Answer<(Vec<String>, Watch)> {
        let (path, orphaned) = (path.to_owned(), self.orphaned.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (names, watcher) = client.list_and_watch_children(&path).await?;
                Ok((names, Watch { watcher, orphaned }))
            }
            .boxed()
        })
    }

    /// Watches a node that may not exist yet; tells whether it does.
    pub(crate) fn watch_existence(&self, path: &str) -> Answer<(bool, Watch)> {
        let (path, orphaned) = (path.to_owned(), self.orphaned.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                Ok((stat.is_some(), Watch { watcher, orphaned }))
            }
            .boxed()
        })
    }

    /// Sets the data of a node, if it still has this version.
    pub(crate) fn write(&self, path: &str, data: Vec<u8>, version: Option<i32>) -> Answer<()> {
        let path = path.to_owned();
        self.send(Request::Write, move |client| {
            async move { client.set_data(&path, &data, version).await.map(drop) }.boxed()
        })
    }

    /// Asks the connected server for a sign of life.
    pub(crate) fn ping(&self) -> Answer<Option<Stat>> {
        self.stat("/")
    }

    pub(super) fn send<T>(
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
        Answer::sent(Sent {
            request,
            at,
            ledger: self.ledger.clone(),
            orphaned: self.orphaned.clone(),
            answer,
            early,
        })
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
