//! Owns the four letter words, by which servers report about themselves where their configuration allows it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server has for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest answer that is read.
const MOST: u64 = 256 * 1024;

/// What a server reports about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// From `srvr`: major, minor and patch.
    pub(crate) version: Option<(u32, u32, u32)>,
    /// From `srvr`: `leader`, `follower`, `observer` or `standalone`.
    pub(crate) mode: Option<String>,
    /// From `conf`.
    pub(crate) tick: Option<Duration>,
    /// From `mntr` of a leader: followers that are in step.
    pub(crate) synced_followers: Option<usize>,
    /// From `mntr`: how long the slowest hundredth of the writes has taken, since the start.
    pub(crate) slow_writes: Option<Duration>,
    /// From `mntr`: how many writes to its disk the server has waited for. [`count_fsyncs`](Words::count_fsyncs) asks.
    pub(crate) fsyncs: Option<u64>,
    /// The words that the configuration forbids.
    pub(crate) forbidden: Vec<&'static str>,
}

impl Words {
    /// Asks a server, by its address with the port.
    pub(crate) async fn ask(address: &str) -> Self {
        let mut words = Self::default();
        let (srvr, conf, mntr) =
            tokio::join!(answer(address, "srvr"), answer(address, "conf"), answer(address, "mntr"));
        for (word, answer) in [("srvr", &srvr), ("conf", &conf), ("mntr", &mntr)] {
            if answer.as_deref().is_some_and(|answer| answer.contains("not in the whitelist")) {
                words.forbidden.push(word);
            }
        }
        let srvr = fields(&srvr, ": ");
        words.version = srvr.get("Zookeeper version").and_then(|version| parse_version(version));
        words.mode = srvr.get("Mode").cloned();
        let conf = fields(&conf, "=");
        words.tick = conf.get("tickTime").and_then(|tick| tick.parse().ok()).map(Duration::from_millis);
        let mntr = fields(&mntr, "\t");
        words.synced_followers = mntr.get("zk_synced_followers").and_then(|count| count.parse().ok());
        let slow = mntr.get("zk_p99_updatelatency").and_then(|ms| ms.parse::<f64>().ok());
        words.slow_writes = slow.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        words
    }

    /// Asks how many writes to its disk the server has waited for, after it has answered some.
    pub(crate) async fn count_fsyncs(&mut self, address: &str) {
        let mntr = fields(&answer(address, "mntr").await, "\t");
        self.fsyncs = mntr.get("zk_cnt_fsynctime").and_then(|count| count.parse().ok());
    }
}

async fn answer(address: &str, word: &str) -> Option<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(PATIENCE, asked).await.ok()?.ok()
}

fn fields(answer: &Option<String>, separator: &str) -> HashMap<String, String> {
    let lines = answer.iter().flat_map(|answer| answer.lines());
    let pairs = lines.filter_map(|line| line.split_once(separator));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut numbers = text[..end].split('.').map(str::parse);
    match (numbers.next()?, numbers.next()?, numbers.next()?) {
        (Ok(major), Ok(minor), Ok(patch)) => Some((major, minor, patch)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_every_spelling() {
        assert_eq!(parse_version("3.8.0-${mvngit.commit.id}, built on 2022-02-25"), Some((3, 8, 0)));
        assert_eq!(parse_version("3.9.4-abc, built on"), Some((3, 9, 4)));
        assert_eq!(parse_version("3.5"), None);
        assert_eq!(parse_version("unknown"), None);
    }
}
