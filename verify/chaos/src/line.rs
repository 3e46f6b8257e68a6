//! The lines of a run's files, each a JSON object.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use testbed::history::{Event, now};
use testbed::nemesis::Struck;

/// A line of any file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Event(Event),
    Fault(Struck),
    Mark(Mark),
}

impl Line {
    /// When it happened or began.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Event(event) => event.at,
            Self::Fault(struck) => struck.begin,
            Self::Mark(mark) => mark.at,
        }
    }
}

/// A fact which is not an event of a lock's history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) at: u64,
    pub(crate) process: Arc<str>,
    #[serde(flatten)]
    pub(crate) what: What,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "mark", rename_all = "snake_case")]
pub(crate) enum What {
    /// A set of members that the process saw: each with the transaction that created its node, and its data. The process `servers`
    /// has read it from the servers.
    Seen { members: Vec<String> },
    /// The machine has not scheduled the process since then.
    Stalled { since: u64 },
    /// The library logged by what it granted a lock.
    Granted { by: String },
    /// The operator is about to delete this node.
    Deleting { node: String, token: i64 },
    /// The outcome; `at` is when the request was sent.
    Deleted { node: String, token: i64, result: String },
    /// A waiter failed because its node was deleted.
    Evicted { node: String },
    /// A node of the session still existed after everything was released.
    Left { node: String },
    /// Something that must not happen.
    Wrong { text: String },
}

impl Mark {
    pub(crate) fn new(process: &Arc<str>, what: What) -> Self {
        Self { at: now(), process: Arc::clone(process), what }
    }

    /// If this is the outcome of a deletion: when that was sent, and its node.
    pub(crate) fn answered(&self) -> Option<(u64, &String)> {
        match &self.what {
            What::Deleted { node, .. } => Some((self.at, node)),
            _ => None,
        }
    }
}
