//! Owns [`Log`]: what the ensemble has committed, of which each server shows a prefix.
//!
//! 1. The history is kept as the lives of nodes: who created one, in which transaction, and in which it went.
//! 2. A server that has applied the log up to `seen` shows the nodes that were there then.
//! 3. The position in a listing is computed by the crate's own `queue/order`.

use std::cell::RefCell;
use std::collections::HashMap;

use arrayvec::ArrayVec;

use crate::order::{self, Czxids, Kind};

/// The number of a transaction that changed the tree; 0 stands for none.
pub(crate) type Zxid = u8;

/// The owner of a node that somebody put in by hand.
pub(crate) const NOBODY: u8 = u8::MAX;

/// The most nodes that are remembered.
pub(crate) const NODES: usize = 16;

/// How the life of a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Stands,
    /// Its session deleted it.
    Owner,
    /// An operator deleted it.
    Hand,
    /// It went with its session.
    Session,
}

/// A node under the lock's path. Its `created` is its czxid, and its name in this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) created: Zxid,
    /// The transaction that deleted it; 0 while it stands.
    pub(crate) deleted: Zxid,
    pub(crate) end: End,
    /// Its deletion fires no event: READ was taken from it before.
    pub(crate) unseen: bool,
    /// The index of the session, and which of its lives.
    pub(crate) owner: u8,
    pub(crate) life: u8,
    /// The guid in its name: the task and its acquisition.
    pub(crate) task: u8,
    pub(crate) acquisition: u8,
    pub(crate) kind: Kind,
    /// The digits of its name.
    pub(crate) number: u8,
    /// The parent's count of creates before it.
    pub(crate) count: u8,
    /// Which incarnation of the path it is in.
    pub(crate) path: u8,
    /// Its owner wants it deleted. Only the owner's session looks at this.
    pub(crate) given_up: bool,
    /// A server has refused to delete it.
    pub(crate) undeletable: bool,
}

impl Node {
    pub(crate) fn stands(&self) -> bool {
        self.deleted == 0
    }

    pub(crate) fn stands_at(&self, seen: Zxid) -> bool {
        self.created <= seen && (self.deleted == 0 || self.deleted > seen)
    }
}

/// The path was deleted and made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Remake {
    pub(crate) at: Zxid,
    pub(crate) unseen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    /// The last transaction.
    pub(crate) end: Zxid,
    /// The incarnation of the path, and how many creates it has counted.
    pub(crate) path: u8,
    pub(crate) counter: u8,
    /// In the order of their creation.
    pub(crate) nodes: ArrayVec<Node, NODES>,
    pub(crate) remakes: ArrayVec<Remake, 2>,
}

/// What the Stat of the path shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathStat {
    pub(crate) creates: u8,
    pub(crate) children: u8,
    pub(crate) pzxid: Zxid,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { end: 0, path: 0, counter: 0, nodes: ArrayVec::new(), remakes: ArrayVec::new() }
    }

    pub(crate) fn node(&self, created: Zxid) -> Option<&Node> {
        self.nodes.iter().find(|node| node.created == created)
    }

    pub(crate) fn node_mut(&mut self, created: Zxid) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.created == created)
    }

    /// Appends the create of a node, with the next number if it has none; returns its czxid.
    pub(crate) fn create(&mut self, node: Node) -> Zxid {
        self.end += 1;
        self.nodes.push(Node { created: self.end, count: self.counter, path: self.path, ..node });
        self.counter += 1;
        self.end
    }

    /// Appends the deletion of a node; `false` if it does not stand.
    pub(crate) fn delete(&mut self, created: Zxid, end: End, unseen: bool) -> bool {
        let next = self.end + 1;
        let Some(node) = self.node_mut(created).filter(|node| node.stands()) else {
            return false;
        };
        (node.deleted, node.end, node.unseen) = (next, end, unseen);
        self.end = next;
        true
    }

    /// Appends the end of a session, with which all its nodes go; returns the transaction.
    pub(crate) fn close(&mut self, owner: u8, life: u8) -> Zxid {
        self.end += 1;
        let end = self.end;
        let own = |node: &&mut Node| node.owner == owner && node.life == life && node.stands();
        self.nodes.iter_mut().filter(own).for_each(|node| (node.deleted, node.end) = (end, End::Session));
        end
    }

    /// Appends the deletion of the empty path, and that somebody makes it again.
    pub(crate) fn remake(&mut self, unseen: bool) {
        self.end += 1;
        self.path += 1;
        self.counter = 0;
        self.remakes.push(Remake { at: self.end, unseen });
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.nodes.iter().any(Node::stands)
    }

    /// The Stat of the path on a server that has applied the log up to `seen`.
    pub(crate) fn stat(&self, seen: Zxid) -> PathStat {
        let made = self.remakes.iter().filter(|remake| remake.at <= seen);
        let path = made.clone().count() as u8;
        let here = self.nodes.iter().filter(|node| node.path == path && node.created <= seen);
        let changes = here.clone().flat_map(|node| [node.created, node.deleted]).filter(|&at| at <= seen);
        PathStat {
            creates: here.clone().map(|node| node.count + 1).max().unwrap_or_default(),
            children: here.clone().filter(|node| node.stands_at(seen)).count() as u8,
            pzxid: changes.chain(made.map(|remake| remake.at)).max().unwrap_or_default(),
        }
    }
}

/// The position of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Granted,
    Behind { predecessor: Zxid, ahead: u8 },
    Unlisted,
}

/// What identifies a listing to the rule: kinds, numbers and the index of our own node.
type Key = (ArrayVec<(Kind, u8), NODES>, usize);

/// The index of the predecessor and how many are ahead, if any are; or that there is no position.
type Answer = Result<Option<(usize, u8)>, ()>;

thread_local! {
    /// The rule is pure, and asked for the same few queues millions of times.
    static POSITIONS: RefCell<HashMap<Key, Answer>> = RefCell::default();
}

/// The position of `mine` in a listing, by the crate's own rule.
pub(crate) fn position(listing: &[Node], mine: Zxid) -> Position {
    let Some(own) = listing.iter().position(|node| node.created == mine) else {
        return Position::Unlisted;
    };
    let key: Key = (listing.iter().map(|node| (node.kind, node.number)).collect(), own);
    let found = POSITIONS.with_borrow_mut(|known| *known.entry(key).or_insert_with_key(ask));
    match found {
        Ok(None) => Position::Granted,
        Ok(Some((index, ahead))) => Position::Behind { predecessor: listing[index].created, ahead },
        Err(()) => Position::Unlisted,
    }
}

fn ask((listing, own): &Key) -> Answer {
    let name =
        |(index, (kind, number)): (usize, &(Kind, u8))| format!("_c_{index:036}{}{number:010}", kind.separator());
    let names: Vec<_> = listing.iter().enumerate().map(name).collect();
    match order::position(&names, &names[*own], &Czxids::new()) {
        Ok(order::Position::Granted) => Ok(None),
        Ok(order::Position::Behind { predecessor, ahead }) => {
            let index = names.iter().position(|name| *name == predecessor).expect("it is listed");
            Ok(Some((index, ahead as u8)))
        }
        Ok(order::Position::Full { .. }) | Err(_) => Err(()),
    }
}
