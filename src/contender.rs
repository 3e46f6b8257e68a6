//! [`Contender`]: a holder or a waiter, as operators see it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::{join_all, try_join_all};
use zookeeper_client::{SessionId, Stat};

use crate::error::{Error, Result, ZkError};
use crate::fencing_token::FencingToken;
use crate::hold::REVOKE;
use crate::lock::Lock;
use crate::path::LockPath;
use crate::queue::{Kind, NodeName, Queue, order};
use crate::session::{Interrupt, Zk};
use crate::telemetry;

pub use crate::machine::ContenderKind;

/// The most nodes that are read at a time.
const BURST: usize = 500;

/// A holder or a waiter of a lock, at one moment.
///
/// Two contenders are equal if they show the same node with the same data and role. So a grant, a revocation or a
/// proclamation makes them differ. The [`path`](Self::path), [`name`](Self::name) and [`token`](Self::token) together identify the node.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    path: LockPath,
    name: String,
    kind: Kind,
    sequence: i32,
    /// The czxid of the node. It identifies the node, whatever the epoch in `token`.
    czxid: i64,
    token: FencingToken,
    is_holder: bool,
    session_id: i64,
    /// The identifier; empty if a revocation has overwritten it.
    identifier: Vec<u8>,
    revoke_requested: bool,
    since: SystemTime,
}

impl Contender {
    /// Creates a contender that `lock` has listed, as a waiter. Its token has the epoch of `lock`.
    pub(crate) fn new(
        lock: &Lock,
        queue: &Queue,
        name: &NodeName<'_>,
        data: Vec<u8>,
        stat: &Stat,
    ) -> Result<Self> {
        let revoke_requested = data == REVOKE;
        Ok(Self {
            path: queue.path.clone(),
            name: name.text.to_owned(),
            kind: name.kind,
            sequence: name.number,
            czxid: stat.czxid,
            token: FencingToken::of_node(&queue.path.child(name.text), lock.options.token_epoch(), stat.czxid)?,
            is_holder: false,
            session_id: stat.ephemeral_owner,
            identifier: if revoke_requested { Vec::new() } else { data },
            revoke_requested,
            since: UNIX_EPOCH + Duration::from_millis(stat.ctime.try_into().unwrap_or_default()),
        })
    }

    pub(crate) fn holding(self) -> Self {
        Self { is_holder: true, ..self }
    }

    /// Returns whether both contenders have the same node, whatever its data.
    pub(crate) fn is_same_node(&self, other: &Self) -> bool {
        (self.czxid, &self.path, &self.name) == (other.czxid, &other.path, &other.name)
    }

    /// Returns the path that the contender's node is in.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Returns the name of the contender's node within [`path`](Self::path).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of the contender's node, as the name shows it. It may differ from the recipe: see
    /// [`ContenderKind`].
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the sequence number of the contender's node. Numbers wrap, and start over when the path is created again;
    /// the [`token`](Self::token) does not.
    #[must_use]
    pub fn sequence(&self) -> i32 {
        self.sequence
    }

    /// Returns whether the contender holds the lock. Otherwise it waits.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.is_holder
    }

    /// Returns the ZooKeeper session that the contender's node belongs to.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        SessionId(self.session_id)
    }

    /// Returns the contender's identifier; see [`Options::with_identifier`](crate::Options::with_identifier).
    ///
    /// The identifier is empty after a revocation, which overwrites it on the servers; see
    /// [`revoke_requested`](Self::revoke_requested). Only an [`Observer`](crate::Observer) that saw the identifier
    /// before still returns it.
    #[must_use]
    pub fn identifier(&self) -> &[u8] {
        &self.identifier
    }

    /// Returns whether someone has asked the contender to release, with `revoke` or with Curator's `Revoker`.
    ///
    /// Curator's protocol writes the request over the identifier, which is [empty](Self::identifier) then. A leader
    /// that [proclaims](crate::HoldMonitor::proclaim) something afterwards overwrites the request in turn: the leader
    /// has received the request, but this method returns false.
    #[must_use]
    pub fn revoke_requested(&self) -> bool {
        self.revoke_requested
    }

    /// Returns the [identifier](Self::identifier) as text; invalid UTF-8 is replaced. The text is empty after a
    /// revocation. Control characters are left as they are: escape them for a terminal, as the `Display` of a contender
    /// does.
    #[must_use]
    pub fn identifier_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.identifier)
    }

    /// Returns when the contender joined the queue, by the servers' clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns the fencing token that the contender has, or will have, if it uses the same
    /// [epoch](crate::Options::with_token_epoch) as the lock that lists it. (A downgraded writer keeps an older token.)
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("path", &self.path)
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("is_holder", &self.is_holder)
            .field("session_id", &self.session_id())
            .field("identifier", &self.identifier_lossy())
            .field("revoke_requested", &self.revoke_requested)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// Text from another client, shown on one row. Characters that end the row, control a terminal or change the direction
