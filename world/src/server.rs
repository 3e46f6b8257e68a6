//! The ensemble: one log of nodes, of which each client's server has applied a prefix.

use machine::{Ask, Name, Outcome, Path};

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
    pub(crate) fn commit(&mut self, ask: Ask, owner: u64) -> Outcome {
        match ask {
            Ask::Create { path, guid, kind, counts, .. } => {
                self.end += 1;
                let others = self.standing(path).count();
                let others = counts.then(|| u32::try_from(others).expect("they are few"));
                let name = Name { number: self.counter, guid, kind };
                self.counter += 1;
                self.nodes.push(Znode { path, name, owner, created: self.end, deleted: 0, by: By::Nobody });
                Outcome::Created { name, czxid: i64::from(self.end), others }
            }
            Ask::Delete { path, name, .. } => match self.find(path, name).filter(|node| node.stands()) {
                Some(_) => {
                    self.delete(|node| (node.path, node.name) == (path, name), By::Owner);
                    Outcome::Done
                }
                None => Outcome::NoNode,
            },
            Ask::Replace { path, name, guid, .. } => match self.find(path, name).filter(|node| node.stands()) {
                Some(_) => {
                    self.delete(|node| (node.path, node.name) == (path, name), By::Owner);
                    let name = Name { guid, kind: machine::Kind::Read, ..name };
                    self.nodes.push(Znode { path, name, owner, created: self.end, deleted: 0, by: By::Nobody });
                    Outcome::Created { name, czxid: i64::from(self.end), others: None }
                }
                None => Outcome::NoNode,
            },
            Ask::Prove { path, name, .. } => match self.find(path, name).filter(|node| node.stands()) {
                Some(_) => Outcome::Done,
                None => Outcome::NoNode,
            },
            _ => Outcome::Done,
        }
    }

    /// Answers a read as a server that has applied the log up to here.
    pub(crate) fn read(&self, ask: Ask, seen: Zxid) -> Outcome {
        match ask {
            Ask::List { path, .. } => {
                let there = self.nodes.iter().filter(|node| node.path == path && node.stands_at(seen));
                let mut names: Vec<Name> = there.map(|node| node.name).collect();
                names.sort_unstable();
                Outcome::Names { names: names.into(), is_empty: true }
            }
            Ask::Owner { path, name, .. } | Ask::Watch { path, name, .. } | Ask::WatchOwn { path, name, .. } => {
                let node = self.find(path, name).filter(|node| node.stands_at(seen));
                node.map_or(Outcome::NoNode, |node| Outcome::Stat { owner: node.owner })
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

    pub(crate) fn standing(&self, path: Path) -> impl Iterator<Item = &Znode> {
        self.nodes.iter().filter(move |node| node.path == path && node.stands())
    }
}
