//! Owns the diagnosis of servers that do not answer. The client does not report why it cannot connect, so each host is tried
//! once with a connection of its own, which is closed at once. Until the session was connected for the first time, this also
//! finds out whether the two sides disagree about TLS. Later it does not: servers that recover would log an error for each
//! session of a fleet.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use zookeeper_client::Connector;

use crate::error::HostFailure;
use crate::session::probe;
use crate::session::server_session::ServerSession;

const PORT: u16 = 2181;
const NO_SESSION: &str = "accepts connections, but gives no session";

/// Types of messages of TLS.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;

/// The hosts of a session, and why they could not be reached at the last try.
pub(super) struct Diagnosis {
    /// And how they are connected, once that is known.
    hosts: Mutex<(Arc<str>, Option<Connector>)>,
    failures: Mutex<Vec<HostFailure>>,
    was_connected: AtomicBool,
}

// A connector may hold a password.
impl fmt::Debug for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnosis").field("hosts", &self.hosts()).field("failures", &self.failures).finish()
    }
}

impl Diagnosis {
    pub(super) fn new(hosts: Arc<str>) -> Arc<Self> {
        let hosts = Mutex::new((hosts, None));
        Arc::new(Self { hosts, failures: Mutex::default(), was_connected: AtomicBool::new(false) })
    }

    pub(super) fn hosts(&self) -> Arc<str> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// From now on it is about these hosts.
    pub(super) fn is_of(&self, hosts: Arc<str>, connector: Connector) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = (hosts, Some(connector));
    }

    pub(super) fn failures(&self) -> Vec<HostFailure> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries every host, for at most `limit`.
    pub(super) async fn run(&self, limit: Duration) {
        let (hosts, connector) = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let tries_tls = !self.was_connected.load(Ordering::Relaxed);
        let connector = connector.as_ref().filter(|_| tries_tls);
        let failures = join_all(hosts.split(',').map(|host| try_host(host, connector, tries_tls, limit))).await;
        self.set(failures);
    }

    /// Notes why all hosts are of no use.
    pub(super) fn failed(&self, reason: &str) {
        let failure = |host: &str| HostFailure { host: host.to_owned(), reason: reason.to_owned() };
        self.set(self.hosts().split(',').map(failure).collect());
    }

    fn set(&self, failures: Vec<HostFailure>) {
        *self.failures.lock().unwrap_or_else(PoisonError::into_inner) = failures;
    }

    /// Tries the hosts whenever the session is without a connection for an eighth of its timeout.
    pub(super) async fn watch(&self, zk: &ServerSession) {
        self.was_connected.store(true, Ordering::Relaxed);
        let mut changes = zk.changes();
        loop {
            if !zk.is_connected() {
                sleep(zk.timeout() / 8).await;
                if !zk.is_connected() {
                    self.run(zk.timeout() / 8).await;
                }
            } else {
                self.set(Vec::new());
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

async fn try_host(host: &str, connector: Option<&Connector>, tries_tls: bool, limit: Duration) -> HostFailure {
    let tls = host.strip_prefix("tcp+tls://");
    let address = tls.or_else(|| host.strip_prefix("tcp://")).unwrap_or(host);
    let address = address.split('/').next().unwrap_or_default().to_owned();
    let (tried, is_tls) = (address.clone(), tls.is_some());
    // A name service may take its time, which a thread of the runtime should not.
    let reached = spawn_blocking(move || {
        let stream = try_address(&tried, limit)?;
        Ok(tries_tls && !is_tls && speaks_tls(stream, limit / 2))
    });
    let reason = match (timeout(limit, reached).await, connector) {
        (Ok(Ok(Err(reason))), _) => reason,
        (Ok(Ok(Ok(true))), _) => "speaks TLS on this port: write tcp+tls:// before the host".to_owned(),
        (Ok(Ok(Ok(false))), Some(connector)) if is_tls => {
            // A handshake takes more round trips, and more computing, than a connection.
            let reason = probe::over_tls(connector.clone(), &format!("tcp+tls://{address}"), 3 * limit).await;
            reason.unwrap_or_else(|| format!("{NO_SESSION}; check its TLS certificate"))
        }
        (Ok(Ok(Ok(false))), _) => NO_SESSION.to_owned(),
        (Ok(Err(_)) | Err(_), _) => "no answer".to_owned(),
    };
    HostFailure { host: address, reason }
}

fn try_address(address: &str, limit: Duration) -> Result<TcpStream, String> {
    let has_port = address.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let resolved = if has_port {
        address.to_socket_addrs()
    } else {
        (address.trim_matches(['[', ']']), PORT).to_socket_addrs()
    };
    let addresses = resolved.map_err(|error| format!("name does not resolve: {error}"))?;
    let mut reason = "name has no address".to_owned();
    for address in addresses {
        reason = match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            Err(error) if error.kind() == ErrorKind::TimedOut => "no answer".to_owned(),
            Err(error) => error.to_string(),
        };
    }
    Err(reason)
}

/// Whether the answer to the first message of a TLS client is a message of TLS, be it a refusal. To ZooKeeper, that message
/// is a request that is too long.
fn speaks_tls(mut stream: TcpStream, limit: Duration) -> bool {
    let mut answer = [0];
    let asked = stream
        .set_read_timeout(Some(limit.max(Duration::from_millis(1))))
        .and_then(|()| stream.write_all(&client_hello()))
        .and_then(|()| stream.read_exact(&mut answer));
    asked.is_ok() && matches!(answer[0], ALERT | HANDSHAKE)
}

/// TLS 1.2 with one cipher, and without extensions (RFC 5246, section 7.4.1.2).
fn client_hello() -> Vec<u8> {
    let (version, random, session_id, ciphers, compressions) =
        ([3, 3], [0x5a; 32], [0], [0, 2, 0xc0, 0x2f], [1, 0]);
    let hello = [&version[..], &random, &session_id, &ciphers, &compressions].concat();
    let length = |extra: usize| u8::try_from(hello.len() + extra).expect("it is short");
    [&[HANDSHAKE, 3, 1, 0, length(4), 1, 0, 0, length(0)], &hello[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_port_is_an_address() {
        for address in ["[::1]", "::1", "127.0.0.1"] {
            if let Err(reason) = try_address(address, Duration::from_millis(100)) {
                assert!(!reason.contains("resolve"), "{address}: {reason}");
            }
        }
    }
}
