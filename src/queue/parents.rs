//! Owns the making of lock paths that are missing, together with the nodes of an acquisition.
//!
//! 1. The missing containers and the nodes are created in one transaction. One that is refused makes nothing; one that is
//!    done puts a child into every container. The server removes a container that has become empty, but never one that has
//!    not had a child.
//! 2. Which containers are missing is guessed: one transaction for each depth goes out in one burst, of which only the one
//!    that fits the servers' state can be done.
//! 3. Queues may be missing to different depths, where no guess fits. So where several are missing, the same burst asks
//!    which of their ancestors are there, and the next one creates what is not. Where guessing would take too many bytes,
//!    a burst that only asks comes first.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::Stat;

use crate::error::{Error, Result, ZkError};
use crate::options::{Options, Parents};
use crate::queue::Queue;
use crate::session::{Failure, Interrupt, Names, Refusal, ServerSession};

/// A request to a server may have a megabyte (`jute.maxbuffer`), less what surrounds it.
pub(crate) const MAX_REQUEST_BYTES: usize = 1_000_000;

/// What all guesses of one burst may have together, in bytes.
const MAX_GUESSED_BYTES: usize = 2 * MAX_REQUEST_BYTES;

/// More than this, in bytes, may be too large for a server that was set to take less than usual.
const LARGE: usize = 16 * 1024;

/// What a transaction creates before its nodes, ancestors first.
pub(super) type Containers = Vec<String>;

/// What is to be sent: the containers to create with the nodes, one transaction for each guess, in this order; and what to
/// look at after that.
pub(super) type Plan = (Vec<Containers>, Vec<String>);

/// The missing parents of the queues of one acquisition, as far as they are known.
#[derive(Debug)]
pub(super) struct MissingParents<'a> {
    queues: &'a [&'a Queue],
    options: &'a Options,
    /// The bytes of the nodes in a request.
    node_bytes: usize,
    /// The queues that were missing when somebody looked.
    missing: BTreeSet<usize>,
    /// The paths that were missing a moment before the transactions of the present burst.
    absent: BTreeSet<String>,
    /// All that was missing at the end of the burst before, if that is known.
    found: Option<BTreeSet<String>>,
    has_guessed: bool,
    /// Whether the present burst asks for all ancestors of what is missing.
    asks: bool,
}

/// What is to be done about refused transactions, other than to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Other parents are missing than those that were created.
    OtherParents,
    /// A node with the name of ours is there. At its end the counter stands still, and a repeated create has the name of
    /// its predecessor.
    Search,
}

