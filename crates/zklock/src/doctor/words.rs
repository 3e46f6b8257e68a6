//! Owns the four letter words, by which servers report about themselves where their configuration allows it.

use std::collections::HashMap;
use std::time::Duration;

use crate::line::Line;
use crate::port::Silence;

/// The answer of a server that has no majority of its ensemble.
const IDLE: &str = "not currently serving requests";

/// What a server reports about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Whether it has answered as a server does.
    pub(crate) is_answered: bool,
    /// Whether it runs and serves nobody: too few servers of its ensemble run, or it does not reach them.
    pub(crate) is_idle: bool,
    /// From `srvr`: major, minor and patch.
    pub(crate) version: Option<(u32, u32, u32)>,
    /// From `srvr`: `leader`, `follower`, `observer` or `standalone`.
    pub(crate) mode: Option<String>,
    /// From `conf`.
    pub(crate) tick: Option<Duration>,
    /// From `conf` of a server in an ensemble: the ticks after which a silent leader or follower is given up.
    pub(crate) sync_limit: Option<u32>,
    /// Whether `mntr` is answered, from which the rest is.
    pub(crate) reports_numbers: bool,
    /// Of a leader: followers that are in step.
    pub(crate) synced_followers: Option<usize>,
    /// How long the slowest hundredth of the writes has taken, since the start.
    pub(crate) slow_writes: Option<Duration>,
    /// How many writes to its disk the server has waited for. [`count_fsyncs`](Words::count_fsyncs) asks.
    pub(crate) fsyncs: Option<u64>,
    /// The words that the configuration forbids.
    pub(crate) forbidden: Vec<&'static str>,
}

impl Words {
    /// Asks a server. The error is why TLS fails.
    pub(crate) async fn ask(line: &Line, limit: Duration) -> Result<Self, Silence> {
        let mut words = Self::default();
        let srvr = match line.ask("srvr", limit).await {
            Ok(answer) => Some(answer),
            Err(Silence::None) => return Ok(words),
            Err(silence) => return Err(silence),
        };
        let (conf, mntr) = tokio::join!(line.ask("conf", limit), line.ask("mntr", limit));
        let (conf, mntr) = (conf.ok(), mntr.ok());
        for (word, answer) in [("srvr", &srvr), ("conf", &conf), ("mntr", &mntr)] {
            if answer.as_deref().is_some_and(|answer| answer.contains("not in the whitelist")) {
                words.forbidden.push(word);
            }
        }
        words.is_idle = srvr.as_deref().is_some_and(|answer| answer.contains(IDLE));
        let srvr = fields(&srvr, ": ");
        words.version = srvr.get("Zookeeper version").and_then(|version| parse_version(version));
        words.mode = srvr.get("Mode").cloned();
        words.is_answered = words.is_idle || words.mode.is_some() || !words.forbidden.is_empty();
        let conf = fields(&conf, "=");
        words.tick = conf.get("tickTime").and_then(|tick| tick.parse().ok()).map(Duration::from_millis);
        words.sync_limit = conf.get("syncLimit").and_then(|ticks| ticks.parse().ok());
        let mntr = fields(&mntr, "\t");
        words.reports_numbers = !mntr.is_empty();
        words.synced_followers = mntr.get("zk_synced_followers").and_then(|count| count.parse().ok());
        let slow = mntr.get("zk_p99_updatelatency").and_then(|ms| ms.parse::<f64>().ok());
        words.slow_writes = slow.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        Ok(words)
    }

    /// Asks how many writes to its disk the server has waited for, after it has answered some.
    pub(crate) async fn count_fsyncs(&mut self, line: &Line, limit: Duration) {
        let mntr = fields(&line.ask("mntr", limit).await.ok(), "\t");
        self.fsyncs = mntr.get("zk_cnt_fsynctime").and_then(|count| count.parse().ok());
    }
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
