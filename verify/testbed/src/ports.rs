//! Free ports of 127.0.0.1 for servers that are restarted.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u64 = 15_000;
const COUNT: u64 = 17_000;

/// A port without a listener. Another process may take it before a server binds it.
// The range is below that of outgoing connections on Linux (32768 and up). While its server is down, a port of that
// range could be assigned to any client, and a client that reconnects could even connect to itself.
pub fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));
    loop {
        let number = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(number).expect("the range ends below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
