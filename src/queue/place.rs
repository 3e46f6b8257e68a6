//! Owns [`Place`]: our place in one queue, or in several at once, from before its nodes are created until it is granted.
//!
//! In several queues a place is one node in each, all created in one transaction; among the holders of a semaphore it is one
//! node for each permit.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{join, join_all};

use crate::error::{Error, Result, ZkError};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::order::{Czxids, Kind, Name, Position, Undecided, position};
use crate::queue::parents::{Containers, MissingParents, Remedy, has_containers};
use crate::queue::{Admission, Queue, leave_out};
use crate::session::{
    Alone, Arming, Connection, Created, Failure, Interrupt, Last, Names, NewNode, OwnNode, OwnNodes, Phase,
    ServerSession, SessionOver, delete_in_background,
};

/// Empty containers vanish at any moment, so a missing parent is created again; but not for ever.
const MAX_ROUNDS: usize = 64;

/// How often creates in a row may lose the connection, each after a search that was answered, before they are taken for the
/// cause.
const MAX_LOST: u32 = 10;

/// Our place in one queue, or in several at once. Dropping it leaves the queues, whatever is under way.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(super) nodes: OwnNodes,
    pub(super) waiters: Vec<Waiter<'a>>,
    /// What is known of our last node there.
    last: Option<Last>,
    /// The connection on which the positions were seen, if they were.
    pub(super) connection: Option<Connection>,
    options: &'a Options,
    /// By what it was granted, if it is.
    pub(super) way: Way,
}

/// By what a place is granted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// A listing shows that nobody is ahead.
    Listed,
    /// The stat of the path shows that nobody else is there.
    Alone,
    /// The number that the create returned is the one after our last.
    Undisturbed,
    /// The predecessor, of the same session, has handed the lock over.
    HandedOver,
    /// The predecessor, of another session, was the only one ahead, and was deleted.
    Deleted,
}

