//! Excuses for what no lock can prevent: paused processes, nodes deleted by an operator, and ping answers held back. They are
//! generous, because time is judged where it is exact, in virtual time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use testbed::nemesis::Kind;

use super::facts::Facts;
use crate::line::What;

/// The common prefix of the locks which are acquired together.
const MULTI: &str = "/chaos/multi-";

/// How long a process may take to report a loss after it resumed.
const GRACE: u64 = 300_000_000;

/// Why a loss may be reported after the next grant: an excuse of a process at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excuse {
    /// Since when it may not have known of its loss.
    pub(super) since: u64,
    /// Whether it may have run meanwhile and still believed that it held the lock.
    pub(super) unaware: bool,
}

impl Excuse {
    fn and(self, other: Self) -> Self {
        Self { since: self.since.min(other.since), unaware: self.unaware || other.unaware }
    }
}

/// An interval with an excuse.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: u64,
    end: u64,
    unaware: bool,
}

/// A node that the operator deleted, or may have deleted.
#[derive(Clone, Copy, Debug)]
struct Removal {
    sent: u64,
    /// The token of its hold. `None` for a reader's node, which may be that of a downgraded writer, who has kept his token.
    token: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Excuses {
    by_process: HashMap<Arc<str>, Vec<Stretch>>,
    /// By object.
    deleted: HashMap<String, Vec<Removal>>,
    killed: Vec<(String, u64)>,
}

impl Excuses {
    pub(super) fn of(facts: &Facts, session: Duration) -> Self {
        let mut excuses = Self::default();
        let session = session.as_nanos() as u64;
        for struck in &facts.faults {
            let (begin, end) = (struck.begin, struck.end);
            let stretch = match struck.fault {
                Kind::ClientPause | Kind::LongClientPause => Stretch { begin, end, unaware: false },
                // The server may have answered its last ping one timeout earlier, and trust ends one later.
                Kind::PingsHeld => {
                    Stretch { begin: begin.saturating_sub(session), end: end + session, unaware: true }
                }
                Kind::ClientKill => {
                    excuses.killed.extend(struck.clients.iter().map(|client| (client.clone(), begin)));
                    continue;
                }
                _ => continue,
            };
            for client in &struck.clients {
                excuses.by_process.entry(client.as_str().into()).or_default().push(stretch);
            }
        }
        for mark in &facts.marks {
            if let What::Stalled { since } = mark.what {
                let stretch = Stretch { begin: since, end: mark.at, unaware: false };
                excuses.by_process.entry(Arc::clone(&mark.process)).or_default().push(stretch);
            }
        }
        for (node, token, sent) in facts.deletions() {
            let dir = node.rsplit_once('/').map_or("", |(dir, _)| dir);
            let object = dir.strip_suffix("/leases").unwrap_or(dir).to_owned();
            let token = Some(token).filter(|_| !node.contains("__READ__"));
            excuses.deleted.entry(object).or_default().push(Removal { sent, token });
        }
        excuses
    }

    /// The excuse at an instant of a process that was granted `object` at this time with this token.
    pub(super) fn find(&self, process: &str, object: &str, grant: (u64, i64), at: u64) -> Option<Excuse> {
        let deleted = self.deletion(object, grant, at).map(|since| Excuse { since, unaware: true });
        self.still(process, at).into_iter().chain(deleted).reduce(Excuse::and)
    }

    /// When the operator may have deleted the node of a holder.
    pub(super) fn deletion(&self, object: &str, (granted, token): (u64, i64), at: u64) -> Option<u64> {
        let of = |removal: &&Removal| {
            removal.token.is_none_or(|of| of == token) && (granted..=at).contains(&removal.sent)
        };
        self.deleted.get(object)?.iter().find(of).map(|removal| removal.sent)
    }

    /// The excuse at an instant of a process, independent of its grants.
    fn still(&self, process: &str, at: u64) -> Option<Excuse> {
        let stretches = self.by_process.get(process).into_iter().flatten();
        let still = stretches.filter(|stretch| (stretch.begin..=stretch.end + GRACE).contains(&at));
        still.map(|stretch| Excuse { since: stretch.begin, unaware: stretch.unaware }).reduce(Excuse::and)
    }

    /// The killed processes, with the last instant at which each certainly ran.
    pub(super) fn killed(&self) -> impl Iterator<Item = (&str, u64)> {
        let ran = |process, at| self.still(process, at).map_or(at, |excuse| excuse.since);
        self.killed.iter().map(move |(process, at)| (process.as_str(), ran(process, *at)))
    }

    /// Whether the operator deleted a node of the multi-locks within this time. A waiter for several of them then
    /// silently queues again, at the tail, with new nodes.
    pub(super) fn queued_again(&self, object: &str, begin: u64, end: u64) -> bool {
        let is_member = |object: &str| object.starts_with(MULTI);
        let deleted = self.deleted.iter().filter(|(object, _)| is_member(object)).flat_map(|(_, all)| all);
        is_member(object) && deleted.map(|removal| removal.sent).any(|at| begin <= at + GRACE && at <= end)
    }
}
