//! A process of the service: it serves the shards that it owns.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use demos::{Result, stop_here};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use zookeeper_groups::Shards;
use zookeeper_groups::shards::Shard;

use crate::store::{Store, Write};
use crate::{GRACE, GROUP, SETTLING, SHARDS, shard_of};

/// How many writes of one shard may wait.
const WAITING: usize = 16;

/// What the parts of the process share.
#[derive(Clone)]
struct Member {
    name: String,
    store: Store,
    /// Where writes go, for each shard that is served.
    served: Arc<Mutex<BTreeMap<u32, mpsc::Sender<Put>>>>,
    /// Whether the process is to stop itself within the next write.
    freezes: Arc<AtomicBool>,
}

/// A write of a client. Without an answer the client asks another process.
struct Put {
    key: String,
    value: u64,
    is_done: oneshot::Sender<()>,
}

/// Serves shards until SIGTERM, which is for a restart, or until the others have them after SIGUSR1.
pub(crate) async fn run(name: &str, folder: &Path) -> Result<()> {
    let mut restart = signal(SignalKind::terminate())?;
    let mut leave = signal(SignalKind::user_defined1())?;
    let mut freeze = signal(SignalKind::user_defined2())?;
    let member = Member {
        name: name.to_owned(),
        store: Store::open(folder)?,
        served: Arc::default(),
        freezes: Arc::default(),
    };
    let socket = folder.join(name);
    // That of a process that was killed.
    _ = std::fs::remove_file(&socket);
    tokio::spawn(member.clone().listen(UnixListener::bind(socket)?));

    let session = demos::session().await?;
    let shards = Shards::builder(GROUP, SHARDS).name(name).grace(GRACE).settling_time(SETTLING).build(&session)?;
    let each = member.clone();
    let mut running = tokio::spawn(shards.run(move |shard| each.clone().serve(shard)));
    loop {
        tokio::select! {
            ended = &mut running => {
                ended??;
                return Ok(session.close().await?);
            }
            _ = restart.recv() => shards.stop(),
            _ = leave.recv() => shards.leave(),
            _ = freeze.recv() => member.freezes.store(true, Ordering::SeqCst),
        }
    }
}

impl Member {
    /// Serves a shard: does its writes one after the other, and ends the present one before it releases the shard.
    async fn serve(self, shard: Shard) {
        let token = shard.fencing_token().get();
        if !matches!(self.store.begin(shard.number(), token).await, Ok(true)) {
            return;
        }
        let (send, mut puts) = mpsc::channel(WAITING);
        let _serving = Serving::new(self.clone(), shard.number(), token, send);
        let mut asked = pin!(shard.revoke_requested());
        loop {
            let put = tokio::select! {
                () = &mut asked => return,
                put = puts.recv() => put,
            };
            let Some(Put { key, value, is_done }) = put else { return };
            let write = Write { shard: shard.number(), token, owner: self.name.clone(), key, value };
            match self.write(write).await {
                Ok(true) => _ = is_done.send(()),
                // A newer owner has begun.
                Ok(false) => return,
                // The client tries again.
                Err(error) => report(&format!("error {error}")),
            }
        }
    }

    /// Writes with the token. If the process is to freeze, it is stopped between its last look at the lock and the write.
    async fn write(&self, write: Write) -> Result<bool> {
        if !self.freezes.swap(false, Ordering::SeqCst) {
            return self.store.write(write, || {}).await;
        }
        let (store, late) = (self.store.clone(), format!("{} {}", write.key, write.token));
        let frozen = late.clone();
        // In a task of its own: the future that awaits it is dropped when the process goes on, and the write is under way all the same.
        let written = tokio::spawn(async move {
            let freeze = move || {
                report(&format!("freezes {frozen}"));
                _ = stop_here();
            };
            let written = store.write(write, freeze).await;
            match &written {
                Ok(true) => report(&format!("late accepted {late}")),
                Ok(false) => report(&format!("late refused {late}")),
                Err(error) => report(&format!("error {error}")),
            }
            written
        });
        written.await?
    }

    async fn listen(self, listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().answer(stream));
        }
    }

    /// Answers a client: `done` to `KEY VALUE`, or `elsewhere` if the shard of the key is not served here.
    async fn answer(self, stream: UnixStream) -> Result<()> {
        let (lines, mut answers) = stream.into_split();
        let mut lines = BufReader::new(lines).lines();
        while let Some(line) = lines.next_line().await? {
            let (key, value) = line.split_once(' ').ok_or("a request is a key and a value")?;
            let (is_done, done) = oneshot::channel();
            let put = Put { key: key.to_owned(), value: value.parse()?, is_done };
            let owner = self.served().get(&shard_of(key)).cloned();
            if let Some(owner) = owner {
                // If the shard has ended, the answer is `elsewhere`.
                _ = owner.send(put).await;
            } else {
                drop(put);
            }
            let answer: &[u8] = if done.await.is_ok() { b"done\n" } else { b"elsewhere\n" };
            answers.write_all(answer).await?;
        }
        Ok(())
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<u32, mpsc::Sender<Put>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shard that is served. Its future may be dropped at any moment.
struct Serving {
    member: Member,
    shard: u32,
    token: i64,
}

impl Serving {
    fn new(member: Member, shard: u32, token: i64, send: mpsc::Sender<Put>) -> Self {
        member.served().insert(shard, send);
        report(&format!("+ {shard} {token}"));
        Self { member, shard, token }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.member.served().remove(&self.shard);
        report(&format!("- {} {}", self.shard, self.token));
    }
}

/// A line for the process that has started this one, which may have ended.
fn report(line: &str) {
    _ = writeln!(std::io::stdout(), "{line}");
}
