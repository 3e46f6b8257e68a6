//! Owns the findings: which measurements would hurt locks, and what to change. Free of I/O.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::doctor::faults::{Fault, GOOD, faults};
use crate::doctor::host::{Host, Seen};

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Locks are refused, lost or granted twice.
    Fix(String),
    /// Nothing is wrong yet.
    Note(String),
}

use Finding::{Fix, Note};

/// What the hosts show together, if a session timeout is asked for.
pub(crate) fn of_hosts(hosts: &[Host], asked: Duration) -> Vec<Finding> {
    let seen: Vec<_> = hosts.iter().filter_map(|host| Some((host, host.seen.as_ref().ok()?))).collect();
    let mut findings: Vec<_> = hosts
        .iter()
        .filter_map(|host| {
            let reason = host.seen.as_ref().err()?;
            Some(Fix(format!("{}: {reason}; start the server, or remove it from the list", host.name)))
        })
        .collect();
    findings.extend(ensemble(hosts, &seen));
    findings.extend(same(&seen, |host, seen| timeouts(host, seen, asked)));
    findings.extend(same(&seen, latency));
    findings.extend(same(&seen, |host, _| version(host)));
    findings.extend(same(&seen, |host, _| fsyncs(host)));
    findings.extend(same(&seen, |host, _| {
        let words = host.words.forbidden.join(",");
        let unknown = format!("not everything is known; allow 4lw.commands.whitelist={words}");
        (!words.is_empty()).then_some(Note(unknown)).into_iter().collect()
    }));
    let limits: BTreeSet<_> = seen.iter().map(|(_, seen)| seen.limits).collect();
    if limits.len() > 1 {
        findings.push(Fix(
            "the servers have different limits of session timeouts; a session that moves would be trusted too long: give all \
             the same minSessionTimeout and maxSessionTimeout"
                .to_owned(),
        ));
    }
    let versions: BTreeSet<_> = hosts.iter().filter_map(|host| host.words.version).collect();
    if versions.len() > 1 {
        findings.push(Note("the servers have different versions; finish the upgrade".to_owned()));
    }
    findings
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
    let named = |(names, finding): (Vec<&str>, Finding)| match finding {
        Fix(text) => Fix(format!("{}: {text}", names.join(", "))),
        Note(text) => Note(format!("{}: {text}", names.join(", "))),
    };
    found.into_iter().map(named).collect()
}

