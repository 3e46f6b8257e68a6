//! Owns the expansion of names into addresses, before each connect.
//!
//! To the client, a name with several addresses is one server: it takes the first of them that accepts a connection, also one that
//! then gives no session, and never comes to the others. So the addresses become hosts of their own. The name stays in the
//! list, so that a session finds a server that has moved while it lives. TLS checks the name, so there it stays alone.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const PORT: u16 = 2181;

/// The list of hosts with the addresses of those names that have several. A name that is not resolved in time stays alone.
pub(super) async fn expand(hosts: &str, limit: Duration) -> String {
    let (hosts, chroot) = hosts.split_at(hosts.rfind(',').map_or(0, |comma| comma + 1) + chroot_at(hosts));
    let elements = join_all(hosts.split(',').map(|element| expand_one(element, limit))).await;
    elements.join(",") + chroot
}

/// Where the chroot begins in the last element.
fn chroot_at(hosts: &str) -> usize {
    let last = hosts.rsplit(',').next().unwrap_or_default();
    let scheme = last.find("://").map_or(0, |at| at + "://".len());
    last[scheme..].find('/').map_or(last.len(), |slash| scheme + slash)
}

async fn expand_one(element: &str, limit: Duration) -> Cow<'_, str> {
    let host = element.strip_prefix("tcp://").unwrap_or(element);
    // An IPv6 address, or a host over TLS, has a colon before its last part.
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    if name.contains([':', '[']) || name.parse::<IpAddr>().is_ok() {
        return Cow::Borrowed(element);
    }
    let port = if port.is_empty() { Some(PORT) } else { port.parse().ok() };
    let Some(port) = port else {
        return Cow::Borrowed(element);
    };
    let query = (name.to_owned(), port);
    // A name service may take its time, which a thread of the runtime should not.
    let found = timeout(limit, spawn_blocking(move || query.to_socket_addrs())).await;
    let Ok(Ok(Ok(found))) = found else {
        return Cow::Borrowed(element);
    };
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.len() < 2 {
        return Cow::Borrowed(element);
    }
    let all = addresses.iter().map(SocketAddr::to_string).chain([element.to_owned()]);
    Cow::Owned(all.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_names_are_looked_at() {
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
}