impl<'a> MissingParents<'a> {
    pub(super) fn new(queues: &'a [&'a Queue], options: &'a Options, node_bytes: usize) -> Self {
        let (missing, absent) = (BTreeSet::new(), BTreeSet::new());
        Self { queues, options, node_bytes, missing, absent, found: None, has_guessed: false, asks: false }
    }

    /// The bytes of a transaction that creates the nodes and these containers.
    pub(super) fn request_bytes<'p>(
        &self,
        zk: &ServerSession,
        containers: impl IntoIterator<Item = &'p str>,
    ) -> usize {
        let cost = |path: &str| zk.cost(path.len()) + self.options.container_bytes();
        self.node_bytes + containers.into_iter().map(cost).sum::<usize>()
    }

    /// Fails, where the servers close the connection on creates again and again, if what was tried can be the cause: not if they
    /// have answered such a create before.
    pub(super) fn give_up(&self, zk: &ServerSession, guesses: &[Containers]) -> Result<()> {
        // The last guess is the largest.
        let largest = guesses.last().into_iter().flatten();
        let with_parents = has_containers(guesses);
        let cause = if self.request_bytes(zk, largest.map(String::as_str)) > LARGE {
            "create nodes (the request may exceed the servers' jute.maxbuffer) under"
        } else if zk.knows_create(with_parents) {
            return Ok(());
        } else if with_parents {
            "create missing parents (the servers close the connection on that; see Options::with_parents) of"
        } else {
            "create a node (the servers close the connection on that) under"
        };
        Err(Error::refused(cause, self.queues[0].path.as_str(), ZkError::ConnectionLoss))
    }

    /// What to create with the nodes.
    pub(super) async fn plan(&mut self, zk: &Arc<ServerSession>) -> Result<Plan, Interrupt> {
        self.absent.clear();
        self.asks = false;
        if let Some(missing) = self.missing.first().filter(|_| self.options.parents() == Parents::MustExist) {
            return Err(must_exist(self.queues[*missing].path.as_str()).into());
        }
        if let Some(found) = self.found.take() {
            return Ok(self.exactly(zk, found)?);
        }
        if self.missing.is_empty() {
            return Ok((vec![Containers::new()], Vec::new()));
        }
        let lineages: Vec<Vec<_>> =
            self.missing.iter().map(|index| self.queues[*index].path.lineage().collect()).collect();
        let all: BTreeSet<_> = lineages.iter().flatten().copied().collect();
        let depth = lineages.iter().map(Vec::len).max().unwrap_or_default();
        let bytes = self.request_bytes(zk, all.iter().copied());
        // If the one queue that was missing has changed meanwhile, the next guesses fit; several may never fit any.
        let can_fit = !self.has_guessed || self.missing.len() == 1;
        if can_fit && bytes <= MAX_REQUEST_BYTES && bytes.saturating_mul(depth + 1) <= MAX_GUESSED_BYTES {
            self.has_guessed = true;
            // The last levels of each lineage. The first guess is that somebody else has made them all.
            let guess = |levels| {
                let ends = lineages.iter().flat_map(|lineage| &lineage[lineage.len().saturating_sub(levels)..]);
                let sorted: BTreeSet<_> = ends.copied().collect();
                sorted.into_iter().map(str::to_owned).collect()
            };
            let guesses = (0..=depth).map(guess).collect();
            // The listings show the ends, and for one queue the guesses show all.
            let ends: BTreeSet<_> = lineages.iter().filter_map(|lineage| lineage.last().copied()).collect();
            self.asks = ends.len() > 1;
            let looks = all.difference(&ends).filter(|_| self.asks).map(|path| (*path).to_owned()).collect();
            return Ok((guesses, looks));
        }
        let found = find_missing(zk, all.into_iter().map(str::to_owned).collect()).await?;
        Ok(self.exactly(zk, found)?)
    }

    fn exactly(&mut self, zk: &ServerSession, found: BTreeSet<String>) -> Result<Plan> {
        let bytes = self.request_bytes(zk, found.iter().map(String::as_str));
        if !found.is_empty() && bytes > MAX_REQUEST_BYTES {
            let reason = format!(
                "{} missing paths are created in one request with the nodes, of about {bytes} bytes; \
                 {MAX_REQUEST_BYTES} are the most (a server's jute.maxbuffer); create the paths first, or take fewer",
                found.len()
            );
            return Err(Error::invalid("lock path", reason));
        }
        let containers = found.iter().cloned().collect();
        self.absent = found;
        Ok((vec![containers], Vec::new()))
    }

    /// Takes note of what is missing after a burst in which no guess has fitted.
    pub(super) fn look_around(
        &mut self,
        looks: Vec<String>,
        stats: Vec<Result<Option<Stat>, Failure>>,
        listings: Vec<Result<Arc<Names>, Failure>>,
    ) {
        let (mut found, mut is_known) = (BTreeSet::new(), self.asks);
        for (path, stat) in looks.into_iter().zip(stats) {
            let is_there = match stat {
                Ok(stat) => is_there(Ok(stat)),
                Err(Failure::Refused(error)) => is_there(Err(error)),
                Err(Failure::Unknown | Failure::SessionOver) => Err(ZkError::ConnectionLoss),
            };
            match is_there {
                Ok(true) => {}
                Ok(false) => drop(found.insert(path)),
                Err(_) => is_known = false,
            }
        }
        for (index, listing) in listings.into_iter().enumerate() {
            match listing {
                Err(Failure::Refused(ZkError::NoNode)) => {
                    self.missing.insert(index);
                    found.insert(self.queues[index].path.as_str().to_owned());
                }
                Ok(_) | Err(Failure::Refused(_)) => {}
                Err(Failure::Unknown | Failure::SessionOver) => is_known = false,
            }
        }
        self.found = is_known.then_some(found);
    }

    /// What to do when all `guesses` were refused; an error if nothing helps. `queue_of` is the queue of a node.
    pub(super) fn judge(
        &mut self,
        guesses: &[Containers],
        refusals: Vec<Refusal>,
        queue_of: impl Fn(usize) -> usize,
    ) -> Result<Remedy, Interrupt> {
        // The server looks for the parent first, then at its ACL, then for the node itself. So a guess that creates too
        // little finds no parent, and one that creates too much finds a node or, if it may not write there, no permission.
        for (containers, Refusal { index, error }) in guesses.iter().zip(refusals) {
            let Some(path) = containers.get(index) else {
                let queue = queue_of(index - containers.len());
                let path = self.queues[queue].path.as_str();
                match error {
                    ZkError::NoNode => {
                        self.absent.insert(path.to_owned());
                        self.missing.insert(queue);
                    }
                    ZkError::NodeExists => return Ok(Remedy::Search),
                    ZkError::Unimplemented => {
                        let action = "create a node (which needs ZooKeeper 3.5.3 or later) under";
                        return Err(Error::refused(action, path, error).into());
                    }
                    error => return Err(refused("create a node under", path, error)),
                }
                continue;
            };
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            match error {
                ZkError::NoNode if parent.is_empty() => {
                    let reason =
                        format!("there is no parent for {path}: the chroot of the session does not exist");
                    return Err(Error::invalid("chroot", format!("{reason}; create it first")).into());
                }
                ZkError::NoNode => drop(self.absent.insert(parent.to_owned())),
                ZkError::NodeExists => {}
                // If it may be there, it was not for us to create.
                ZkError::NoAuth if !self.absent.contains(path) && !containers.iter().any(|one| one == parent) => {}
                ZkError::Unimplemented => {
                    let action =
                        "create a container (which needs ZooKeeper 3.5.3 or later; see Options::with_parents) at";
                    return Err(Error::refused(action, path, error).into());
                }
                error => return Err(refused("create", path, error)),
            }
        }
        Ok(Remedy::OtherParents)
    }
}

