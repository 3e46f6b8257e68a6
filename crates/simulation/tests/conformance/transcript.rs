//! What a client saw, in words that do not depend on the server: without times, with transactions by their order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use zookeeper_client::{Error, Stat, WatchedEvent};

#[derive(Default)]
pub(crate) struct Transcript {
    pub(crate) lines: Vec<String>,
    sessions: BTreeMap<i64, String>,
    zxids: BTreeMap<i64, usize>,
}

impl Transcript {
    pub(crate) fn name_session(&mut self, id: i64) {
        let name = format!("session {}", self.sessions.len());
        self.sessions.entry(id).or_insert(name);
    }

    pub(crate) fn stat(&mut self, stat: &Stat) -> String {
        if stat.is_invalid() {
            return "no stat".to_owned();
        }
        let owner = match stat.ephemeral_owner {
            0 => "nobody".to_owned(),
            id => self.sessions.get(&id).cloned().unwrap_or_else(|| "somebody".to_owned()),
        };
        let [czxid, mzxid, pzxid] = [stat.czxid, stat.mzxid, stat.pzxid].map(|zxid| self.zxid(zxid));
        format!(
            "c{czxid} m{mzxid} p{pzxid} versions {} {} {} of {owner}, {} bytes, {} children",
            stat.version, stat.cversion, stat.aversion, stat.data_length, stat.num_children
        )
    }

    /// A transaction, until [`Transcript::finish`] knows its place.
    pub(crate) fn zxid(&mut self, zxid: i64) -> String {
        if zxid == WatchedEvent::NO_ZXID {
            return "none".to_owned();
        }
        self.zxids.insert(zxid, 0);
        format!("<{zxid}>")
    }

    pub(crate) fn outcome(result: Result<String, impl Into<Error> + Debug>) -> String {
        result.unwrap_or_else(|error| format!("{error:?}"))
    }

    /// The lines, with each transaction as its place in the order of all that were seen.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.zxids.values_mut().enumerate().for_each(|(place, value)| *value = place);
        for line in &mut self.lines {
            for (zxid, place) in &self.zxids {
                *line = line.replace(&format!("<{zxid}>"), &format!("#{place}"));
            }
        }
        self.lines
    }
}
