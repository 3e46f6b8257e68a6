//! Owns `zklock doctor`: it examines the servers one by one, tries a lock, looks at the path, and reports what to change.

mod faults;
mod findings;
mod host;
mod reason;
mod words;

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use zookeeper_recipes::zookeeper_client::{Error as ZkError, Permission};
use zookeeper_recipes::{Error, Mutex, Options, Session};

use crate::cli::Doctor;
use crate::connect::{close, connect, hosts, split};
use crate::doctor::findings::{Finding, elsewhere_than, of_hosts, of_local_sessions, of_path};
use crate::doctor::host::{Host, Latency};
use crate::exit::{Failure, NO, NO_SERVER};
use crate::kazoo;
use crate::messages::count;
use crate::queue::plain;

/// The error of servers that keep the session local, which may then have no ephemeral nodes. The client has no name for it.
const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;

pub(crate) async fn doctor(given: &Doctor) -> Result<u8, Failure> {
    let (names, chroot) = split(&hosts(&given.connection)?);
    let mut examined = Vec::new();
    for name in &names {
        examined.push(Host::examine(&given.connection, name, &chroot).await?);
    }
    let mut report = String::new();
    for host in &examined {
        describe(&mut report, host);
    }
    let mut findings = of_hosts(&examined, given.connection.session());
    if examined.iter().all(|host| host.seen.is_err()) {
        print(&report, &findings)?;
        return Err(Failure::new(NO_SERVER, "no server answered"));
    }
    match connect(&given.connection, None).await {
        Ok(session) => {
            findings.extend(try_lock(given, &session, &examined, &mut report).await?);
            if let Some(path) = &given.path {
                findings.extend(look(&session, path, &mut report).await);
            }
            close(&session).await;
        }
        // The hosts of the list together give none; what each did is worth knowing all the more.
        Err(failure) => findings.push(Finding::Fix(failure.message)),
    }
    for seen in examined.iter().filter_map(|host| host.seen.as_ref().ok()) {
        close(&seen.session).await;
    }
    print(&report, &findings)?;
    Ok(if findings.iter().any(|finding| matches!(finding, Finding::Fix(_))) { NO } else { 0 })
}

fn describe(report: &mut String, host: &Host) {
    let words = &host.words;
    let version = words.version.map_or("version unknown".to_owned(), |(a, b, c)| format!("version {a}.{b}.{c}"));
    let mode = words.mode.as_deref().map(|mode| plain(mode, 20)).unwrap_or("mode unknown".to_owned());
    let tick = words.tick.map(|tick| format!(", tick {tick:?}")).unwrap_or_default();
    line(report, &host.name, &format!("{version}, {mode}{tick}"));
    match &host.seen {
        Err(reason) => line(report, "", &format!("gives no session: {}", plain(reason, 200))),
        Ok(seen) => {
            let bound = |bound: Option<Duration>| bound.map_or("?".to_owned(), |bound| format!("{bound:?}"));
            let (shortest, longest) = (bound(seen.limits.0), bound(seen.limits.1));
            // One second was asked for, and so nothing shorter was seen.
            let shortest = if shortest == "1s" { "1s or less".to_owned() } else { shortest };
            line(report, "", &format!("session {:?}; the server grants {shortest} to {longest}", seen.granted));
            line(report, "", &format!("read {}; quorum write {}", shown(seen.reads), shown(seen.writes)));
        }
    }
}

fn shown(latency: Latency) -> String {
    format!("{:.1?} (99 %: {:.1?})", latency.median, latency.slow)
}

