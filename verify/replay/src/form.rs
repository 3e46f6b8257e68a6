//! The form that a request of the machine has on the wire.

use std::collections::HashMap;

use testbed::proxy::Op;

use crate::machine::{Ask, Kind, Name, Nodes, Path};

/// The texts of lock paths.
#[derive(Debug, Default)]
pub(crate) struct Paths(HashMap<Path, String>);

impl Paths {
    pub(crate) fn insert(&mut self, path: Path, text: String) {
        self.0.insert(path, text);
    }

    fn text(&self, path: Path) -> &str {
        self.0.get(&path).map_or("/", String::as_str)
    }

    /// The path of a node of ours without its number.
    fn prefix(&self, path: Path, guid: u128, kind: Kind) -> String {
        let hex = format!("{guid:032x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        format!("{}/_c_{}{}", self.text(path), parts.join("-"), separator(kind))
    }

    fn own(&self, path: Path, name: Name) -> String {
        format!("{}{:010}", self.prefix(path, name.guid, name.kind), name.number)
    }

    fn all(&self, nodes: &Nodes) -> Vec<String> {
        nodes.iter().map(|(path, name)| self.own(*path, *name)).collect()
    }
}

fn separator(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "-lock-",
        Kind::Read => "-__READ__",
        Kind::Write => "-__WRIT__",
        Kind::Lease => "-lease-",
        Kind::Latch => "-latch-",
        kind => unreachable!("{kind:?} has a name of its own"),
    }
}

/// A request on the wire, without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) op: Op,
    pub(crate) path: String,
    pub(crate) watch: bool,
    pub(crate) parts: Vec<(Op, String)>,
}

impl Sent {
    /// Each operation with its path.
    fn all(&self) -> impl Iterator<Item = (Op, &str)> {
        let alone = self.parts.is_empty().then_some((self.op, self.path.as_str()));
        self.parts.iter().map(|(op, path)| (*op, path.as_str())).chain(alone)
    }

    /// The first lock node that it creates, without its number.
    pub(crate) fn creates(&self) -> Option<&str> {
        let is_create = |op| matches!(op, Op::Create | Op::Create2);
        self.all().find(|(op, path)| is_create(*op) && path.contains("/_c_")).map(|(_, path)| path)
    }

    fn is(&self, op: Op, path: &str) -> bool {
        self.op == op && self.path == path
    }

    /// Whether it is a transaction of these operations.
    fn is_of<'a>(&self, op: Op, paths: impl IntoIterator<Item = &'a String>) -> bool {
        self.op == Op::Multi && self.all().eq(paths.into_iter().map(|path| (op, path.as_str())))
    }
}

/// What a request of the machine has to look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The first node, without its number.
    Create(String),
    /// The same behind a look at its paths and their ancestors, of which this is the first.
    Make {
        ancestor: String,
        prefix: String,
    },
    /// A node, and whether its changes are watched.
    Children(String, bool),
    /// The node of another: its path is known but for the guid.
    Predecessor {
        below: String,
        end: String,
    },
    Data(String),
    Checks(Vec<String>),
    Delete(Vec<String>),
    /// The reader and the writer.
    Replace(String, String),
    Ephemerals,
    Root,
}

impl Form {
    pub(crate) fn of(ask: &Ask, paths: &Paths) -> Self {
        match ask {
            Ask::Create { guid, spec, creates_parents, .. } => {
                let (path, kind) = spec.queues[0];
                let prefix = paths.prefix(path, *guid, kind);
                let roots =
                    spec.queues.iter().map(|(path, _)| paths.text(*path).split('/').nth(1).unwrap_or_default());
                match roots.min().filter(|_| *creates_parents) {
                    Some(root) => Self::Make { ancestor: format!("/{root}"), prefix },
                    None => Self::Create(prefix),
                }
            }
            Ask::Barrier { path, .. } => Self::Checks(vec![paths.text(*path).to_owned()]),
            Ask::List { path, watches, .. } => Self::Children(paths.text(*path).to_owned(), *watches),
            Ask::Confirm { nodes, .. } => Self::Checks(paths.all(nodes)),
            Ask::Watch { path, name, .. } => Self::Predecessor {
                below: format!("{}/", paths.text(*path)),
                end: format!("{}{:010}", separator(name.kind), name.number),
            },
            Ask::WatchOwn { path, name, .. } => Self::Data(paths.own(*path, *name)),
            Ask::Delete { nodes, .. } => Self::Delete(paths.all(nodes)),
            Ask::Replace { path, name, guid, .. } => {
                Self::Replace(paths.own(*path, name.reader(*guid)), paths.own(*path, *name))
            }
            Ask::ListOwn => Self::Ephemerals,
            Ask::Read => Self::Root,
            Ask::Check => Self::Checks(vec!["/".to_owned()]),
        }
    }

    /// The first node that it creates, without its number.
    pub(crate) fn creates(&self) -> Option<&str> {
        match self {
            Self::Create(prefix) | Self::Make { prefix, .. } => Some(prefix),
            _ => None,
        }
    }

    /// Whether a request on the wire is the first of this one.
    pub(crate) fn fits(&self, sent: &Sent) -> bool {
        match self {
            Self::Create(prefix) => sent.creates() == Some(prefix) && !sent.all().any(|(op, _)| op == Op::Delete),
            Self::Make { ancestor, .. } => sent.is(Op::Exists, ancestor),
            Self::Children(path, watch) => sent.is(Op::GetChildren2, path) && sent.watch == *watch,
            Self::Predecessor { below, end } => {
                let is_below = sent.path.starts_with(below) && sent.path.ends_with(end);
                sent.op == Op::GetChildren2 && sent.watch && is_below
            }
            Self::Data(node) => sent.is(Op::GetData, node),
            Self::Checks(paths) => sent.is_of(Op::Check, paths),
            Self::Delete(nodes) => match nodes.as_slice() {
                [node] => sent.is(Op::Delete, node),
                nodes => sent.is_of(Op::Delete, nodes),
            },
            Self::Replace(reader, writer) => {
                let parts = [(Op::Create, reader.as_str()), (Op::Delete, writer.as_str())];
                let parts_2 = [(Op::Create2, reader.as_str()), parts[1]];
                sent.all().eq(parts) || sent.all().eq(parts_2)
            }
            Self::Ephemerals => sent.is(Op::GetEphemerals, "/"),
            Self::Root => sent.is(Op::Exists, "/"),
        }
    }
}
