//! Free ports of 127.0.0.1 for servers that are stopped and started again.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u64 = 15_000;
const COUNT: u64 = 17_000;

/// A port that nobody listens on now. It may be taken before a server gets to bind it.
// Below the range from which Linux takes the ports of outgoing connections (32768 and up): while its server is
// down, such a port would be given to any client, or a client that reconnects would even connect to itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));
    loop {
        let number = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(number).expect("the range ends below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
