//! Owns connecting: the first time, and again after a session has expired.
//!
//! Before a new session is used, the old one is attached to once more and closed. `SessionExpired` in answer, or the
//! end of the closing, is the proof that its nodes are gone: the client's word alone is not (it gives a session up by
//! its own clock), and an old node would stand before us in the queue until the server agrees.

use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::{Client, Connector, SessionInfo};

use crate::error::{Error, Result, Unanswered};
use crate::session::clock::Moment;
use crate::session::hosts;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The least session timeout that servers agree to unless they are told otherwise: two ticks of 2 s.
const LEAST_BY_DEFAULT: Duration = Duration::from_secs(4);

/// Trust in a lock assumes two ticks, for which a client cannot ask.
pub(super) fn warn_if_short(client: &Client) {
    if client.session_timeout() < LEAST_BY_DEFAULT {
        tracing::warn!(
            timeout = ?client.session_timeout(),
            "the session timeout is shorter than two ticks of a server with the default tickTime (2 s); trust in a lock \
             assumes at least two ticks of these servers"
        );
    }
}

/// Where to connect to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    connector: Connector,
    hosts: Arc<str>,
}

impl Servers {
    pub(crate) fn new(connector: Connector, hosts: &str) -> Result<Self> {
        let hosts = hosts::normalize(hosts)?;
        Carried::by(&connector).check()?;
        Ok(Self { connector, hosts: hosts.into() })
    }

    pub(crate) fn hosts(&self) -> &Arc<str> {
        &self.hosts
    }

    /// Connects for the first time, when a chroot that does not exist is a mistake in the hosts.
    pub(crate) async fn connect_first(&self) -> Result<(Client, Moment)> {
        let (client, created) = self.connect().await?;
        if client.path() != "/" {
            let (began, patience) = (Moment::now(), client.session_timeout());
            let checked = tokio::time::timeout(patience, self.check_chroot(&client)).await;
            checked.unwrap_or_else(|_| Err(self.unavailable(began)))?;
        }
        Ok((client, created))
    }

