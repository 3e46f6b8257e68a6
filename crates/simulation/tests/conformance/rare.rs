//! Answers that random programs seldom meet, or that the client never asks for: requests byte by byte.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const GET_CHILDREN_2: i32 = 12;
const MULTI: i32 = 14;
const CHECK_WATCHES: i32 = 17;
const REMOVE_WATCHES: i32 = 18;
const MULTI_READ: i32 = 22;
const AUTH: i32 = 100;
const GET_ALL_CHILDREN_NUMBER: i32 = 104;
const ADD_WATCH: i32 = 106;

/// Permissions, as bits.
const ALL: i32 = 31;
const ONLY_CREATE: i32 = 4;

const PERSISTENT: i32 = 0;
const EPHEMERAL: i32 = 1;

/// The bytes of a request.
#[derive(Clone, Default)]
struct Body(Vec<u8>);

impl Body {
    fn number(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn text(self, text: &str) -> Self {
        let mut body = self.number(i32::try_from(text.len()).expect("a short text"));
        body.0.extend(text.as_bytes());
        body
    }

    fn create(self, path: &str, permissions: i32, flags: i32) -> Self {
        self.text(path).number(0).number(1).number(permissions).text("world").text("anyone").number(flags)
    }

    /// The header of a part of a request with several operations.
    fn part(self, operation: i32) -> Self {
        self.number(operation).byte(0).number(-1)
    }

    fn end(self) -> Self {
        self.number(-1).byte(1).number(-1)
    }
}

struct Raw(TcpStream);

impl Raw {
    fn connect(server: &str) -> io::Result<Self> {
        let mut raw = Self(TcpStream::connect(server)?);
        raw.0.set_read_timeout(Some(PATIENCE))?;
        let session = Body::default().number(0).number(0).number(0).number(10_000).number(0).number(0);
        raw.send(session.text(&"\0".repeat(16)))?;
        raw.frame()?;
        Ok(raw)
    }

    fn send(&mut self, Body(bytes): Body) -> io::Result<()> {
        let length = i32::try_from(bytes.len()).expect("a short request");
        self.0.write_all(&[&length.to_be_bytes(), &bytes[..]].concat())
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.0.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// The answer without its transaction: of several operations it has the codes.
    fn answer(&mut self, xid: i32, operation: i32, body: Body) -> io::Result<Vec<u8>> {
        let mut request = Body::default().number(xid).number(operation);
        request.0.extend(body.0);
        self.send(request)?;
        loop {
            let frame = self.frame()?;
            if frame[..4] == xid.to_be_bytes() {
                return Ok(frame[12..].to_vec());
            }
        }
    }
}

/// Plays them to a server, and returns what each is and its answer.
pub(crate) fn play(server: &str) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let root = format!("/rare-{}", fastrand::u64(..));
    let (hidden, ephemeral) = (format!("{root}/hidden"), format!("{root}/ephemeral"));
    let under = |name: &str| Body::default().create(&format!("{ephemeral}/{name}"), ALL, PERSISTENT);
    let part = |operation: i32| Body::default().part(operation);
    let text = |path: &str| Body::default().text(path);
    let rows = [
        ("a folder", CREATE, Body::default().create(&root, ALL, PERSISTENT)),
        ("a node that nobody may read", CREATE, Body::default().create(&hidden, ONLY_CREATE, PERSISTENT)),
        ("its data", GET_DATA, text(&hidden).byte(0)),
        ("its children", GET_CHILDREN, text(&hidden).byte(0)),
        ("its children and their stat", GET_CHILDREN_2, text(&hidden).byte(0)),
        ("how many nodes it has", GET_ALL_CHILDREN_NUMBER, text(&hidden)),
        ("its data among others", MULTI_READ, part(GET_DATA).text(&hidden).byte(0).end()),
        ("an ephemeral node", CREATE, Body::default().create(&ephemeral, ALL, EPHEMERAL)),
        ("a child of it", CREATE, under("child")),
        ("a child of it among others", MULTI, Body([part(CREATE).0, under("child").0].concat()).end()),
        ("a path that is none", CREATE, Body::default().create(&format!("{root}/\u{1}"), ALL, PERSISTENT)),
        ("whether there is a watch", CHECK_WATCHES, text(&root).number(3)),
        ("no watch to remove", REMOVE_WATCHES, text(&root).number(3)),
        ("a persistent watch", ADD_WATCH, text(&root).number(0)),
        ("whether it is there", CHECK_WATCHES, text(&root).number(3)),
        ("the end of the ephemeral node", DELETE, text(&ephemeral).number(-1)),
        ("the end of the other", DELETE, text(&hidden).number(-1)),
        ("the end of the folder", DELETE, text(&root).number(-1)),
    ];
    let mut raw = Raw::connect(server)?;
    let mut answers = Vec::new();
    for (xid, (what, operation, body)) in (1..).zip(rows) {
        let mut answer = raw.answer(xid, operation, body)?;
        // Paths differ, and have no meaning here.
        if operation == CREATE {
            answer.truncate(4);
        }
        answers.push((what, answer));
    }
    // Servers close the connection on it.
    let unknown = Body::default().number(0).text("nobody").text("");
    answers.push(("a scheme that is not known", raw.answer(-4, AUTH, unknown)?));
    answers.push(("the end of the connection", vec![u8::from(raw.frame().is_err())]));
    Ok(answers)
}
