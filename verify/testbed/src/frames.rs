//! The frames of ZooKeeper's client protocol, as far as a proxy must understand them.
//!
//! A frame is a length (`i32`, big-endian) and that many bytes. The first frame each way is a
//! `ConnectRequest` or a `ConnectResponse`; after that requests are `xid i32, opcode i32, body` and
//! answers `xid i32, zxid i64, err i32, body`.

mod multi;
mod op;
mod reader;
mod record;

use std::fmt;

pub use op::Op;
pub(crate) use reader::{FrameReader, Opening};
pub(crate) use record::{Fields, RecordWriter};

/// The longest frame of a client or a server; a longer one is not ZooKeeper's protocol.
pub(crate) const MAX_FRAME: usize = 64 << 20;

const NOTIFICATION_XID: i32 = -1;
const PING_XID: i32 = -2;
const AUTH_XID: i32 = -4;
const SET_WATCHES_XID: i32 = -8;

/// A kind of frame other than the requests of the client's user and their answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The first frame of either side.
    Connect,
    /// A ping or its answer.
    Ping,
    /// Authentication by scheme, or its answer.
    Auth,
    /// A step of SASL.
    Sasl,
    /// Watches set again after a reconnect, or the answer.
    SetWatches,
    /// A watch that fired.
    #[non_exhaustive]
    Notification {
        /// What happened to the node, by the protocol's number: 1 created, 2 deleted, 3 data
        /// changed, 4 children changed.
        event: i32,
        /// The node, including the chroot; empty for events of the session.
        path: String,
    },
    /// A connection that began with a four letter word, such as `isro`.
    Command,
}

/// One whole frame, including its length.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes.len())
    }
}

/// A request, read from its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestFrame {
    pub(crate) xid: i32,
    pub(crate) op: Op,
    pub(crate) path: String,
    pub(crate) watch: bool,
    pub(crate) parts: Vec<(Op, String)>,
}

/// A client's frame after the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromClient {
    Request(RequestFrame),
    Aside(Kind),
}

/// A server's frame after the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromServer {
    Answer { xid: i32, zxid: i64, err: i32 },
    Aside(Kind),
}

/// The answer to a `ConnectRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectResponse {
    /// 0 if the server does not know the session, or the password is wrong.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl Frame {
    /// Puts the length before a body.
    pub(crate) fn new(body: &[u8]) -> Self {
        let length = i32::try_from(body.len()).expect("a frame is shorter than 2 GiB");
        let mut bytes = Vec::with_capacity(body.len() + 4);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// The frame as it goes over the wire.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes after the length.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[4..]
    }

    fn fields(&self) -> Fields<'_> {
        Fields::new(self.body())
    }

    /// Reads a frame of a client; `None` if it is too short to be one.
    pub(crate) fn sent_by_client(&self) -> Option<FromClient> {
        let mut fields = self.fields();
        let xid = fields.int()?;
        let op = Op::from_code(fields.int()?);
        Some(match (xid, op) {
            (PING_XID, _) | (_, Op::Ping) => FromClient::Aside(Kind::Ping),
            (AUTH_XID, _) | (_, Op::Auth) => FromClient::Aside(Kind::Auth),
            (SET_WATCHES_XID, _) | (_, Op::SetWatches | Op::SetWatches2) => FromClient::Aside(Kind::SetWatches),
            (_, Op::Sasl) => FromClient::Aside(Kind::Sasl),
            _ => FromClient::Request(RequestFrame::read(xid, op, &mut fields)),
        })
    }

    /// Reads a frame of a server; `None` if it is too short to be one.
    pub(crate) fn sent_by_server(&self) -> Option<FromServer> {
        let mut fields = self.fields();
        let (xid, zxid, err) = (fields.int()?, fields.long()?, fields.int()?);
        Some(match xid {
            NOTIFICATION_XID => {
                let event = fields.int().unwrap_or_default();
                let _state = fields.int();
                let path = fields.string().unwrap_or_default();
                FromServer::Aside(Kind::Notification { event, path })
            }
            PING_XID => FromServer::Aside(Kind::Ping),
            AUTH_XID => FromServer::Aside(Kind::Auth),
            SET_WATCHES_XID => FromServer::Aside(Kind::SetWatches),
            _ => FromServer::Answer { xid, zxid, err },
        })
    }

    /// Asks for a new session, where a connect request names an old one.
    pub(crate) fn forget_session(&mut self) {
        // Before it: the length of the frame, the protocol's version, the last zxid, the timeout. After the session: the length
        // of its password.
        const SESSION: std::ops::Range<usize> = 20..28;
        if let Some(session) = self.bytes.get_mut(SESSION) {
            session.fill(0);
        }
        if let Some(password) = self.bytes.get_mut(SESSION.end + 4..SESSION.end + 20) {
            password.fill(0);
        }
    }

    /// Reads the first frame of a server; `None` if it is too short to be one.
    pub(crate) fn connect_response(&self) -> Option<ConnectResponse> {
        let mut fields = self.fields();
        let _protocol_version = fields.int()?;
        let _timeout = fields.int()?;
        Some(ConnectResponse { session: fields.long()?, password: fields.buffer()?.to_vec() })
    }
}

