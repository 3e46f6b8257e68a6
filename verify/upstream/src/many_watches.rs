//! Watches of more than 128 KiB of paths end the session when it reconnects.

use futures_util::future::try_join_all;
use testbed::proxy::{Direction, Kind, Proxy, Uncounted};
use zookeeper_client::Error;

use crate::support::{Outcome, Result, TIMEOUT, block_on, connect, soon};

/// Bytes of a watched path.
const LENGTH: usize = 64;

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let few = survives(hosts, 1_900).await?;
        let many = survives(hosts, 2_200).await?;
        if !few {
            return Err("the session did not survive few watches".into());
        }
        Ok(Outcome::of(!many))
    })
}

/// Whether a session with this number of watches survives a lost connection.
async fn survives(hosts: &str, watches: usize) -> Result<bool> {
    let proxy = Proxy::start(hosts).await?;
    let client = connect(&proxy.hosts(), TIMEOUT).await?;
    // The nodes do not exist: a watch waits for their creation.
    let paths: Vec<_> = (0..watches).map(|number| format!("/{number:0>width$}", width = LENGTH - 1)).collect();
    let _watchers = try_join_all(paths.iter().map(|path| client.check_and_watch_stat(path))).await?;
    proxy.cut_now();
    let answer = loop {
        match soon(client.check_stat("/")).await? {
            // It was under way.
            Err(Error::ConnectionLoss) => {}
            answer => break answer,
        }
    };
    let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "the session goes on".to_owned());
    let is_set = |frame: &&Uncounted| {
        (frame.connection, frame.direction, &frame.kind) == (2, Direction::ToServer, &Kind::SetWatches)
    };
    let sets = proxy.uncounted().iter().filter(is_set).count();
    println!(
        "{watches} watches, {} KiB of paths, {sets} SetWatches after a cut: {outcome}",
        watches * LENGTH / 1024
    );
    Ok(answer.is_ok())
}
