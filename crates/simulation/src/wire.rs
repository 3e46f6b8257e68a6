//! The bytes of messages: ZooKeeper's records, without the length of the frame.

use std::time::Duration;

use crate::acl::{Acl, Identity};
use crate::code::Code;
use crate::message::{Connect, Event, Message, Reply, Request, SetWatches, Watcher, Write};
use crate::tree::{Stat, length};

/// The number of answers that are events.
const NOTIFICATION: i32 = -1;
const CONNECTED: i32 = 3;

/// The bytes end too early, or make no sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Malformed;

type Read<T> = Result<T, Malformed>;

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn int(&mut self) -> Read<i32> {
        self.bytes().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Read<i64> {
        self.bytes().map(i64::from_be_bytes)
    }

    fn bool(&mut self) -> Read<bool> {
        self.bytes().map(|[byte]| byte != 0)
    }

    /// Nothing and empty are the same.
    fn buffer(&mut self) -> Read<Vec<u8>> {
        let length = usize::try_from(self.int()?.max(0)).map_err(|_| Malformed)?;
        let (buffer, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(buffer.to_vec())
    }

    fn string(&mut self) -> Read<String> {
        String::from_utf8(self.buffer()?).map_err(|_| Malformed)
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        (0..self.int()?).map(|_| item(self)).collect()
    }

    fn acls(&mut self) -> Read<Vec<Acl>> {
        self.list(|reader| Ok(Acl::new(reader.int()?, Identity::new(reader.string()?, reader.string()?))))
    }

    fn create(&mut self, with_stat: bool) -> Read<Write> {
        let (path, data, acl, flags) = (self.string()?, self.buffer()?, self.acls()?, self.int()?);
        Ok(Write::Create { path, data, acl, flags, with_stat })
    }

    /// A write with this code, or `None` if it is none.
    fn write(&mut self, code: i32) -> Read<Option<Write>> {
        Ok(Some(match code {
            1 => self.create(false)?,
            15 | 19 => self.create(true)?,
            21 => {
                let write = self.create(true)?;
                self.long()?;
                write
            }
            2 => Write::Delete { path: self.string()?, version: self.int()? },
            5 => Write::SetData { path: self.string()?, data: self.buffer()?, version: self.int()? },
            7 => Write::SetAcl { path: self.string()?, acl: self.acls()?, version: self.int()? },
            _ => return Ok(None),
        }))
    }

    fn multi(&mut self) -> Read<Vec<Write>> {
        let mut writes = Vec::new();
        loop {
            let (code, done, _) = (self.int()?, self.bool()?, self.int()?);
            if done {
                return Ok(writes);
            }
            writes.push(match code {
                13 => Write::Check { path: self.string()?, version: self.int()? },
                7 => return Err(Malformed),
                code => self.write(code)?.ok_or(Malformed)?,
            });
        }
    }

    fn multi_read(&mut self) -> Read<Vec<Request>> {
        let mut reads = Vec::new();
        loop {
            let (code, done, _) = (self.int()?, self.bool()?, self.int()?);
            if done {
                return Ok(reads);
            }
            // Servers set no watches here.
            let (path, watch) = (self.string()?, false);
            self.bool()?;
            reads.push(match code {
                4 => Request::GetData { path, watch },
                8 => Request::GetChildren { path, watch },
                _ => return Err(Malformed),
            });
        }
    }

    fn set_watches(&mut self, with_persistent: bool) -> Read<Request> {
        let since = self.long()?;
        let mut paths = || self.list(Self::string);
        let one_shot = [paths()?, paths()?, paths()?];
        let persistent = if with_persistent { [paths()?, paths()?] } else { Default::default() };
        Ok(Request::SetWatches(SetWatches { since, one_shot, persistent }))
    }

    fn watcher(&mut self) -> Read<(String, Watcher)> {
        let path = self.string()?;
        let watcher = match self.int()? {
            1 => Watcher::Children,
            2 => Watcher::Data,
            3 => Watcher::Any,
            _ => return Err(Malformed),
        };
        Ok((path, watcher))
    }

    fn request(&mut self, code: i32) -> Read<Request> {
        Ok(match code {
            3 => Request::Exists { path: self.string()?, watch: self.bool()? },
            4 => Request::GetData { path: self.string()?, watch: self.bool()? },
            8 => Request::GetChildren { path: self.string()?, watch: self.bool()? },
            12 => Request::GetChildren2 { path: self.string()?, watch: self.bool()? },
            6 => Request::GetAcl(self.string()?),
            9 => Request::Sync(self.string()?),
            11 => Request::Ping,
            14 => Request::Multi(self.multi()?),
            16 => Request::Refused(Code::ReconfigDisabled),
            17 => self.watcher().map(|(path, watcher)| Request::CheckWatches { path, watcher })?,
            18 => self.watcher().map(|(path, watcher)| Request::RemoveWatches { path, watcher })?,
            22 => Request::MultiRead(self.multi_read()?),
            100 => {
                self.int()?;
                Request::Auth { scheme: self.string()?, credentials: self.buffer()? }
            }
            101 => self.set_watches(false)?,
            105 => self.set_watches(true)?,
            103 => Request::GetEphemerals(self.string()?),
            104 => Request::GetAllChildrenNumber(self.string()?),
            106 => Request::AddWatch { path: self.string()?, recursive: self.int()? == 1 },
            107 => Request::WhoAmI,
            -11 => Request::CloseSession,
            code => self.write(code)?.map_or(Request::Unknown, Request::Write),
        })
    }
}

/// The number of a request, and the request.
pub(crate) fn request(bytes: &[u8]) -> Result<(i32, Request), Malformed> {
    let mut reader = Reader(bytes);
    let (xid, code) = (reader.int()?, reader.int()?);
    Ok((xid, reader.request(code).unwrap_or(Request::Malformed)))
}

/// The first frame of a client.
pub(crate) fn connect(bytes: &[u8]) -> Result<Connect, Malformed> {
    let mut reader = Reader(bytes);
    let (_version, last_zxid, timeout) = (reader.int()?, reader.long()?, reader.int()?);
    let timeout = Duration::from_millis(u64::try_from(timeout).unwrap_or(0));
    Ok(Connect { last_zxid, timeout, session: reader.long()?, password: reader.buffer()? })
}

impl Request {
    /// Reads the frame of a client, without its length: the number of the request, and the request. `None` if it has no number.
    pub fn read(frame: &[u8]) -> Option<(i32, Self)> {
        request(frame).ok()
    }
}

impl Message {
    /// The frame that a server sends for it, with its length; `None` if it sends none.
    pub fn to_frame(&self) -> Option<Vec<u8>> {
        frame(self)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    fn buffer(&mut self, value: &[u8]) -> &mut Self {
        self.int(length(value.len()));
        self.0.extend(value);
        self
    }

    fn string(&mut self, value: &str) -> &mut Self {
        self.buffer(value.as_bytes())
    }

    fn strings(&mut self, values: &[String]) -> &mut Self {
        self.int(length(values.len()));
        values.iter().for_each(|value| _ = self.string(value));
        self
    }

    fn identity(&mut self, identity: &Identity) -> &mut Self {
        self.string(&identity.scheme).string(&identity.id)
    }

    fn stat(&mut self, stat: &Stat) -> &mut Self {
        self.long(stat.czxid).long(stat.mzxid).long(stat.ctime).long(stat.mtime);
        self.int(stat.version).int(stat.cversion).int(stat.aversion).long(stat.ephemeral_owner);
        self.int(stat.data_length).int(stat.num_children).long(stat.pzxid)
    }

    fn reply(&mut self, reply: &Reply) -> &mut Self {
        match reply {
            Reply::Nothing | Reply::Delete | Reply::Check => self,
            Reply::Create(path) | Reply::Sync(path) => self.string(path),
            Reply::Create2(path, stat) => self.string(path).stat(stat),
            Reply::SetData(stat) | Reply::SetAcl(stat) | Reply::Exists(stat) => self.stat(stat),
            Reply::GetData(data, stat) => self.buffer(data).stat(stat),
            Reply::GetChildren(names) | Reply::GetEphemerals(names) => self.strings(names),
            Reply::GetChildren2(names, stat) => self.strings(names).stat(stat),
            Reply::GetAcl(acls, stat) => {
                self.int(length(acls.len()));
                acls.iter().for_each(|acl| _ = self.int(acl.permissions).identity(&acl.who));
                self.stat(stat)
            }
            Reply::GetAllChildrenNumber(number) => self.int(*number),
            Reply::AddWatch => self.int(0),
            Reply::WhoAmI(identities) => {
                self.int(length(identities.len()));
                identities.iter().for_each(|identity| _ = self.identity(identity));
                self
            }
            Reply::Multi(parts) => {
                parts.iter().for_each(|part| _ = self.part(part));
                self.int(-1).bool(true).int(-1)
            }
        }
    }

    fn part(&mut self, part: &Result<Reply, Code>) -> &mut Self {
        let reply = match part {
            Ok(reply) => reply,
            Err(code) => return self.int(-1).bool(false).int(*code as i32).int(*code as i32),
        };
        let code = match reply {
            Reply::Create(_) => 1,
            Reply::Delete => 2,
            Reply::GetData(..) => 4,
            Reply::SetData(_) => 5,
            Reply::GetChildren(_) => 8,
            Reply::Check => 13,
            Reply::Create2(..) => 15,
            _ => -1,
        };
        self.int(code).bool(false).int(0).reply(reply)
    }

    fn event(&mut self, event: &Event) -> &mut Self {
        self.int(NOTIFICATION).long(event.zxid).int(0);
        self.int(event.kind as i32).int(CONNECTED).string(&event.path)
    }
}

/// The frame of a message, with its length; `None` if it is none.
pub(crate) fn frame(message: &Message) -> Option<Vec<u8>> {
    let mut writer = Writer(vec![0; 4]);
    match message {
        Message::Connected(connected) => {
            let timeout = i32::try_from(connected.timeout.as_millis()).unwrap_or(i32::MAX);
            let (version, is_read_only) = (0, false);
            writer
                .int(version)
                .int(timeout)
                .long(connected.session)
                .buffer(&connected.password)
                .bool(is_read_only);
        }
        Message::Reply { xid, zxid, result: Ok(reply) } => _ = writer.int(*xid).long(*zxid).int(0).reply(reply),
        Message::Reply { xid, zxid, result: Err(code) } => _ = writer.int(*xid).long(*zxid).int(*code as i32),
        Message::Event(event) => _ = writer.event(event),
        Message::Close => return None,
    }
    let mut frame = writer.0;
    let head = length(frame.len() - 4).to_be_bytes();
    frame[..4].copy_from_slice(&head);
    Some(frame)
}