/// A place in one queue.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    pub(super) queue: &'a Queue,
    /// As far as is known.
    pub(super) position: Option<Position>,
    pub(super) czxids: Czxids,
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
        let waiters = waiters.collect();
        Ok(Self { nodes, waiters, last: None, connection: None, options, way: Way::Listed })
    }

    pub(crate) fn into_nodes(self) -> OwnNodes {
        self.nodes
    }

    /// The paths of the nodes, and the transactions that created them.
    pub(crate) fn paths(&self) -> Vec<(String, i64)> {
        self.nodes.paths()
    }

    /// The connection on which its position was last seen, as it was then.
    pub(crate) fn seen(&self) -> Option<Connection> {
        self.connection.clone()
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    pub(crate) fn zk(&self) -> &Arc<ServerSession> {
        self.nodes.zk()
    }

    /// The path, if it is the place of a mutex, and of nothing else.
    fn lone_mutex(&self) -> Option<&'a LockPath> {
        match &self.waiters[..] {
            [
                Waiter {
                    queue: Queue { path, admission: Admission::InOrder(Kind::Lock), is_turn: false, .. },
                    ..
                },
            ] => Some(path),
            _ => None,
        }
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
        self.last = self.lone_mutex().and_then(|path| zk.take_last(path));
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
                Some(parents) => Box::pin(MissingParents::plan(parents, &zk)).await?,
                // Mostly the parents are there.
                None => (vec![Containers::new()], Vec::new()),
            };
            let is_first = rounds == 0 && lost == 0;
            let guesses_next = is_first && self.last.as_ref().is_some_and(|last| last.allows_guess(&zk));
            self.connection = Some(zk.connection());
            // The creates are sent before the listings, which therefore contain the nodes. All travel together unless four
            // listings of a path are under way.
            self.nodes.create(guesses.clone());
            let stats: Vec<_> = looks.iter().map(|path| zk.stat(path)).collect();
            let arming = self.last.as_ref().filter(|_| is_first && !guesses_next);
            let arming = arming.and_then(|last| last.arm(&zk, queues[0].path.as_str()));
            let listings = if guesses_next || arming.is_some() {
                Vec::new()
            } else {
                // Their answers come last, so the caller need not be woken before.
                join_all(queues.iter().map(|queue| zk.list(&queue.path))).await
            };
            let created = self.nodes.created().await;
            if created.is_ok() {
                zk.has_answered_create(has_containers(&guesses));
            }
            match created {
                Ok(Ok(())) if self.is_alone(guesses_next, arming).await => return Ok(self.position()),
                Ok(Ok(())) => return self.judge_all(listings).await,
                Ok(Err(refusals)) => {
                    rounds += 1;
                    let bytes = || self.request_bytes();
                    let parents =
                        parents.get_or_insert_with(|| MissingParents::new(&queues, self.options, bytes()));
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
                    if lost > MAX_LOST {
                        let parents = MissingParents::new(&queues, self.options, self.request_bytes());
                        parents.give_up(&zk, &guesses)?;
                    }
                    zk.reconnected(lost).await?;
                }
                Err(Failure::SessionOver | Failure::Refused(_)) => return Err(SessionOver.into()),
            }
            // Rare, as is a missing node, so not every waiter keeps the room for it.
            if Box::pin(self.recover()).await? {
                return self.judge_all(Vec::new()).await;
            }
        }
        Err(Error::refused("keep the parents of", queues[0].path.as_str(), ZkError::NoNode).into())
    }

    /// Whether the answer to the create, or that to the request after it, shows that nobody is ahead of us.
    async fn is_alone(&mut self, guesses: bool, arming: Option<Arming>) -> bool {
        let Some(created) = self.nodes.as_slice()[0].created() else { return false };
        let Some(Name { number, .. }) = Name::parse(created.name()) else { return false };
        let czxid = created.czxid;
        let (way, alone) = match (arming, &mut self.last) {
            (Some(arming), last) => (Way::Alone, Alone::prove(last.as_ref(), arming, number, czxid).await),
            (None, Some(last)) if guesses => (Way::Undisturbed, last.guess(number).await),
            (None, _) => return false,
        };
        let Some(alone) = alone else { return false };
        self.way = way;
        self.nodes.is_alone(alone);
        self.set_position(0, Position::Granted);
        true
    }

    /// Looks at the position again, in the queues in which it was not granted yet.
    pub(crate) async fn look(&mut self) -> Result<Position, Interrupt> {
        let zk = self.zk().clone();
        for waiter in &mut self.waiters {
            waiter.position.take_if(|position| *position != Position::Granted);
        }
        zk.connected().await?;
        self.connection = Some(zk.connection());
        if zk.is_trusted_for_long() {
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

    pub(super) fn set_position(&mut self, queue: usize, position: Position) {
        // A waiter in one queue comes to its front when it is granted; in several it waits in one after the other.
        if position == Position::Granted || self.waiters.len() > 1 {
            let nodes = 0..self.nodes.as_slice().len();
            nodes.filter(|node| self.queue_of(*node) == queue).for_each(|node| self.nodes.placed(node));
        }
        self.waiters[queue].position = Some(position);
    }

    /// Lists the queues of which the position is not known.
    fn list(&self) -> impl Future<Output = Vec<Result<Arc<Names>, Failure>>> + use<> {
        let unknown = self.waiters.iter().filter(|waiter| waiter.position.is_none());
        join_all(unknown.map(|waiter| self.zk().list(&waiter.queue.path)).collect::<Vec<_>>())
    }

    /// Judges listings of the queues of which the position is not known; lists again until all are known.
    async fn judge_all(&mut self, mut listings: Vec<Result<Arc<Names>, Failure>>) -> Result<Position, Interrupt> {
        let zk = self.zk().clone();
        let mut lost = 0;
        loop {
            let unknown: Vec<_> =
                (0..self.waiters.len()).filter(|queue| self.waiters[*queue].position.is_none()).collect();
            if unknown.is_empty() {
                return Ok(self.position());
            }
            let before = lost;
            for (queue, listing) in unknown.into_iter().zip(listings) {
                match listing {
                    Ok(names) => self.judge(queue, &names).await?,
                    Err(Failure::Unknown) => lost = before + 1,
                    Err(Failure::SessionOver) => return Err(SessionOver.into()),
                    Err(Failure::Refused(ZkError::NoNode)) => self.missing(queue).await?,
                    Err(Failure::Refused(error)) => {
                        return Err(Error::refused("list", self.waiters[queue].queue.path.as_str(), error).into());
                    }
                }
            }
            if lost > before {
                // Once for all queues: a lost connection loses the listings of thousands at a time.
                zk.reconnected(lost).await?;
            } else {
                lost = 0;
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
        let Waiter { queue: ours @ Queue { admission, .. }, .. } = self.waiters[queue];
        ours.inspect(&zk, listing).await?;
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
        if found == Some(Position::Granted)
            && names.len() == 1
            && self.lone_mutex().is_some()
            && let Some(name) = own.first().and_then(|created| Name::parse(created.name()))
        {
            self.nodes.is_alone(Alone::listed(self.last.take(), name.number));
        }
        let Some(position) = found else {
            return Box::pin(self.missing(queue)).await;
        };
        self.set_position(queue, position);
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
