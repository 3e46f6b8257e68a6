//! Owns the findings: which measurements would hurt locks, and what to change. Free of I/O.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use zookeeper_recipes::FencingToken;

use crate::doctor::host::{Host, Seen};
use crate::doctor::ids::IDS;
use crate::doctor::reason::Reason;
use crate::exit::NO_LOCK_IN_A_LOCAL_SESSION;

/// The newest version of each branch that got fixes when this was built, in November 2026. Branches before the first got none any more.
const NEWEST: [(u32, u32, u32); 2] = [(3, 8, 8), (3, 9, 7)];

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// One of [`IDS`].
    pub(crate) id: &'static str,
    pub(crate) level: Level,
    /// The hosts that show it. Empty if it is about the path, or the servers together.
    pub(crate) hosts: Vec<String>,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Locks are refused, lost or granted twice.
    Fix,
    /// Nothing is wrong yet.
    Note,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fix => "fix",
            Self::Note => "note",
        }
    }
}

impl Finding {
    pub(crate) fn fix(id: &'static str, text: impl Into<String>) -> Self {
        Self::new(id, Level::Fix, text.into())
    }

    pub(crate) fn note(id: &'static str, text: impl Into<String>) -> Self {
        Self::new(id, Level::Note, text.into())
    }

    fn new(id: &'static str, level: Level, text: String) -> Self {
        debug_assert!(IDS.contains(&id), "{id} is in no list of ids");
        Self { id, level, hosts: Vec::new(), text }
    }

    fn at(self, hosts: &[&str]) -> Self {
        Self { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, level, hosts, text } = self;
        let colon = if hosts.is_empty() { "" } else { ": " };
        write!(f, "{:<4}  {}{colon}{text} [{id}]", level.name(), hosts.join(", "))
    }
}

/// What the hosts show together, if a session timeout is asked for.
pub(crate) fn of_hosts(hosts: &[Host], asked: Duration) -> Vec<Finding> {
    let seen: Vec<_> = hosts.iter().filter_map(|host| Some((host, host.seen.as_ref().ok()?))).collect();
    let mut findings = majority(hosts, seen.is_empty());
    findings.extend(hosts.iter().filter_map(|host| {
        let reason = host.seen.as_ref().err().filter(|reason| !matches!(reason, Reason::NotServing))?;
        Some(Finding::fix(reason.id(), reason.with_advice()).at(&[&host.name]))
    }));
    findings.extend(ensemble(hosts, &seen));
    findings.extend(same(&seen, |host, seen| timeouts(host, seen, asked)));
    findings.extend(same(&seen, |host, seen| silent_leader(host, seen.granted)));
    findings.extend(same(&seen, latency));
    findings.extend(same(&seen, |host, _| version(host)));
    findings.extend(same(&seen, |host, _| fsyncs(host)));
    findings.extend(same(&seen, unchecked));
    // A limit that was not found out is no other limit.
    let differ = |limit: fn(&Seen) -> Option<Duration>| {
        seen.iter().filter_map(|(_, seen)| limit(seen)).collect::<BTreeSet<_>>().len() > 1
    };
    if differ(|seen| seen.limits.0) || differ(|seen| seen.limits.1) {
        findings.push(Finding::fix(
            "different-limits",
            "the servers have different limits of session timeouts; a session that moves would be trusted too long: give all \
             the same minSessionTimeout and maxSessionTimeout",
        ));
    }
    let versions: BTreeSet<_> = hosts.iter().filter_map(|host| host.words.version).collect();
    if versions.len() > 1 {
        findings
            .push(Finding::note("different-versions", "the servers have different versions; finish the upgrade"));
    }
    findings
}

