//! Owns what sessions within the process share: the queues, in the order of arrival, and which sessions are connected.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::contender::Contender;
use crate::error::{Error, HostFailure, Loss, Result, Unanswered};
use crate::fencing_token::FencingToken;
use crate::hold::{Ended, REVOKE, View};
use crate::locked::locked;
use crate::path::LockPath;
use crate::queue::{Kind, Name};

/// What an acquisition wants of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) path: LockPath,
    pub(super) kind: Kind,
    /// How many permits, and of how many; otherwise 1 of 1.
    count: u32,
    of: u32,
}

impl Want {
    pub(super) fn one(path: &str, kind: Kind) -> Result<Self> {
        Ok(Self { path: lock_path(path)?, kind, count: 1, of: 1 })
    }

    pub(super) fn permits(path: LockPath, count: u32, of: u32) -> Self {
        Self { path, kind: Kind::Lease, count, of }
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.path == other.path && (self.kind == Kind::Lease) == (other.kind == Kind::Lease)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Held,
    Ended(Ended),
}

/// What stands in the queues for a waiter or a holder. It holds nothing.
pub(super) struct Node {
    pub(super) servers: Arc<Servers>,
    pub(super) session: i64,
    /// The first of its paths.
    pub(super) path: LockPath,
    pub(super) token: FencingToken,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) revoked: AtomicBool,
    since: SystemTime,
    wants: Mutex<Vec<Want>>,
    data: Mutex<Vec<u8>>,
}

impl Node {
    pub(super) fn is_held(&self) -> bool {
        *self.stage.borrow() == Stage::Held
    }

    pub(super) fn is_at(&self, path: &str) -> bool {
        self.wants().iter().any(|want| want.path.as_str() == path)
    }

    fn wants(&self) -> Vec<Want> {
        locked(&self.wants).clone()
    }

    fn contender(&self, want: &Want) -> Contender {
        let number = i32::try_from(self.token.get()).unwrap_or(i32::MAX);
        let text = format!("local{}{number:010}", want.kind.separator());
        let name = Name { text: &text, kind: want.kind, number };
        let data = locked(&self.data).clone();
        let contender = Contender::of(&want.path, &name, self.token, data, self.session, self.since);
        if self.is_held() { contender.holding() } else { contender }
    }
}

#[derive(Default)]
pub(super) struct Servers {
    state: Mutex<State>,
    /// Changes whenever anything does.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    last_token: i64,
    /// In the order of arrival.
    queue: Vec<Arc<Node>>,
    links: HashMap<i64, Link>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Connected,
    Disconnected,
    Closed,
}

impl State {
    fn link(&self, session: i64) -> Link {
        self.links.get(&session).copied().unwrap_or(Link::Closed)
    }

    /// Whether nobody that arrived before keeps `wants` from being granted.
    fn admits(&self, wants: &[Want], before: FencingToken) -> bool {
        let taken = |want: &Want| -> u32 {
            let all = self.queue.iter().filter(|node| node.is_held()).flat_map(|node| node.wants());
            all.filter(|held| held.is_beside(want)).map(|held| held.count).sum()
        };
        let ahead = || self.queue.iter().take_while(|node| node.token < before);
        wants.iter().all(|want| {
            let mut beside = ahead().flat_map(|node| {
                let is_held = node.is_held();
                node.wants().into_iter().filter(|other| other.is_beside(want)).map(move |other| (is_held, other))
            });
            match want.kind {
                Kind::Lease => beside.all(|(is_held, _)| is_held) && taken(want) + want.count <= want.of,
                kind => beside.all(|(_, other)| !kind.waits_for(other.kind)),
            }
        })
    }
}

impl Servers {
    /// Opens a session.
    pub(super) fn open(&self) -> i64 {
        let mut state = locked(&self.state);
        let id = state.links.len() as i64 + 1;
        state.links.insert(id, Link::Connected);
        id
    }

    pub(super) fn set_connected(&self, session: i64, connected: bool) {
        let mut state = locked(&self.state);
        if let Some(link) = state.links.get_mut(&session).filter(|link| **link != Link::Closed) {
            *link = if connected { Link::Connected } else { Link::Disconnected };
        }
        self.changed(state);
    }

    pub(super) fn close(&self, session: i64) {
        let mut state = locked(&self.state);
        state.links.insert(session, Link::Closed);
        self.changed(state);
    }

    pub(super) fn link(&self, session: i64) -> Link {
        locked(&self.state).link(session)
    }

