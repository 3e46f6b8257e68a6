//! Owns [`Tokens`]: those of real holds, before and after the ensemble lost its data.

use std::time::Duration;

use lab::Outcome;
use testbed::Server;
use zookeeper_recipes::{FencingToken, Mutex, Options, Servers, Session};

/// Nothing here is about sessions that end.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) first: FencingToken,
    pub(crate) second: FencingToken,
    /// The servers, whose data was wiped after the two holds.
    pub(crate) wiped: Wiped,
}

#[derive(Debug)]
pub(crate) struct Wiped(Server);

impl Tokens {
    /// Those of two holders, one after the other.
    pub(crate) async fn of_holds() -> Outcome<Self> {
        let server = Server::start().await?;
        let mutex = mutex(&server, 0).await?;
        let first = mutex.lock().await?.fencing_token();
        let second = mutex.lock().await?.fencing_token();
        let mut wiped = Wiped(server);
        wiped.again().await?;
        Ok(Self { first, second, wiped })
    }
}

impl Wiped {
    /// That of a hold with this epoch.
    pub(crate) async fn token(&self, epoch: u8) -> Outcome<FencingToken> {
        Ok(mutex(&self.0, epoch).await?.lock().await?.fencing_token())
    }

    /// Wipes the data once more.
    pub(crate) async fn again(&mut self) -> Outcome {
        Ok(self.0.restart_empty().await?)
    }
}

async fn mutex(server: &Server, epoch: u8) -> Outcome<Mutex> {
    let servers = Servers::new(&server.hosts()).with_session_timeout(SESSION_TIMEOUT);
    let session = Session::connect(servers).await?;
    let session = session.with_lock_options(Options::new().with_token_epoch(epoch));
    Ok(Mutex::new(&session, "/accounts/7")?)
}
