//! Owns [`Contender`]: who holds and who waits, as an operator wants to know it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{join_all, try_join, try_join_all};
use zookeeper_client::{SessionId, Stat};

use crate::error::{Error, Result};
use crate::hold::REVOKE;
use crate::hold::token::FencingToken;
use crate::path::LockPath;
use crate::queue::{Czxids, Interrupt, Kind, Line, Name, Queue, Ranked, Spot, attempt, is_still, within};
use crate::session::{Answer, Failure, Link, Requests};

type ZkError = zookeeper_client::Error;

/// How many nodes are read at a time.
const BURST: usize = 500;

/// One who holds a lock or waits for it, as of one moment.
///
/// Two are equal if they show the same node saying the same, so a revocation or a proclamation makes a difference. The
/// [`path`](Self::path), [`name`](Self::name) and [`token`](Self::token) together identify the node, whatever it says.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    path: LockPath,
    name: String,
    kind: Kind,
    sequence: i32,
    czxid: i64,
    is_holder: bool,
    session_id: i64,
    /// Empty if a revocation has overwritten it.
    identifier: Vec<u8>,
    revoke_requested: bool,
    since: SystemTime,
}

impl Contender {
    pub(crate) fn new(line: &Line, name: &Name<'_>, data: Vec<u8>, stat: &Stat) -> Self {
        let revoke_requested = data == REVOKE;
        Self {
            path: line.path.clone(),
            name: name.text.to_owned(),
            kind: name.kind,
            sequence: name.number,
            czxid: stat.czxid,
            is_holder: false,
            session_id: stat.ephemeral_owner,
            identifier: if revoke_requested { Vec::new() } else { data },
            revoke_requested,
            since: UNIX_EPOCH + Duration::from_millis(stat.ctime.try_into().unwrap_or_default()),
        }
    }

    pub(crate) fn holding(self) -> Self {
        Self { is_holder: true, ..self }
    }

    /// Whether both stand for the same node, whatever it said each time.
    pub(crate) fn is_same_node(&self, other: &Self) -> bool {
        (self.czxid, &self.path, &self.name) == (other.czxid, &other.path, &other.name)
    }

    /// The path that its node is in.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// The name of its node within [`path`](Self::path).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its node stands for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The sequence number of its node. It wraps, and starts over with the path; see [`token`](Self::token).
    #[must_use]
    pub fn sequence(&self) -> i32 {
        self.sequence
    }