fn ensemble(hosts: &[Host], seen: &[(&Host, &Seen)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mode = |host: &Host| host.words.mode.clone().unwrap_or_default();
    let alone: Vec<_> =
        hosts.iter().filter(|host| mode(host) == "standalone").map(|host| host.name.as_str()).collect();
    let voters = seen.iter().filter_map(|(_, seen)| seen.voters).max();
    if alone.len() > 1 {
        let alone = alone.join(" and ");
        findings
            .push(Fix(format!("{alone} are separate servers: each grants the same lock; make them one ensemble")));
    } else if alone.len() == 1 || voters == Some(1) {
        findings.push(Fix(
            "there is one server: while it is down, no lock is granted, and all locks are lost after a session timeout; run \
             three"
                .to_owned(),
        ));
    }
    if let Some(voters) = voters {
        if voters > 1 && voters % 2 == 0 {
            let fewer = voters - 1;
            findings
                .push(Note(format!("{voters} servers bear no more failures than {fewer}; run {}", voters + 1)));
        }
        if hosts.len() < voters {
            let count = hosts.len();
            findings.push(Note(format!("the list of hosts has {count} of {voters} servers; add the others")));
        }
        let synced = hosts.iter().find_map(|host| host.words.synced_followers);
        if let Some(synced) = synced.filter(|synced| synced + 1 < voters) {
            let up = synced + 1;
            findings.push(Fix(format!("{up} of {voters} servers are in step; start or repair the others")));
        }
    }
    findings
}

fn timeouts(host: &Host, seen: &Seen, asked: Duration) -> Vec<Finding> {
    let granted = seen.granted;
    let mut findings = Vec::new();
    if granted < asked {
        let change = "raise maxSessionTimeout, or lower --session";
        findings.push(Fix(format!("a session of {asked:?} was asked for, and {granted:?} granted; {change}")));
    } else if granted > asked {
        let change = "after a crash the lock is free that much later; lower minSessionTimeout, or raise --session";
        findings.push(Note(format!("a session of {asked:?} was asked for, and {granted:?} granted; {change}")));
    }
    if let Some(tick) = host.words.tick.filter(|tick| granted < 2 * *tick) {
        let change = "raise --session, or lower tickTime";
        findings.push(Fix(format!("a session of {granted:?} is shorter than two ticks of {tick:?}; {change}")));
    }
    findings
}

/// Trust in a session lapses if a write takes longer than a sixth of its timeout.
fn latency(host: &Host, seen: &Seen) -> Vec<Finding> {
    let (most, slow) = (seen.granted / 6, seen.writes.slow);
    let change = "use faster disks for dataLogDir, a shorter way, or a longer --session";
    let one = "one write in a hundred";
    if slow > most {
        let why = format!("above {most:.1?}, a sixth of the session, locks are lost");
        return vec![Fix(format!("{one} takes {slow:.1?}; {why}: {change}"))];
    }
    if slow > most / 4 {
        return vec![Note(format!("{one} takes {slow:.1?}, and locks bear {most:.1?}; {change}"))];
    }
    let past = host.words.slow_writes.filter(|past| *past > most);
    past.map(|past| Note(format!("since the start, {one} took {past:.1?}; {change}"))).into_iter().collect()
}

fn version(host: &Host) -> Vec<Finding> {
    let Some(version @ (major, minor, patch)) = host.words.version else {
        return Vec::new();
    };
    let name = format!("ZooKeeper {major}.{minor}.{patch}");
    if version < (3, 6, 0) {
        return vec![Fix(format!("{name} ends sessions when a connection is lost; upgrade to 3.6 or later"))];
    }
    // One server has no others from which it could miss a transaction.
    let is_alone = host.words.mode.as_deref() == Some("standalone");
    let found = faults(version).filter(|fault| !(fault.loses && is_alone));
    let finding = |fault: &Fault| {
        // Debian, and others, fix old versions without changing their number.
        let unless = "unless your distribution has fixed it";
        let text = format!("{name} {}, {unless}; upgrade to {GOOD}", fault.what);
        if fault.loses { Fix(text) } else { Note(text) }
    };
    found.map(finding).collect()
}

/// Servers that answer a write before it is on their disks.
fn fsyncs(host: &Host) -> Vec<Finding> {
    // The measurement has written. No write counts on an observer's disk, and it may have none.
    if host.words.fsyncs != Some(0) || host.words.mode.as_deref() == Some("observer") {
        return Vec::new();
    }
    let change = "a power failure can lose locks that are held; remove forceSync=no";
    vec![Fix(format!("has answered writes that were not on its disk: {change}"))]
}

/// Sessions that the servers do not let have the nodes of a lock.
pub(crate) fn of_local_sessions() -> Finding {
    let change = "set localSessionsUpgradingEnabled=true, or localSessionsEnabled=false";
    Fix(format!("a session is local, and gets no lock; {change}"))
}

/// The hosts that do not have a lock that is held at the others.
pub(crate) fn elsewhere_than(hosts: &[String]) -> Option<Finding> {
    let names = hosts.join(" and ");
    (!hosts.is_empty()).then(|| {
        Fix(format!(
            "{names}: another ensemble, which does not have a lock that is held now, and grants it again; correct the list of \
             hosts"
        ))
    })
}

/// What the lock path shows: whether anybody may delete its nodes, and how many there are.
pub(crate) fn of_path(path: &str, open_to_all: bool, children: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    if open_to_all {
        findings.push(Note(format!(
            "{path}: every client that can reach the servers may break its locks; set ACLs (run --private) if they are too many"
        )));
    }
    // The longest names, and the room of a Java client, by default.
    let (bytes, room) = (62 * children, 1_048_575);
    let change = "shorten the queue, or raise jute.maxbuffer of all Java clients";
    if bytes > room {
        findings.push(Fix(format!("{path}: Java clients cannot list {children} nodes; {change}")));
    } else if bytes > room / 2 {
        findings.push(Note(format!("{path}: a list of {children} nodes takes {bytes} bytes of {room}; {change}")));
    }
    findings
}
