//! The ensemble: one log of nodes, of which each client's server has applied a prefix.

use crate::machine::{Admission, Ask, Counted, Kind, Name, Outcome, Path, Watch};

/// A position in the log.
pub(crate) type Zxid = u16;

/// What deleted a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    Nobody,
    Owner,
    Hand,
    Session,
}

/// A node, also one that some servers still show.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Znode {
    pub(crate) path: Path,
    pub(crate) name: Name,
    pub(crate) owner: u64,
    pub(crate) created: Zxid,
    /// 0 while it stands.
    pub(crate) deleted: Zxid,
    pub(crate) by: By,
}

impl Znode {
    pub(crate) fn stands(&self) -> bool {
        self.deleted == 0
    }

    pub(crate) fn stands_at(&self, seen: Zxid) -> bool {
        self.created <= seen && (self.deleted == 0 || self.deleted > seen)
    }

    /// Whether a server that applies the log from one position to another sees it come or go.
    pub(crate) fn changes_between(&self, from: Zxid, to: Zxid) -> bool {
        self.goes_between(from, to) || (self.created > from && self.created <= to)
    }

    /// Whether a watch is on it.
    pub(crate) fn is_of(&self, watch: &Watch) -> bool {
        matches!(*watch, Watch::Predecessor(_, path, name) | Watch::Own(_, path, name) if (path, name) == (self.path, self.name))
    }

    /// Whether a server that applies the log from one position to another sees its deletion.
    pub(crate) fn goes_between(&self, from: Zxid, to: Zxid) -> bool {
        self.deleted > from && self.deleted <= to
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    pub(crate) end: Zxid,
    pub(crate) counter: i32,
    pub(crate) nodes: Vec<Znode>,
}

impl Log {
    /// Commits a write of a session.
    pub(crate) fn commit(&mut self, ask: &Ask, owner: u64) -> Outcome {
        match ask {
            Ask::Create { guid, spec, counts, .. } => {
                self.end += 1;
                let count = |path: Path| u32::try_from(self.standing(path).count()).expect("they are few");
                let mut paths: Vec<Path> = spec.queues.iter().map(|(path, _)| *path).collect();
                paths.dedup();
                let turns = match spec.admission {
                    Admission::Permits { turn: Some(turn), .. } => count(turn),
                    _ => 0,
                };
                let counted = counts.then(|| Counted { others: paths.into_iter().map(count).sum(), turns });
                let mut names = Vec::new();
                for (at, (path, kind)) in spec.queues.iter().enumerate() {
                    let name = Name { number: self.counter, guid: guid + at as u128, kind: *kind };
                    self.counter += 1;
                    names.push(name);
                    self.add(*path, name, owner);
                }
                Outcome::Created { names: names.into(), czxid: i64::from(self.end), owner: Some(owner), counted }
            }
            Ask::Delete { nodes, .. } if self.all_stand(nodes) => {
                // Another session of the same unique name deletes as a hand does.
                let is_own =
                    |(path, name): &(Path, Name)| self.find(*path, *name).is_some_and(|node| node.owner == owner);
                let by = if nodes.iter().all(is_own) { By::Owner } else { By::Hand };
                self.delete(|node| nodes.contains(&(node.path, node.name)), by);
                Outcome::Done
            }
            Ask::Replace { path, name, guid, .. } => {
                let reader = Name { guid: *guid, kind: Kind::Read, ..*name };
                if self.all_stand(&[(*path, reader)]) {
                    return Outcome::Exists;
                }
                if !self.all_stand(&[(*path, *name)]) {
                    return Outcome::NoNode;
                }
                self.delete(|node| (node.path, node.name) == (*path, *name), By::Owner);
                self.add(*path, reader, owner);
                let (names, czxid) = ([reader].into(), i64::from(self.end));
                Outcome::Created { names, czxid, owner: Some(owner), counted: None }
            }
            Ask::Confirm { nodes, .. } if self.all_stand(nodes) => Outcome::Done,
            Ask::Confirm { .. } | Ask::Delete { .. } => Outcome::NoNode,
            _ => Outcome::Done,
        }
    }

    fn add(&mut self, path: Path, name: Name, owner: u64) {
        self.nodes.push(Znode { path, name, owner, created: self.end, deleted: 0, by: By::Nobody });
    }

    fn all_stand(&self, nodes: &[(Path, Name)]) -> bool {
        nodes.iter().all(|(path, name)| self.standing(*path).any(|node| node.name == *name))
    }

    /// Answers a read as a server that has applied the log up to here. `owner`: the session of the connection.
    pub(crate) fn read(&self, ask: &Ask, seen: Zxid, owner: u64) -> Outcome {
        match *ask {
            Ask::List { path, .. } => {
                let there = self.nodes.iter().filter(|node| node.path == path && node.stands_at(seen));
                let mut names: Vec<Name> = there.map(|node| node.name).collect();
                names.sort_unstable();
                Outcome::Names { names: names.into(), other_children: 0, has_no_data: true }
            }
            Ask::Watch { path, name, .. } | Ask::WatchOwn { path, name, .. } => {
                let node = self.find(path, name).filter(|node| node.stands_at(seen));
                node.map_or(Outcome::NoNode, |node| Outcome::Stat { owner: node.owner })
            }
            Ask::ListOwn => {
                let own = self.nodes.iter().filter(|node| node.owner == owner && node.stands_at(seen));
                let mut names: Vec<Name> = own.map(|node| node.name).collect();
                names.sort_unstable();
                Outcome::Names { names: names.into(), other_children: 0, has_no_data: false }
            }
            _ => Outcome::Done,
        }
    }

    /// Deletes nodes in one transaction.
    pub(crate) fn delete(&mut self, which: impl Fn(&Znode) -> bool, by: By) {
        self.end += 1;
        for node in self.nodes.iter_mut().filter(|node| node.stands() && which(node)) {
            (node.deleted, node.by) = (self.end, by);
        }
    }

    pub(crate) fn find(&self, path: Path, name: Name) -> Option<&Znode> {
        self.nodes.iter().find(|node| (node.path, node.name) == (path, name))
    }

    pub(crate) fn created(&self, path: Path, name: Name) -> Zxid {
        self.find(path, name).map_or(0, |node| node.created)
    }

    pub(crate) fn standing(&self, path: Path) -> impl Iterator<Item = &Znode> {
        self.nodes.iter().filter(move |node| node.path == path && node.stands())
    }
}
