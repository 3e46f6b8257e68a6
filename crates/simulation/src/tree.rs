//! The nodes, as one server has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::acl::{self, Acls};

/// The owner of containers; sessions never have this number.
pub(crate) const CONTAINER: i64 = i64::MIN;

/// The numbers of a node, as servers show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields have the names of the protocol")]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Arc<[u8]>,
    pub(crate) acl: Acls,
    pub(crate) children: BTreeSet<String>,
    /// As it is stored: the owner may be [`CONTAINER`], `cversion` counts creates, and the last three but `pzxid` are unset.
    pub(crate) stored: Stat,
}

/// A step of a transaction, with all that is decided.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Create { path: String, data: Arc<[u8]>, acl: Acls, owner: i64, cversion: i32 },
    Delete { path: String },
    SetData { path: String, data: Arc<[u8]>, version: i32 },
    SetAcl { path: String, acl: Acls, version: i32 },
    Check,
    CloseSession(i64),
}

impl Change {
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Create { path, .. } | Self::Delete { path } => Some(path),
            Self::SetData { path, .. } | Self::SetAcl { path, .. } => Some(path),
            Self::Check | Self::CloseSession(_) => None,
        }
    }

    pub(crate) fn is_container(&self) -> bool {
        matches!(self, Self::Create { owner: CONTAINER, .. })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: HashMap<String, Node>,
    ephemerals: BTreeMap<i64, BTreeSet<String>>,
    containers: BTreeSet<String>,
}

impl Node {
    fn new(data: Arc<[u8]>, acl: Acls, stored: Stat) -> Self {
        Self { data, acl, children: BTreeSet::new(), stored }
    }

    /// What clients are shown. Every create but those of the children that are left had a delete, and both count.
    pub(crate) fn stat(&self) -> Stat {
        let children = length(self.children.len());
        let owner = self.stored.ephemeral_owner;
        Stat {
            ephemeral_owner: if owner == CONTAINER { 0 } else { owner },
            cversion: self.stored.cversion.wrapping_mul(2).wrapping_sub(children),
            data_length: length(self.data.len()),
            num_children: children,
            ..self.stored
        }
    }
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut tree = Self { nodes: HashMap::new(), ephemerals: BTreeMap::new(), containers: BTreeSet::new() };
        for (path, acl) in [
            ("/", acl::open()),
            ("/zookeeper", acl::open()),
            ("/zookeeper/quota", acl::open()),
            ("/zookeeper/config", acl::read_only()),
        ] {
            tree.nodes.insert(path.to_owned(), Node::new(Arc::new([]), acl, Stat::default()));
            tree.adopt(path);
        }
        // Of the configuration, which servers write when they start.
        tree.nodes.entry("/zookeeper/config".to_owned()).and_modify(|node| node.stored.aversion = -1);
        tree
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub(crate) fn ephemerals(&self, session: i64) -> impl Iterator<Item = &String> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// The sessions that have ephemeral nodes.
    pub(crate) fn owners(&self) -> impl Iterator<Item = i64> {
        self.ephemerals.keys().copied()
    }

    pub(crate) fn count_below(&self, path: &str) -> usize {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        self.nodes.keys().filter(|path| path.len() > 1 && path.starts_with(&prefix)).count()
    }

    /// Containers that once had children, and have none.
    pub(crate) fn disused_containers(&self) -> Vec<String> {
        let is_disused = |node: &Node| node.children.is_empty() && node.stored.cversion > 0;
        self.containers.iter().filter(|path| self.get(path).is_some_and(is_disused)).cloned().collect()
    }

    /// Lets the next sequential child of a node get this number.
    pub(crate) fn set_counter(&mut self, path: &str, next: i32) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.stored.cversion = next;
        }
    }

    /// Applies a step of the transaction `zxid`. Returns the stat of the node that it wrote.
    pub(crate) fn apply(&mut self, change: &Change, zxid: i64, time: i64) -> Option<Stat> {
        match change {
            Change::Create { path, data, acl, owner, cversion } => {
                let times =
                    Stat { czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: time, mtime: time, ..Stat::default() };
                let node = Node::new(data.clone(), acl.clone(), Stat { ephemeral_owner: *owner, ..times });
                let stat = node.stat();
                self.nodes.insert(path.clone(), node);
                if let Some(parent) = self.adopt(path) {
                    let mut cversion = *cversion;
                    // Servers take this number for no number.
                    if cversion == -1 {
                        cversion = parent.stored.cversion.wrapping_add(1);
                    }
                    // So beyond the end of the counter it stays where it is, as does `pzxid`.
                    if cversion > parent.stored.cversion {
                        parent.stored.cversion = cversion;
                        parent.stored.pzxid = zxid;
                    }
                }
                match *owner {
                    0 => {}
                    CONTAINER => _ = self.containers.insert(path.clone()),
                    session => _ = self.ephemerals.entry(session).or_default().insert(path.clone()),
                }
                Some(stat)
            }
            Change::Delete { path } => {
                let node = self.nodes.remove(path)?;
                let (parent, name) = split(path);
                if let Some(parent) = self.nodes.get_mut(parent) {
                    parent.children.remove(name);
                    parent.stored.pzxid = parent.stored.pzxid.max(zxid);
                }
                self.containers.remove(path);
                let owner = node.stored.ephemeral_owner;
                if let Some(owned) = self.ephemerals.get_mut(&owner) {
                    owned.remove(path);
                    if owned.is_empty() {
                        self.ephemerals.remove(&owner);
                    }
                }
                None
            }
            Change::SetData { path, data, version } => {
                let node = self.nodes.get_mut(path)?;
                node.data = data.clone();
                node.stored = Stat { version: *version, mzxid: zxid, mtime: time, ..node.stored };
                Some(node.stat())
            }
            Change::SetAcl { path, acl, version } => {
                let node = self.nodes.get_mut(path)?;
                node.acl = acl.clone();
                node.stored.aversion = *version;
                Some(node.stat())
            }
            Change::Check | Change::CloseSession(_) => None,
        }
    }

    /// Adds a node to the children of its parent.
    fn adopt(&mut self, path: &str) -> Option<&mut Node> {
        let (parent, name) = split(path);
        let parent = self.nodes.get_mut(parent).filter(|_| !name.is_empty())?;
        parent.children.insert(name.to_owned());
        Some(parent)
    }
}

/// The path of the parent, and the name.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("", path),
    }
}

pub(crate) fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
