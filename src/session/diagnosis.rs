//! Owns the diagnosis of servers that do not answer. The client does not report why it cannot connect, so each host is tried
//! once with a connection of its own, which is closed at once.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::error::HostFailure;
use crate::session::server_session::ServerSession;

const PORT: u16 = 2181;

/// The hosts of a session, and why they could not be reached at the last try.
#[derive(Debug)]
pub(super) struct Diagnosis {
    hosts: Mutex<Arc<str>>,
    failures: Mutex<Vec<HostFailure>>,
}

impl Diagnosis {
    pub(super) fn new(hosts: Arc<str>) -> Arc<Self> {
        Arc::new(Self { hosts: Mutex::new(hosts), failures: Mutex::default() })
    }

    pub(super) fn hosts(&self) -> Arc<str> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on it is about these hosts.
    pub(super) fn is_of(&self, hosts: Arc<str>) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }

    pub(super) fn failures(&self) -> Vec<HostFailure> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries every host, for at most `limit`.
    pub(super) async fn run(&self, limit: Duration) {
        let hosts = self.hosts();
        let failures = join_all(hosts.split(',').map(|host| try_host(host, limit))).await;
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

async fn try_host(host: &str, limit: Duration) -> HostFailure {
    let tls = host.strip_prefix("tcp+tls://");
    let address = tls.or_else(|| host.strip_prefix("tcp://")).unwrap_or(host);
    let address = address.split('/').next().unwrap_or_default().to_owned();
    let (tried, is_tls) = (address.clone(), tls.is_some());
    // A name service may take its time, which a thread of the runtime should not.
    let reason = timeout(limit, spawn_blocking(move || try_address(&tried, is_tls, limit))).await;
    let reason = reason.ok().and_then(Result::ok).unwrap_or_else(|| "no answer".to_owned());
    HostFailure { host: address, reason }
}

fn try_address(address: &str, is_tls: bool, limit: Duration) -> String {
    let has_port = address.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let resolved = if has_port {
        address.to_socket_addrs()
    } else {
        (address.trim_matches(['[', ']']), PORT).to_socket_addrs()
    };
    let addresses = match resolved {
        Ok(addresses) => addresses,
        Err(error) => return format!("name does not resolve: {error}"),
    };
    let mut reason = "name has no address".to_owned();
    for address in addresses {
        reason = match TcpStream::connect_timeout(&address, limit) {
            Ok(_) if is_tls => {
                return "accepts connections, but gives no session; check its TLS certificate".to_owned();
            }
            Ok(_) => return "accepts connections, but gives no session".to_owned(),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            Err(error) if error.kind() == ErrorKind::TimedOut => "no answer".to_owned(),
            Err(error) => error.to_string(),
        };
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_port_is_an_address() {
        for address in ["[::1]", "::1", "127.0.0.1"] {
            let reason = try_address(address, false, Duration::from_millis(100));
            assert!(!reason.contains("resolve"), "{address}: {reason}");
        }
    }
}
