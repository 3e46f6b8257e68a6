//! Owns what is measured at one host: what it grants, and how fast it answers.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_recipes::zookeeper_client::{Error as ZkError, MultiWriteError};
use zookeeper_recipes::{Error, Session};

use crate::cli::Connection;
use crate::connect::servers;
use crate::doctor::reason::{Reason, foreign, knock};
use crate::doctor::words::Words;
use crate::exit::Failure;
use crate::line::Line;
use crate::port::Silence;

/// How often something is measured, if that takes no longer than [`WHILE`].
const TIMES: usize = 100;

const WHILE: Duration = Duration::from_secs(2);

/// One host of the list, and what is known of it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) words: Words,
    /// A session that only this host serves, and what it has shown; or why there is none.
    pub(crate) seen: Result<Seen, Reason>,
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
    /// Examines a host of the list. One that gives no session takes one session timeout at most.
    pub(crate) async fn examine(connection: &Connection, name: &str, chroot: &str) -> Result<Self, Failure> {
        let deadline = Instant::now() + connection.session();
        let line = Line::to(connection, name)?;
        // The first handshake of a Java server may take a second.
        let limit = WHILE.min(connection.session() / 4);
        let patience = if line.has_tls() { connection.session() / 2 } else { limit };
        let mut this = Self { name: name.to_owned(), words: Words::default(), seen: Err(Reason::Silent) };
        if let Err(reason) = knock(&line.address, limit).await {
            this.seen = Err(reason);
            return Ok(this);
        }
        match Words::ask(&line, patience).await {
            Ok(words) => this.words = words,
            Err(Silence::Tls(reason)) => {
                this.seen = Err(Reason::Tls(reason));
                return Ok(this);
            }
            Err(Silence::None) => {}
        }
        if this.words.is_idle {
            this.seen = Err(Reason::NotServing);
            return Ok(this);
        }
        let is_foreign = async {
            let is_known = this.words.is_answered || line.has_tls();
            let reason = if is_known { None } else { foreign(&line.address, limit).await };
            // A server that is slow is silent for now.
            match reason {
                Some(reason) => reason,
                None => pending().await,
            }
        };
        let host = format!("{name}{chroot}");
        let seen = tokio::select! {
            biased;
            seen = Seen::at(connection, &host, deadline) => seen,
            reason = is_foreign => {
                this.seen = Err(reason);
                return Ok(this);
            }
        };
        this.seen = match seen {
            Ok(Some(seen)) => Ok(seen),
            Ok(None) if this.words.is_answered => Err(Reason::NoSession(String::new())),
            Ok(None) => Err(Reason::Silent),
            Err(error @ (Error::InvalidInput { .. } | Error::NoAuth { .. })) => return Err(error.into()),
            Err(error @ Error::Client { source: ZkError::AuthFailed, .. }) => return Err(error.into()),
            // It was lost while it was examined.
            Err(error) => Err(Reason::NoSession(Failure::from(error).message)),
        };
        if this.seen.is_ok() {
            this.words.count_fsyncs(&line, WHILE).await;
        }
        Ok(this)
    }
}

impl Seen {
    /// Connects, and measures; `None` without a session at the deadline.
    async fn at(connection: &Connection, host: &str, deadline: Instant) -> Result<Option<Self>, Error> {
        let servers = |timeout| {
            servers(connection, timeout, host)
                .map_err(|failure| Error::InvalidInput { what: "options", reason: failure.message })
        };
        let connected = Session::connect(servers(connection.session())?);
        let session = match timeout_at(deadline, connected).await {
            Ok(Ok(session)) => session,
            Ok(Err(Error::Unavailable { .. })) | Err(_) => return Ok(None),
            Ok(Err(error)) => return Err(error),
        };
        let granted = granted(&session).unwrap_or(connection.session());
        // A server that grants one session grants others, unless it limits the connections of a client.
        let limit = async |asked| {
            let probe = async {
                loop {
                    // It is tried for as long as the session that it asks for, which is too short on a busy machine.
                    match Session::connect(servers(asked)?).await {
                        Err(Error::Unavailable { .. }) => {}
                        connected => break connected,
                    }
                }
            };
            let Ok(Ok(probe)) = timeout(connection.session(), probe).await else { return Ok::<_, Error>(None) };
            let limit = self::granted(&probe);
            crate::connect::close(&probe).await;
            Ok(limit)
        };
        let limits = tokio::try_join!(limit(Duration::from_secs(1)), limit(Duration::from_secs(24 * 60 * 60)))?;
        let reads = measure(async || read(&session).await).await?;
        let writes = measure(async || write(&session, connection.session()).await).await?;
        let voters = match session.client() {
            Some(client) => {
                client.get_config().await.ok().map(|(config, _)| voters(&config)).filter(|count| *count > 0)
            }
            None => None,
        };
        Ok(Some(Self { session, granted, limits, reads, writes, voters }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_do_not_vote() {
        let config =
            "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:1:2:observer;2181\nversion=100000000";
        assert_eq!(voters(config.as_bytes()), 1);
    }
}
