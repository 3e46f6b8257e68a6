//! Owns the way to a session: hosts, session timeout, TLS and credentials.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
#[cfg(feature = "sasl-digest-md5")]
use zookeeper_recipes::zookeeper_client::SaslOptions;
#[cfg(feature = "tls")]
use zookeeper_recipes::zookeeper_client::TlsOptions;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, Options, Servers, Session};

use crate::cli::{Connection, DIGEST};
use crate::doctor::reason::knock;
use crate::exit::{Failure, NO_SERVER, USAGE};
use crate::files::read;
#[cfg(feature = "tls")]
use crate::files::unusable;
use crate::port::address;

/// Connects within one session timeout, or within `limit` if that is shorter. Creates a missing chroot if that is wanted.
pub(crate) async fn connect(connection: &Connection, limit: Option<Duration>) -> Result<Session, Failure> {
    connect_as(connection, None, limit).await
}

/// As [`connect`], with a unique name if one is given.
pub(crate) async fn connect_as(
    connection: &Connection,
    name: Option<&str>,
    limit: Option<Duration>,
) -> Result<Session, Failure> {
    let hosts = hosts(connection)?;
    let connected = connect_to(connection, &hosts, name);
    match limit {
        None => connected.await,
        Some(limit) => {
            // The client has no reasons before its own time is over.
            let mut reasons = None;
            let asked = async {
                sleep(limit / 2).await;
                reasons = Some(of_hosts(&hosts, limit / 3).await);
                std::future::pending().await
            };
            let connected = async {
                tokio::select! {
                    connected = connected => connected,
                    never = asked => never,
                }
            };
            match timeout(limit, connected).await {
                Ok(connected) => connected,
                Err(_) => {
                    let reasons = reasons.unwrap_or_default();
                    Err(Failure::new(NO_SERVER, format!("no answer from {hosts} within {limit:.1?}{reasons}")))
                }
            }
        }
    }
}

/// Why hosts are not reached, as far as one connection to each shows it.
async fn of_hosts(hosts: &str, limit: Duration) -> String {
    let (names, _) = split(hosts);
    let reasons = join_all(names.iter().map(async |name| {
        let reason = knock(&address(name), limit).await.err()?;
        Some(format!("; {name}: {reason}"))
    }));
    reasons.await.into_iter().flatten().collect()
}

/// Connects to these hosts, within one session timeout. Creates a missing chroot if that is wanted.
pub(crate) async fn connect_to(
    connection: &Connection,
    hosts: &str,
    name: Option<&str>,
) -> Result<Session, Failure> {
    let servers = || {
        let servers = servers(connection, connection.session(), hosts)?;
        Ok::<_, Failure>(match name {
            Some(name) => servers.with_unique_name(name),
            None => servers,
        })
    };
    let connected = match Session::connect(servers()?).await {
        Err(Error::InvalidInput { what: "chroot", .. }) if connection.create_chroot => {
            create_chroot(connection, hosts).await?;
            Session::connect(servers()?).await
        }
        connected => connected,
    };
    let options = connection.token_epoch.map_or(Options::new(), |epoch| Options::new().with_token_epoch(epoch));
    Ok(connected?.with_lock_options(options))
}

/// Creates the chroot after the hosts, and its missing ancestors, as services do.
async fn create_chroot(connection: &Connection, hosts: &str) -> Result<(), Failure> {
    let (names, chroot) = split(hosts);
    let session = Session::connect(servers(connection, connection.session(), &names.join(","))?).await?;
    let acls = if has_identity(connection)? { Acls::creator_all() } else { Acls::anyone_all() };
    let client = session.client().ok_or(Error::Closed)?;
    let created = client.mkdir(&chroot, &CreateMode::Persistent.with_acls(acls)).await;
    close(&session).await;
    Ok(created.map_err(|source| Error::Client { action: "create", path: chroot, source })?)
}

/// Ends a session that has no nodes. It ends by itself if the servers do not answer.
pub(crate) async fn close(session: &Session) {
    _ = timeout(Duration::from_secs(1), session.close()).await;
}

/// These hosts, with the settings of every connection.
pub(crate) fn servers(connection: &Connection, session: Duration, hosts: &str) -> Result<Servers, Failure> {
    let mut servers = Servers::new(hosts).with_session_timeout(session);
    for credentials in credentials(connection)? {
        servers = servers.with_auth(&connection.auth_scheme, credentials);
    }
    #[cfg(feature = "sasl-digest-md5")]
    if let Some(file) = &connection.sasl_file {
        let text = read(file)?;
        let first = text.lines().next().unwrap_or_default();
        let (user, password) = pair(first, "the SASL file should begin with USER:PASSWORD")?;
        let options = SaslOptions::digest_md5(user.to_owned(), password.to_owned());
        servers = servers.with_sasl(options);
    }
    #[cfg(feature = "tls")]
    if let Some(options) = tls(connection)? {
        servers = servers.with_tls(options);
    }
    Ok(servers)
}

/// Whether the servers will know who we are.
pub(crate) fn has_identity(connection: &Connection) -> Result<bool, Failure> {
    let is_known = !credentials(connection)?.is_empty();
    #[cfg(feature = "sasl-digest-md5")]
    let is_known = is_known || connection.sasl_file.is_some();
    #[cfg(feature = "tls")]
    let is_known = is_known || connection.tls.tls_cert.is_some();
    Ok(is_known)
}

