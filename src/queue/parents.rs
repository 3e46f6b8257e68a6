//! Owns the making of lock paths that are missing, together with the nodes of an acquisition.
//!
//! 1. The missing containers and the nodes are created in one transaction. One that is refused makes nothing; one that is
//!    done puts a child into every container. The server removes a container that has become empty, but never one that has
//!    not had a child.
//! 2. Which containers are missing is guessed: one transaction for each depth goes out in one burst, of which only the one
//!    that fits the servers' state can be done.
//! 3. Lines may be missing to different depths, where no guess fits. So where several are missing, the same burst asks
//!    which of their ancestors are there, and the next one creates what is not. Where guessing would take too many bytes,
//!    a burst that only asks comes first.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::Stat;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::queue::attempt::Interrupt;
use crate::queue::line::Line;
use crate::session::{Answer, Failure, Link, Names, Refusal};

type ZkError = zookeeper_client::Error;

/// A request to a server may have a megabyte (`jute.maxbuffer`), less what surrounds it.
pub(super) const MAX_REQUEST_BYTES: usize = 1_000_000;

/// What all guesses of one burst may have together, in bytes.
const MAX_GUESSED_BYTES: usize = 2 * MAX_REQUEST_BYTES;

/// What a transaction creates before its nodes, ancestors first.
pub(super) type Containers = Vec<String>;

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Plan {
    /// The containers to create with the nodes: one transaction for each guess, in this order.
    pub(super) guesses: Vec<Containers>,
    /// What to look at after that.
    pub(super) asked: Vec<String>,
}

/// Answers that tell which paths are there.
pub(super) type Looks = Vec<(String, Answer<Option<Stat>>)>;

/// Listings that are under way, each with the index of its line.
pub(super) type Listings = Vec<(usize, Answer<Names>)>;

/// The missing parents of the lines of one acquisition, as far as they are known.
#[derive(Debug)]
pub(super) struct Parents<'a> {
    lines: &'a [Line],
    options: &'a Options,
    /// The bytes of the nodes in a request.
    node_bytes: usize,
    /// The lines that were missing when somebody looked.
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
    /// the one before.
    Search,
}

impl<'a> Parents<'a> {
    pub(super) fn new(lines: &'a [Line], options: &'a Options, node_bytes: usize) -> Self {
        let (missing, absent) = (BTreeSet::new(), BTreeSet::new());
        Self { lines, options, node_bytes, missing, absent, found: None, has_guessed: false, asks: false }
    }

