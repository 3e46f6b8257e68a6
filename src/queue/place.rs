//! Owns [`Place`]: our place in one queue, or in several at once, from before its nodes are created until it is granted.
//!
//! In several queues a place is one node in each, all created in one transaction; among the holders of a semaphore it is one
//! node for each permit.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{join, join_all};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::queue::order::{Czxids, Position, Undecided, position};
use crate::queue::parents::{Containers, Parents, Remedy};
use crate::queue::{Admission, Queue, ZkError, leave_out, watch};
use crate::session::Moment;
use crate::session::{
    Created, Failure, Interrupt, Names, NewNode, OwnNode, OwnNodes, Phase, Reserved, ServerSession, SessionOver,
    delete_abandoned, delete_in_background,
};

/// Empty containers vanish at any moment, so a missing parent is created again; but not for ever.
const MAX_ROUNDS: usize = 64;

/// How often a large request may lose the connection before it is taken for the cause.
const MAX_LOST: usize = 10;

/// More than this, in bytes, may be too large for a server that was set to take less than usual.
const LARGE: usize = 16 * 1024;

/// Our place in one queue, or in several at once. Dropping it leaves the queues, whatever is under way.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(super) nodes: OwnNodes,
    pub(super) waiters: Vec<Waiter<'a>>,
    options: &'a Options,
}

const TOO_LARGE: &str = "create nodes (the request may exceed the servers' jute.maxbuffer) under";

/// A place in one queue.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    pub(super) queue: &'a Queue,
    /// As far as is known.
    position: Option<Position>,
    czxids: Czxids,
}

impl<'a> Place<'a> {
    /// Prepares a place; nothing is sent.
    pub(crate) fn new(zk: &Arc<ServerSession>, queues: &'a [Queue], options: &'a Options) -> Result<Self> {
        let all = queues.iter().flat_map(|queue| std::iter::repeat_n(queue, queue.width()));
        let new = all.map(|queue| NewNode {
            parent: &queue.path,
            suffix: queue.kind().separator(),
            removes: &queue.removes,
        });
        let nodes = OwnNodes::prepare(zk, options, new)?;
        let waiters = queues.iter().map(|queue| Waiter { queue, position: None, czxids: Czxids::new() });
        Ok(Self { nodes, waiters: waiters.collect(), options })
    }

    pub(crate) fn into_nodes(self) -> OwnNodes {
        self.nodes
    }

    /// The paths of the nodes, and the transactions that created them.
    pub(crate) fn paths(&self) -> Vec<(String, i64)> {
        self.nodes.paths()
    }

    pub(crate) fn zk(&self) -> &Arc<ServerSession> {
        self.nodes.zk()
    }

    /// The index of the queue of a node.
    pub(super) fn queue_of(&self, node: usize) -> usize {
        // Several nodes are in one queue only if there is no other.
        node.min(self.waiters.len() - 1)
    }

    /// Our nodes in a queue.
    fn own(&self, queue: usize) -> impl Iterator<Item = &OwnNode> {
        let nodes = self.nodes.as_slice().iter().enumerate();
        nodes.filter(move |(node, _)| self.queue_of(*node) == queue).map(|(_, node)| node)
    }

    /// The bytes of a request that creates the nodes.
    fn request_bytes(&self) -> usize {
        let bytes = |path: &str| self.zk().cost(path.len() + "0123456789".len()) + self.options.request_bytes();
        self.nodes.as_slice().iter().map(|node| bytes(node.path())).sum()
    }

