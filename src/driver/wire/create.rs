//! Owns the create of an acquisition's nodes and their missing parents.
//!
//! 1. Usually the parents exist, so the first create is for the nodes alone. If a parent is missing, the machine asks for
//!    another create, with parents.
//! 2. Then one burst of reads finds the missing ancestors, and one transaction creates them and the nodes. A refused
//!    transaction creates nothing, and a successful one puts a child into every container. This matters, because the server
//!    removes a container that has become empty, but never one that has not had a child.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{FutureExt, TryFutureExt};
use zookeeper_client::{Client, CreateMode, MultiWriteResult};

use crate::driver::draft::Draft;
use crate::driver::names;
use crate::driver::wire::{Answered, MAX_REQUEST_BYTES, Parts, THROTTLED, failed, transact, whole};
use crate::error::{Error, ZkError};
use crate::machine::{Counted, Kind, Name, Outcome};
use crate::options::Parents;
use crate::path::LockPath;

/// The server may remove empty containers at any time, so missing parents are created again, at most this many times.
const MAX_ROUNDS: usize = 64;

/// The create of an acquisition's nodes.
pub(super) struct Create {
    client: Arc<Client>,
    draft: Arc<Draft>,
    /// Whether the transaction also writes empty data to the lock paths. The answer then has the numbers of their children.
    counts: bool,
    /// The path of a semaphore's queue of turns. Its children are counted as well.
    turns: Option<Arc<str>>,
    nodes: Vec<New>,
}

/// A node to create.
struct New {
    /// The path of the node without its sequence number.
    prefix: String,
    guid: u128,
    kind: Kind,
}

impl Create {
    pub(super) fn new(
        client: Arc<Client>,
        guid: u128,
        (counts, turns): (bool, Option<Arc<str>>),
        draft: Arc<Draft>,
    ) -> Self {
        let new = |(index, (path, kind)): (usize, &(LockPath, Kind))| {
            let guid = guid + index as u128;
            New { prefix: names::prefix(path.as_str(), guid, *kind), guid, kind: *kind }
        };
        let nodes = draft.queues.iter().enumerate().map(new).collect();
        Self { client, counts, turns, nodes, draft }
    }

    /// Creates the nodes alone. The outcome is [`Outcome::NoNode`] if a path is missing.
    pub(super) async fn without_parents(self) -> Answered {
        self.create(&[]).await
    }

    /// Creates the nodes and their missing parents.
    pub(super) async fn with_parents(self) -> Answered {
        for _ in 0..MAX_ROUNDS {
            let answered = match self.missing().await {
                Ok(missing) => self.create(&missing).await,
                Err(end) => return *end,
            };
            if answered.outcome != Outcome::NoNode {
                return answered;
            }
        }
        Answered::refused(Error::refused("keep the parents of", self.first_path(), ZkError::NoNode))
    }

    /// Returns the lock paths without duplicates.
    fn paths(&self) -> impl Iterator<Item = &str> {
        // The nodes of one path are next to each other.
        let paths = self.draft.queues.chunk_by(|(path, _), (next, _)| path == next);
        paths.filter_map(|nodes| nodes.first()).map(|(path, _)| path.as_str())
    }

    fn first_path(&self) -> &str {
        self.draft.queues.first().map_or("/", |(path, _)| path.as_str())
    }

    /// Returns the missing paths and ancestors, from the top down.
    async fn missing(&self) -> Result<Vec<String>, Box<Answered>> {
        let all: BTreeSet<&str> = self.draft.queues.iter().flat_map(|(path, _)| path.lineage()).collect();
        // This sends all reads at once. They are awaited one by one below. `join_all` may wake the session's task during its
        // own poll, and a create is polled under the session's lock.
        let stats: Vec<_> = all.iter().map(|path| self.client.check_stat(path)).collect();
        let mut missing = Vec::new();
        for (path, stat) in all.into_iter().zip(stats) {
            match stat.await {
                Ok(None) => missing.push(path.to_owned()),
                // Newer servers refuse the stat of a node without READ on it. The refusal shows that the node exists.
                Ok(Some(_)) | Err(ZkError::NoAuth) => {}
                Err(error) => return Err(Box::new(refused("look at", path, error))),
            }
        }
        let bytes = self.bytes(&missing);
        let reason = match self
            .draft
            .queues
            .iter()
            .find(|(path, _)| missing.iter().any(|missing| missing == path.as_str()))
        {
            Some((path, _)) if self.draft.options.parents() == Parents::MustExist => {
                format!("{path:?} does not exist, and the options leave it to you; create it first")
            }
            _ if !missing.is_empty() && bytes > MAX_REQUEST_BYTES => format!(
                "{} missing paths are created in one request with the nodes, of about {bytes} bytes; \
                 {MAX_REQUEST_BYTES} are the most (a server's jute.maxbuffer); create the paths first, or take fewer",
                missing.len()
            ),
            _ => return Ok(missing),
        };
        Err(Box::new(Answered::refused(Error::invalid("lock path", reason))))
    }

