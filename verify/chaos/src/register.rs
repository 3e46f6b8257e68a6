//! The resource which the locks guard: two sets of numbers, to which clients add by reading and writing back.
//!
//! Like a file, a write replaces the whole set. One set checks fencing tokens, and the other ignores them. A client
//! reads the number of a version; the register remembers which version each one was made from.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

/// Whether requests with old tokens are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tokens {
    Checked,
    Ignored,
}

impl Tokens {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Checked => "checked",
            Self::Ignored => "ignored",
        }
    }
}

/// The server.
#[derive(Debug)]
pub(crate) struct Register {
    sets: Arc<Mutex<Sets>>,
    socket: PathBuf,
}

#[derive(Debug, Default)]
struct Sets {
    checked: Set,
    ignored: Set,
    /// The clients which have read the set that ignores tokens, and not written it yet.
    inside: Vec<String>,
}

#[derive(Debug, Default)]
struct Set {
    /// For each version, the version it was made from and the element added.
    versions: Vec<(Option<usize>, u64)>,
    now: Option<usize>,
    largest: i64,
    acknowledged: HashSet<u64>,
    refused: usize,
}

/// Counts of the updates of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Updates {
    pub(crate) acknowledged: usize,
    pub(crate) lost: usize,
    pub(crate) refused: usize,
}

impl Set {
    fn read(&mut self, token: Option<i64>) -> Option<Option<usize>> {
        self.admit(token).then_some(self.now)
    }

    fn write(&mut self, token: Option<i64>, base: Option<usize>, element: u64) -> bool {
        let admitted = self.admit(token) && base.is_none_or(|base| base < self.versions.len());
        if admitted {
            self.now = Some(self.versions.len());
            self.versions.push((base, element));
            self.acknowledged.insert(element);
        }
        admitted
    }

    /// Refuses old tokens. A read counts too: an older holder must not write between our read and our write.
    fn admit(&mut self, token: Option<i64>) -> bool {
        let Some(token) = token else { return true };
        let admitted = token >= self.largest;
        self.largest = self.largest.max(token);
        self.refused += usize::from(!admitted);
        admitted
    }

    fn updates(&self) -> Updates {
        let mut there = HashSet::new();
        let mut version = self.now;
        while let Some(number) = version {
            let (base, element) = self.versions[number];
            there.insert(element);
            version = base;
        }
        let lost = self.acknowledged.difference(&there).count();
        Updates { acknowledged: self.acknowledged.len(), lost, refused: self.refused }
    }
}

impl Register {
    /// Listens on a socket in this directory.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let socket = folder.join("register");
        let listener = UnixListener::bind(&socket)?;
        let sets = Arc::<Mutex<Sets>>::default();
        tokio::spawn({
            let sets = Arc::clone(&sets);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&sets)));
                }
            }
        });
        Ok(Self { sets, socket })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn updates(&self, tokens: Tokens) -> Updates {
        let sets = lock(&self.sets);
        match tokens {
            Tokens::Checked => sets.checked.updates(),
            Tokens::Ignored => sets.ignored.updates(),
        }
    }

    /// The client which was last to read, and not yet write, the set that only the lock protects.
    pub(crate) fn someone_inside(&self) -> Option<String> {
        lock(&self.sets).inside.last().cloned()
    }
}

fn lock(sets: &Mutex<Sets>) -> MutexGuard<'_, Sets> {
    sets.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(stream: UnixStream, sets: Arc<Mutex<Sets>>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut client = String::new();
    while let Some(line) = lines.next_line().await? {
        let answer = lock(&sets).answer(&line, &mut client);
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    lock(&sets).inside.retain(|inside| *inside != client);
    Ok(())
}

impl Sets {
    /// Answers `read CLIENT SET TOKEN` with a version, `write CLIENT SET TOKEN VERSION ELEMENT` with `ok`, and both with
    /// `refused` if the token is too old.
    fn answer(&mut self, line: &str, client: &mut String) -> String {
        let words: Vec<_> = line.split(' ').collect();
        let (verb, name, checked) = (words[0], words[1], words[2] == Tokens::Checked.name());
        name.clone_into(client);
        let set = if checked { &mut self.checked } else { &mut self.ignored };
        let token = words[3].parse().ok().filter(|_| checked);
        if verb == "read" {
            if !checked {
                self.inside.push(name.to_owned());
            }
            return set
                .read(token)
                .map_or("refused".to_owned(), |version| version.map_or("-".to_owned(), |it| it.to_string()));
        }
        if !checked {
            self.inside.retain(|inside| inside != name);
        }
        let element = words[5].parse().unwrap_or_default();
        if set.write(token, words[4].parse().ok(), element) { "ok".to_owned() } else { "refused".to_owned() }
    }
}

/// A client of the register.
#[derive(Debug)]
pub(crate) struct RegisterClient {
    client: String,
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl RegisterClient {
    pub(crate) async fn open(socket: &Path, client: &str) -> io::Result<Self> {
        let (reader, writer) = UnixStream::connect(socket).await?.into_split();
        Ok(Self { client: client.to_owned(), lines: BufReader::new(reader).lines(), writer })
    }

    /// The current version; `None` if the token is too old.
    pub(crate) async fn read(&mut self, tokens: Tokens, token: i64) -> io::Result<Option<String>> {
        let answer = self.request(format!("read {} {} {token}\n", self.client, tokens.name())).await?;
        Ok(Some(answer).filter(|answer| answer != "refused"))
    }

    /// Replaces the set with this version plus one element; false if the token is too old.
    pub(crate) async fn write(
        &mut self,
        tokens: Tokens,
        token: i64,
        version: &str,
        element: u64,
    ) -> io::Result<bool> {
        let line = format!("write {} {} {token} {version} {element}\n", self.client, tokens.name());
        Ok(self.request(line).await? == "ok")
    }

    async fn request(&mut self, line: String) -> io::Result<String> {
        self.writer.write_all(line.as_bytes()).await?;
        self.lines.next_line().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