    /// Creates the nodes and lists the queues: one round trip, two where parents are missing, more if a create is refused or its
    /// outcome is unknown.
    ///
    /// # Cancel safety
    ///
    /// What is under way belongs to the nodes, which the place owns.
    pub(crate) async fn enter(&mut self) -> Result<Position, Interrupt> {
        let zk = self.zk().clone();
        let queues: Vec<_> = self.waiters.iter().map(|waiter| waiter.queue).collect();
        let mut parents = None;
        let (mut rounds, mut lost) = (0, 0);
        while rounds < MAX_ROUNDS {
            zk.connected().await?;
            // The nodes are registered by now. A close that begins later waits for them.
            if zk.phase() != Phase::Open {
                return Err(SessionOver.into());
            }
            let (guesses, looks) = match &mut parents {
                Some(parents) => Parents::plan(parents, &zk).await?,
                // Mostly the parents are there.
                None => (vec![Containers::new()], Vec::new()),
            };
            // The creates are sent before the listings, which therefore contain the nodes. All travel together unless four
            // listings of a path are under way.
            self.nodes.create(guesses.clone());
            let stats: Vec<_> = looks.iter().map(|path| zk.stat(path)).collect();
            // Their answers come last, so the caller need not be woken before.
            let listings = join_all(queues.iter().map(|queue| zk.list(&queue.path))).await;
            match self.nodes.created().await {
                Ok(Ok(())) => return self.judge_all(listings).await,
                Ok(Err(refusals)) => {
                    rounds += 1;
                    let bytes = || self.request_bytes();
                    let parents = parents.get_or_insert_with(|| Parents::new(&queues, self.options, bytes()));
                    match parents.judge(&guesses, refusals, |node| self.queue_of(node))? {
                        Remedy::OtherParents => {
                            parents.look_around(looks, join_all(stats).await, listings);
                            continue;
                        }
                        Remedy::Search => {}
                    }
                }
                Err(Failure::Unknown) => {
                    lost += 1;
                    // The last guess is the largest.
                    let last = guesses.last().into_iter().flatten();
                    let bytes = Parents::new(&queues, self.options, self.request_bytes());
                    if lost > MAX_LOST && bytes.request_bytes(&zk, last.map(String::as_str)) > LARGE {
                        return Err(
                            Error::refused(TOO_LARGE, queues[0].path.as_str(), ZkError::ConnectionLoss).into()
                        );
                    }
                    zk.reconnected().await?;
                }
                Err(Failure::SessionOver | Failure::Refused(_)) => return Err(SessionOver.into()),
            }
            if self.recover().await? {
                return self.judge_all(Vec::new()).await;
            }
        }
        Err(Error::refused("keep the parents of", queues[0].path.as_str(), ZkError::NoNode).into())
    }

    /// Looks at the position again, in the queues in which it was not granted yet.
    pub(crate) async fn look(&mut self) -> Result<Position, Interrupt> {
        let zk = self.zk().clone();
        for waiter in &mut self.waiters {
            waiter.position.take_if(|position| *position != Position::Granted);
        }
        zk.connected().await?;
        // Whether trust lasts long enough for one renewal.
        let needed = Moment::now().plus(zk.timeout() / 3);
        if zk.ledger().until(self.options.trust()) > needed {
            return self.judge_all(Vec::new()).await;
        }
        // A session that is not trusted any more proves itself at the same time, once for all that look.
        let proof = zk.check_session();
        let (proof, listings) = join(proof, self.list()).await;
        if let Err(Failure::SessionOver) = proof {
            return Err(SessionOver.into());
        }
        self.judge_all(listings).await
    }

    /// Lists the queues of which the position is not known.
    fn list(&self) -> impl Future<Output = Vec<Result<Arc<Names>, Failure>>> + use<> {
        let unknown = self.waiters.iter().filter(|waiter| waiter.position.is_none());
        join_all(unknown.map(|waiter| self.zk().list(&waiter.queue.path)).collect::<Vec<_>>())
    }

    /// Judges listings of the queues of which the position is not known; lists again until all are known.
    async fn judge_all(&mut self, mut listings: Vec<Result<Arc<Names>, Failure>>) -> Result<Position, Interrupt> {
        let zk = self.zk().clone();
        loop {
            let unknown: Vec<_> =
                (0..self.waiters.len()).filter(|queue| self.waiters[*queue].position.is_none()).collect();
            if unknown.is_empty() {
                return Ok(self.position());
            }
            let mut lost = false;
            for (queue, listing) in unknown.into_iter().zip(listings) {
                match listing {
                    Ok(names) => self.judge(queue, &names).await?,
                    Err(Failure::Unknown) => lost = true,
                    Err(Failure::SessionOver) => return Err(SessionOver.into()),
                    Err(Failure::Refused(ZkError::NoNode)) => self.missing(queue).await?,
                    Err(Failure::Refused(error)) => {
                        return Err(Error::refused("list", self.waiters[queue].queue.path.as_str(), error).into());
                    }
                }
            }
            if lost {
                // Once for all queues: a lost connection loses the listings of thousands at a time.
                zk.reconnected().await?;
            }
            listings = self.list().await;
        }
    }