    /// The bytes of a transaction that creates the nodes and these containers.
    pub(super) fn request_bytes<'p>(&self, link: &Link, containers: impl IntoIterator<Item = &'p str>) -> usize {
        let cost = |path: &str| link.cost(path.len()) + self.options.container_bytes();
        self.node_bytes + containers.into_iter().map(cost).sum::<usize>()
    }

    /// What to create with the nodes.
    pub(super) async fn plan(&mut self, link: &Arc<Link>) -> Result<Plan, Interrupt> {
        self.absent.clear();
        self.asks = false;
        if let Some(found) = self.found.take() {
            return Ok(self.exactly(link, found)?);
        }
        if self.missing.is_empty() {
            return Ok(Plan { guesses: vec![Vec::new()], asked: Vec::new() });
        }
        let lineages: Vec<Vec<_>> =
            self.missing.iter().map(|index| self.lines[*index].path.lineage().collect()).collect();
        let all: BTreeSet<_> = lineages.iter().flatten().copied().collect();
        let depth = lineages.iter().map(Vec::len).max().unwrap_or_default();
        let bytes = self.request_bytes(link, all.iter().copied());
        // If the one line that was missing has changed meanwhile, the next guesses fit; several may never fit any.
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
            // The listings tell of the ends, and for one line the guesses tell all.
            let ends: BTreeSet<_> = lineages.iter().filter_map(|lineage| lineage.last().copied()).collect();
            self.asks = ends.len() > 1;
            let asked = all.difference(&ends).filter(|_| self.asks).map(|path| (*path).to_owned()).collect();
            return Ok(Plan { guesses, asked });
        }
        let found = find_missing(link, all.into_iter().map(str::to_owned).collect()).await?;
        Ok(self.exactly(link, found)?)
    }

    fn exactly(&mut self, link: &Link, found: BTreeSet<String>) -> Result<Plan> {
        let bytes = self.request_bytes(link, found.iter().map(String::as_str));
        if !found.is_empty() && bytes > MAX_REQUEST_BYTES {
            let reason = format!(
                "{} missing paths are created in one request with the nodes, of about {bytes} bytes; \
                 {MAX_REQUEST_BYTES} are the most (a server's jute.maxbuffer); create the paths first, or take fewer",
                found.len()
            );
            return Err(Error::invalid("lock path", reason));
        }
        let plan = Plan { guesses: vec![found.iter().cloned().collect()], asked: Vec::new() };
        self.absent = found;
        Ok(plan)
    }

    /// Takes note of what is missing after a burst in which no guess has fitted.
    pub(super) async fn look_around(&mut self, looks: Looks, listings: Listings) {
        let (mut found, mut is_known) = (BTreeSet::new(), self.asks);
        for (path, look) in looks {
            match is_there(look.await) {
                Ok(true) => {}
                Ok(false) => drop(found.insert(path)),
                Err(_) => is_known = false,
            }
        }
        for (index, listing) in listings {
            if !is_known && self.missing.contains(&index) {
                continue;
            }
            match listing.await {
                Err(Failure::Refused(ZkError::NoNode)) => {
                    self.missing.insert(index);
                    found.insert(self.lines[index].path.as_str().to_owned());
                }
                Ok(_) | Err(Failure::Refused(_)) => {}
                Err(Failure::Unknown | Failure::Over) => is_known = false,
            }
        }
        self.found = is_known.then_some(found);
    }

    /// What to do when all `guesses` were refused; an error if nothing helps. `line_of` is the line of a node.
    pub(super) fn judge(
        &mut self,
        guesses: &[Containers],
        refusals: Vec<Refusal>,
        line_of: impl Fn(usize) -> usize,
    ) -> Result<Remedy, Interrupt> {
        // The server looks for the parent first, then at its ACL, then for the node itself. So a guess that creates too
        // little finds no parent, and one that creates too much finds a node or, if it may not write there, no permission.
        for (containers, Refusal { index, error }) in guesses.iter().zip(refusals) {
            let Some(path) = containers.get(index) else {
                let line = line_of(index - containers.len());
                let path = self.lines[line].path.as_str();
                match error {
                    ZkError::NoNode => {
                        self.absent.insert(path.to_owned());
                        self.missing.insert(line);
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
                    let action = "create a container (which needs ZooKeeper 3.5.3 or later) at";
                    return Err(Error::refused(action, path, error).into());
                }
                error => return Err(refused("create", path, error)),
            }
        }
        Ok(Remedy::OtherParents)
    }
}

/// Those of `paths` that do not exist.
async fn find_missing(link: &Arc<Link>, paths: Vec<String>) -> Result<BTreeSet<String>, Interrupt> {
    'again: loop {
        link.connected().await?;
        let looked = join_all(paths.iter().map(|path| {
            let path = path.clone();
            link.ask(move |requests| requests.stat(&path))
        }));
        let mut missing = BTreeSet::new();
        for (path, found) in paths.iter().zip(looked.await) {
            match is_there(found) {
                Ok(true) => {}
                Ok(false) => drop(missing.insert(path.clone())),
                Err(Failure::Refused(error)) => return Err(Error::refused("look at", path, error).into()),
                Err(Failure::Unknown) => {
                    link.settled().await?;
                    continue 'again;
                }
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
        return Ok(missing);
    }
}

/// Whether a node is there, by the answer to a look at it.
fn is_there(found: Result<Option<Stat>, Failure>) -> Result<bool, Failure> {
    match found {
        // Newer servers refuse to tell of a node that may not be read, and so tell that it is there.
        Err(Failure::Refused(ZkError::NoAuth)) => Ok(true),
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
