//! Owns the proof that a connection is one of our session.
//!
//! A server may answer a reconnect with another session, and the client takes it for its own without a word. (ClickHouse Keeper
//! keeps no session over a reconnect.) Then our nodes belong to a session that nobody keeps alive, while every request is
//! answered. So:
//!
//! 1. An answer proves something about the session only on a connection that is known to be one of it.
//! 2. The first one is. Of another, that is shown by the owner of a node that was created on it, or by the list of the session's
//!    nodes, if one of ours is in it. A session without a node has nothing to lose. A node that somebody has deleted by hand shows
//!    nothing: others are asked for, and it is not asked for again.
//! 3. If the owner of a new node is another session, or a node of ours is there and not in the list, the session is taken for
//!    expired at once. So it is if the server does not answer the question, or closes one connection after the other: it may
//!    not know how watches are set again, which is the first that the client asks for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout;
use zookeeper_client::{Stat, StateWatcher};

use crate::error::ZkError;
use crate::session::request::{Evidence, Failure};
use crate::session::server_session::{End, PAUSE, ServerSession};
use crate::session::trust::Moment;

/// How often in a row a server may close the connection before it has answered anything.
const MOST_LOST: usize = 10;

/// A connection of the client, as it was at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    state: StateWatcher,
    at: Moment,
}

impl Connection {
    pub(super) fn now(mut state: StateWatcher) -> Self {
        // Only later changes count.
        state.state();
        Self { state, at: Moment::now() }
    }

    /// Whether it stands, and no other has taken its place.
    pub(crate) fn stands(&self) -> bool {
        self.state.clone().changed().now_or_never().is_none()
    }

    /// Whether it stands, and the moment is not longer ago than `limit`.
    pub(crate) fn is_recent(&self, limit: Duration) -> bool {
        self.stands() && Moment::now().since(self.at) < limit
    }
}

impl Evidence {
    /// Notes who owns a node that was created on a connection; an error if that is another session.
    pub(super) fn owned_by(&self, owner: i64, connection: Connection) -> Result<(), ZkError> {
        if owner == self.id().0 {
            self.found_ours(connection);
            return Ok(());
        }
        tracing::warn!(session = %self.id(), other = owner, "the server has given the connection to another session");
        self.found_over(End::Unusable);
        Err(ZkError::SessionExpired)
    }
}

/// Whose connection it is.
enum Identity {
    Ours,
    Another,
    /// There is no node to see it by.
    Unknown,
    /// The nodes to see it by are gone.
    Gone(Vec<String>),
}

/// Looks whose connection it is after each reconnect; returns when it is another session's.
pub(super) async fn watch_identity(zk: &Arc<ServerSession>) -> End {
    let mut changes = zk.changes();
    let mut lost = 0;
    // The last connection on which something was answered.
    let mut answering: Option<Connection> = None;
    // Nodes of ours that somebody has deleted, although their owners have not noticed yet.
    let mut gone = HashSet::new();
    loop {
        changes.borrow_and_update();
        let is_known = !zk.is_connected() || zk.evidence.is_ours();
        if is_known {
            // The sender lives in the session.
            let _ = changes.changed().await;
            continue;
        }
        let connection = zk.connection();
        let identity = identify(zk, &gone, answering.as_ref().is_some_and(Connection::stands)).await;
        if !matches!(identity, Err(Failure::Unknown)) {
            lost = 0;
            answering = Some(connection.clone());
        }
        match identity {
            Ok(Identity::Ours) => {
                zk.evidence.found_ours(connection);
                zk.trust_wanted.notify_one();
                gone.clear();
            }
            Ok(Identity::Another) => {
                tracing::warn!(session = %zk.id(), "the server has given the connection to another session");
                return End::Unusable;
            }
            Err(Failure::Refused(error)) => {
                tracing::warn!(session = %zk.id(), %error, "the server does not report whose connection it is");
                return End::Unusable;
            }
            Err(Failure::Unknown) if lost >= MOST_LOST => {
                tracing::warn!(
                    session = %zk.id(),
                    "the server closes one connection after the other; it may not know getEphemerals, or setWatches"
                );
                return End::Unusable;
            }
            Err(Failure::Unknown) => {
                lost += 1;
                let _ = timeout(PAUSE, changes.changed()).await;
            }
            Ok(Identity::Gone(nodes)) => {
                // Somebody has deleted them, maybe without an event. Their holders and waiters learn of that by a look, unless
                // nobody polls them. Other nodes are asked for, more each time: trust may be about to end.
                gone.extend(nodes);
                zk.look_slowly();
            }
            // A node may be created at any moment, which answers it.
            Ok(Identity::Unknown) | Err(Failure::SessionOver) => {
                if !gone.is_empty() {
                    zk.look_slowly();
                }
                let _ = timeout(zk.times().beat(), changes.changed()).await;
            }
        }
    }
}

/// Looks for nodes of ours in the list of the connection's session, except for those that are `gone`.
async fn identify(zk: &ServerSession, gone: &HashSet<String>, is_answering: bool) -> Result<Identity, Failure> {
    let nodes = zk.nodes.created_except(gone, 1.max(gone.len()));
    if nodes.is_empty() {
        if !is_answering && let Err(failure @ (Failure::Unknown | Failure::SessionOver)) = zk.stat("/").await {
            return Err(failure);
        }
        return Ok(Identity::Unknown);
    }
    let asked: Vec<_> = nodes.iter().map(|node| (zk.ephemerals(node), zk.stat(node))).collect();
    let answers = asked.into_iter().zip(&nodes).map(async |((listed, stat), node)| {
        if listed.await?.contains(node) {
            return Ok(Some(Identity::Ours));
        }
        let is_there = |stat: Stat| stat.ephemeral_owner == zk.id().0;
        Ok(stat.await?.is_some_and(is_there).then_some(Identity::Another))
    });
    let shown = join_all(answers).await.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    Ok(shown.into_iter().flatten().next().unwrap_or(Identity::Gone(nodes)))
}