    /// The position in the first queue in which it is not granted.
    fn position(&self) -> Position {
        let positions = self.waiters.iter().filter_map(|waiter| waiter.position.clone());
        positions.into_iter().find(|position| *position != Position::Granted).unwrap_or(Position::Granted)
    }

    /// The largest number of predecessors in any of the queues.
    pub(crate) fn ahead(&self) -> usize {
        let ahead = self.waiters.iter().map(|waiter| match waiter.position {
            Some(Position::Behind { ahead, .. }) => ahead,
            Some(Position::Full { excess }) => excess,
            Some(Position::Granted) | None => 0,
        });
        ahead.max().unwrap_or_default()
    }

    /// Sets the position in a queue from a listing; leaves it unknown if our node is not listed. Fails if a quorum misses it.
    async fn judge(&mut self, queue: usize, listing: &Names) -> Result<(), Interrupt> {
        let zk = self.zk().clone();
        let Waiter { queue: Queue { path, admission, .. }, .. } = self.waiters[queue];
        delete_abandoned(&zk, path, listing);
        let mut names = Cow::Borrowed(listing.as_slice());
        self.delete_doubles(queue, &mut names);
        let own: Vec<_> = self.own(queue).filter_map(OwnNode::created).cloned().collect();
        let found = match admission {
            Admission::Room { .. } => {
                let listed: HashSet<_> = names.iter().map(String::as_str).collect();
                if own.iter().all(|node| listed.contains(node.name())) {
                    let excess = self.waiters[queue].queue.excess(names.len());
                    Some(if excess == 0 { Position::Granted } else { Position::Full { excess } })
                } else {
                    None
                }
            }
            Admission::InOrder(_) => loop {
                let name = own.first().map_or("", Created::name);
                let waiter = &mut self.waiters[queue];
                match position(&names, name, &waiter.czxids) {
                    Ok(position) => break Some(position),
                    Err(Undecided::Unlisted) => break None,
                    Err(Undecided::Unordered(mut unknown)) => {
                        let czxids = &mut waiter.czxids;
                        czxids.extend(own.iter().map(|created| (created.name().to_owned(), created.czxid)));
                        unknown.retain(|name| !czxids.contains_key(name));
                        let gone = waiter.queue.read_czxids(&zk, unknown, czxids).await?;
                        leave_out(&mut names, &gone);
                    }
                }
            },
        };
        match found {
            Some(position) => self.waiters[queue].position = Some(position),
            None => self.missing(queue).await?,
        }
        Ok(())
    }

    /// Waits until the predecessor is gone, or may be, or a full queue has changed; with one watch, for which room is `reserved`.
    pub(crate) async fn wait(&mut self, reserved: &mut Option<Reserved>) -> Result<(), Interrupt> {
        let zk = self.zk().clone();
        for Waiter { queue, position, czxids } in &mut self.waiters {
            match position {
                Some(Position::Behind { predecessor, .. }) => {
                    return watch::predecessor(&zk, queue, predecessor, czxids, reserved).await;
                }
                Some(Position::Full { excess }) => return watch::room(&zk, queue, *excess, reserved).await,
                Some(Position::Granted) | None => {}
            }
        }
        Ok(())
    }

    /// Leaves doubles of our own nodes out of a listing, and deletes them.
    fn delete_doubles(&self, queue: usize, names: &mut Cow<'_, [String]>) {
        if !self.nodes.is_uncertain() {
            return;
        }
        let is_double = |name: &&String| self.own(queue).any(|node| node.is_doubled_by(name));
        let doubles: Vec<_> = names.iter().filter(is_double).cloned().collect();
        let path = &self.waiters[queue].queue.path;
        doubles.iter().for_each(|name| delete_in_background(self.zk(), path, name));
        leave_out(names, &doubles);
    }
}
