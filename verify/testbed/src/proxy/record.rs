//! What crosses a proxy, as lines of a file.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::frames::{Frame, FromServer, Kind, Op, RequestFrame};
use crate::history::{Journal, now};

/// A frame that has reached a proxy or a client, or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Crossing {
    /// The time in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The connection, numbered from 1 since the start of the proxy.
    pub connection: usize,
    /// The frame, or the end.
    pub what: Crossed,
}

/// A frame, without pings and authentication, or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields have the names of the protocol")]
pub enum Crossed {
    /// The server's answer to the first frame was forwarded; 0 is no session.
    Connected { session: i64 },
    /// A request has arrived, and is going to be forwarded unless a fault prevents that. `body`: the frame without its length, in
    /// hexadecimal.
    Request { xid: i32, op: Op, path: String, watch: bool, parts: Vec<(Op, String)>, body: String },
    /// An answer was forwarded. `errors`: of the parts of a multi that was refused.
    Answer { xid: i32, zxid: i64, err: i32, errors: Vec<i32>, body: String },
    /// The event of a watch was forwarded; 2 is a deletion.
    Event { event: i32, path: Arc<str> },
    /// The connection is over.
    Closed,
}

/// As its number.
impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.code().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i32::deserialize(deserializer).map(Self::from_code)
    }
}

impl Crossed {
    /// A frame that was forwarded to a client; `None` for pings and authentication.
    pub(super) fn to_client(frame: &Frame, is_first: bool) -> Option<Self> {
        if is_first {
            return frame.connect_response().map(|response| Self::Connected { session: response.session });
        }
        match frame.sent_by_server()? {
            FromServer::Aside(Kind::Notification { event, path }) => {
                Some(Self::Event { event, path: path.into() })
            }
            FromServer::Answer { .. } | FromServer::Aside(Kind::SetWatches) => {
                let (xid, zxid, err) = frame.answer()?;
                Some(Self::Answer { xid, zxid, err, errors: frame.errors_of_parts(), body: hex(frame) })
            }
            FromServer::Aside(_) => None,
        }
    }

    /// A frame that has come from a client; `None` for pings and authentication.
    pub(super) fn to_server(frame: &Frame) -> Option<Self> {
        let RequestFrame { xid, op, path, watch, parts } = frame.request()?;
        let is_recorded = !matches!(op, Op::Ping | Op::Auth | Op::Sasl);
        is_recorded.then(|| Self::Request { xid, op, path, watch, parts, body: hex(frame) })
    }
}

fn hex(frame: &Frame) -> String {
    frame.body().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a proxy writes what crosses it.
#[derive(Debug, Default)]
pub(super) struct Record(Option<Journal>);

impl Record {
    pub(super) fn begin(&mut self, journal: Journal) {
        self.0 = Some(journal);
    }

    pub(super) fn write(&self, connection: usize, what: impl FnOnce() -> Option<Crossed>) {
        if let Some(journal) = &self.0
            && let Some(what) = what()
        {
            journal.write(&Crossing { at: now(), connection, what }).expect("the record can be written");
        }
    }
}
