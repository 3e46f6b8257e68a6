//! Excuses for what no lock can prevent: paused processes, nodes deleted by an operator, and ping answers held back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use testbed::nemesis::{Kind, Struck};

use super::facts::{Deletion, Facts};
use crate::line::What;

/// The common prefix of the locks which are acquired together.
const MULTI: &str = "/chaos/multi-";

/// How long a process may take to report a loss after it resumed.
const GRACE: u64 = 250_000_000;

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

/// When the operator deleted, or may have deleted, the node of a holder.
#[derive(Clone, Copy, Debug)]
struct Removal {
    sent: u64,
    /// When a holder that is connected must know of it.
    known: u64,
    /// When a hold is suspended at the latest, if its connection had fallen silent by then.
    silent: u64,
    /// When one that is not can no longer trust in its session.
    over: u64,
}

/// The folder of a node, and its number.
fn place(node: &str) -> (&str, &str) {
    let (folder, name) = node.rsplit_once('/').unwrap_or(("", node));
    (folder, name.get(name.len().saturating_sub(10)..).unwrap_or_default())
}

#[derive(Debug, Default)]
pub(super) struct Excuses {
    by_process: HashMap<Arc<str>, Vec<Stretch>>,
    /// By object and token.
    deleted: HashMap<(String, i64), Removal>,
    killed: Vec<(String, u64)>,
    /// When the holds of each process were suspended.
    suspended: HashMap<Arc<str>, Vec<(u64, u64)>>,
}

