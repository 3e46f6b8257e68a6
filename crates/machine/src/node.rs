//! Creates the nodes of an acquisition together, and deletes nodes until they are certainly gone.

use std::sync::Arc;

use crate::{
    Acquisition, Admission, Ask, Counted, End, GrantedBy, Kind, Loss, Machine, Moment, Name, Op, Outcome, Path,
    PathState, Phase, Position, Spec, Trust, Untracked, caller_of, turn_of,
};

/// The state of an acquisition's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// There are no nodes: no create was sent, the create was lost, or the nodes are being deleted.
    None,
    /// The create is under way. `guid`: that of the first node.
    Sending { guid: u128 },
    /// The nodes are there, and each queue has the name of its node.
    There,
}

/// The nodes that one transaction checks or deletes.
pub type Nodes = Arc<[(Path, Name)]>;

/// The key of a node in a map. The acquisition comes first, so that all its nodes are adjacent.
pub type OpNode = (Op, Path, Name);

pub fn op_node((path, name): (Path, Name)) -> OpNode {
    (name.guid_op(), path, name)
}

/// Returns the least key that a node of an acquisition may have.
fn first_of(op: Op) -> OpNode {
    (op, Path::MIN, Name { number: i32::MIN, guid: 0, kind: Kind::Lock })
}

/// A node that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PendingDelete {
    /// Whether an earlier request with an unknown outcome may have deleted the node.
    pub may_be_done: bool,
    pub is_sent: bool,
    /// Whether a release deletes the node. A release ends with the answer to its last delete.
    pub releases: bool,
    /// The guid of the reader's node, if a downgrade of this node is under way. The answer to the downgrade decides
    /// what becomes of the reader's node.
    pub replaced_by: Option<u128>,
}

/// The bits of a nonce that differ between the sessions of one unique name.
const LIFE: u64 = 0xfff;

/// The bits of a nonce in which its UUIDs have their version, and the version of nonces with a unique name. Random nonces
/// have version 4.
const VERSION: u64 = 0xf000;
const NAMED: u64 = 0x8000;

/// Returns the nonce of a session with a unique name.
#[must_use]
pub fn named_nonce(hash: u64, random: u64) -> u64 {
    hash & !(VERSION | LIFE) | NAMED | random & LIFE
}

impl Name {
    /// Returns the acquisition that created the node, if it is a node of this session.
    pub fn guid_op(self) -> Op {
        (self.guid >> 32) as Op
    }
}

impl Acquisition {
    pub fn nodes(&self) -> Nodes {
        self.queues.iter().filter_map(|queue| Some((queue.path, queue.name?))).collect()
    }
}

impl<T: Trust> Machine<T> {
    /// Returns the guid for the next create of an acquisition or its turn. Both are numbered together, because an
    /// acquisition may have several turns.
    pub(crate) fn next_guid(&mut self, op: Op) -> Option<u128> {
        let acquisition = self.ops.get_mut(&caller_of(op))?;
        let attempt = acquisition.attempt;
        acquisition.attempt = attempt.wrapping_add(1);
        Some(u128::from(self.nonce) << 64 | u128::from(op) << 32 | u128::from(attempt) << 16)
    }

    /// Returns the acquisition that a node of this session belongs to.
    pub(crate) fn op_of(&self, path: Path, name: Name) -> Option<Op> {
        let op = name.guid_op();
        let is_own = |acquisition: &Acquisition| match acquisition.node {
            Node::Sending { guid } => guid >> 16 == name.guid >> 16,
            Node::There => {
                acquisition.queues.iter().any(|queue| queue.is_named(path, name))
                    || acquisition.change.guid() == Some(name.guid)
            }
            Node::None => false,
        };
        (self.is_ours(name) && self.op(op).is_some_and(is_own)).then_some(op)
    }

    fn is_ours(&self, name: Name) -> bool {
        name.guid >> 64 == u128::from(self.nonce)
    }

    /// Returns whether another session with our unique name has created a node: this process before it started again, or, by
    /// mistake, another process.
    #[must_use]
    pub fn has_name_of(&self, name: Name) -> bool {
        let nonce = (name.guid >> 64) as u64;
        nonce != self.nonce && self.has_name() && (nonce ^ self.nonce) & !LIFE == 0
    }

    /// Returns whether the session has a unique name.
    pub(crate) fn has_name(&self) -> bool {
        self.nonce & VERSION == NAMED
    }

