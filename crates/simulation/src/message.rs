//! What clients and servers send to each other, before it is bytes.

use std::sync::Arc;
use std::time::Duration;

use crate::acl::{Acl, Identity};
use crate::code::Code;
use crate::tree::Stat;

/// The first frame of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connect {
    /// The newest transaction that the client knows of. A server that is behind it refuses the client.
    pub last_zxid: i64,
    /// The session timeout that the client wishes.
    pub timeout: Duration,
    /// The session to continue, or 0 for a new one.
    pub session: i64,
    /// The password of the session to continue.
    pub password: Vec<u8>,
}

impl Connect {
    /// A request for a new session.
    pub fn new(timeout: Duration) -> Self {
        Self { last_zxid: 0, timeout, session: 0, password: Vec::new() }
    }
}

/// The answer to [`Connect`]. The session is 0 if the one to continue has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connected {
    /// The timeout that the server allows.
    pub timeout: Duration,
    /// The session.
    pub session: i64,
    /// What the client has to send to continue the session.
    pub password: [u8; 16],
}

/// A change of the tree, alone or in a multi.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields have the names of the protocol")]
pub enum Write {
    /// Creates a node. `with_stat` is for the answer, and `flags` are those of the protocol: see `write`.
    Create { path: String, data: Vec<u8>, acl: Vec<Acl>, flags: i32, with_stat: bool },
    /// Deletes a node without children. The version -1 is any.
    Delete { path: String, version: i32 },
    /// Replaces the data of a node.
    SetData { path: String, data: Vec<u8>, version: i32 },
    /// Replaces the access list of a node. Its version counts such changes.
    SetAcl { path: String, acl: Vec<Acl>, version: i32 },
    /// Fails the multi that it is part of unless the node has this version.
    Check { path: String, version: i32 },
}

/// The watches that a client sets again after a reconnect.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SetWatches {
    /// The newest transaction that the client knows of: what changed later is an event at once.
    pub since: i64,
    /// Paths of watches on data, of watches on nodes that did not exist, and of watches on children.
    pub one_shot: [Vec<String>; 3],
    /// Paths of persistent watches, and of those with everything below.
    pub persistent: [Vec<String>; 2],
}

/// Which watches of a client on a path are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Watcher {
    /// Those on its children.
    Children,
    /// Those on its data or existence.
    Data,
    /// All.
    Any,
}

/// A request on a connection that has a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields have the names of the protocol")]
pub enum Request {
    Write(Write),
    Multi(Vec<Write>),
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    GetChildren2 {
        path: String,
        watch: bool,
    },
    /// Only [`Request::GetData`] and [`Request::GetChildren`].
    MultiRead(Vec<Self>),
    GetAcl(String),
    GetEphemerals(String),
    GetAllChildrenNumber(String),
    Sync(String),
    SetWatches(SetWatches),
    AddWatch {
        path: String,
        recursive: bool,
    },
    CheckWatches {
        path: String,
        watcher: Watcher,
    },
    RemoveWatches {
        path: String,
        watcher: Watcher,
    },
    Auth {
        scheme: String,
        credentials: Vec<u8>,
    },
    WhoAmI,
    Ping,
    CloseSession,
    /// A write that fails with this code as a whole.
    Refused(Code),
    /// A request that cannot be read.
    Malformed,
    /// An operation that the server does not have.
    Unknown,
}

impl Write {
    fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { .. } => "delete",
            Self::SetData { .. } => "setData",
            Self::SetAcl { .. } => "setACL",
            Self::Check { .. } => "check",
        }
    }
}

impl Request {
    /// The name of the operation, as in the documents of the servers.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Write(write) => write.name(),
            Self::Multi(_) | Self::Refused(_) => "multi",
            Self::Exists { .. } => "exists",
            Self::GetData { .. } => "getData",
            Self::GetChildren { .. } => "getChildren",
            Self::GetChildren2 { .. } => "getChildren2",
            Self::MultiRead(_) => "multiRead",
            Self::GetAcl(_) => "getACL",
            Self::GetEphemerals(_) => "getEphemerals",
            Self::GetAllChildrenNumber(_) => "getAllChildrenNumber",
            Self::Sync(_) => "sync",
            Self::SetWatches(_) => "setWatches",
            Self::AddWatch { .. } => "addWatch",
            Self::CheckWatches { .. } => "checkWatches",
            Self::RemoveWatches { .. } => "removeWatches",
            Self::Auth { .. } => "auth",
            Self::WhoAmI => "whoAmI",
            Self::Ping => "ping",
            Self::CloseSession => "closeSession",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
        }
    }
}

/// The answer to a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are the names of the protocol")]
pub enum Reply {
    Nothing,
    Create(String),
    Create2(String, Stat),
    Delete,
    SetData(Stat),
    SetAcl(Stat),
    Check,
    Multi(Vec<Result<Self, Code>>),
    Exists(Stat),
    GetData(Arc<[u8]>, Stat),
    GetChildren(Vec<String>),
    GetChildren2(Vec<String>, Stat),
    GetAcl(Vec<Acl>, Stat),
    GetEphemerals(Vec<String>),
    GetAllChildrenNumber(i32),
    Sync(String),
    AddWatch,
    WhoAmI(Vec<Identity>),
}

/// What a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are the names of the protocol")]
pub enum EventKind {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Where.
    pub path: String,
    /// The transaction that caused it, or -1: before 3.9, and for what a watch that is set again has missed.
    pub zxid: i64,
}

/// What a server sends on a connection, or does to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// The answer to [`Connect`].
    Connected(Connected),
    /// The answer to a request.
    Reply {
        /// The number that the client gave the request.
        xid: i32,
        /// The newest transaction that the server has applied.
        zxid: i64,
        /// The answer.
        result: Result<Reply, Code>,
    },
    /// A watch fired.
    Event(Event),
    /// The server closes the connection.
    Close,
}