pub(super) fn has_containers(guesses: &[Containers]) -> bool {
    guesses.iter().any(|containers| !containers.is_empty())
}

/// The error of a path that is not to be created.
pub(crate) fn must_exist(path: &str) -> Error {
    Error::invalid(
        "lock path",
        format!("{path:?} does not exist, and the options leave it to you; create it first"),
    )
}

/// Those of `paths` that do not exist.
async fn find_missing(zk: &ServerSession, paths: Vec<String>) -> Result<BTreeSet<String>, Interrupt> {
    let looks = paths.iter().map(|path| zk.retry(|| zk.stat(path)));
    let mut missing = BTreeSet::new();
    for (path, found) in paths.iter().zip(join_all(looks).await) {
        let is_there = is_there(found?).map_err(|error| Error::refused("look at", path, error))?;
        if !is_there {
            missing.insert(path.clone());
        }
    }
    Ok(missing)
}

/// Whether a node is there, by the answer to a look at it.
fn is_there(found: Result<Option<Stat>, ZkError>) -> Result<bool, ZkError> {
    match found {
        // Newer servers refuse to show a node that may not be read, and so show that it is there.
        Err(ZkError::NoAuth) => Ok(true),
        found => found.map(|stat| stat.is_some()),
    }
}

fn refused(action: &'static str, path: &str, error: ZkError) -> Interrupt {
    if error == ZkError::NoChildrenForEphemerals {
        let reason = format!("{path:?} or an ancestor of it is an ephemeral node, which can have no children");
        return Error::invalid("lock path", reason).into();
    }
    Error::refused(action, path, error).into()
}
