//! Owns [`Clients`]: each writes the numbers from 1 on to a key of its own, each number until it is acknowledged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use demos::Result;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::shard_of;

const CLIENTS: usize = 48;

/// The pause of a client between two writes, and before it asks all processes again.
const PAUSE: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_millis(20);

/// How long a client waits for an answer of a process, which may be stopped.
const ANSWER: Duration = Duration::from_millis(500);

/// A write that was acknowledged, of a key of this shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) at: Instant,
    pub(crate) shard: u32,
    /// How long the client had to wait for it.
    pub(crate) took: Duration,
}

pub(crate) struct Clients {
    tasks: JoinSet<(String, u64)>,
    end: watch::Sender<bool>,
}

impl Clients {
    /// Starts the clients of these processes.
    pub(crate) fn start(folder: &Path, names: &[&str], report: &mpsc::UnboundedSender<Acknowledged>) -> Self {
        let (end, ends) = watch::channel(false);
        let members: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        let tasks = (0..CLIENTS).map(|number| write(key(number), members.clone(), report.clone(), ends.clone()));
        Self { tasks: tasks.collect(), end }
    }

    /// Lets the clients end after the present write. Returns the last number of each key that was acknowledged.
    pub(crate) async fn end(self) -> BTreeMap<String, u64> {
        self.end.send_replace(true);
        self.tasks.join_all().await.into_iter().collect()
    }
}

fn key(number: usize) -> String {
    format!("item-{number}")
}

async fn write(
    key: String,
    members: Vec<PathBuf>,
    report: mpsc::UnboundedSender<Acknowledged>,
    ends: watch::Receiver<bool>,
) -> (String, u64) {
    let (shard, mut owner, mut value) = (shard_of(&key), 0, 0);
    while !*ends.borrow() {
        let began = Instant::now();
        // From the process on that has acknowledged the last one.
        while !matches!(timeout(ANSWER, put(&members[owner], &key, value + 1)).await, Ok(Ok(true))) {
            owner = (owner + 1) % members.len();
            if owner == 0 {
                sleep(AGAIN).await;
            }
        }
        value += 1;
        let at = Instant::now();
        _ = report.send(Acknowledged { at, shard, took: at - began });
        sleep(PAUSE).await;
    }
    (key, value)
}

/// Whether this process has written the number.
async fn put(member: &Path, key: &str, value: u64) -> Result<bool> {
    let mut stream = BufReader::new(UnixStream::connect(member).await?);
    stream.write_all(format!("{key} {value}\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    Ok(answer == "done\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::SHARDS;

    #[test]
    fn every_shard_has_a_key() {
        let shards: BTreeSet<_> = (0..CLIENTS).map(|number| shard_of(&key(number))).collect();
        assert!(shards.into_iter().eq(0..SHARDS));
    }
}