    async fn create(&self, parents: &[String]) -> Answered {
        let done = match self.begin(parents).await {
            Ok(done) => done,
            Err(error @ ZkError::Throttled) => {
                return Answered::failed(error, |error| Error::refused(THROTTLED, self.first_path(), error));
            }
            Err(error) => return Answered::unanswered(error),
        };
        match done {
            Ok(results) => self.done(parents, results).await,
            Err((part, error)) => self.refused(parents, part.unwrap_or_default(), error),
        }
    }

    /// Sends the transaction. A single node that needs no parents and no counts goes out as a plain create: some servers
    /// return no czxid from a transaction, which would cost one more round trip.
    fn begin(&self, parents: &[String]) -> impl Future<Output = Parts> {
        let options = &self.draft.options;
        let mode = CreateMode::EphemeralSequential.with_acls(options.acls());
        if let ([New { prefix, .. }], [], false) = (self.nodes.as_slice(), parents, self.counts) {
            let created = self.client.create(prefix, options.identifier(), &mode);
            let created = created.map_ok(move |(stat, number)| {
                vec![MultiWriteResult::Create { path: format!("{prefix}{number}"), stat }]
            });
            return created.map(whole).left_future();
        }
        let parent = match options.parents() {
            Parents::Persistent => CreateMode::Persistent,
            Parents::Container | Parents::MustExist => CreateMode::Container,
        };
        let parent = parent.with_acls(options.parent_acls());
        transact(&self.client, |writer| {
            parents.iter().try_for_each(|path| writer.add_create(path, b"", &parent))?;
            self.nodes.iter().try_for_each(|node| writer.add_create(&node.prefix, options.identifier(), &mode))?;
            let mut counted = self.paths().chain(self.turns.as_deref()).filter(|_| self.counts);
            counted.try_for_each(|path| writer.add_set_data(path, b"", None))
        })
        .right_future()
    }

    /// Estimates the bytes of a transaction that creates the nodes and these parents.
    fn bytes(&self, parents: &[String]) -> usize {
        let root = self.client.path().trim_end_matches('/').len();
        let (options, number) = (&self.draft.options, "0123456789".len());
        let node = |node: &New| root + node.prefix.len() + number + options.request_bytes();
        let parent = |path: &String| root + path.len() + options.container_bytes();
        self.nodes.iter().map(node).sum::<usize>() + parents.iter().map(parent).sum::<usize>()
    }

    /// Returns the answer to a refused transaction. [`Outcome::NoNode`]: a parent is missing, or was created meanwhile.
    fn refused(&self, parents: &[String], part: usize, error: ZkError) -> Answered {
        let old = |what: &'static str, path, error| Answered::refused(Error::refused(what, path, error));
        if let Some(path) = parents.get(part) {
            return match error {
                ZkError::NoNode if path.rfind('/') == Some(0) => {
                    let reason = format!(
                        "there is no parent for {path}: the chroot of the session does not exist; create it first"
                    );
                    Answered::refused(Error::invalid("chroot", reason))
                }
                ZkError::NoNode | ZkError::NodeExists => Outcome::NoNode.into(),
                ZkError::Unimplemented => {
                    let what =
                        "create a container (which needs ZooKeeper 3.5.3 or later; see Options::with_parents) at";
                    old(what, path, error)
                }
                error => refused("create", path, error),
            };
        }
        match (self.draft.queues.get(part - parents.len()), error) {
            (_, ZkError::NoNode) => Outcome::NoNode.into(),
            // The refused part is after the creates of the nodes: a write of data, which counts children.
            (None, error) if failed(&error) == Outcome::UnknownError => {
                refused("create a node under", self.first_path(), error)
            }
            (None, _) => Outcome::DataRefused.into(),
            // No other create has this guid, so an earlier attempt may have created the node. It must be searched for.
            (Some(_), ZkError::NodeExists) => Outcome::Unknown.into(),
            (Some((path, _)), error @ ZkError::Unimplemented) => {
                old("create a node (which needs ZooKeeper 3.5.3 or later) under", path.as_str(), error)
            }
            (Some((path, _)), error) => refused("create a node under", path.as_str(), error),
        }
    }

