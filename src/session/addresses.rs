//! Resolves lists of hosts, and finds out why hosts do not answer.
//!
//! The client treats a name with several addresses as one server. It takes the first address that accepts a connection,
//! even if the server there grants no session, and never tries the other addresses. So each address becomes a host of its
//! own. The name stays in the list, so that a live session finds a server that has moved. TLS checks names, so names of TLS
//! hosts are not expanded.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::HostFailure;
use crate::session::hosts::split_chroot;

const PORT: u16 = 2181;

/// Puts the addresses of each name that has several into the list of hosts, before the name. A name that is not resolved
/// within `limit` stays as it is.
pub(super) async fn expand(hosts: &str, limit: Duration) -> String {
    let (hosts, chroot) = split_chroot(hosts);
    let elements = join_all(hosts.split(',').map(|element| expand_one(element, limit))).await;
    elements.join(",") + chroot
}

async fn expand_one(element: &str, limit: Duration) -> Cow<'_, str> {
    if element.starts_with("tcp+tls://") || element.contains('[') {
        return Cow::Borrowed(element);
    }
    let host = element.strip_prefix("tcp://").unwrap_or(element).to_owned();
    let mut addresses = within(limit, move || look_up(&host)).await.unwrap_or_default();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.len() < 2 {
        return Cow::Borrowed(element);
    }
    let all = addresses.iter().map(SocketAddr::to_string).chain([element.to_owned()]);
    Cow::Owned(all.collect::<Vec<_>>().join(","))
}

/// Returns why the hosts of a list grant no session, as far as one attempt to connect to each of them shows.
pub(super) async fn failures(hosts: &str, limit: Duration) -> Vec<HostFailure> {
    let failure = async |element: &str| {
        let host = element.split_once("://").map_or(element, |(_, host)| host).to_owned();
        let tried = host.clone();
        let failed = within(limit, move || look_up(&tried).and_then(|addresses| knock(&addresses, limit)));
        let reason = failed.await.err().unwrap_or_else(|| "accepts connections, but gives no session".to_owned());
        HostFailure { host, reason }
    };
    join_all(split_chroot(hosts).0.split(',').map(failure)).await
}

/// Runs `blocking` on a thread that may block, because the resolution of names may take long. Waits for at most `limit`.
async fn within<T: Send + 'static>(
    limit: Duration,
    blocking: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let answered = timeout(limit, spawn_blocking(blocking)).await.ok().and_then(Result::ok);
    answered.unwrap_or_else(|| Err("no answer".to_owned()))
}

/// Returns the addresses of a host, which may have a port.
fn look_up(host: &str) -> Result<Vec<SocketAddr>, String> {
    let has_port = host.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let found =
        if has_port { host.to_socket_addrs() } else { (host.trim_matches(['[', ']']), PORT).to_socket_addrs() };
    found.map(Iterator::collect).map_err(|error| format!("name does not resolve: {error}"))
}

/// Tries the addresses until one accepts a connection. Returns the reason of the last address if none does.
fn knock(addresses: &[SocketAddr], limit: Duration) -> Result<(), String> {
    let mut reason = "name has no address".to_owned();
    for address in addresses {
        reason = match TcpStream::connect_timeout(address, limit) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            Err(error) if error.kind() == ErrorKind::TimedOut => "no answer".to_owned(),
            Err(error) => error.to_string(),
        };
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_names_with_several_addresses_are_replaced() {
        for hosts in [
            "10.0.0.1:2181",
            "10.0.0.1",
            "tcp://10.0.0.1:2181,[::1]:2181,[fe80::1%eth0]/chroot",
            "tcp+tls://localhost:2281/a",
            "name.invalid:2181,10.0.0.1:x/chroot/b",
            "[::1]",
        ] {
            assert_eq!(expand(hosts, Duration::from_secs(10)).await, hosts);
        }
    }

    #[test]
    fn address_without_port_is_an_address() {
        for address in ["[::1]", "::1", "127.0.0.1", "[::1]:2181", "127.0.0.1:2181"] {
            assert_eq!(look_up(address).map(|found| found[0].port()), Ok(PORT), "{address}");
        }
    }
}