impl RequestFrame {
    /// Reads the body as far as it can be parsed. Fields missing from a short body stay empty.
    fn read(xid: i32, op: Op, fields: &mut Fields<'_>) -> Self {
        let mut request = Self { xid, op, path: String::new(), watch: false, parts: Vec::new() };
        if matches!(op, Op::Multi | Op::MultiRead) {
            request.parts = multi::read_parts(fields);
            request.path = request.parts.first().map(|(_, path)| path.clone()).unwrap_or_default();
        } else if op.has_path() {
            request.path = fields.string().unwrap_or_default();
            request.watch = match op {
                Op::Exists | Op::GetData | Op::GetChildren | Op::GetChildren2 => fields.bool().unwrap_or(false),
                Op::AddWatch => true,
                _ => false,
            };
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(xid: i32, code: i32, body: impl FnOnce(&mut RecordWriter)) -> Frame {
        let mut record = RecordWriter::default();
        record.int(xid).int(code);
        body(&mut record);
        record.into_frame()
    }

    fn read(frame: &Frame) -> RequestFrame {
        match frame.sent_by_client() {
            Some(FromClient::Request(request)) => request,
            other => panic!("{other:?} is not a request"),
        }
    }

    #[test]
    fn request_has_path_and_watch() {
        let frame = request(7, 4, |record| {
            record.buffer(b"/a/b").bool(true);
        });
        let read = read(&frame);
        assert_eq!((read.xid, read.op, read.path.as_str(), read.watch), (7, Op::GetData, "/a/b", true));
    }

    #[test]
    fn multi_names_its_operations() {
        let frame = request(9, 14, |record| {
            record.int(15).bool(false).int(-1);
            record.buffer(b"/new").buffer(b"data").int(1).int(31).buffer(b"world").buffer(b"anyone").int(3);
            record.int(13).bool(false).int(-1).buffer(b"/seen").int(4);
            record.int(2).bool(false).int(-1).buffer(b"/old").int(-1);
            record.int(-1).bool(true).int(-1);
        });
        let parts = [(Op::Create2, "/new"), (Op::Check, "/seen"), (Op::Delete, "/old")];
        let read = read(&frame);
        assert_eq!(read.parts, parts.map(|(op, path)| (op, path.to_owned())));
        assert_eq!(read.path, "/new");
    }

    #[test]
    fn short_body_does_not_panic() {
        let whole = request(1, 1, |record| {
            record.buffer(b"/path").buffer(b"");
        });
        for length in 0..whole.wire().len() - 4 {
            let frame = Frame::new(&whole.wire()[4..4 + length]);
            let _ = (frame.sent_by_client(), frame.sent_by_server(), frame.connect_response());
        }
        let negative = request(1, 1, |record| {
            record.int(-5);
        });
        assert_eq!(read(&negative).path, "");
    }

    #[test]
    fn pings_auth_and_watches_are_not_requests() {
        for (xid, code, kind) in
            [(-2, 11, Kind::Ping), (-4, 100, Kind::Auth), (-8, 101, Kind::SetWatches), (3, 102, Kind::Sasl)]
        {
            assert_eq!(request(xid, code, |_| ()).sent_by_client(), Some(FromClient::Aside(kind)));
        }
    }

    #[test]
    fn answer_and_notification_are_distinguished() {
        let mut answer = RecordWriter::default();
        answer.int(5).long(77).int(-101);
        assert_eq!(answer.into_frame().sent_by_server(), Some(FromServer::Answer { xid: 5, zxid: 77, err: -101 }));

        let mut notification = RecordWriter::default();
        notification.int(-1).long(-1).int(0).int(2).int(3).buffer(b"/gone");
        let kind = Kind::Notification { event: 2, path: "/gone".to_owned() };
        assert_eq!(notification.into_frame().sent_by_server(), Some(FromServer::Aside(kind)));
    }
}
