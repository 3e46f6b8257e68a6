//! The pauses between attempts to connect double without a limit.

use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use zookeeper_client::Client;

use crate::support::{Outcome, Result, UNHURRIED, block_on};

/// How many attempts are seen, after which the pause would be 1.6 s.
const ATTEMPTS: usize = 6;

pub(crate) fn run(_hosts: &str) -> Result<Outcome> {
    block_on(async {
        // It accepts connections and closes them, as a server without a quorum does.
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let hosts = listener.local_addr()?.to_string();
        let connecting =
            tokio::spawn(async move { Client::connector().with_session_timeout(UNHURRIED).connect(&hosts).await });
        let mut longest = Duration::ZERO;
        drop(listener.accept().await?);
        for _ in 1..ATTEMPTS {
            let began = Instant::now();
            drop(listener.accept().await?);
            println!("the next attempt came after {:?}", began.elapsed());
            longest = longest.max(began.elapsed());
        }
        connecting.abort();
        Ok(Outcome::of(longest >= Duration::from_millis(1500)))
    })
}
