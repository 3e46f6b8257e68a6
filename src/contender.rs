//! Owns [`Contender`]: who holds and who waits, as an operator wants to know it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use zookeeper_client::SessionId;

use crate::error::Result;
use crate::hold::token::FencingToken;
use crate::queue::{Interrupt, Kind, Line, Name, Ranked};
use crate::session::Link;

/// How many nodes are read at a time.
const BURST: usize = 500;

/// One who holds a lock or waits for it, as of one moment.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    name: String,
    sequence: i32,
    czxid: i64,
    is_holder: bool,
    session_id: i64,
    identifier: Vec<u8>,
    since: SystemTime,
}

impl Contender {
    /// The name of its node within the lock path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sequence number of its node. It wraps, and starts over with the path; see [`token`](Self::token).
    #[must_use]
    pub fn sequence(&self) -> i32 {
        self.sequence
    }

    /// Whether it holds the lock.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.is_holder
    }

    /// The ZooKeeper session that its node belongs to.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        SessionId(self.session_id)
    }

    /// What it calls itself; see [`Options::with_identifier`](crate::Options::with_identifier).
    #[must_use]
    pub fn identifier(&self) -> &[u8] {
        &self.identifier
    }

    /// When it joined the queue, by the servers' clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The fencing token that it has, or will have.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        FencingToken::new(self.czxid, 0)
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("name", &self.name)
            .field("is_holder", &self.is_holder)
            .field("session_id", &self.session_id())
            .field("identifier", &String::from_utf8_lossy(&self.identifier))
            .finish_non_exhaustive()
    }
}

/// Lists the contenders of a line, in its order.
pub(crate) async fn list(line: &Line) -> Result<Vec<Contender>> {
    line.within(async {
        loop {
            let link = line.session.link().await?;
            if let Some(contenders) = line.attempt(&link, list_once(line, &link)).await? {
                return Ok(contenders);
            }
        }
    })
    .await
}

async fn list_once(line: &Line, link: &Arc<Link>) -> Result<Vec<Contender>, Interrupt> {
    let names = line.list(link).await?;
    let mut contenders = Vec::new();
    for burst in names.chunks(BURST) {
        let parsed: Vec<_> = burst.iter().filter_map(|text| Name::parse(text)).collect();
        let nodes = join_all(parsed.iter().map(|name| read(line, link, name))).await;
        for (name, node) in parsed.into_iter().zip(nodes) {
            contenders.extend(node?.map(|contender| (name, contender)));
        }
    }
    Ok(in_order(contenders))
}

/// A contender, or `None` if it has left since it was listed.
async fn read(line: &Line, link: &Arc<Link>, name: &Name<'_>) -> Result<Option<Contender>, Interrupt> {
    let found = line.read(link, name.text).await?;
    Ok(found.map(|(identifier, stat)| Contender {
        name: name.text.to_owned(),
        sequence: name.number,
        czxid: stat.czxid,
        is_holder: false,
        session_id: stat.ephemeral_owner,
        identifier,
        since: UNIX_EPOCH + Duration::from_millis(stat.ctime.try_into().unwrap_or_default()),
    }))
}

/// Puts contenders in line, and tells who of them hold.
fn in_order(contenders: Vec<(Name<'_>, Contender)>) -> Vec<Contender> {
    let mut line: Vec<_> = contenders
        .into_iter()
        .map(|(name, contender)| (Ranked { name, czxid: Some(contender.czxid) }, contender))
        .collect();
    let last =
        line.iter().map(|(ranked, _)| *ranked).reduce(|last, one| if last.precedes(&one) { one } else { last });
    if let Some(last) = last {
        line.sort_by(|(one, _), (other, _)| one.cmp_before(other, last.name.number));
    }
    let mut ahead: Vec<Kind> = Vec::new();
    line.into_iter()
        .map(|(Ranked { name, .. }, mut contender)| {
            contender.is_holder = !ahead.iter().any(|&kind| name.kind.waits_for(kind));
            if !ahead.contains(&name.kind) {
                ahead.push(name.kind);
            }
            contender
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: &[(&str, i64)]) -> Vec<(String, bool)> {
        let contenders = names.iter().map(|&(text, czxid)| {
            let contender = Contender {
                name: text.to_owned(),
                sequence: 0,
                czxid,
                is_holder: false,
                session_id: 0,
                identifier: Vec::new(),
                since: UNIX_EPOCH,
            };
            (Name::parse(text).expect("a contender's name"), contender)
        });
        let line = in_order(contenders.collect());
        line.into_iter().map(|contender| (contender.name.split_at(1).0.to_owned(), contender.is_holder)).collect()
    }

    #[test]
    fn holders_come_first() {
        let line = order(&[("c-lock-0000000012", 9), ("a-lock-0000000002", 4), ("b-lock-0000000010", 7)]);
        assert_eq!(line, [("a", true), ("b", false), ("c", false)].map(|(name, holds)| (name.to_owned(), holds)));
        let line = order(&[("c__WRIT__0000000003", 3), ("b__READ__0000000002", 2), ("a__READ__0000000001", 1)]);
        assert_eq!(line, [("a", true), ("b", true), ("c", false)].map(|(name, holds)| (name.to_owned(), holds)));
    }

    #[test]
    fn the_end_of_the_counter_is_in_order_of_creation() {
        let line = order(&[
            ("d-lock--2147483648", 8),
            ("a-lock-2147483645", 1),
            ("c-lock-2147483647", 5),
            ("b-lock--2147483640", 3),
            ("e-lock-2147483647", 9),
        ]);
        assert_eq!(line.iter().map(|(name, _)| name.as_str()).collect::<String>(), "abcde");
    }
}