/// Takes a lock beside the path, looks for it at each host, and releases it.
async fn try_lock(
    given: &Doctor,
    session: &Session,
    examined: &[Host],
    report: &mut String,
) -> Result<Vec<Finding>, Failure> {
    let parent = given.path.as_deref().and_then(|path| path.rsplit_once('/')).map_or("", |(parent, _)| parent);
    let path = format!("{parent}/zklock-doctor-{}", session.id());
    // Nothing stays of it.
    let mutex = Mutex::with_options(session, &path, Options::new().with_path_removal(true))?;
    let began = Instant::now();
    let guard = match mutex.try_lock_for(given.connection.session()).await {
        Ok(Some(guard)) => guard,
        Ok(None) => return Ok(vec![Finding::Fix(format!("{path} is busy, though nobody else knows it"))]),
        Err(Error::Client { source: ZkError::Unimplemented, .. }) => {
            line(report, "lock", "no containers");
            let change = "upgrade to 3.6 or later";
            return Ok(vec![Finding::Fix(format!(
                "the servers have no containers, which lock paths are; {change}"
            ))]);
        }
        Err(Error::Client { source: ZkError::UnexpectedErrorCode(EPHEMERAL_ON_LOCAL_SESSION), .. }) => {
            line(report, "lock", "not acquired");
            return Ok(vec![of_local_sessions()]);
        }
        Err(error @ Error::InvalidInput { .. }) => return Err(error.into()),
        Err(error) => {
            line(report, "lock", "not acquired");
            return Ok(vec![Finding::Fix(format!("cannot lock {path}: {}", Failure::from(error)))]);
        }
    };
    let acquired = began.elapsed();
    let mut elsewhere = Vec::new();
    for host in examined {
        if let Ok(seen) = &host.seen
            && let Some(client) = seen.session.client()
            && client.sync(&path).await.is_ok()
            && client.check_stat(&path).await.is_ok_and(|stat| stat.is_none())
        {
            elsewhere.push(host.name.clone());
        }
    }
    let began = Instant::now();
    if let Err(error) = guard.release().await {
        line(report, "lock", &format!("acquired in {acquired:.1?}, and then lost"));
        return Ok(vec![Finding::Fix(format!("cannot keep a lock for a moment: {}", Failure::from(error)))]);
    }
    let released = began.elapsed();
    let text = format!("acquired in {acquired:.1?}, released in {released:.1?}; containers work");
    line(report, "lock", &text);
    Ok(elsewhere_than(&elsewhere).into_iter().collect())
}

/// Looks at the ACL and the children of the path.
async fn look(session: &Session, path: &str, report: &mut String) -> Vec<Finding> {
    let cannot_look = |why: &dyn Display| vec![Finding::Fix(format!("cannot look at {path}: {why}"))];
    let Some(client) = session.client() else { return cannot_look(&Error::Closed) };
    let (acls, stat) = match client.get_acl(path).await {
        Ok(found) => found,
        Err(ZkError::NoNode) => {
            line(report, path, "does not exist now; the first lock creates it");
            return Vec::new();
        }
        Err(ZkError::NoAuth) => {
            line(report, path, "its ACL does not let us look");
            return vec![Finding::Fix(format!(
                "{path}: its ACL does not let us lock; grant READ, CREATE and DELETE"
            ))];
        }
        Err(error) => return cannot_look(&error),
    };
    let list: Vec<_> =
        acls.iter().map(|acl| plain(&format!("{}:{} {}", acl.scheme(), acl.id(), acl.permission()), 80)).collect();
    let children = usize::try_from(stat.num_children).unwrap_or_default();
    line(report, path, &format!("{}; {}", list.join(", "), count(children, "child", "children")));
    let open = acls.iter().any(|acl| acl.scheme() == "world" && acl.permission().has(Permission::DELETE));
    let mut findings = of_path(path, open, children);
    match client.list_children(path).await {
        Ok(names) => {
            let warning = kazoo::warning(path, names.iter().map(String::as_str));
            findings.extend(warning.map(Finding::Note));
        }
        Err(ZkError::NoAuth) => findings
            .push(Finding::Fix(format!("{path}: its ACL does not let us read; grant READ, CREATE and DELETE"))),
        Err(_) => {}
    }
    findings
}

/// Adds a line with what it is about in a column of its own.
fn line(report: &mut String, about: &str, text: &str) {
    writeln!(report, "{about:<24}  {text}").expect("a string takes every write");
}

fn print(report: &str, findings: &[Finding]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(report.as_bytes())?;
    if findings.is_empty() {
        writeln!(out, "\nnothing to change")?;
    } else {
        writeln!(out)?;
    }
    for finding in findings {
        match finding {
            Finding::Fix(text) => writeln!(out, "fix   {text}")?,
            Finding::Note(text) => writeln!(out, "note  {text}")?,
        }
    }
    out.flush()?;
    Ok(())
}