    /// Returns whether a node is an orphan. The reader's node of a downgrade under way is none: the answer to the downgrade decides.
    pub fn is_orphan(&self, path: Path, name: Name) -> bool {
        let is_awaited =
            || self.deletes_of(name.guid_op()).any(|(_, delete)| delete.replaced_by == Some(name.guid));
        self.is_ours(name) && self.op_of(path, name).is_none() && !is_awaited()
    }

    /// Returns the nodes of an acquisition that are being deleted.
    fn deletes_of(&self, op: Op) -> impl Iterator<Item = (&OpNode, &PendingDelete)> {
        self.deletes.range(first_of(op)..).take_while(move |((of, ..), _)| *of == op)
    }

    /// Returns whether deletes of an acquisition's nodes, or of its turn's node, are pending or were refused.
    pub fn has_deletes(&self, op: Op) -> bool {
        let is_refused = |op| self.refused.range(first_of(op)..).next().is_some_and(|(of, ..)| *of == op);
        [op, turn_of(op)].into_iter().any(|op| is_refused(op) || self.deletes_of(op).next().is_some())
    }

    pub fn is_deleting(&self, node: (Path, Name)) -> bool {
        self.deletes.contains_key(&op_node(node))
    }

    /// Returns whether a delete of the node was refused.
    pub fn is_refused(&self, node: (Path, Name)) -> bool {
        self.refused.contains(&op_node(node))
    }

    /// Returns the nodes that are being deleted, and those whose deletes were refused.
    pub(crate) fn nodes_to_delete(&self) -> impl Iterator<Item = (Path, Name)> {
        self.deletes.keys().chain(&self.refused).map(|(_, path, name)| (*path, *name))
    }

    pub fn created(&mut self, now: Moment, op: Op, spec: &Spec, guid: u128, is_fresh: bool, outcome: Outcome) {
        let granted = match &outcome {
            Outcome::Created { counted: Some(counted), .. } => Some(spec.is_granted_by(*counted)),
            _ => None,
        };
        for (path, _) in &spec.queues {
            let state = self.create_answered(*path);
            if let Some(granted) = granted.filter(|_| is_fresh) {
                // The transaction has set the path's data to empty, or created the path.
                (state.has_no_data, state.is_contended) = (true, !granted);
            }
            state.is_refused |= outcome == Outcome::DataRefused;
            state.has_no_data &= outcome != Outcome::NoNode;
        }
        // The nodes may appear later, so search for them.
        if matches!(outcome, Outcome::Unknown | Outcome::UnknownError) {
            spec.queues.iter().for_each(|(path, _)| self.search_soon(now, *path));
        }
        let acquisition = self.ops.get_mut(&op).filter(|acquisition| acquisition.node == Node::Sending { guid });
        match (outcome, acquisition) {
            (Outcome::Created { names, czxid, .. }, Some(acquisition)) => {
                for (queue, name) in acquisition.queues.iter_mut().zip(names.iter()) {
                    queue.name = Some(*name);
                }
                (acquisition.node, acquisition.czxid, acquisition.lost, acquisition.creates_parents) =
                    (Node::There, Untracked(czxid), 0, false);
                acquisition.phase = Phase::Waiting;
                match granted {
                    Some(true) => {
                        acquisition.queues.iter_mut().for_each(|queue| queue.position = Position::First);
                        acquisition.granted_by = Untracked(GrantedBy::Counted);
                        self.grant_or_confirm(now, op, is_fresh);
                    }
                    _ if acquisition.is_in_one_request() => self.take_turn(now, op),
                    _ => self.request_listings(op),
                }
            }
            (Outcome::Created { names, .. }, None) => {
                let nodes = spec.queues.iter().map(|(path, _)| *path).zip(names.iter().copied()).collect();
                self.delete(nodes, false);
            }
            (_, None) => {}
            (Outcome::Unknown, _) => self.create_was_lost(now, op),
            (Outcome::DataRefused, Some(acquisition)) => {
                acquisition.node = Node::None;
                self.send_create(now, op);
            }
            // A path is missing, so its children cannot be counted.
            (Outcome::NoNode, Some(acquisition)) if acquisition.is_in_one_request() => self.take_turn(now, op),
            (Outcome::NoNode, Some(acquisition)) => {
                (acquisition.node, acquisition.creates_parents) = (Node::None, true);
                self.send_create(now, op);
            }
            _ => self.finish(now, op, End::Refused),
        }
    }