/// of the text are escaped.
struct OnOneRow<'a>(&'a str);

impl fmt::Display for OnOneRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| {
            !c.is_control()
                && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        self.0.chars().try_for_each(|c| if is_plain(c) { f.write_char(c) } else { c.escape_debug().fmt(f) })
    }
}

impl fmt::Display for Contender {
    /// Writes one row for people: identifier, `holds` or `waits for`, node, kind, token and session. Control characters
    /// are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = if self.is_holder { "holds" } else { "waits for" };
        let asked = if self.revoke_requested { ", asked to release" } else { "" };
        let identifier = self.identifier_lossy();
        let (identifier, path, name) = (OnOneRow(&identifier), &self.path, OnOneRow(&self.name));
        let (kind, token, session) = (self.kind, self.token, self.session_id());
        write!(f, "{identifier} {does} {path}/{name} ({kind}, token {token}, session {session}{asked})")
    }
}

/// Gives a recipe its path, its `Debug`, and the methods for operators. `$lock` is the recipe's lock, or another recipe
/// inside this one.
macro_rules! for_operators {
    ($recipe:ident: |$this:ident| $lock:expr) => {
        impl $recipe {
            /// Returns the lock path; the first one if there are several.
            #[must_use]
            pub fn path(&self) -> &str {
                let $this = self;
                ($lock).path()
            }

            /// Lists the holders, then the waiters in queue order. Several paths are listed one after the other. The
            /// list comes from the connected server, which may be behind the others.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future changes nothing.
            ///
            /// # Errors
            ///
            /// [`Error::Unavailable`](crate::Error::Unavailable) if no server answered within one session timeout,
            /// [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs deny it.
            ///
            /// # Examples
            ///
            /// ```no_run
            #[doc = crate::contender::example!($recipe)]
            /// for contender in lock.contenders().await? {
            ///     println!("{contender}");
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub async fn contenders(&self) -> crate::error::Result<Vec<crate::contender::Contender>> {
                let $this = self;
                ($lock).contenders().await
            }

            /// Counts the nodes of holders and waiters, in one small request for each queue; with several queues,
            /// returns the sum. The count comes from the connected server, which may be behind the others.
            ///
            /// If you have little time, check the count first, and do not join a queue that is too long.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future changes nothing.
            ///
            /// # Errors
            ///
            /// As [`contenders`](Self::contenders).
            ///
            /// # Examples
            ///
            /// ```no_run
            /// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
            /// use std::time::Duration;
            ///
            /// if mutex.occupancy().await? < 20
            ///     && let Some(guard) = mutex.try_lock_for(Duration::from_millis(300)).await?
            /// {
            ///     // The work.
            ///     drop(guard);
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub async fn occupancy(&self) -> crate::error::Result<usize> {
                let $this = self;
                ($lock).occupancy().await
            }

            /// Deletes the node of a contender, and no other: a later node of the same name stays. Returns whether the
            /// node was there.
            ///
            /// For operators, when nothing else helps. The holder learns of its loss, but another contender may get the
            /// lock before that. A waiter gets [`Error::Evicted`](crate::Error::Evicted); a waiter for several locks joins
            /// all queues again.
            ///
            /// # Cancel safety
            ///
            /// After dropping the future the node may be deleted or not.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidInput`](crate::Error::InvalidInput) if the contender belongs to another lock; otherwise
            /// as [`contenders`](Self::contenders).
            ///
            /// # Examples
            ///
            /// ```no_run
            #[doc = crate::contender::example!($recipe)]
            /// for contender in lock.contenders().await? {
            ///     if contender.is_holder() && contender.identifier() == b"billing-7" {
            ///         lock.break_lock(&contender).await?;
            ///     }
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub async fn break_lock(&self, contender: &crate::contender::Contender) -> crate::error::Result<bool> {
                let $this = self;
                ($lock).break_lock(contender).await
            }

            /// Asks a contender to release, as Curator's `Revoker` does. Returns whether its node was there.
            ///
            /// The call is only a request: our holders see it by [`revoke_requested`](crate::HoldMonitor::revoke_requested),
            /// Curator's by `makeRevocable`. The request overwrites the contender's identifier on the servers:
            /// afterwards `contenders` returns an empty identifier, and
            /// [`revoke_requested`](crate::Contender::revoke_requested) is true. A contender that was listed before the
            /// request can still be given to `break_lock` and `revoke`.
            ///
            /// # Cancel safety
            ///
            /// After dropping the future, the request may have been written or not.
            ///
            /// # Errors
            ///
            /// As [`break_lock`](Self::break_lock).
            ///
            /// # Examples
            ///
            /// ```no_run
            #[doc = crate::contender::example!($recipe)]
            /// for holder in lock.contenders().await?.iter().filter(|contender| contender.is_holder()) {
            ///     lock.revoke(holder).await?;
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub async fn revoke(&self, contender: &crate::contender::Contender) -> crate::error::Result<bool> {
                let $this = self;
                ($lock).revoke(contender).await
            }
        }

        impl std::fmt::Debug for $recipe {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($recipe)).field("path", &self.path()).finish_non_exhaustive()
            }
        }
    };
}

