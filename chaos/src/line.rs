//! What the files of a run consist of: one JSON object a line.

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
    /// When it happened, or began.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Event(event) => event.at,
            Self::Fault(struck) => struck.begin,
            Self::Mark(mark) => mark.at,
        }
    }
}

/// What a history of locks has no words for.
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
    /// A holder was told that its connection is gone, or silent.
    Suspended { object: Arc<str> },
    /// A holder was told that its connection is back.
    Resumed { object: Arc<str> },
    /// The process got no time from the machine since then.
    Stalled { since: u64 },
    /// A hold is another node now, with its token of before.
    Moved { object: Arc<str>, token: i64, node: String },
    /// An operator is about to delete this node.
    Deleting { node: String, token: i64 },
    /// What came of that; `at` is when it was sent, and `done` when it was answered.
    Deleted {
        node: String,
        token: i64,
        result: String,
        #[serde(default)]
        done: Option<u64>,
    },
    /// A waiter was told that somebody has deleted its node.
    Evicted { node: String },
    /// A node of the session was there when all had been given back.
    Left { node: String },
    /// What must not happen.
    Wrong { text: String },
    /// The session is closed, and the process about to end.
    Closed,
}

impl Mark {
    pub(crate) fn new(process: &Arc<str>, what: What) -> Self {
        Self { at: now(), process: Arc::clone(process), what }
    }

    /// Which deletion, if any, this is the answer to: when it was sent, and of what.
    pub(crate) fn answered(&self) -> Option<(u64, &String)> {
        match &self.what {
            What::Deleted { node, .. } => Some((self.at, node)),
            _ => None,
        }
    }
}
