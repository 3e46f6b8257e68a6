//! Owns the way to a session: hosts, session timeout, TLS and credentials.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(feature = "sasl-digest-md5")]
use zookeeper_recipes::zookeeper_client::SaslOptions;
#[cfg(feature = "tls")]
use zookeeper_recipes::zookeeper_client::TlsOptions;
use zookeeper_recipes::zookeeper_client::{Client, Connector};
use zookeeper_recipes::{Servers, Session};

use crate::cli::Connection;
use crate::exit::{Failure, NO_SERVER, USAGE};

/// Connects within one session timeout, or within `limit` if that is shorter.
pub(crate) async fn connect(connection: &Connection, limit: Option<Duration>) -> Result<Session, Failure> {
    let (connector, hosts) = (connector(connection, connection.session)?, hosts(connection)?);
    let connected = Session::connect(Servers::new(connector, &hosts));
    match limit {
        None => Ok(connected.await?),
        Some(limit) => match tokio::time::timeout(limit, connected).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::new(NO_SERVER, format!("no answer from {hosts} within {limit:.1?}"))),
        },
    }
}

/// Ends a session that has no nodes. It ends by itself if the servers do not answer.
pub(crate) async fn close(session: &Session) {
    _ = tokio::time::timeout(Duration::from_secs(1), session.close()).await;
}

/// What every connection is made with.
pub(crate) fn connector(connection: &Connection, session: Duration) -> Result<Connector, Failure> {
    let mut connector = Client::connector().with_session_timeout(session);
    for credentials in credentials(connection)? {
        let (scheme, secret) = pair(&credentials, "credentials should look like digest:USER:PASSWORD")?;
        connector = connector.with_auth(scheme, secret.as_bytes());
    }
    #[cfg(feature = "sasl-digest-md5")]
    if let Some(file) = &connection.sasl_file {
        let text = read(file)?;
        let first = text.lines().next().unwrap_or_default();
        let (user, password) = pair(first, "the SASL file should begin with USER:PASSWORD")?;
        let options = SaslOptions::digest_md5(user.to_owned(), password.to_owned());
        connector = connector.with_sasl(options);
    }
    #[cfg(feature = "tls")]
    if let Some(options) = tls(connection)? {
        connector = connector.with_tls(options);
    }
    Ok(connector)
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

/// The credentials, each after its scheme: those of the command line, or else those of services.
fn credentials(connection: &Connection) -> Result<Vec<String>, Failure> {
    let lines = connection.auth_file.as_deref().map(read).transpose()?.unwrap_or_default();
    let in_file = lines.lines().filter(|line| !line.trim().is_empty());
    let given: Vec<_> = connection.auth.iter().map(String::as_str).chain(in_file).map(str::to_owned).collect();
    if !given.is_empty() || connection.auth_file.is_some() {
        return Ok(given);
    }
    let (name, of_service) = match (variable("ZK_AUTH"), variable("ZK_AUTH_FILE")) {
        (None, None) => return Ok(given),
        (Some(_), Some(_)) => return Err(Failure::new(USAGE, "ZK_AUTH and ZK_AUTH_FILE are both set; unset one")),
        (Some(auth), None) => ("ZK_AUTH", auth),
        (None, Some(file)) => ("ZK_AUTH_FILE", read(&PathBuf::from(file))?),
    };
    let line = of_service.trim_end_matches(['\r', '\n']);
    if line.contains('\n') || line.strip_prefix("digest:").is_some_and(|rest| rest.contains(':')) {
        // Services would take `digest` for the user.
        return Err(Failure::new(
            USAGE,
            format!("{name} should be one line, USER:PASSWORD, without digest: before it"),
        ));
    }
    pair(line, &format!("{name} should look like USER:PASSWORD"))?;
    Ok(vec![format!("digest:{line}")])
}

/// A variable that services read, too. An empty one is not set.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The hosts as the client takes them, with the chroot.
pub(crate) fn hosts(connection: &Connection) -> Result<String, Failure> {
    let (names, behind) = split(&connection.hosts);
    let chroot = match connection.chroot.as_deref() {
        Some(chroot) if !chroot.is_empty() && !behind.is_empty() => {
            let message =
                format!("the hosts end with the chroot {behind}, and --chroot or ZK_CHROOT is {chroot}, too");
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
        if connection.hosts.contains("tcp+tls://") {
            return Err(Failure::new(USAGE, "a host has tcp+tls:// before it: give --tls-ca, too"));
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

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure::new(USAGE, format!("cannot read {}: {error}", file.display())))
}

#[cfg(feature = "tls")]
fn unusable(file: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(USAGE, format!("cannot use {}: {error}", file.display()))
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