/// The credentials of the command line, or else those of services.
fn credentials(connection: &Connection) -> Result<Vec<String>, Failure> {
    let mut given: Vec<_> = connection.auth.iter().map(|auth| ("--auth", auth.clone())).collect();
    if let Some(file) = &connection.auth_file {
        given.push(("--auth-file", read(file)?));
    }
    if given.is_empty() {
        match (variable("ZK_AUTH"), variable("ZK_AUTH_FILE")) {
            (None, None) => {}
            (Some(auth), None) => given.push(("ZK_AUTH", auth)),
            (None, Some(file)) => given.push(("ZK_AUTH_FILE", read(&PathBuf::from(file))?)),
            (Some(_), Some(_)) => {
                return Err(Failure::new(USAGE, "ZK_AUTH and ZK_AUTH_FILE are both set; unset one"));
            }
        }
    }
    given.into_iter().map(|(name, text)| only_line(&connection.auth_scheme, name, &text)).collect()
}

/// The credentials in a text, which has one line. The error does not show them.
fn only_line(scheme: &str, name: &str, text: &str) -> Result<String, Failure> {
    let line = text.trim_end_matches(['\r', '\n']);
    if line.contains('\n') {
        return Err(Failure::new(USAGE, format!("{name} should have one line")));
    }
    if scheme == DIGEST {
        let form = "should be USER:PASSWORD, without digest: before it";
        let (user, password) = pair(line, &format!("{name} {form}"))?;
        // Services would take `digest` for the user.
        if user == DIGEST && password.contains(':') {
            return Err(Failure::new(USAGE, format!("{name} {form}")));
        }
    }
    Ok(line.to_owned())
}

/// A variable of the environment. An empty one is not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The hosts as the client takes them, with the chroot.
pub(crate) fn hosts(connection: &Connection) -> Result<String, Failure> {
    let given = connection.hosts.as_deref().ok_or_else(|| {
        Failure::new(USAGE, "no servers are given: set ZK_HOSTS or --hosts, as zk1:2181,zk2:2181,zk3:2181")
    })?;
    let (names, behind) = split(given);
    let chroot = match connection.chroot.as_deref() {
        Some(chroot) if !chroot.is_empty() && !behind.is_empty() => {
            let message = format!(
                "the hosts end with the chroot {behind}, and --chroot or ZK_CHROOT is {chroot}: leave out one"
            );
            return Err(Failure::new(USAGE, message));
        }
        Some(chroot) if !chroot.is_empty() => chroot,
        _ => &behind,
    };
    #[cfg(feature = "tls")]
    let names = match connection.tls.tls_ca {
        Some(_) => names.into_iter().map(over_tls).collect(),
        None => names,
    };
    #[cfg(not(feature = "tls"))]
    if variable("ZK_TLS_CA_FILE").is_some() {
        return Err(Failure::new(
            USAGE,
            "ZK_TLS_CA_FILE is set, and this zklock was built without the feature `tls`",
        ));
    }
    Ok(format!("{}{chroot}", names.join(",")))
}

/// The hosts of a list, each with the prefix that it has, and the chroot after the last.
pub(crate) fn split(hosts: &str) -> (Vec<String>, String) {
    let from = hosts.rfind("://").map_or(0, |at| at + "://".len());
    let (list, chroot) = hosts.split_at(hosts[from..].find('/').map_or(hosts.len(), |at| from + at));
    (list.split(',').map(|host| host.trim().to_owned()).collect(), chroot.trim().to_owned())
}

#[cfg(feature = "tls")]
fn over_tls(host: String) -> String {
    if host.contains("://") { host } else { format!("tcp+tls://{host}") }
}

#[cfg(feature = "tls")]
fn tls(connection: &Connection) -> Result<Option<TlsOptions>, Failure> {
    let tls = &connection.tls;
    let Some(ca) = &tls.tls_ca else {
        if connection.hosts.as_deref().is_some_and(|hosts| hosts.contains("tcp+tls://")) {
            return Err(Failure::new(USAGE, "a host has tcp+tls:// before it: give --tls-ca"));
        }
        return Ok(None);
    };
    let mut options = TlsOptions::new().with_pem_ca(&read(ca)?).map_err(|error| unusable(ca, &error))?;
    if let (Some(cert), Some(key)) = (&tls.tls_cert, &tls.tls_key) {
        options = options.with_pem_identity(&read(cert)?, &read(key)?).map_err(|error| unusable(cert, &error))?;
    }
    Ok(Some(options))
}

/// Both sides of the first colon. The error does not show the text, which may be a password.
fn pair<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    let halves = text.split_once(':').filter(|(before, after)| !before.is_empty() && !after.is_empty());
    halves.ok_or_else(|| Failure::new(USAGE, form))
}

#[cfg(test)]
mod tests {
    #[test]
    fn hosts_are_taken_apart() {
        let split = |hosts| {
            let (hosts, chroot) = super::split(hosts);
            (hosts.join(" "), chroot)
        };
        assert_eq!(split("zk1, zk2:2181"), ("zk1 zk2:2181".to_owned(), String::new()));
        assert_eq!(split("zk1,tcp+tls://zk2/a/b"), ("zk1 tcp+tls://zk2".to_owned(), "/a/b".to_owned()));
        assert_eq!(split("zk1/a"), ("zk1".to_owned(), "/a".to_owned()));
    }
}
