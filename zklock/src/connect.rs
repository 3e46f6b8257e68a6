//! Owns the way to a session: hosts, session timeout, TLS and credentials.

use std::fs;
use std::path::Path;
use std::time::Duration;

use zookeeper_recipes::Session;
#[cfg(feature = "sasl-digest-md5")]
use zookeeper_recipes::zookeeper_client::SaslOptions;
#[cfg(feature = "tls")]
use zookeeper_recipes::zookeeper_client::TlsOptions;
use zookeeper_recipes::zookeeper_client::{Client, Connector};

use crate::cli::Connection;
use crate::exit::{Failure, NO_SERVER, USAGE};

/// Connects within one session timeout, or within `limit` if that is shorter.
pub(crate) async fn connect(connection: &Connection, limit: Option<Duration>) -> Result<Session, Failure> {
    let (connector, hosts) = (connector(connection, connection.session)?, hosts(connection));
    let connected = Session::connect_with(connector, &hosts);
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
    let lines = connection.auth_file.as_deref().map(read).transpose()?.unwrap_or_default();
    let in_file = lines.lines().filter(|line| !line.trim().is_empty());
    for credentials in connection.auth.iter().map(String::as_str).chain(in_file) {
        let (scheme, secret) = pair(credentials, "credentials should look like digest:USER:PASSWORD")?;
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

/// The hosts as the client takes them.
pub(crate) fn hosts(connection: &Connection) -> String {
    #[cfg(feature = "tls")]
    if connection.tls.tls_ca.is_some() {
        let secure = |host: &str| match host.trim() {
            host if host.contains("://") => host.to_owned(),
            host => format!("tcp+tls://{host}"),
        };
        return connection.hosts.split(',').map(secure).collect::<Vec<_>>().join(",");
    }
    connection.hosts.clone()
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