    /// Notes that a create in this path was answered, or lost.
    pub(crate) fn create_answered(&mut self, path: Path) -> &mut PathState {
        let state = self.paths.entry(path).or_default();
        state.creating = state.creating.saturating_sub(1);
        state
    }

    /// Deletes nodes. Sends the delete again until a server answers that the nodes are gone, or refuses it.
    pub fn delete(&mut self, mut nodes: Nodes, releases: bool) {
        if nodes.iter().any(|node| self.is_deleting(*node)) {
            nodes = nodes.iter().filter(|node| !self.is_deleting(**node)).copied().collect();
        }
        let Some(op) = nodes.first().map(|(_, name)| name.guid_op()) else { return };
        let is_sent = self.is_up;
        // A downgrade with an unknown outcome may have deleted the writer's node.
        let change = self.ops.get(&op).map(|acquisition| acquisition.change).unwrap_or_default();
        let (may_be_done, replaced_by) = (change.is_lost(), change.guid().filter(|_| change.is_sending()));
        for node in nodes.iter() {
            self.deletes.insert(op_node(*node), PendingDelete { may_be_done, is_sent, releases, replaced_by });
        }
        if is_sent {
            self.send(Ask::Delete { op, nodes });
        }
    }

    pub fn deleted(&mut self, now: Moment, nodes: &Nodes, outcome: &Outcome) {
        let is_alone = nodes.len() == 1;
        let mut ended = None;
        for node in nodes.iter().copied().map(op_node) {
            let Some(delete) = self.deletes.get_mut(&node) else { continue };
            match outcome {
                Outcome::Unknown => (delete.may_be_done, delete.is_sent) = (true, false),
                // One of the nodes made the transaction fail, so delete them one by one.
                Outcome::NoNode | Outcome::Refused if !is_alone => delete.is_sent = false,
                _ => {
                    ended = delete.releases.then_some((node.0, delete.may_be_done));
                    self.deletes.remove(&node);
                    if *outcome == Outcome::Refused {
                        self.refused.insert(node);
                    } else {
                        self.refused.remove(&node);
                    }
                }
            }
        }
        if *outcome == Outcome::Unknown {
            return self.pause(now);
        }
        if self.is_up && !is_alone && matches!(outcome, Outcome::NoNode | Outcome::Refused) {
            self.delete_again();
        }
        let Some((op, may_be_done)) = ended else { return };
        let is_trusted = self.is_trusted(now);
        let Some(acquisition) = self.ops.get_mut(&op).filter(|acquisition| acquisition.phase == Phase::Releasing)
        else {
            return;
        };
        match outcome {
            // After a delete with an unknown outcome, that delete may have removed the node. So this is no loss.
            Outcome::NoNode if !may_be_done => acquisition.released = End::Lost(Loss::Deleted),
            Outcome::NoNode if !is_trusted => acquisition.released = End::Lost(Loss::TrustEnded),
            Outcome::Refused => acquisition.released = End::Refused,
            _ => {}
        }
        // The release ends when its last node is gone.
        let end = acquisition.released;
        if !self.deletes_of(op).any(|(_, delete)| delete.releases) {
            self.finish(now, op, end);
        }
    }

    /// Retries the deletes that were refused, because ACLs may allow them now.
    pub(crate) fn delete_refused(&mut self) {
        let refused: Vec<_> = self.refused.iter().copied().collect();
        refused.into_iter().for_each(|(_, path, name)| self.delete([(path, name)].into(), false));
    }

    /// Sends again the deletes that were not sent, or were lost.
    pub(crate) fn delete_again(&mut self) {
        let mut asks = Vec::new();
        for ((op, path, name), delete) in self.deletes.iter_mut().filter(|(_, delete)| !delete.is_sent) {
            delete.is_sent = true;
            asks.push(Ask::Delete { op: *op, nodes: [(*path, *name)].into() });
        }
        asks.into_iter().for_each(|ask| self.send(ask));
    }
}

impl Spec {
    /// Returns whether the answer to the create alone grants the lock.
    pub(crate) fn is_granted_by(&self, counted: Counted) -> bool {
        match self.admission {
            Admission::First => counted.others == 0,
            Admission::Permits { limit, .. } => {
                let own = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
                counted.turns == 0 && counted.others.saturating_add(own) <= limit
            }
        }
    }
}
