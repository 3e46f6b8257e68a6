//! Frames of the client, out of the bytes that it sends and reads.

use std::sync::{Mutex, PoisonError};

use simulation::Request;

use crate::record::{Entry, Record};

const NOTIFICATION_XID: i32 = -1;

/// What a connection of the client sends and reads.
#[derive(Debug)]
pub struct Tap {
    record: Record,
    connection: usize,
    bytes: Mutex<Bytes>,
}

#[derive(Debug, Default)]
struct Bytes {
    sent: Stream,
    read: Stream,
}

/// A direction of a connection. Its first frame has a form of its own.
#[derive(Debug, Default)]
struct Stream {
    rest: Vec<u8>,
    has_begun: bool,
}

/// The session that a client wants to continue is in its first frame, behind these bytes.
const BEFORE_SESSION: usize = 16;

impl Default for Tap {
    fn default() -> Self {
        let record = Record::of_world();
        Self { connection: record.next_connection(), record, bytes: Mutex::default() }
    }
}

impl Tap {
    pub fn sent(&self, bytes: &[u8]) {
        let mut own = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        own.sent.take(bytes, |is_first, frame| {
            let entry = if is_first { self.continues(frame) } else { self.request(frame) };
            entry.into_iter().for_each(|entry| self.record.add(entry));
        });
    }

    pub fn read(&self, bytes: &[u8]) {
        let mut own = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        own.read.take(bytes, |is_first, frame| {
            let entry = if is_first { self.connected(frame) } else { self.answered(frame) };
            entry.into_iter().for_each(|entry| self.record.add(entry));
        });
    }

    /// A server that gives another session in place of this one does so to the machine of this one.
    fn continues(&self, frame: &[u8]) -> Option<Entry> {
        let session = Fields(frame.get(BEFORE_SESSION..)?).long()?.cast_unsigned();
        (session != 0).then_some(Entry::Connected { connection: self.connection, session })
    }

    fn request(&self, frame: &[u8]) -> Option<Entry> {
        let (xid, request) = Request::read(frame)?;
        Some(Entry::Sent { connection: self.connection, xid, request: request.into() })
    }

    fn connected(&self, frame: &[u8]) -> Option<Entry> {
        let mut fields = Fields(frame);
        let (_version, _timeout, session) = (fields.int()?, fields.int()?, fields.long()?);
        Some(Entry::Connected { connection: self.connection, session: session.cast_unsigned() })
    }

    fn answered(&self, frame: &[u8]) -> Option<Entry> {
        let mut fields = Fields(frame);
        let (connection, xid, _zxid, err) = (self.connection, fields.int()?, fields.long()?, fields.int()?);
        if xid == NOTIFICATION_XID {
            let (event, _state) = (fields.int()?, fields.int()?);
            return Some(Entry::Fired { connection, event, path: fields.string()? });
        }
        let errors = std::iter::from_fn(|| fields.error_of_part()).collect();
        Some(Entry::Answered { connection, xid, err, errors })
    }
}

impl Stream {
    /// Calls `each` with each frame that is whole now, and whether it is the first.
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(bool, &[u8])) {
        self.rest.extend(bytes);
        while let Some((head, rest)) = self.rest.split_first_chunk() {
            let Ok(length) = usize::try_from(i32::from_be_bytes(*head)) else { return };
            let Some(frame) = rest.get(..length) else { return };
            each(!std::mem::replace(&mut self.has_begun, true), frame);
            self.rest.drain(..4 + length);
        }
    }
}

/// The fields of a frame that are not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn int(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Option<i64> {
        self.bytes().map(i64::from_be_bytes)
    }

    fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.int()?).ok()?;
        Some(String::from_utf8_lossy(self.0.get(..length)?).into_owned())
    }

    /// The error of the next part of a transaction that was refused.
    fn error_of_part(&mut self) -> Option<i32> {
        const ERROR: i32 = -1;
        let (kind, [is_end], _) = (self.int()?, self.bytes()?, self.int()?);
        (kind == ERROR && is_end == 0).then(|| self.int())?
    }
}