    /// Comes back with the first answer of `look`, which is called again whenever anything has changed.
    pub(super) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut changes = self.changed.subscribe();
        loop {
            if let Some(answer) = look() {
                return answer;
            }
            if changes.changed().await.is_err() {
                // The servers are borrowed, so their sender is there.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for a connection.
    pub(super) async fn connected(&self, session: i64) -> Result<()> {
        self.until(|| match self.link(session) {
            Link::Connected => Some(Ok(())),
            Link::Disconnected => None,
            Link::Closed => Some(Err(Error::Closed)),
        })
        .await
    }

    /// An error, unless it is connected.
    pub(super) fn ask(&self, session: i64) -> Result<()> {
        match self.link(session) {
            Link::Connected => Ok(()),
            Link::Disconnected => Err(unavailable(Duration::ZERO)),
            Link::Closed => Err(Error::Closed),
        }
    }

    /// Joins the queues at their tail.
    pub(super) fn join(self: &Arc<Self>, session: i64, identifier: &[u8], wants: &[Want]) -> Arc<Node> {
        let mut state = locked(&self.state);
        state.last_token += 1;
        let node = Arc::new(Node {
            servers: self.clone(),
            session,
            path: wants[0].path.clone(),
            token: FencingToken::try_from(state.last_token).expect("it counts from 1"),
            stage: watch::Sender::new(Stage::Waiting),
            revoked: AtomicBool::new(false),
            since: SystemTime::now(),
            wants: Mutex::new(wants.to_vec()),
            data: Mutex::new(identifier.to_vec()),
        });
        state.queue.push(node.clone());
        self.changed(state);
        node
    }

    /// Grants what `node` wants, if it is its turn and its session is connected; returns its stage.
    pub(super) fn look(&self, node: &Node) -> Stage {
        let state = locked(&self.state);
        let stage = *node.stage.borrow();
        let is_turn = stage == Stage::Waiting
            && state.link(node.session) == Link::Connected
            && state.admits(&node.wants(), node.token);
        if !is_turn {
            return stage;
        }
        node.stage.send_replace(Stage::Held);
        self.changed(state);
        Stage::Held
    }

    /// Whether a newcomer would be granted `wants` at once.
    pub(super) fn is_free(&self, wants: &[Want]) -> bool {
        let state = locked(&self.state);
        state.admits(wants, FencingToken::try_from(i64::MAX).expect("positive"))
    }

    /// Takes the nodes that `which` selects from their queues, because of a loss.
    pub(super) fn end(&self, loss: Loss, which: impl Fn(&Node) -> bool) {
        self.remove(Ended::Lost(loss), which);
    }

    /// Takes one node from its queues, unless it has ended; returns how it has.
    pub(super) fn leave(&self, node: &Node) -> Ended {
        self.remove(Ended::Released, |other| std::ptr::eq(other, node));
        match *node.stage.borrow() {
            Stage::Ended(ended) => ended,
            Stage::Waiting | Stage::Held => Ended::Released,
        }
    }

    fn remove(&self, ended: Ended, which: impl Fn(&Node) -> bool) -> bool {
        let mut state = locked(&self.state);
        let all = state.queue.len();
        state.queue.retain(|node| {
            let goes = which(node);
            if goes {
                node.stage.send_replace(Stage::Ended(ended));
            }
            !goes
        });
        let some = state.queue.len() < all;
        self.changed(state);
        some
    }

    /// A writer goes on as a reader; `false` if it is not held any more.
    pub(super) fn downgrade(&self, node: &Node) -> bool {
        let state = locked(&self.state);
        let is_held = node.is_held();
        if is_held {
            locked(&node.wants).iter_mut().for_each(|want| want.kind = Kind::Read);
        }
        self.changed(state);
        is_held
    }

    /// Sets what others see of a holder; `false` if it is not held any more.
    pub(super) fn proclaim(&self, node: &Node, data: Vec<u8>) -> bool {
        let state = locked(&self.state);
        let is_held = node.is_held();
        if is_held {
            *locked(&node.data) = data;
        }
        self.changed(state);
        is_held
    }

    /// Holders and waiters at these paths: path by path, the holders first.
    pub(super) fn contenders(&self, wants: &[Want]) -> Vec<Contender> {
        let state = locked(&self.state);
        let at = |want: &Want| {
            let mut contenders: Vec<_> = state
                .queue
                .iter()
                .flat_map(|node| node.wants().into_iter().map(move |other| (node, other)))
                .filter(|(_, other)| other.is_beside(want))
                .map(|(node, other)| node.contender(&other))
                .collect();
            contenders.sort_by_key(|contender| !contender.is_holder());
            contenders
        };
        wants.iter().flat_map(at).collect()
    }

    /// Asks for the lock back; `false` if nobody is there to be asked.
    pub(super) fn revoke(&self, contender: &Contender) -> bool {
        let state = locked(&self.state);
        let node = state.queue.iter().find(|node| node.token == contender.token());
        let Some(node) = node.cloned() else { return false };
        *locked(&node.data) = REVOKE.to_vec();
        node.revoke();
        self.changed(state);
        true
    }

    /// Deletes the node of a contender; `false` if it is gone.
    pub(super) fn break_lock(&self, contender: &Contender) -> bool {
        self.remove(Ended::Lost(Loss::Deleted), |node| node.token == contender.token())
    }

    /// Wakes every task that waits for a change. The state is unlocked first, because they look at it.
    fn changed(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.changed.send_replace(());
    }
}

/// A path that real servers would take for a lock.
pub(super) fn lock_path(path: &str) -> Result<LockPath> {
    let path = LockPath::new(path)?;
    path.refuse_the_servers()?;
    Ok(path)
}

pub(super) fn unavailable(after: Duration) -> Error {
    let hosts = "local servers".to_owned();
    let failures = vec![HostFailure { host: hosts.clone(), reason: "disconnected by the test".to_owned() }];
    Error::Unavailable { hosts, after, why: Unanswered::Servers, failures }
}