/// The first line of an example with a recipe.
macro_rules! example {
    ($recipe:ident) => {
        concat!(
            "# async fn example(lock: zookeeper_recipes::",
            stringify!($recipe),
            ") -> Result<(), zookeeper_recipes::Error> {"
        )
    };
}

pub(crate) use {example, for_operators};

impl Lock {
    pub(crate) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Lists the contenders queue by queue, each queue in its order.
    pub(crate) async fn contenders(&self) -> Result<Vec<Contender>> {
        let ask = self.session.attempt_within_timeout(|zk| async move {
            let lists = try_join_all(self.all_queues().map(|queue| list_queue(self, queue, &zk))).await?;
            Ok(lists.concat())
        });
        ask.await
    }

    /// Counts the nodes in all queues.
    pub(crate) async fn occupancy(&self) -> Result<usize> {
        let ask = self.session.attempt_within_timeout(|zk| async move {
            let counts = try_join_all(self.all_queues().map(|queue| queue.occupancy(&zk))).await?;
            Ok(counts.into_iter().sum())
        });
        ask.await
    }

    pub(crate) async fn break_lock(&self, contender: &Contender) -> Result<bool> {
        change(self, contender, None).await
    }

    pub(crate) async fn revoke(&self, contender: &Contender) -> Result<bool> {
        change(self, contender, Some(REVOKE)).await
    }
}

/// Returns the first contender of a lock with one queue.
pub(crate) async fn first(lock: &Lock) -> Result<Option<Contender>> {
    let queue = &lock.queues[0];
    let ask = lock.session.attempt_within_timeout(|zk| async move {
        loop {
            let Some((first, czxid)) = queue.first(lock.session.core(), &zk).await? else {
                return Ok(None);
            };
            // If this node was deleted after the listing, another contender is first now.
            if let (Some(name), Some((data, stat))) = (NodeName::parse(&first), queue.read(&zk, &first).await?)
                && czxid.is_none_or(|known| known == stat.czxid)
            {
                return Ok(Some(Contender::new(lock, queue, &name, data, &stat)?.holding()));
            }
        }
    });
    ask.await
}

/// Writes `data` to the node of a contender, or deletes the node if there is no `data`. Returns whether the node was
/// there.
async fn change(lock: &Lock, contender: &Contender, data: Option<&[u8]>) -> Result<bool> {
    if !lock.all_queues().any(|queue| queue.path == contender.path) {
        let reason = format!("it is one of {}, not of {}", contender.path(), lock.path);
        return Err(Error::invalid("contender", reason));
    }
    // Whether a request of this call, in any session, has changed the node or may have.
    let tried = &AtomicBool::new(false);
    let ask = lock.session.attempt_within_timeout(|zk| async move {
        let (node, zk) = (&contender.path.child(&contender.name), &zk);
        let change = || async move {
            loop {
                let version = match zk.data(node).await {
                    Ok((_, stat)) if stat.czxid == contender.czxid => stat.version,
                    // The node is gone, perhaps deleted by an attempt of ours whose answer was lost.
                    Ok(_) | Err(ZkError::NoNode) => return Ok(()),
                    Err(error) => return Err(error),
                };
                if !matches!(zk.is_connected(), Ok(true)) {
                    // Without a connection the client would keep the request, and send it after a reconnect.
                    return Err(ZkError::ConnectionLoss);
                }
                telemetry::requested(if data.is_some() { "write" } else { "delete" }, 1);
                // Set before the answer, because the session may end first, which drops this future. The retry in the
                // next session may then find no node, although this call has deleted it.
                let before = tried.swap(true, Ordering::Relaxed);
                let changed = match data {
                    Some(data) => zk.write(node, data, version).await,
                    None => zk.delete(node, version).await,
                };
                let is_refused =
                    matches!(changed, Err(ZkError::BadVersion | ZkError::NoNode | ZkError::Throttled));
                tried.store(before || !is_refused, Ordering::Relaxed);
                if !matches!(changed, Err(ZkError::BadVersion | ZkError::NoNode)) {
                    return changed;
                }
            }
        };
        zk.retry("read", change).await?.map_err(|error| Error::refused("change", node, error))?;
        let was_there = tried.load(Ordering::Relaxed);
        if was_there {
            let (session, token) = (contender.session_id(), contender.token());
            let what =
                if data.is_some() { "asked a contender to release" } else { "deleted the node of a contender" };
            telemetry::guarded(|| tracing::info!(node, %session, %token, "{what}"));
        }
        Ok(was_there)
    });
    ask.await
}

