//! Owns `zklock doctor`: it examines the servers one by one, tries a lock, looks at the path, and reports what to change.

mod findings;
mod host;
pub(crate) mod ids;
pub(crate) mod reason;
mod report;
mod words;

use std::fmt::Display;
use std::time::Instant;

use futures_util::future::try_join_all;
use zookeeper_recipes::zookeeper_client::{Acls, Error as ZkError, Permission};
use zookeeper_recipes::{Error, Mutex, MutexGuard, Options, Session};

use crate::cli::Doctor;
use crate::connect::{close, connect_to, has_identity, hosts, split};
use crate::doctor::findings::{
    Finding, Level, elsewhere_than, of_hosts, of_local_sessions, of_path, of_strangers, of_tokens,
};
use crate::doctor::host::Host;
use crate::doctor::reason::Reason;
use crate::doctor::report::{Looked, Report, Trial};
use crate::exit::{Failure, LOCAL_SESSION, NO, NO_SERVER};
use crate::kazoo;
use crate::queue::plain;

pub(crate) async fn doctor(given: &Doctor) -> Result<u8, Failure> {
    let (names, chroot) = split(&hosts(&given.connection)?);
    let examined = try_join_all(names.iter().map(|name| Host::examine(&given.connection, name, &chroot)));
    let mut report = Report::of(examined.await?);
    report.findings = of_hosts(&report.hosts, given.connection.session());
    let serving: Vec<_> =
        report.hosts.iter().filter(|host| host.seen.is_ok()).map(|host| host.name.as_str()).collect();
    if serving.is_empty() {
        let is_idle = report.hosts.iter().any(|host| matches!(host.seen, Err(Reason::NotServing)));
        report.print(given)?;
        let why = if is_idle { "the servers have no majority" } else { "no server answered" };
        return Err(Failure::new(NO_SERVER, why));
    }
    match connect_to(&given.connection, &format!("{}{chroot}", serving.join(",")), None).await {
        Ok(session) => {
            try_lock(given, &session, &mut report).await?;
            if let Some(path) = &given.path {
                look(&session, path, &mut report).await;
            }
            close(&session).await;
        }
        // The hosts of the list together give none; what each did is worth knowing all the more.
        Err(failure) => report.findings.push(Finding::fix("no-session", failure.message)),
    }
    for seen in report.hosts.iter().filter_map(|host| host.seen.as_ref().ok()) {
        close(&seen.session).await;
    }
    let counts = report.print(given)?;
    Ok(if counts.contains(&Level::Fix) { NO } else { 0 })
}

/// Takes a lock beside the path, looks for it at each host, and releases it.
async fn try_lock(given: &Doctor, session: &Session, report: &mut Report) -> Result<(), Failure> {
    let parent = given.path.as_deref().and_then(|path| path.rsplit_once('/')).map_or("", |(parent, _)| parent);
    let path = format!("{parent}/zklock-doctor-{}", session.id());
    let began = Instant::now();
    let guard = match acquire(given, session, &path, report).await {
        Ok(Some(guard)) => guard,
        Ok(None) => {
            let text = format!("{path} is busy, though nobody else knows it");
            report.findings.push(Finding::fix("lock-busy", text));
            return Ok(());
        }
        Err(error @ Error::InvalidInput { .. }) => return Err(error.into()),
        Err(error) => {
            report.findings.push(refusal(&path, error));
            return Ok(());
        }
    };
    let (acquired, token) = (began.elapsed(), guard.fencing_token());
    report.findings.extend(given.token.and_then(|seen| of_tokens(token, seen)));
    let identity = if has_identity(&given.connection)? { identity(session, &path).await } else { None };
    let mut elsewhere = Vec::new();
    for host in &report.hosts {
        if let Ok(seen) = &host.seen
            && let Some(client) = seen.session.client()
            && client.sync(&path).await.is_ok()
            && client.check_stat(&path).await.is_ok_and(|stat| stat.is_none())
        {
            elsewhere.push(host.name.clone());
        }
    }
    report.findings.extend(elsewhere_than(&elsewhere));
    let began = Instant::now();
    let released = match guard.release().await {
        Ok(()) => Some(began.elapsed()),
        Err(error) => {
            let text = format!("cannot keep a lock for a moment: {}", Failure::from(error));
            report.findings.push(Finding::fix("lock-lost", text));
            None
        }
    };
    report.lock = Some(Trial { acquired, released, token, identity });
    Ok(())
}

