//! That the recipes of the library work on a simulated server, unchanged.

use std::time::Duration;

use simulation::{Config, Server};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Mutex, RwLock, Semaphore, Servers, Session};

const PATIENCE: Duration = Duration::from_secs(20);

async fn start() -> Server {
    Server::start().await.expect("a server")
}

async fn connect(hosts: &str) -> Session {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(4));
    Session::connect(Servers::new(connector, hosts)).await.expect("connects")
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

async fn sessions(server: &Server) -> [Session; 2] {
    [connect(&server.address()).await, connect(&server.address()).await]
}