    /// Returns the answer to a successful transaction.
    async fn done(&self, parents: &[String], results: Vec<MultiWriteResult>) -> Answered {
        let (mut texts, mut czxid, mut owner, mut counts) = (Vec::new(), None, None, Vec::new());
        for (at, result) in results.into_iter().enumerate() {
            match result {
                MultiWriteResult::Create { path, stat } => {
                    // Servers before 3.7.2, 3.8.2 and 3.9.0 return the stat of containers only (ZOOKEEPER-4026).
                    if !stat.is_invalid() && stat.czxid > 0 {
                        (czxid, owner) = (Some(stat.czxid), Some(stat.ephemeral_owner));
                    }
                    texts.extend(Some(path).filter(|_| at >= parents.len()));
                }
                MultiWriteResult::SetData { stat } => {
                    counts.push(u32::try_from(stat.num_children).unwrap_or_default());
                    // One transaction wrote the data and created the nodes, so the mzxid of the data is the czxid of the nodes.
                    czxid = czxid.or(Some(stat.mzxid));
                }
                _ => {}
            }
        }
        let czxid = match czxid {
            Some(czxid) => czxid,
            None => match self.client.check_stat(texts.first().map_or("/", String::as_str)).await {
                Ok(Some(stat)) => stat.czxid,
                // The node was created and is gone again. That is no refusal.
                Ok(None) => return Outcome::Unknown.into(),
                // The nodes were created although this read failed, so its error must not end the call.
                Err(error) => return Answered::unanswered(error),
            },
        };
        let numbered = |(text, new): (&String, &New)| {
            let number = text.strip_prefix(&*new.prefix)?.parse().ok()?;
            Some(Name { number, guid: new.guid, kind: new.kind })
        };
        let names: Option<Vec<Name>> = texts.iter().zip(&self.nodes).map(numbered).collect();
        let Some(names) = names.filter(|names| names.len() == self.nodes.len()) else {
            return Outcome::Unknown.into();
        };
        let counted = self.counted(parents, &counts);
        // The only stat may be that of a container, whose owner is a marker (`i64::MIN`) and not a session.
        let owner = owner.filter(|owner| ![0, i64::MIN].contains(owner)).map(i64::cast_unsigned);
        Outcome::Created { names: names.into(), czxid, owner, counted }.into()
    }

    /// Counts the children besides our new nodes: 0 if the transaction made all paths, `None` if nothing was counted. `counts`:
    /// the number of children of each lock path, then that of the queue of turns.
    fn counted(&self, parents: &[String], counts: &[u32]) -> Option<Counted> {
        if self.paths().all(|path| parents.iter().any(|made| made == path)) {
            return Some(Counted { others: 0, turns: 0 });
        }
        let (paths, turn) = counts.split_at_checked(self.paths().count())?;
        let ours = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let others = paths.iter().sum::<u32>().saturating_sub(ours);
        Some(Counted { others, turns: turn.first().copied().unwrap_or_default() })
    }
}

fn refused(action: &'static str, path: &str, error: ZkError) -> Answered {
    if error == ZkError::NoChildrenForEphemerals {
        let reason = format!("{path:?} or an ancestor of it is an ephemeral node, which can have no children");
        return Answered::refused(Error::invalid("lock path", reason));
    }
    Answered::failed(error, |error| Error::refused(action, path, error))
}