/// Servers that run without a majority of their ensemble: all of them, or one that is cut off.
fn majority(hosts: &[Host], none_serves: bool) -> Vec<Finding> {
    let idle = |host: &Host| matches!(host.seen, Err(Reason::NotServing));
    let running: Vec<_> = hosts.iter().filter(|host| idle(host)).map(|host| host.name.as_str()).collect();
    if running.is_empty() {
        return Vec::new();
    }
    let keep = "do not wipe their data";
    let between = "check the ports between them (2888 and 3888 by default) and their logs";
    if !none_serves {
        let text = format!("runs, but has no connection to the servers that serve; {between}; {keep}");
        return vec![Finding::fix("not-serving", text).at(&running)];
    }
    let down: Vec<_> = hosts.iter().filter(|host| !idle(host)).map(|host| host.name.as_str()).collect();
    let (total, count, needed) = (hosts.len(), running.len(), hosts.len() / 2 + 1);
    let runs = if count == 1 { "server runs" } else { "servers run" };
    let text = if total == 1 {
        let name = &running[0];
        format!("no majority: {name} runs, but too few of the others do; start them, add them to the list; {keep}")
    } else if count < needed {
        let (missing, down) = (needed - count, down.join(" and "));
        let runs = if count == 1 { format!("of {total} servers runs") } else { format!("of {total} servers run") };
        format!("no majority: {count} {runs}, and {needed} are needed; start at least {missing} of {down}; {keep}")
    } else {
        format!(
            "no majority: {count} {runs}, and do not reach each other, or elect a leader now; {between}; {keep}"
        )
    };
    vec![Finding::fix("no-majority", text)]
}

/// What the hosts show one by one, once for all that show the same.
fn same(seen: &[(&Host, &Seen)], examine: impl Fn(&Host, &Seen) -> Vec<Finding>) -> Vec<Finding> {
    let mut found: Vec<(Vec<&str>, Finding)> = Vec::new();
    for (host, seen) in seen {
        for finding in examine(host, seen) {
            match found.iter_mut().find(|(_, other)| *other == finding) {
                Some((names, _)) => names.push(&host.name),
                None => found.push((vec![&host.name], finding)),
            }
        }
    }
    found.into_iter().map(|(names, finding)| finding.at(&names)).collect()
}