/// Takes a lock that only we may use, if we have credentials. Nothing stays of it.
async fn acquire(
    given: &Doctor,
    session: &Session,
    path: &str,
    report: &mut Report,
) -> Result<Option<MutexGuard>, Error> {
    let open = Options::new().with_path_removal(true);
    let limit = given.connection.session();
    if has_identity(&given.connection).unwrap_or_default() {
        let private = Mutex::with_options(session, path, open.clone().with_acls(Acls::creator_all()))?;
        match private.try_lock_for(limit).await {
            Err(Error::Client { source: ZkError::InvalidAcl, .. }) => report.findings.push(of_strangers()),
            acquired => return acquired,
        }
    }
    Mutex::with_options(session, path, open)?.try_lock_for(limit).await
}

/// Who we are to the servers, by the ACL of a node that only we may use.
async fn identity(session: &Session, path: &str) -> Option<String> {
    let (acls, _) = session.client()?.get_acl(path).await.ok()?;
    // Of `digest` the rest is a hash of the password.
    let name = |id: &str, scheme: &str| match (scheme, id.split_once(':')) {
        ("digest", Some((user, _))) => user.to_owned(),
        _ => id.to_owned(),
    };
    let known = acls.iter().filter(|acl| acl.scheme() != "world");
    let names: Vec<_> = known.map(|acl| format!("{}:{}", acl.scheme(), name(acl.id(), acl.scheme()))).collect();
    (!names.is_empty()).then(|| plain(&names.join(" and "), 80))
}

/// Why the servers refuse a lock.
fn refusal(path: &str, error: Error) -> Finding {
    match error {
        Error::Client { source: ZkError::Unimplemented, .. } => Finding::fix(
            "no-containers",
            "the servers have no containers, which lock paths are; upgrade to 3.6 or later",
        ),
        Error::Client { source: ZkError::UnexpectedErrorCode(LOCAL_SESSION), .. } => of_local_sessions(),
        error => Finding::fix("lock-failed", format!("cannot lock {path}: {}", Failure::from(error))),
    }
}

/// Looks at the ACL and the children of the path.
async fn look(session: &Session, path: &str, report: &mut Report) {
    let denied = |what: &str| {
        let text = format!("{path}: its ACL does not let us {what}; grant READ, CREATE and DELETE");
        Finding::fix("path-denied", text)
    };
    let cannot_look = |why: &dyn Display| Finding::fix("no-session", format!("cannot look at {path}: {why}"));
    let Some(client) = session.client() else {
        report.findings.push(cannot_look(&Error::Closed));
        return;
    };
    let (acls, stat) = match client.get_acl(path).await {
        Ok(found) => found,
        Err(ZkError::NoNode) => {
            report.looked = Some(Looked::Missing);
            return;
        }
        Err(ZkError::NoAuth) => {
            report.looked = Some(Looked::Denied);
            report.findings.push(denied("lock"));
            return;
        }
        Err(error) => {
            report.findings.push(cannot_look(&error));
            return;
        }
    };
    let list = acls.iter().map(|acl| plain(&format!("{}:{} {}", acl.scheme(), acl.id(), acl.permission()), 80));
    let children = usize::try_from(stat.num_children).unwrap_or_default();
    report.looked = Some(Looked::Found { acl: list.collect(), children });
    let open = acls.iter().any(|acl| acl.scheme() == "world" && acl.permission().has(Permission::DELETE));
    report.findings.extend(of_path(path, open, children));
    match client.list_children(path).await {
        Ok(names) => {
            let warning = kazoo::warning(path, names.iter().map(String::as_str));
            report.findings.extend(warning.map(|warning| Finding::note("kazoo", warning)));
        }
        Err(ZkError::NoAuth) => report.findings.push(denied("read")),
        Err(_) => {}
    }
}
