//! The form that a request of a machine has on the wire.

use std::collections::HashMap;

use machine::{Ask, Kind, Name, Nodes, Path};
use simulation::{Request, Write};

/// The texts of lock paths. A machine knows them by numbers, and the first create under a path shows its text.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    known: HashMap<Path, String>,
    /// The chroot of the client, or `/`: nothing is asked above it.
    root: String,
}

impl Paths {
    /// Learns the texts from the request for a create.
    pub(crate) fn learn(&mut self, ask: &Ask, request: &Request) {
        let Ask::Create { spec, .. } = ask else { return };
        let parents = created(request).filter_map(|node| node.rsplit_once('/'));
        for ((path, _), (parent, _)) in spec.queues.iter().zip(parents) {
            self.known.insert(*path, parent.to_owned());
        }
    }

    /// Whether a path is this one, or its text is not known.
    fn is(&self, path: Path, text: &str) -> bool {
        self.known.get(&path).is_none_or(|known| known == text)
    }

    /// Whether a node has our spelling of this name.
    fn is_own(&self, (path, name): (Path, Name), node: &str) -> bool {
        let Some((parent, text)) = node.rsplit_once('/') else { return false };
        self.is(path, parent) && text == own(name)
    }

    /// Whether paths may be those of all nodes.
    fn are_own(&self, nodes: &Nodes, paths: &[&str]) -> bool {
        nodes.len() == paths.len() && nodes.iter().zip(paths).all(|(node, path)| self.is_own(*node, path))
    }

    /// Learns the root from a request of the session.
    pub(crate) fn learn_root(&mut self, request: &Request) {
        let checks = only(request, check);
        let asked = match request {
            Request::Exists { path, .. } => Some(path.as_str()),
            _ => checks.first().copied(),
        };
        if let Some(path) = asked.filter(|path| self.root.is_empty() || path.len() < self.root.len()) {
            path.clone_into(&mut self.root);
        }
    }
}

/// The name of a node of ours without its number.
fn prefix(guid: u128, kind: Kind) -> String {
    let hex = format!("{guid:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("_c_{}{}", parts.join("-"), kind.separator())
}

/// The name of a node of ours.
fn own(name: Name) -> String {
    format!("{}{:010}", prefix(name.guid, name.kind), name.number)
}

/// The changes of a request, and its checks.
fn writes(request: &Request) -> &[Write] {
    match request {
        Request::Write(write) => std::slice::from_ref(write),
        Request::Multi(writes) => writes,
        _ => &[],
    }
}

/// The nodes with our spelling that a request creates, without their numbers.
pub(crate) fn created(request: &Request) -> impl Iterator<Item = &str> {
    writes(request).iter().filter_map(|write| match write {
        Write::Create { path, .. } if path.contains("/_c_") => Some(path.as_str()),
        _ => None,
    })
}

fn check(write: &Write) -> Option<&str> {
    match write {
        Write::Check { path, .. } => Some(path),
        _ => None,
    }
}

fn delete(write: &Write) -> Option<&str> {
    match write {
        Write::Delete { path, .. } => Some(path),
        _ => None,
    }
}

/// The paths of a request that only has operations of one kind.
fn only<'a>(request: &'a Request, of: impl Fn(&'a Write) -> Option<&'a str>) -> Vec<&'a str> {
    writes(request).iter().map(of).collect::<Option<_>>().unwrap_or_default()
}

/// The name of the first node that a request of a machine creates, as it is on the wire.
pub(crate) fn first_created(ask: &Ask) -> Option<String> {
    match ask {
        Ask::Create { guid, spec, .. } => spec.queues.first().map(|(_, kind)| prefix(*guid, *kind)),
        Ask::Replace { name, guid, .. } => Some(own(name.reader(*guid))),
        _ => None,
    }
}

/// Whether other requests come first.
pub(crate) fn looks_first(ask: &Ask) -> bool {
    matches!(ask, Ask::Create { creates_parents: true, .. })
}

/// Whether a node without its number has a guid of a session.
pub(crate) fn is_of_session(node: &str, nonce: u64) -> bool {
    let hex: String =
        node.rsplit("/_c_").next().into_iter().flat_map(str::chars).filter(|one| *one != '-').take(16).collect();
    u64::from_str_radix(&hex, 16) == Ok(nonce) && !node.ends_with(|end: char| end.is_ascii_digit())
}

/// Whether a request on the wire is the first of this request of a machine.
pub(crate) fn fits(ask: &Ask, paths: &Paths, request: &Request) -> bool {
    match (ask, request) {
        (Ask::Create { creates_parents: false, .. }, _) => {
            let is_first = |prefix: &str| created(request).next().is_some_and(|node| node.ends_with(prefix));
            first_created(ask).is_some_and(|prefix| is_first(&prefix))
        }
        (Ask::List { path, watches, .. }, Request::GetChildren2 { path: sent, watch }) => {
            watches == watch && paths.is(*path, sent)
        }
        (Ask::Watch { path, name, .. }, Request::GetChildren2 { path: node, watch: true }) => {
            // The guid of a name that another client has spelled is invented, and its upper half is 0.
            let end = if name.guid >> 64 == 0 { format!("{:010}", name.number) } else { own(*name) };
            node.rsplit_once('/').is_some_and(|(parent, text)| paths.is(*path, parent) && text.ends_with(&end))
        }
        (Ask::WatchOwn { path, name, .. }, Request::GetData { path: node, watch: true }) => {
            paths.is_own((*path, *name), node)
        }
        (Ask::Barrier { path, .. }, _) => matches!(only(request, check)[..], [sent] if paths.is(*path, sent)),
        (Ask::Confirm { nodes, .. }, _) => paths.are_own(nodes, &only(request, check)),
        (Ask::Check, _) => matches!(only(request, check)[..], [sent] if paths.root == sent),
        (Ask::Delete { nodes, .. }, _) => paths.are_own(nodes, &only(request, delete)),
        (Ask::Replace { path, name, guid, .. }, _) => match writes(request) {
            [Write::Create { path: reader, .. }, Write::Delete { path: writer, .. }] => {
                paths.is_own((*path, name.reader(*guid)), reader) && paths.is_own((*path, *name), writer)
            }
            _ => false,
        },
        (Ask::ListOwn, Request::GetEphemerals(_)) => true,
        (Ask::Read, Request::Exists { path, .. }) => paths.root == *path,
        _ => false,
    }
}
