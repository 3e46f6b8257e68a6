//! Owns what is measured at one host: what it grants, and how fast it answers.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Error as ZkError, MultiWriteError};
use zookeeper_recipes::{Error, Session};

use crate::cli::Connection;
use crate::connect::{connector, servers};
use crate::doctor::reason::{self, knock};
use crate::doctor::words::Words;
use crate::exit::Failure;

/// How often something is measured, if that takes no longer than [`WHILE`].
const TIMES: usize = 100;

const WHILE: Duration = Duration::from_secs(2);

/// One host of the list, and what is known of it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) words: Words,
    /// A session that only this host serves, and what it has shown; or why there is none.
    pub(crate) seen: Result<Seen, String>,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) session: Session,
    /// The session timeout that was granted.
    pub(crate) granted: Duration,
    /// The shortest and the longest that the server grants, as far as they were tried.
    pub(crate) limits: (Option<Duration>, Option<Duration>),
    pub(crate) reads: Latency,
    pub(crate) writes: Latency,
    /// The servers of the ensemble that vote, by its configuration.
    pub(crate) voters: Option<usize>,
}

/// How long something takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    pub(crate) median: Duration,
    /// 99 of 100 are no slower.
    pub(crate) slow: Duration,
}

impl Host {
    /// Examines a host of the list.
    pub(crate) async fn examine(connection: &Connection, name: &str, chroot: &str) -> Result<Self, Failure> {
        let tls = name.strip_prefix("tcp+tls://");
        let address = with_port(tls.or_else(|| name.strip_prefix("tcp://")).unwrap_or(name));
        if let Err(reason) = knock(&address, WHILE).await {
            return Ok(Self { name: name.to_owned(), words: Words::default(), seen: Err(reason) });
        }
        // They are answered on ports without TLS only.
        let mut words = if tls.is_some() { Words::default() } else { Words::ask(&address).await };
        let seen = Seen::at(connection, &format!("{name}{chroot}")).await;
        if seen.is_ok() && tls.is_none() {
            words.count_fsyncs(&address).await;
        }
        let seen = match seen {
            Ok(seen) => Ok(seen),
            Err(Error::Unavailable { .. }) => {
                let connector = connector(connection)?;
                Err(reason::of(connector, name, &address, connection.session()).await)
            }
            Err(error @ (Error::InvalidInput { .. } | Error::NoAuth { .. })) => return Err(error.into()),
            Err(error @ Error::Client { source: ZkError::AuthFailed, .. }) => return Err(error.into()),
            // It was lost while it was examined.
            Err(error) => Err(Failure::from(error).message),
        };
        Ok(Self { name: name.to_owned(), words, seen })
    }
}

impl Seen {
    async fn at(connection: &Connection, host: &str) -> Result<Self, Error> {
        let servers = |timeout| {
            servers(connection, timeout, host)
                .map_err(|failure| Error::InvalidInput { what: "options", reason: failure.message })
        };
        let session = Session::connect(servers(connection.session())?).await?;
        let granted = granted(&session).unwrap_or(connection.session());
        // A server that grants one session grants others, unless it limits the connections of a client.
        let mut limits = (None, None);
        for (limit, asked) in
            [(&mut limits.0, Duration::from_secs(1)), (&mut limits.1, Duration::from_secs(24 * 60 * 60))]
        {
            // It would try for as long as the session that it asks for.
            let probe = timeout(connection.session(), Session::connect(servers(asked)?)).await;
            if let Ok(Ok(probe)) = probe {
                *limit = self::granted(&probe);
                crate::connect::close(&probe).await;
            }
        }
        let reads = measure(async || read(&session).await).await?;
        let writes = measure(async || write(&session, connection.session()).await).await?;
        let voters = match session.client() {
            Some(client) => {
                client.get_config().await.ok().map(|(config, _)| voters(&config)).filter(|count| *count > 0)
            }
            None => None,
        };
        Ok(Self { session, granted, limits, reads, writes, voters })
    }
}

fn granted(session: &Session) -> Option<Duration> {
    session.client().map(|client| client.session_timeout())
}

/// Reads from the server that we are connected to.
async fn read(session: &Session) -> Result<Duration, Error> {
    let client = session.client().ok_or(Error::Closed)?;
    let began = Instant::now();
    // A refusal is an answer, too.
    _ = client.check_stat("/").await;
    Ok(began.elapsed())
}

/// Sends a transaction without a change, which a quorum has to agree on.
async fn write(session: &Session, limit: Duration) -> Result<Duration, Error> {
    let client = session.client().ok_or(Error::Closed)?;
    let mut writer = client.new_multi_writer();
    let refused = |source| Error::Client { action: "check", path: "/".to_owned(), source };
    writer.add_check_version("/", -1).map_err(refused)?;
    let began = Instant::now();
    // A refusal of its part is an answer, too.
    match timeout(limit, writer.commit()).await {
        Ok(Ok(_) | Err(MultiWriteError::OperationFailed { .. })) => Ok(began.elapsed()),
        Ok(Err(MultiWriteError::RequestFailed { source })) => Err(refused(source)),
        Err(_) => Err(refused(ZkError::Timeout)),
    }
}

async fn measure(mut once: impl AsyncFnMut() -> Result<Duration, Error>) -> Result<Latency, Error> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while took.len() < TIMES && (took.is_empty() || began.elapsed() < WHILE) {
        took.push(once().await?);
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    Ok(Latency { median: at(50), slow: at(99) })
}

/// Counts the lines like `server.1=host:2888:3888:participant;2181`. A server without an ensemble has none.
fn voters(config: &[u8]) -> usize {
    let config = String::from_utf8_lossy(config);
    config.lines().filter(|line| line.starts_with("server.") && !line.contains(":observer")).count()
}

/// An address that a stream can connect to.
fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:2181") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_do_not_vote() {
        let config =
            "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:1:2:observer;2181\nversion=100000000";
        assert_eq!(voters(config.as_bytes()), 1);
    }

    #[test]
    fn hosts_have_the_port_of_the_client() {
        for (host, address) in
            [("zk1", "zk1:2181"), ("zk1:1", "zk1:1"), ("[::1]", "[::1]:2181"), ("[::1]:1", "[::1]:1")]
        {
            assert_eq!(with_port(host), address);
        }
    }
}