impl Excuses {
    pub(super) fn of(facts: &Facts, session: Duration) -> Self {
        let mut excuses = Self::default();
        let session = session.as_nanos() as u64;
        // The last answer may be old, and servers round up to ticks.
        let lonely = session / 4 * 3;
        for struck in &facts.faults {
            let (begin, end) = (struck.begin, struck.end);
            let stretch = match struck.fault {
                Kind::ClientPause | Kind::LongClientPause => Stretch { begin, end, unaware: false },
                // No session can have expired earlier, and none expires once pings are answered again.
                Kind::PingsHeld if end - silent_since(struck, &facts.faults) >= lonely => {
                    let begin = silent_since(struck, &facts.faults);
                    for client in &struck.clients {
                        let late = facts.faults.iter().any(|other| {
                            keeps_news_from(client, struck, other)
                                && other.begin <= end
                                && begin + lonely <= other.end
                        });
                        let end = if late { end + session } else { end };
                        let stretch = Stretch { begin: begin + lonely, end, unaware: true };
                        excuses.by_process.entry(client.as_str().into()).or_default().push(stretch);
                    }
                    continue;
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
        let (mut moved, mut moving) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for mark in &facts.marks {
            match &mark.what {
                What::Stalled { since } => {
                    let stretch = Stretch { begin: *since, end: mark.at, unaware: false };
                    excuses.by_process.entry(Arc::clone(&mark.process)).or_default().push(stretch);
                }
                // All holds of a process have the same session.
                What::Suspended { .. } => {
                    excuses.suspended.entry(Arc::clone(&mark.process)).or_default().push((mark.at, u64::MAX));
                }
                What::Resumed { .. } => {
                    for (_, end) in excuses.suspended.get_mut(&mark.process).into_iter().flatten() {
                        *end = mark.at.min(*end);
                    }
                }
                What::Moved { token, node, .. } => drop(moved.insert(node.clone(), *token)),
                // A process that loses the new node before it hears of it cannot name it.
                What::Moving { token, node, .. } => {
                    moving.entry(place(node)).or_default().push((mark.at, *token));
                }
                _ => {}
            }
        }
        for Deletion { node, token, sent, done } in facts.deletions() {
            let unnamed = moving.get(&place(node)).filter(|_| node.contains("__READ__"));
            // Numbers start over with their path.
            let unnamed = unnamed.and_then(|all| all.iter().rfind(|(at, _)| *at <= done.unwrap_or(u64::MAX)));
            let token = moved.get(node).copied().or(unnamed.map(|(_, token)| *token)).unwrap_or(token);
            let dir = node.rsplit_once('/').map_or("", |(dir, _)| dir);
            let object = dir.strip_suffix("/leases").unwrap_or(dir).to_owned();
            // An unanswered deletion may happen until the operator's session has ended.
            let done = done.unwrap_or(sent + session);
            let (known, over) = (done + session / 3 + GRACE, done + session + GRACE);
            let new = Removal { sent, known, silent: known + session / 2, over };
            let removal = excuses.deleted.entry((object, token)).or_insert(new);
            removal.known = removal.known.max(new.known);
            removal.silent = removal.silent.max(new.silent);
            removal.over = removal.over.max(new.over);
        }
        excuses.by_process.values_mut().for_each(merge);
        excuses
    }

    /// The excuse at an instant of a process, and of its grant with this token.
    pub(super) fn find(&self, process: &str, object: &str, token: i64, at: u64) -> Option<Excuse> {
        let deleted = self.deletion(process, object, token, at);
        let deleted = deleted.map(|since| Excuse { since, unaware: true });
        self.still(process, at).into_iter().chain(deleted).reduce(Excuse::and)
    }

    /// When the operator may have deleted the node of a holder, if the process need not know of it at that instant.
    pub(super) fn deletion(&self, process: &str, object: &str, token: i64, at: u64) -> Option<u64> {
        let removal = self.deleted.get(&(object.to_owned(), token))?;
        // A process that was paused before it had to know need not know until it resumes.
        let ran = self.still(process, at).map_or(at, |still| still.since);
        let known = if self.was_suspended(process, removal) { removal.over } else { removal.known };
        (removal.sent <= at && ran <= known).then_some(removal.sent)
    }

    /// Whether the process reported that it had no connection, or a silent one, before it had to know. Silence is reported
    /// half a session timeout after the last answer.
    fn was_suspended(&self, process: &str, removal: &Removal) -> bool {
        let all = self.suspended.get(process).into_iter().flatten();
        all.clone().any(|(begin, end)| *begin <= removal.silent && removal.sent <= *end)
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
        let deleted = self.deleted.iter().filter(|((object, _), _)| is_member(object));
        is_member(object) && deleted.map(|(_, removal)| removal.sent).any(|at| begin <= at + GRACE && at <= end)
    }
}

/// Since when a server whose pings are held back has answered none: it may have been stopped when that began.
fn silent_since(held: &Struck, faults: &[Struck]) -> u64 {
    let was_stopped = |other: &&Struck| {
        let is_meanwhile = other.begin <= held.begin && held.begin <= other.end;
        other.fault == Kind::ServerPause && is_meanwhile && servers(other).0 == servers(held).0
    };
    faults.iter().filter(was_stopped).map(|other| other.begin).fold(held.begin, u64::min)
}

/// The server that a fault hits; and if that is the link between a follower and its leader, the leader.
fn servers(struck: &Struck) -> (&str, Option<&str>) {
    match struck.target.split_once(" (leader ") {
        Some((follower, leader)) => (follower, leader.strip_suffix(')')),
        None => (&struck.target, None),
    }
}

/// Whether a fault may keep the news of an expired session from its client, whose server's pings were held back. Trust ends one
/// timeout later at the latest.
fn keeps_news_from(client: &str, held: &Struck, fault: &Struck) -> bool {
    let (server, leader) = servers(held);
    let hit = servers(fault).0;
    match fault.fault {
        // It hits all of them.
        Kind::RollingRestart => true,
        Kind::FollowerKill | Kind::FollowerCutOff => hit == server,
        // The news comes from the leader.
        Kind::LeaderKill | Kind::ServerPause | Kind::SlowDisk | Kind::Partition | Kind::LeaderIsolation => {
            hit == server || leader.is_some_and(|leader| hit.strip_prefix("server ") == Some(leader))
        }
        Kind::ClientPartition | Kind::Flapping => fault.clients.iter().any(|hit| hit == client),
        _ => false,
    }
}

/// Merges overlapping intervals.
fn merge(stretches: &mut Vec<Stretch>) {
    stretches.sort_by_key(|stretch| stretch.begin);
    stretches.dedup_by(|next, stretch| {
        let overlaps = next.begin <= stretch.end;
        if overlaps {
            stretch.end = stretch.end.max(next.end);
            stretch.unaware |= next.unaware;
        }
        overlaps
    });
}
