//! What a proxy reads from a connection.
//!
//! 1. What is read does not depend on how the bytes are split, nor on futures that are dropped in between.
//! 2. A frame that is written is read back, and so is a request.
//! 3. No frame makes its reader panic.

#![no_main]

#[expect(dead_code, reason = "the testbed uses the rest")]
#[path = "../../testbed/src"]
mod testbed {
    pub(crate) mod frames;
}

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use testbed::frames::{Frame, FrameReader, FromClient, Op, Opening, RecordWriter};
use tokio::io::{AsyncRead, ReadBuf};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// The lengths of the pieces that arrive; after one of length 0 something else has its turn first.
    pieces: Vec<u8>,
    request: Request<'a>,
    password: [u8; 16],
    bodies: Vec<&'a [u8]>,
    rest: &'a [u8],
}

#[derive(Arbitrary, Debug)]
struct Request<'a> {
    xid: i32,
    code: i32,
    path: &'a str,
    watch: bool,
    parts: Vec<(Part, &'a str, &'a [u8])>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Part {
    Create,
    Delete,
    Check,
    SetData,
}

/// A connection over which bytes come in pieces.
struct Pieces<'a> {
    bytes: &'a [u8],
    lengths: std::slice::Iter<'a, u8>,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let piece = match self.lengths.next() {
            Some(0) => return Poll::Pending,
            Some(length) => usize::from(*length),
            None => usize::MAX,
        };
        let (read, left) = self.bytes.split_at(piece.min(self.bytes.len()).min(to.remaining()));
        to.put_slice(read);
        self.bytes = left;
        Poll::Ready(Ok(()))
    }
}

type Reader<'a> = FrameReader<Pieces<'a>>;

fn reader<'a>(bytes: &'a [u8], pieces: &'a [u8]) -> Reader<'a> {
    FrameReader::new(Pieces { bytes, lengths: pieces.iter() })
}

/// Polls once, and drops a future that is not ready, as a `select!` does; a new one goes on.
async fn done<'a, T>(reader: &mut Reader<'a>, mut next: impl AsyncFnMut(&mut Reader<'a>) -> T) -> T {
    loop {
        let polled = pin!(next(reader)).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(done) = polled {
            return done;
        }
    }
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("nothing is left to wait for"),
    }
}

/// How it begins, its frames, and how it ends.
async fn frames_of(bytes: &[u8], pieces: &[u8]) -> (Opening, Vec<Frame>, Option<String>) {
    let (mut reader, mut frames) = (reader(bytes, pieces), Vec::new());
    let opening = done(&mut reader, async |reader| reader.opening().await).await.expect("it never fails");
    loop {
        match done(&mut reader, async |reader| reader.next().await).await {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (opening, frames, None),
            Err(error) => return (opening, frames, Some(error.to_string())),
        }
    }
}

/// All bytes, in the chunks in which a proxy without frames forwards them.
async fn chunks_of(bytes: &[u8], pieces: &[u8]) -> Vec<u8> {
    let (mut reader, mut all) = (reader(bytes, pieces), Vec::new());
    done(&mut reader, async |reader| reader.opening().await).await.expect("it never fails");
    while let Some(chunk) = done(&mut reader, async |reader| reader.chunk().await).await.expect("it never fails") {
        all.extend(chunk);
    }
    all
}

fn look(frame: &Frame) {
    let _ = (frame.sent_by_client(), frame.sent_by_server(), frame.connect_response());
    let mut renewed = frame.clone();
    renewed.forget_session();
    assert_eq!(renewed.wire().len(), frame.wire().len());
}

fn connect(zxid: i64, session: i64, password: [u8; 16], read_only: bool) -> Frame {
    let mut record = RecordWriter::default();
    record.int(0).long(zxid).int(6_000).long(session).buffer(&password).bool(read_only);
    record.into_frame()
}

/// What asks for a session again is one that asks for a new one then, and nothing else of it changes.
fn is_forgotten(request: &Request<'_>, password: [u8; 16]) {
    let session = i64::from(request.xid) << 32 | i64::from(request.code);
    let mut frame = connect(session, session, password, request.watch);
    frame.forget_session();
    assert_eq!(frame, connect(session, 0, [0; 16], request.watch));
}

fn is_read_back(request: &Request<'_>) {
    let op = Op::from_code(request.code);
    let mut record = RecordWriter::default();
    record.int(request.xid).int(request.code).buffer(request.path.as_bytes()).bool(request.watch);
    if let Some(FromClient::Request(read)) = record.into_frame().sent_by_client() {
        assert_eq!((read.xid, read.op), (request.xid, op));
        if op.has_path() {
            assert_eq!(read.path, request.path);
        }
        if matches!(op, Op::Exists | Op::GetData | Op::GetChildren | Op::GetChildren2) {
            assert_eq!(read.watch, request.watch);
        }
    }
    let mut multi = RecordWriter::default();
    multi.int(1).int(14);
    let mut parts = Vec::new();
    for (part, path, data) in &request.parts {
        let (code, op) = match part {
            Part::Create => (15, Op::Create2),
            Part::Delete => (2, Op::Delete),
            Part::Check => (13, Op::Check),
            Part::SetData => (5, Op::SetData),
        };
        multi.int(code).bool(false).int(-1).buffer(path.as_bytes());
        match part {
            Part::Create => multi.buffer(data).int(1).int(31).buffer(b"world").buffer(b"anyone").int(3),
            Part::Delete | Part::Check => multi.int(-1),
            Part::SetData => multi.buffer(data).int(-1),
        };
        parts.push((op, (*path).to_owned()));
    }
    multi.int(-1).bool(true).int(-1);
    match multi.into_frame().sent_by_client() {
        Some(FromClient::Request(read)) => assert_eq!((read.op, read.parts), (Op::Multi, parts)),
        other => panic!("{other:?} is not a multi"),
    }
}

fuzz_target!(|input: Input<'_>| {
    let written: Vec<_> = input.bodies.iter().map(|body| Frame::new(body)).collect();
    let mut bytes: Vec<_> = written.iter().flat_map(Frame::wire).copied().collect();
    bytes.extend(input.rest);
    let whole = at_once(frames_of(&bytes, &[]));
    assert_eq!(at_once(frames_of(&bytes, &input.pieces)), whole);
    let (_, frames, _) = whole;
    assert!(frames.starts_with(&written), "what was written is read");
    assert!(frames.iter().zip(&written).all(|(read, written)| read.body() == written.body()));
    assert_eq!(at_once(chunks_of(&bytes, &input.pieces)), bytes);
    frames.iter().for_each(look);
    is_read_back(&input.request);
    is_forgotten(&input.request, input.password);
});
