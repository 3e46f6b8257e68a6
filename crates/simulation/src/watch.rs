//! The watches of the connections to one server, and which of them a change fires.

use std::collections::BTreeMap;

use crate::message::{Event, EventKind, SetWatches, Watcher};
use crate::session::ConnectionId;
use crate::tree::{Change, Tree, split};

/// That of events for which servers name no transaction.
pub(crate) const NO_ZXID: i64 = -1;

pub(crate) type Fired = Vec<(ConnectionId, Event)>;

/// The kinds of watches that a connection has on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modes {
    one_shot: bool,
    persistent: bool,
    recursive: bool,
}

/// Watches on one aspect of nodes.
#[derive(Clone, Debug, Default)]
struct Table(BTreeMap<String, BTreeMap<ConnectionId, Modes>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    data: Table,
    children: Table,
}

impl Table {
    fn modes(&mut self, path: &str, connection: ConnectionId) -> &mut Modes {
        self.0.entry(path.to_owned()).or_default().entry(connection).or_default()
    }

    fn remove(&mut self, path: &str, connection: ConnectionId) -> bool {
        let Some(watchers) = self.0.get_mut(path) else {
            return false;
        };
        let removed = watchers.remove(&connection).is_some();
        if watchers.is_empty() {
            self.0.remove(path);
        }
        removed
    }

    fn count(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    fn forget(&mut self, connection: ConnectionId) {
        self.0.retain(|_, watchers| {
            watchers.remove(&connection);
            !watchers.is_empty()
        });
    }

    /// The connections with a watch that fires for this. Those that fire once are gone.
    fn fire(&mut self, path: &str, kind: EventKind) -> Vec<ConnectionId> {
        let mut fired = Vec::new();
        if let Some(watchers) = self.0.get_mut(path) {
            let is_exact = |modes: &Modes| modes.one_shot || modes.persistent;
            let fires = |modes: &Modes| is_exact(modes) || kind != EventKind::NodeChildrenChanged;
            fired.extend(watchers.iter().filter(|(_, modes)| fires(modes)).map(|(connection, _)| *connection));
            watchers.retain(|_, modes| {
                modes.one_shot = false;
                *modes != Modes::default()
            });
            if watchers.is_empty() {
                self.0.remove(path);
            }
        }
        if kind != EventKind::NodeChildrenChanged {
            let mut above = path;
            while above != "/" {
                above = split(above).0;
                let watchers = self.0.get(above).into_iter().flatten();
                let recursive = watchers.filter(|(_, modes)| modes.recursive).map(|(connection, _)| *connection);
                fired.extend(recursive);
            }
        }
        fired.sort_unstable();
        fired.dedup();
        fired
    }
}

impl Watches {
    pub(crate) fn count(&self) -> usize {
        self.data.count() + self.children.count()
    }

    pub(crate) fn on_data(&mut self, path: &str, connection: ConnectionId) {
        self.data.modes(path, connection).one_shot = true;
    }

    pub(crate) fn on_children(&mut self, path: &str, connection: ConnectionId) {
        self.children.modes(path, connection).one_shot = true;
    }

    pub(crate) fn add(&mut self, path: &str, recursive: bool, connection: ConnectionId) {
        if recursive {
            self.data.modes(path, connection).recursive = true;
        } else {
            self.data.modes(path, connection).persistent = true;
            self.children.modes(path, connection).persistent = true;
        }
    }

    pub(crate) fn contains(&self, path: &str, watcher: Watcher, connection: ConnectionId) -> bool {
        let has = |table: &Table| table.0.get(path).is_some_and(|watchers| watchers.contains_key(&connection));
        (watcher != Watcher::Children && has(&self.data)) || (watcher != Watcher::Data && has(&self.children))
    }

    /// Whether there was one.
    pub(crate) fn remove(&mut self, path: &str, watcher: Watcher, connection: ConnectionId) -> bool {
        let data = watcher != Watcher::Children && self.data.remove(path, connection);
        let children = watcher != Watcher::Data && self.children.remove(path, connection);
        data || children
    }

    /// The paths with watches on data, and the connections that watch.
    pub(crate) fn by_path(&self) -> impl Iterator<Item = (&str, Vec<ConnectionId>)> {
        self.data.0.iter().map(|(path, watchers)| (path.as_str(), watchers.keys().copied().collect()))
    }

    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.data.forget(connection);
        self.children.forget(connection);
    }

    /// Fires the watches for a change, as events of this transaction. A connection that watches both the data and the children
    /// of a node learns once that it is deleted.
    pub(crate) fn fire(&mut self, change: &Change, zxid: i64) -> Fired {
        let mut fired = Fired::new();
        let mut add = |connections: Vec<ConnectionId>, kind, path: &str| {
            fired.extend(connections.into_iter().map(|one| (one, Event { kind, path: path.to_owned(), zxid })));
        };
        let (path, is_create) = match change {
            Change::Create { path, .. } => (path, true),
            Change::Delete { path } => (path, false),
            Change::SetData { path, .. } => {
                add(self.data.fire(path, EventKind::NodeDataChanged), EventKind::NodeDataChanged, path);
                return fired;
            }
            _ => return fired,
        };
        if is_create {
            add(self.data.fire(path, EventKind::NodeCreated), EventKind::NodeCreated, path);
        } else {
            let first = self.data.fire(path, EventKind::NodeDeleted);
            let mut second = self.children.fire(path, EventKind::NodeDeleted);
            second.retain(|connection| !first.contains(connection));
            add(first, EventKind::NodeDeleted, path);
            add(second, EventKind::NodeDeleted, path);
        }
        let parent = split(path).0;
        let kind = EventKind::NodeChildrenChanged;
        add(self.children.fire(parent, kind), kind, parent);
        fired
    }

    /// Sets watches again. What changed meanwhile is an event at once, and sets none.
    pub(crate) fn set(&mut self, tree: &Tree, request: &SetWatches, connection: ConnectionId) -> Fired {
        let mut fired = Fired::new();
        let [data, exist, children] = &request.one_shot;
        let mut add =
            |kind, path: &String| fired.push((connection, Event { kind, path: path.clone(), zxid: NO_ZXID }));
        for path in data {
            match tree.get(path) {
                None => add(EventKind::NodeDeleted, path),
                Some(node) if node.stored.mzxid > request.since => add(EventKind::NodeDataChanged, path),
                Some(_) => self.on_data(path, connection),
            }
        }
        for path in exist {
            match tree.get(path) {
                None => self.on_data(path, connection),
                Some(_) => add(EventKind::NodeCreated, path),
            }
        }
        for path in children {
            match tree.get(path) {
                None => add(EventKind::NodeDeleted, path),
                Some(node) if node.stored.pzxid > request.since => add(EventKind::NodeChildrenChanged, path),
                Some(_) => self.on_children(path, connection),
            }
        }
        for (paths, recursive) in request.persistent.iter().zip([false, true]) {
            paths.iter().for_each(|path| self.add(path, recursive, connection));
        }
        fired
    }
}