fn ensemble(hosts: &[Host], seen: &[(&Host, &Seen)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mode = |host: &Host| host.words.mode.clone().unwrap_or_default();
    let alone: Vec<_> =
        hosts.iter().filter(|host| mode(host) == "standalone").map(|host| host.name.as_str()).collect();
    let voters = seen.iter().filter_map(|(_, seen)| seen.voters).max();
    if alone.len() > 1 {
        let text = "are separate servers: each grants the same lock; make them one ensemble";
        findings.push(Finding::fix("separate-servers", format!("{} {text}", alone.join(" and "))));
    } else if alone.len() == 1 || voters == Some(1) {
        findings.push(Finding::fix(
            "one-server",
            "there is one server: while it is down, no lock is granted, and all locks are lost after a session timeout; run \
             three",
        ));
    }
    if let Some(voters) = voters {
        if voters > 1 && voters % 2 == 0 {
            let text = format!("{voters} servers bear no more failures than {}; run {}", voters - 1, voters + 1);
            findings.push(Finding::note("even-servers", text));
        }
        if hosts.len() < voters {
            let count = hosts.len();
            let text = format!("the list of hosts has {count} of {voters} servers; add the others");
            findings.push(Finding::note("missing-hosts", text));
        }
        let synced = hosts.iter().find_map(|host| host.words.synced_followers);
        if let Some(synced) = synced.filter(|synced| synced + 1 < voters) {
            let text = format!("{} of {voters} servers are in step; start or repair the others", synced + 1);
            findings.push(Finding::fix("out-of-step", text));
        }
    }
    findings
}

fn timeouts(host: &Host, seen: &Seen, asked: Duration) -> Vec<Finding> {
    let granted = seen.granted;
    let mut findings = Vec::new();
    if granted < asked {
        let change = "raise maxSessionTimeout, or lower --session";
        let text = format!("a session of {asked:?} was asked for, and {granted:?} granted; {change}");
        findings.push(Finding::fix("session-shortened", text));
    } else if granted > asked {
        let change = "after a crash the lock is free that much later; lower minSessionTimeout, or raise --session";
        let text = format!("a session of {asked:?} was asked for, and {granted:?} granted; {change}");
        findings.push(Finding::note("session-lengthened", text));
    }
    if let Some(tick) = host.words.tick.filter(|tick| granted < 2 * *tick) {
        let change = "raise --session, or lower tickTime";
        let text = format!("a session of {granted:?} is shorter than two ticks of {tick:?}; {change}");
        findings.push(Finding::fix("short-session", text));
    }
    findings
}

/// A leader that is cut off silently is given up after `syncLimit` ticks, and a hold survives 0.38 of its session timeout.
fn silent_leader(host: &Host, granted: Duration) -> Vec<Finding> {
    let (Some(tick), Some(ticks)) = (host.words.tick, host.words.sync_limit) else { return Vec::new() };
    let (patience, most) = (tick * ticks, granted * 38 / 100);
    if patience <= most {
        return Vec::new();
    }
    // Pings come twice a tick. A limit of one tick would take a late one for silence.
    let change = match most.as_millis() / tick.as_millis().max(1) {
        0 | 1 => format!("set syncLimit=2 and tickTime={}", most.as_millis() / 2),
        fewer => format!("set syncLimit={fewer}"),
    };
    let longer = (patience.as_secs_f64() / 0.38).ceil();
    let text = format!(
        "a leader that is cut off silently is given up after syncLimit × tickTime = {ticks} × {tick:?} = {patience:?}, and \
         holds of sessions of {granted:?} survive {most:?} of that: {change}, or raise --session to {longer}s"
    );
    vec![Finding::note("silent-leader", text)]
}

/// Trust in a session lapses if a write takes longer than a sixth of its timeout.
fn latency(host: &Host, seen: &Seen) -> Vec<Finding> {
    let (most, slow) = (seen.granted / 6, seen.writes.slow);
    let change = "use faster disks for dataLogDir, a shorter way, or a longer --session";
    let one = "one write in a hundred";
    let found = |finding: fn(&'static str, String) -> Finding, text| vec![finding("slow-writes", text)];
    if slow > most {
        let why = format!("above {most:.1?}, a sixth of the session, locks are lost");
        return found(Finding::fix, format!("{one} takes {slow:.1?}; {why}: {change}"));
    }
    if slow > most / 4 {
        return found(Finding::note, format!("{one} takes {slow:.1?}, and locks bear {most:.1?}; {change}"));
    }
    match host.words.slow_writes.filter(|past| *past > most) {
        Some(past) => found(Finding::note, format!("since the start, {one} took {past:.1?}; {change}")),
        None => Vec::new(),
    }
}

fn version(host: &Host) -> Vec<Finding> {
    let Some(version @ (major, minor, patch)) = host.words.version else {
        return Vec::new();
    };
    let name = format!("ZooKeeper {major}.{minor}.{patch}");
    if version < (3, 6, 0) {
        let text = format!("{name} ends sessions when a connection is lost; upgrade to 3.6 or later");
        return vec![Finding::fix("old-version", text)];
    }
    let what = match NEWEST.into_iter().find(|newest| (newest.0, newest.1) == (major, minor)) {
        Some(newest) if version < newest => format!("is older than 3.{}.{}", newest.1, newest.2),
        None if version < NEWEST[0] => "is of a branch that gets no fixes any more".to_owned(),
        _ => return Vec::new(),
    };
    let known =
        "https://zookeeper.apache.org/security.html lists vulnerabilities, which your distribution may have fixed";
    let newest = NEWEST.map(|(major, minor, patch)| format!("{major}.{minor}.{patch}")).join(" or ");
    vec![Finding::note("old-version", format!("{name} {what}; {known}; upgrade to {newest}, or later"))]
}

/// Servers that answer a write before it is on their disks.
fn fsyncs(host: &Host) -> Vec<Finding> {
    // The measurement has written. No write counts on an observer's disk, and it may have none.
    if host.words.fsyncs != Some(0) || host.words.mode.as_deref() == Some("observer") {
        return Vec::new();
    }
    let change = "a power failure can lose locks that are held; remove forceSync=no";
    vec![Finding::fix("force-sync", format!("has answered writes that were not on its disk: {change}"))]
}

/// The checks that were left out, by name, and what would allow them.
fn unchecked(host: &Host, seen: &Seen) -> Vec<Finding> {
    let words = &host.words;
    let mut left_out = Vec::new();
    if words.version.is_none() {
        left_out.push("version");
    }
    if words.mode.is_none() {
        left_out.push("whether the servers are one ensemble");
    }
    if seen.voters.is_none() && words.mode.as_deref() != Some("standalone") {
        left_out.push("whether the list has all servers");
    }
    if words.tick.is_none() {
        left_out.push("two ticks a session");
    }
    if !words.reports_numbers {
        left_out.extend(["followers in step", "earlier writes", "the disk"]);
    }
    if seen.limits.0.is_none() || seen.limits.1.is_none() {
        left_out.push("limits of session timeouts");
    }
    if left_out.is_empty() {
        return Vec::new();
    }
    let allow = match words.forbidden.join(",") {
        words if words.is_empty() => String::new(),
        words => format!("; allow 4lw.commands.whitelist={words}"),
    };
    vec![Finding::note("unchecked", format!("not checked: {}{allow}", left_out.join(", ")))]
}

/// Servers that take our credentials and ignore them.
pub(crate) fn of_strangers() -> Finding {
    Finding::fix(
        "unauthenticated",
        "the servers do not know who we are, although we have credentials: every login is taken unchecked, and locks cannot be \
         private; name the users in the section Server of their JAAS configuration, or configure authProvider",
    )
}

/// Tokens that a store refuses: the next one of the servers is not above the largest that it has seen.
pub(crate) fn of_tokens(next: FencingToken, seen: FencingToken) -> Option<Finding> {
    (next <= seen).then(|| {
        let epoch = u32::from(seen.epoch()) + 1;
        let text = format!(
            "the next token is {next}, and a store has seen {seen}: the servers have older or other data; stop all programs that \
             lock, and start them with the epoch {epoch} (--token-epoch, ZK_TOKEN_EPOCH), as docs/fencing.md has it"
        );
        Finding::fix("tokens-fell", text)
    })
}

/// Sessions that the servers do not let have the nodes of a lock.
pub(crate) fn of_local_sessions() -> Finding {
    Finding::fix("local-sessions", NO_LOCK_IN_A_LOCAL_SESSION)
}

/// The hosts that do not have a lock that is held at the others.
pub(crate) fn elsewhere_than(hosts: &[String]) -> Option<Finding> {
    let names = hosts.join(" and ");
    (!hosts.is_empty()).then(|| {
        let text = format!(
            "{names}: another ensemble, which does not have a lock that is held now, and grants it again; correct the list of \
             hosts"
        );
        Finding::fix("other-ensemble", text)
    })
}

/// What the lock path shows: whether anybody may delete its nodes, and how many there are.
pub(crate) fn of_path(path: &str, open_to_all: bool, children: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    if open_to_all {
        let text = "every client that can reach the servers may break its locks; set ACLs (run --private) if they are too many";
        findings.push(Finding::note("path-open", format!("{path}: {text}")));
    }
    // The longest names, and the room of a Java client, by default.
    let (bytes, room) = (62 * children, 1_048_575);
    let change = "shorten the queue, or raise jute.maxbuffer of all Java clients";
    if bytes > room {
        let text = format!("{path}: Java clients cannot list {children} nodes; {change}");
        findings.push(Finding::fix("long-queue", text));
    } else if bytes > room / 2 {
        let text = format!("{path}: a list of {children} nodes takes {bytes} bytes of {room}; {change}");
        findings.push(Finding::note("long-queue", text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::words::Words;

    fn down(name: &str, reason: Reason) -> Host {
        Host { name: name.to_owned(), words: Words::default(), seen: Err(reason) }
    }

    /// The texts of what was found at these hosts.
    fn found(hosts: &[Host]) -> Vec<String> {
        of_hosts(hosts, Duration::from_secs(10)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ids_are_distinct() {
        assert_eq!(BTreeSet::from(IDS).len(), IDS.len());
    }

    #[test]
    fn lost_majority_counts_the_servers() {
        let hosts = [down("a", Reason::NotServing), down("b", Reason::Refused), down("c", Reason::NoAnswer)];
        let found = found(&hosts);
        assert!(found[0].starts_with("fix   no majority: 1 of 3 servers runs, and 2 are needed;"), "{found:?}");
        assert!(
            found[0].contains("start at least 1 of b and c; do not wipe their data [no-majority]"),
            "{found:?}"
        );
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn servers_that_do_not_reach_each_other_are_not_to_be_started() {
        let hosts = ["a", "b", "c"].map(|name| down(name, Reason::NotServing));
        let found = found(&hosts);
        assert!(found[0].contains("no majority: 3 servers run, and do not reach each other"), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn ensemble_that_gives_up_a_silent_leader_too_late_is_noted() {
        let of = |tick: u64, sync_limit, granted: u64| {
            let words = Words { tick: Some(Duration::from_millis(tick)), sync_limit, ..Words::default() };
            let host = Host { name: "a".to_owned(), words, seen: Err(Reason::Refused) };
            silent_leader(&host, Duration::from_secs(granted)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        // ZooKeeper's defaults.
        let found = of(2000, Some(5), 10);
        assert_eq!(
            found,
            [
                "note  a leader that is cut off silently is given up after syncLimit × tickTime = 5 × 2s = 10s, and \
                 holds of sessions of 10s survive 3.8s of that: set syncLimit=2 and tickTime=1900, or raise --session \
                 to 27s [silent-leader]"
            ]
        );
        // A limit of two ticks or more leaves room for a ping that comes late.
        let found = of(500, Some(20), 10);
        assert!(
            found[0].contains("= 20 × 500ms = 10s") && found[0].contains(": set syncLimit=7, or"),
            "{found:?}"
        );
        assert_eq!(of(2000, Some(5), 27), [""; 0]);
        assert_eq!(of(500, Some(7), 10), [""; 0]);
        // One server has no leader.
        assert_eq!(of(2000, None, 10), [""; 0]);
    }

    #[test]
    fn versions_that_are_not_the_newest_known_are_noted() {
        let of = |numbers| {
            let words = Words { version: Some(numbers), ..Words::default() };
            let found = version(&Host { name: "a".to_owned(), words, seen: Err(Reason::Refused) });
            found.iter().map(ToString::to_string).collect::<String>()
        };
        assert!(of((3, 6, 4)).contains("is of a branch that gets no fixes") && of((3, 7, 2)).starts_with("note"));
        let old = "note  ZooKeeper 3.9.6 is older than 3.9.7; https://zookeeper.apache.org/security.html lists";
        assert!(
            of((3, 9, 6)).starts_with(old)
                && of((3, 8, 0)).ends_with("; upgrade to 3.8.8 or 3.9.7, or later [old-version]")
        );
        assert!(
            [(3, 8, 8), (3, 9, 7), (3, 9, 8), (3, 10, 0), (4, 0, 0)]
                .into_iter()
                .all(|newest| of(newest).is_empty())
        );
        assert!(of((3, 5, 9)).starts_with("fix"));
    }
}
