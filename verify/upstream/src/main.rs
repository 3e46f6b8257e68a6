//! Shows what `docs/upstream.md` lists of `zookeeper-client`, one point at a time, with a real server.
//!
//! ```console
//! $ zk-docker/run cargo run -p upstream -- nagle
//! ```
//!
//! Each point is a file here, and uses the client alone, or one of its dependencies. It prints what it sees. The exit code is 0 if the point is
//! still so, 1 if it is not any more, and 2 if that could not be found out.

mod bursts;
mod connect_reason;
mod connection_loss;
mod dropped_watcher;
mod handshake;
mod hosts;
mod lock_cancel;
mod lock_clone;
mod long_timeout;
mod many_watches;
mod nagle;
mod new_session;
mod new_timeout;
mod order;
mod persistent_watch;
mod reconnect_pauses;
mod relay;
mod runtime_gone;
mod support;

use std::process::ExitCode;

use crate::support::{Outcome, Result};

/// A point of the list: shows it with the server at this address.
type Point = fn(&str) -> Result<Outcome>;

const POINTS: [(&str, Point); 16] = [
    ("dropped-watcher", dropped_watcher::run),
    ("nagle", nagle::run),
    ("order", order::run),
    ("many-watches", many_watches::run),
    ("persistent-watch", persistent_watch::run),
    ("new-session", new_session::run),
    ("new-timeout", new_timeout::run),
    ("handshake", handshake::run),
    ("connection-loss", connection_loss::run),
    ("runtime-gone", runtime_gone::run),
    ("reconnect-pauses", reconnect_pauses::run),
    ("connect-reason", connect_reason::run),
    ("hosts", hosts::run),
    ("long-timeout", long_timeout::run),
    ("lock-cancel", lock_cancel::run),
    ("lock-clone", lock_clone::run),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let point = match &arguments[..] {
        [name] => POINTS.iter().find(|(point, _)| point == name),
        _ => None,
    };
    let Some((name, run)) = point else {
        let names: Vec<_> = POINTS.iter().map(|(name, _)| *name).collect();
        eprintln!("usage: upstream POINT, one of: {}", names.join(" "));
        return ExitCode::from(2);
    };
    let outcome = match std::env::var("ZK_HOSTS") {
        Ok(hosts) => run(&hosts),
        Err(_) => Err(format!("ZK_HOSTS is not set; try: zk-docker/run cargo run -p upstream -- {name}").into()),
    };
    match outcome {
        Ok(Outcome::StillSo) => {
            println!("{name}: still so");
            ExitCode::SUCCESS
        }
        Ok(Outcome::Gone) => {
            println!("{name}: not so any more");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("{name}: cannot be shown: {error}");
            ExitCode::from(2)
        }
    }
}
