//! The client leaves Nagle's algorithm on: a small request waits until what was sent before it is acknowledged.

use std::os::fd::OwnedFd;

use rustix::net::sockopt::{set_tcp_nodelay, tcp_nodelay};

use crate::bursts::{HOLD, Subject, is_apart, ms};
use crate::support::{Outcome, Result, block_on};

/// Each session has one of five orders, and in four of them the client writes each request by itself (see `order`).
const SESSIONS: usize = 40;

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        println!("two requests at once, answers after {}", ms(HOLD));
        // They are kept, because a session at the same address would have the same order.
        let mut subjects = Vec::new();
        for _ in 0..SESSIONS {
            let subject = Subject::connect(hosts).await?;
            let socket = socket_to(&subject.proxy.hosts())?;
            let has_no_delay = tcp_nodelay(&socket)?;
            let before = subject.gap().await?;
            if !has_no_delay && !is_apart(before) {
                // This session writes both at once.
                subjects.push(subject);
                continue;
            }
            println!(
                "TCP_NODELAY is {}: the second request arrives {} later",
                on_or_off(has_no_delay),
                ms(before)
            );
            if has_no_delay {
                return Ok(Outcome::Gone);
            }
            set_tcp_nodelay(&socket, true)?;
            let after = subject.gap().await?;
            println!("the same session, with TCP_NODELAY: {} later", ms(after));
            return Ok(Outcome::StillSo);
        }
        println!("TCP_NODELAY is off; each of {SESSIONS} sessions writes both requests at once");
        Ok(Outcome::StillSo)
    })
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// A duplicate of this process's socket to `peer`. The client does not give it out.
#[cfg(target_os = "linux")]
fn socket_to(peer: &str) -> Result<OwnedFd> {
    use std::net::SocketAddr;

    use rustix::net::getpeername;
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let peer: SocketAddr = peer.parse()?;
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let duplicate = match pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) {
            Ok(duplicate) => duplicate,
            // It was closed meanwhile.
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(format!("pidfd_getfd, which needs Linux 5.6 or later: {error}").into()),
        };
        // What is no socket, or not connected, has no peer.
        let Ok(Some(other)) = getpeername(&duplicate) else { continue };
        if SocketAddr::try_from(other).is_ok_and(|other| other == peer) {
            return Ok(duplicate);
        }
    }
    Err(format!("there is no socket to {peer}").into())
}

#[cfg(not(target_os = "linux"))]
fn socket_to(_peer: &str) -> Result<OwnedFd> {
    Err("only Linux shows the socket of a library".into())
}
