//! What each operation costs in round trips on a network with a delay:
//!
//! ```console
//! $ cargo bench --manifest-path bench/Cargo.toml --bench wire
//! ```
//!
//! It takes a minute, and needs Linux and root. The requests go through the kernel's own TCP, so Nagle's algorithm and
//! late acknowledgements count, which a proxy hides. The client writes its requests in an order that depends on an address
//! and stays the same for a session's life. So each of ten sessions is measured by itself, and all stay open until the
//! end: a session that comes after another has closed might get the same address.
//!
//! [`network`] makes the network, [`operations`] is what is measured.

mod network;
mod operations;
mod table;

use std::time::Duration;

use testbed::Server;
use zookeeper_recipes::{Servers, Session};

use crate::network::{Network, Unavailable};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(10);

const SESSIONS: usize = 10;

/// Long, so that few keep-alives come in between.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Outcome {
    match Network::enter(ROUND_TRIP) {
        Ok(network) => tokio::runtime::Runtime::new()?.block_on(measure(&network)),
        Err(Unavailable(why)) => {
            println!("not measured: {why}");
            Ok(())
        }
    }
}

async fn measure(network: &Network) -> Outcome {
    // The last line of a key counts: it listens not only on the loopback.
    let server = Server::builder().config("clientPortAddress", "0.0.0.0").start().await?;
    let hosts = network.through(server.port());
    let connect = || Session::connect(Servers::new(&hosts).with_session_timeout(SESSION_TIMEOUT));
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(connect().await?);
    }
    let other = connect().await?;
    eprintln!("warming up …");
    // The server compiles its code meanwhile, which the first session would pay for.
    operations::measure(&other, &sessions[0], "/wire/warm-up").await?;
    let mut columns = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        eprintln!("session {} of {SESSIONS} …", number + 1);
        columns.push(operations::measure(session, &other, &format!("/wire/{number}")).await?);
    }
    println!("\n{}", table::of(&columns));
    println!(
        "\nRound trips of {ROUND_TRIP:?}, with {SESSIONS} sessions. For each session, the median of {} times.",
        operations::TIMES
    );
    for session in sessions.iter().chain([&other]) {
        session.close().await?;
    }
    Ok(())
}