    /// Whether it holds the lock, or waits for it.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.is_holder
    }

    /// The ZooKeeper session that its node belongs to.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        SessionId(self.session_id)
    }

    /// What it calls itself; see [`Options::with_identifier`](crate::Options::with_identifier).
    ///
    /// Empty after a revocation, which overwrites the identifier on the servers; see
    /// [`revoke_requested`](Self::revoke_requested). Only an [`Observer`](crate::Observer) that saw it before still
    /// knows it.
    #[must_use]
    pub fn identifier(&self) -> &[u8] {
        &self.identifier
    }

    /// Whether somebody has asked it to release the lock, with `revoke` or with Curator's `Revoker`.
    ///
    /// Curator's protocol writes the request over the identifier, which is [empty](Self::identifier) then. A leader that
    /// [proclaims](crate::Leadership::proclaim) something afterwards overwrites the request in turn: it has received it,
    /// but no longer shows it here.
    #[must_use]
    pub fn revoke_requested(&self) -> bool {
        self.revoke_requested
    }

    /// What it calls itself, as text; what is no text is replaced. Empty after a revocation, as the
    /// [identifier](Self::identifier) is.
    #[must_use]
    pub fn identifier_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.identifier)
    }

    /// When it joined the queue, by the servers' clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The fencing token that it has, or will have. (A writer that has become a reader keeps an older one.)
    #[must_use]
    pub fn token(&self) -> FencingToken {
        FencingToken::new(self.czxid, 0)
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

/// Gives a recipe what operators need; the recipe says which queue it is about.
macro_rules! for_operators {
    ($recipe:ident: |$this:ident| $queue:expr) => {
        impl $recipe {
            /// Lists who holds and who waits, the holders first, then the others in the order of the queue; of a lock with
            /// several paths, path by path.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future changes nothing.
            ///
            /// # Errors
            ///
            /// [`Error::Unavailable`](crate::Error::Unavailable) if nobody could be asked within one session timeout,
            /// [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs deny it.
            ///
            /// # Panics
            ///
            /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
            pub async fn contenders(&self) -> crate::error::Result<Vec<crate::contender::Contender>> {
                let $this = self;
                crate::contender::list($queue).await
            }

            /// Deletes the node of a contender, and no other: its name and its creation must be what they were. Tells
            /// whether it was there.
            ///
            /// For operators, when nothing else helps: a holder is told that it lost the lock, but not before somebody
            /// else may have it. A waiter gets [`Error::Evicted`](crate::Error::Evicted); one that waits for several locks
            /// queues again for all.
            ///
            /// # Cancel safety
            ///
            /// After dropping the future the node may be deleted or not.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidInput`](crate::Error::InvalidInput) if the contender is one of another lock; else as
            /// [`contenders`](Self::contenders).
            ///
            /// # Panics
            ///
            /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
            pub async fn break_lock(&self, contender: &crate::contender::Contender) -> crate::error::Result<bool> {
                let $this = self;
                crate::contender::break_lock($queue, contender).await
            }

            /// Asks a contender to let go, as Curator's `Revoker` does; tells whether it was there to be asked.
            ///
            /// It is a request: a hold offers [`revoke_requested`](crate::Hold::revoke_requested), and Curator's locks
            /// `makeRevocable`. The request overwrites the contender's identifier on the servers: `contenders` returns an
            /// empty one afterwards, and [`revoke_requested`](crate::Contender::revoke_requested). A contender that was
            /// listed before can still be broken, and revoked again.
            ///
            /// # Cancel safety
            ///
            /// After dropping the future it may have been asked or not.
            ///
            /// # Errors
            ///
            /// As [`break_lock`](Self::break_lock).
            ///
            /// # Panics
            ///
            /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
            pub async fn revoke(&self, contender: &crate::contender::Contender) -> crate::error::Result<bool> {
                let $this = self;
                crate::contender::revoke($queue, contender).await
            }
        }
    };
}

pub(crate) use for_operators;

/// Lists the contenders of a queue, line by line, in the order of each.
pub(crate) async fn list(queue: &Queue) -> Result<Vec<Contender>> {
    within(&queue.session, attempt(&queue.session, |link| list_once(queue, link).boxed())).await
}

async fn list_once(queue: &Queue, link: Arc<Link>) -> Result<Vec<Contender>, Interrupt> {
    let (kept, passed) = queue.kept_and_passed();
    let kept = try_join_all(kept.into_iter().map(|line| list_line(line, &link)));
    let passed = try_join_all(passed.into_iter().map(|line| list_line(line, &link)));
    let (kept, passed) = try_join(kept, passed).await?;
    let turns = passed.into_iter().flatten().map(|turn| Contender { is_holder: false, ..turn });
    Ok(kept.into_iter().flatten().chain(turns).collect())
}

/// The contender whose turn it is in a queue of one line.
pub(crate) async fn first(queue: &Queue) -> Result<Option<Contender>> {
    let first = attempt(&queue.session, |link| {
        async move {
            let line = queue.lines().next().expect("a queue has a line");
            loop {
                let mut czxids = Czxids::new();
                let Some(first) = line.first(&link, &mut czxids).await? else {
                    return Ok(None);
                };
                // Who is gone since the listing was the first no more.
                if let (Some(name), Some((data, stat))) = (Name::parse(&first), line.read(&link, &first).await?)
                    && is_still(&mut czxids, &first, stat.czxid)
                {
                    return Ok(Some(Contender::new(line, &name, data, &stat).holding()));
                }
            }
        }
        .boxed()
    });
    within(&queue.session, first).await
}

pub(crate) async fn break_lock(queue: &Queue, contender: &Contender) -> Result<bool> {
    change(queue, contender, |requests, node, version| requests.delete_version(node, Some(version))).await
}

pub(crate) async fn revoke(queue: &Queue, contender: &Contender) -> Result<bool> {
    change(queue, contender, |requests, node, version| requests.write(node, REVOKE.to_vec(), Some(version))).await
}

/// Changes the node of a contender, if it is still the same one; tells whether it was.
async fn change(
    queue: &Queue,
    contender: &Contender,
    send: fn(&Requests, &str, i32) -> Answer<()>,
) -> Result<bool> {
    let Some(line) = queue.lines().find(|line| line.path.as_str() == contender.path()) else {
        let reason = format!("it is one of {}, not of {}", contender.path(), queue.path);
        return Err(Error::invalid("contender", reason));
    };
    // Whether a request was sent whose answer was lost, in whichever session.
    let tried = AtomicBool::new(false);
    let changed = attempt(&queue.session, |link| change_once(line, contender, link, send, &tried).boxed());
    within(&queue.session, changed).await
}

async fn change_once(
    line: &Line,
    contender: &Contender,
    link: Arc<Link>,
    send: fn(&Requests, &str, i32) -> Answer<()>,
    tried: &AtomicBool,
) -> Result<bool, Interrupt> {
    let node = line.path.child(&contender.name);
    loop {
        let version = match line.read(&link, &contender.name).await? {
            Some((_, stat)) if stat.czxid == contender.czxid => stat.version,
            // An attempt whose answer was lost may have deleted it.
            Some(_) | None => return Ok(tried.load(Ordering::Relaxed)),
        };
        let path = node.clone();
        match link.ask(move |requests| send(requests, &path, version)).await {
            Ok(()) => return Ok(true),
            Err(Failure::Refused(ZkError::BadVersion | ZkError::NoNode)) => {}
            Err(Failure::Refused(error)) => return Err(Error::refused("change", &node, error).into()),
            Err(Failure::Unknown) => {
                tried.store(true, Ordering::Relaxed);
                link.settled().await?;
            }
            Err(Failure::Over) => {
                tried.store(true, Ordering::Relaxed);
                return Err(Interrupt::SessionOver);
            }
        }
    }
}

/// Lists the contenders of a line, in its order.
async fn list_line(line: &Line, link: &Arc<Link>) -> Result<Vec<Contender>, Interrupt> {
    let names = line.list(link).await?;
    let mut contenders = Vec::new();
    for burst in names.chunks(BURST) {
        let parsed: Vec<_> = burst.iter().filter_map(|text| Name::parse(text)).collect();
        let nodes = join_all(parsed.iter().map(|name| line.read(link, name.text))).await;
        for (name, node) in parsed.into_iter().zip(nodes) {
            // Who is gone has left since the listing.
            contenders.extend(node?.map(|(data, stat)| (name, Contender::new(line, &name, data, &stat))));
        }
    }
    let strangers = names.iter().filter(|text| Name::parse(text).is_none()).count();
    Ok(match line.spot {
        Spot::InLine(_) => in_order(contenders),
        // Every child takes room, whatever it is.
        Spot::Room { permits, .. } => with_room(contenders, (permits as usize).saturating_sub(strangers)),
    })
}

/// Puts leases in the order of their creation. Those made at once hold if there is room for all of them.
fn with_room(contenders: Vec<(Name<'_>, Contender)>, permits: usize) -> Vec<Contender> {
    let mut leases: Vec<_> = contenders.into_iter().map(|(_, lease)| lease).collect();
    leases.sort_by_key(|lease| (lease.czxid, lease.sequence));
    let czxids: Vec<_> = leases.iter().map(|lease| lease.czxid).collect();
    for lease in &mut leases {
        lease.is_holder = czxids.partition_point(|czxid| *czxid <= lease.czxid) <= permits;
    }
    leases
}

/// Puts contenders in line, and tells who of them hold.
fn in_order(contenders: Vec<(Name<'_>, Contender)>) -> Vec<Contender> {
    let mut line: Vec<_> = contenders
        .into_iter()
        .map(|(name, contender)| (Ranked { name, czxid: Some(contender.czxid) }, contender))
        .collect();
    let last =
        line.iter().map(|(ranked, _)| *ranked).reduce(|last, one| if last.precedes(&one) { one } else { last });
    if let Some(last) = last {
        line.sort_by(|(one, _), (other, _)| one.cmp_before(other, last.name.number));
    }
    let mut ahead: Vec<Kind> = Vec::new();
    line.into_iter()
        .map(|(Ranked { name, .. }, mut contender)| {
            contender.is_holder = !ahead.iter().any(|&kind| name.kind.waits_for(kind));
            if !ahead.contains(&name.kind) {
                ahead.push(name.kind);
            }
            contender
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: &[(&str, i64)]) -> Vec<(String, bool)> {
        let contenders = names.iter().map(|&(text, czxid)| {
            let contender = Contender {
                path: LockPath::new("/lock").expect("a path"),
                name: text.to_owned(),
                kind: Kind::Lock,
                sequence: 0,
                czxid,
                is_holder: false,
                session_id: 0,
                identifier: Vec::new(),
                revoke_requested: false,
                since: UNIX_EPOCH,
            };
            (Name::parse(text).expect("a contender's name"), contender)
        });
        let line = in_order(contenders.collect());
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