/// Lists the contenders of a queue, in queue order.
async fn list_queue(lock: &Lock, queue: &Queue, zk: &Zk) -> Result<Vec<Contender>, Interrupt> {
    let names = queue.list(lock.session.core(), zk).await?;
    let mut contenders = Vec::new();
    for burst in names.chunks(BURST) {
        let parsed: Vec<_> = burst.iter().filter_map(|text| NodeName::parse(text)).collect();
        let nodes = join_all(parsed.iter().map(|name| queue.read(zk, name.text))).await;
        for (name, node) in parsed.into_iter().zip(nodes) {
            // A missing node was deleted after the listing.
            if let Some((data, stat)) = node? {
                contenders.push(Contender::new(lock, queue, &name, data, &stat)?);
            }
        }
    }
    let other_children = names.iter().filter(|text| NodeName::parse(text).is_none()).count();
    Ok(match &lock.permits {
        // Every child takes up a permit, contender or not.
        Some((_, limit)) if queue.kind == Kind::Lease => {
            with_room(contenders, (*limit.borrow() as usize).saturating_sub(other_children))
        }
        permits => in_order(contenders, permits.is_some()),
    })
}

/// Sorts leases, the nodes of a semaphore's permits, by their creation, and marks the holders. Leases that one
/// transaction created are held if there are permits for all of them.
fn with_room(mut leases: Vec<Contender>, permits: usize) -> Vec<Contender> {
    leases.sort_by_key(|lease| (lease.czxid, lease.sequence));
    let created: Vec<_> = leases.iter().map(|lease| lease.czxid).collect();
    for lease in &mut leases {
        lease.is_holder = created.partition_point(|czxid| *czxid <= lease.czxid) <= permits;
    }
    leases
}

/// Sorts contenders into queue order, and marks the holders. `is_turn`: this is the queue in which a semaphore's callers
/// wait for their turn to take permits, so no contender is a holder.
fn in_order(mut queue: Vec<Contender>, is_turn: bool) -> Vec<Contender> {
    order::sort(&mut queue, |one| (one.sequence, &one.name), |one| Some(one.czxid));
    let mut ahead = BTreeSet::new();
    for contender in &mut queue {
        contender.is_holder = !is_turn && !ahead.iter().any(|kind| contender.kind.waits_for(*kind));
        ahead.insert(contender.kind);
    }
    queue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: &[(&str, i64)]) -> Vec<(String, bool)> {
        let contenders = names.iter().map(|&(text, czxid)| {
            let name = NodeName::parse(text).expect("a contender's name");
            Contender {
                path: LockPath::new("/lock").expect("a path"),
                name: text.to_owned(),
                kind: name.kind,
                sequence: name.number,
                czxid,
                token: FencingToken::try_from(czxid).expect("positive"),
                is_holder: false,
                session_id: 0,
                identifier: Vec::new(),
                revoke_requested: false,
                since: UNIX_EPOCH,
            }
        });
        let line = in_order(contenders.collect(), false);
        line.into_iter().map(|contender| (contender.name.split_at(1).0.to_owned(), contender.is_holder)).collect()
    }

    #[test]
    fn holders_come_first() {
        let line = order(&[("c-lock-0000000012", 9), ("a-lock-0000000002", 4), ("b-lock-0000000010", 7)]);
        assert_eq!(line, [("a", true), ("b", false), ("c", false)].map(|(name, holds)| (name.to_owned(), holds)));
        let line = order(&[("c__WRIT__0000000003", 3), ("b__READ__0000000002", 2), ("a__READ__0000000001", 1)]);
        assert_eq!(line, [("a", true), ("b", true), ("c", false)].map(|(name, holds)| (name.to_owned(), holds)));
    }

    #[test]
    fn the_end_of_the_counter_is_in_order_of_creation() {
        let line = order(&[
            ("d-lock--2147483648", 8),
            ("a-lock-2147483645", 1),
            ("c-lock-2147483647", 5),
            ("b-lock--2147483640", 3),
            ("e-lock-2147483647", 9),
        ]);
        assert_eq!(line.iter().map(|(name, _)| name.as_str()).collect::<String>(), "abcde");
    }
}
