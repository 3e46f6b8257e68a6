//! A Redis server, and the connection to it, which is made again after an error.

use std::net::SocketAddr;
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::Outcome;

/// A server, and the connection to it while there is one.
pub(super) struct Member {
    pub(super) client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Member {
    /// Connects at the first request.
    pub(super) fn at(address: SocketAddr) -> Outcome<Self> {
        let client = redis::Client::open((address.ip().to_string(), address.port()))?;
        Ok(Self { client, connection: Mutex::new(None) })
    }

    /// Sends a request over a connection that is made, and must answer, within the limit.
    pub(super) async fn run<T, F: Future<Output = RedisResult<T>>>(
        &self,
        limit: Duration,
        request: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Outcome<T> {
        let mut kept = self.connection.lock().await;
        let connection = match kept.take() {
            Some(connection) => connection,
            None => timeout(limit, self.client.get_multiplexed_async_connection()).await??,
        };
        let answer = timeout(limit, request(connection.clone())).await??;
        *kept = Some(connection);
        Ok(answer)
    }
}