    async fn check_chroot(&self, client: &Client) -> Result<()> {
        let began = Moment::now();
        loop {
            match exists(client).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let reason = format!("{} does not exist; create it first", client.path());
                    return Err(Error::invalid("chroot", reason));
                }
                // Locks below it may still be allowed.
                Err(zookeeper_client::Error::NoAuth) => return Ok(()),
                Err(error @ zookeeper_client::Error::AuthFailed) => return Err(self.refused(error)),
                Err(error) if client.state().is_terminated() => {
                    tracing::debug!(%error, "session ended while its chroot was looked for");
                    return Err(self.unavailable(began));
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot look for the chroot yet");
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
    }

    fn unavailable(&self, since: Moment) -> Error {
        let (hosts, after) = (self.hosts.to_string(), Moment::now().since(since));
        Error::Unavailable { hosts, after, why: Unanswered::Servers }
    }

    fn refused(&self, source: zookeeper_client::Error) -> Error {
        Error::Client { action: "authenticate at", path: self.hosts.to_string(), source }
    }

    /// Connects with a new session, which is created after the moment that comes with it.
    pub(crate) async fn connect(&self) -> Result<(Client, Moment)> {
        let began = Moment::now();
        let connected = self.connector.clone().connect(&self.hosts).await.map_err(|error| match error {
            zookeeper_client::Error::BadArguments(reason) => {
                Error::invalid("hosts", format!("{:?}: {reason}; {}", self.hosts, hosts::FORM))
            }
            zookeeper_client::Error::AuthFailed => self.refused(error),
            zookeeper_client::Error::Timeout
            | zookeeper_client::Error::NoHosts
            | zookeeper_client::Error::ConnectionLoss
            | zookeeper_client::Error::Custom(_) => self.unavailable(began),
            source => Error::Client { action: "connect to", path: self.hosts.to_string(), source },
        });
        let client = connected?;
        warn_if_short(&client);
        Ok((client, began))
    }

    /// Makes sure that an old session is gone and connects with a new one; tries for as long as `wanted`.
    pub(crate) async fn renew(
        &self,
        old: &SessionInfo,
        wanted: impl Fn() -> bool,
    ) -> Option<Result<(Client, Moment)>> {
        let mut pause = FIRST_PAUSE;
        let mut buried = false;
        while wanted() {
            if !buried {
                buried = self.bury(old).await;
            }
            if buried {
                match self.connect().await {
                    Ok(connected) => return Some(Ok(connected)),
                    // Asking again with the same credentials would change nothing.
                    Err(error @ Error::Client { source: zookeeper_client::Error::AuthFailed, .. }) => {
                        return Some(Err(error));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot connect again yet");
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        None
    }

    /// Whether the old session is certainly gone.
    async fn bury(&self, old: &SessionInfo) -> bool {
        let connector = self.connector.clone().with_session(old.clone()).with_fail_eagerly();
        match connector.connect(&self.hosts).await {
            // Without credentials there will be no new session either, and connecting says so.
            Err(zookeeper_client::Error::SessionExpired | zookeeper_client::Error::AuthFailed) => true,
            Err(error) => {
                tracing::debug!(session = %old.id(), %error, "cannot tell yet whether the old session is gone");
                false
            }
            Ok(client) => {
                let (mut state, patience) = (client.state_watcher(), client.session_timeout());
                drop(client);
                let ended = async {
                    while !state.state().is_terminated() {
                        state.changed().await;
                    }
                };
                tokio::time::timeout(patience, ended).await.is_ok()
            }
        }
    }
}

/// Whether the chroot of a client exists.
async fn exists(client: &Client) -> Result<bool, zookeeper_client::Error> {
    if client.check_stat("/").await?.is_some() {
        return Ok(true);
    }
    // It may be newer than what a server knows that lags behind.
    client.sync("/").await?;
    Ok(client.check_stat("/").await?.is_some())
}

/// The client sends the session timeout as a signed 32-bit number of milliseconds, and reckoning with a long one it panics.
const LONGEST_MS: u32 = i32::MAX as u32;
/// The client replaces shorter timeouts.
const SHORTEST_MS: u32 = 8;

/// What a connector carries, by its Debug text: the client offers no other look at it.
///
/// A client that says it in other words is not checked, and a test here fails.
struct Carried(String);

impl Carried {
    fn by(connector: &Connector) -> Self {
        let text = format!("{connector:?}");
        // What comes before, TLS and SASL, may have texts of the user's in it.
        let own = text.rfind(" session: ").unwrap_or_default();
        Self(text[own..].to_owned())
    }

    fn field(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.rsplit_once(&format!(" {name}: "))?;
        value.split([',', ' ', '(']).next()
    }

    fn check(&self) -> Result<()> {
        let invalid = |reason: &str| Err(Error::invalid("connector", reason));
        if self.field("session") == Some("Some") {
            return invalid(
                "it carries the session of another client, which a renewal would present again; leave out with_session",
            );
        }
        if self.field("detached") == Some("true") {
            return invalid(
                "it is detached, so its session and all nodes would outlive close(); leave out with_detached",
            );
        }
        if self.field("readonly") == Some("true") {
            return invalid("it allows read-only servers, on which no lock can be taken; leave out with_readonly");
        }
        // A connection timeout that is too long for the session is left out by the client.
        for (field, name, most) in [
            ("session_timeout", "session", f64::from(LONGEST_MS)),
            ("connection_timeout", "connection", f64::INFINITY),
        ] {
            let Some((text, ms)) = self.field(field).and_then(|text| Some((text, milliseconds(text)?))) else {
                continue;
            };
            let limit = match ms {
                // It stands for the default.
                0.0 => continue,
                ms if ms < f64::from(SHORTEST_MS) => format!("no less than {SHORTEST_MS} ms"),
                // Half a millisecond makes up for what is rounded, and the client cuts it off.
                ms if ms >= most + 0.5 => format!("no more than {LONGEST_MS} ms (24 days)"),
                _ => continue,
            };
            return invalid(&format!("its {name} timeout is {text}, but the client can carry {limit}"));
        }
        Ok(())
    }
}

/// The milliseconds in the Debug text of a duration.
fn milliseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic)?);
    let unit = match unit {
        "s" => 1e3,
        "ms" => 1.0,
        "µs" => 1e-3,
        "ns" => 1e-6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that are looked at, as the text of this connector has them.
    fn fields(connector: &Connector) -> [Option<String>; 5] {
        let carried = Carried::by(connector);
        ["session", "detached", "readonly", "session_timeout", "connection_timeout"]
            .map(|name| carried.field(name).map(str::to_owned))
    }

    #[test]
    fn connector_says_in_its_debug_text_what_it_carries() {
        let texts = |texts: [&str; 5]| texts.map(|text| Some(text.to_owned()));
        let connector = Client::connector();
        assert_eq!(fields(&connector), texts(["None", "false", "false", "0ns", "0ns"]), "{connector:?}");
        let connector = Client::connector()
            .with_detached()
            .with_readonly(true)
            .with_session_timeout(Duration::from_millis(2_500))
            .with_connection_timeout(Duration::from_micros(1_500));
        assert_eq!(fields(&connector), texts(["None", "true", "true", "2.5s", "1.5ms"]), "{connector:?}");
    }

    #[test]
    fn text_of_a_duration_is_read_in_every_unit() {
        for duration in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_nanos(1_500),
            Duration::from_micros(7_999),
            Duration::from_millis(8),
            Duration::from_millis(i32::MAX as u64),
            Duration::from_secs(6),
            Duration::MAX,
        ] {
            let read = milliseconds(&format!("{duration:?}")).expect("a duration");
            let meant = duration.as_secs_f64() * 1e3;
            assert!((read - meant).abs() <= meant * 1e-9, "{duration:?}: {read}");
        }
        assert_eq!(milliseconds("6 fortnights"), None);
    }

    #[test]
    fn timeouts_at_the_edge_of_what_can_be_carried() {
        let edge = Duration::from_millis(i32::MAX as u64);
        for (timeout, carried) in [
            (Duration::ZERO, true),
            (Duration::from_nanos(1), false),
            (Duration::from_nanos(7_999_999), false),
            (Duration::from_millis(8), true),
            (edge, true),
            (edge + Duration::from_millis(1), false),
            (Duration::MAX, false),
        ] {
            let connector = Client::connector().with_session_timeout(timeout);
            assert_eq!(Carried::by(&connector).check().is_ok(), carried, "{timeout:?}");
        }
    }
}
