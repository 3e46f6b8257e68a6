//! The counter, in a store that is not the lock's: it reads and writes, and refuses tokens below the highest it has seen.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::Outcome;

/// A counter as a contender sees it. A token is sent if there is one.
#[async_trait]
pub trait Counter: Send {
    /// Reads; `None` if the token is refused.
    async fn read(&mut self, token: Option<i64>) -> Outcome<Option<i64>>;

    /// Writes; false if the token, or the version, is refused.
    async fn write(&mut self, value: i64, token: Option<i64>) -> Outcome<bool>;
}

/// What is in the store.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct State {
    /// The counter.
    pub value: i64,
    /// The writes that it has acknowledged.
    pub writes: i64,
    /// The requests that it has refused.
    pub refused: i64,
    /// The highest token so far.
    highest: i64,
}

/// A running store. Dropping it ends it.
#[derive(Debug)]
pub struct Store {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    job: AbortHandle,
}

impl Store {
    /// Starts one on a free port.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let job = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Its errors are those of the client.
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Ok(Self { state, address, job: job.abort_handle() })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is in it now.
    pub fn state(&self) -> State {
        *locked(&self.state)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.job.abort();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> Outcome {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let words: Vec<i64> = line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
        let answer = locked(&state).answer(line.starts_with("write"), &words);
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

impl State {
    /// `read [TOKEN]` or `write VALUE [TOKEN]`. A read records its token, too: a write may depend on it.
    fn answer(&mut self, is_write: bool, words: &[i64]) -> String {
        let token = words.get(usize::from(is_write)).copied();
        if token.is_some_and(|token| token < self.highest) {
            self.refused += 1;
            return "refused".to_owned();
        }
        self.highest = token.unwrap_or(self.highest);
        if let (true, Some(value)) = (is_write, words.first()) {
            self.value = *value;
            self.writes += 1;
        }
        self.value.to_string()
    }
}

/// A connection to the store.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If there is no store.
    pub async fn to(store: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(store).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }
}

impl Connection {
    async fn ask(&mut self, request: String) -> Outcome<Option<i64>> {
        self.0.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        match answer.trim() {
            "refused" => Ok(None),
            value => Ok(Some(value.parse()?)),
        }
    }
}

#[async_trait]
impl Counter for Connection {
    async fn read(&mut self, token: Option<i64>) -> Outcome<Option<i64>> {
        let token = token.map(|token| format!(" {token}")).unwrap_or_default();
        self.ask(format!("read{token}\n")).await
    }

    async fn write(&mut self, value: i64, token: Option<i64>) -> Outcome<bool> {
        let token = token.map(|token| format!(" {token}")).unwrap_or_default();
        Ok(self.ask(format!("write {value}{token}\n")).await?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_below_the_highest_is_refused() {
        let mut state = State::default();
        assert_eq!(state.answer(false, &[7]), "0");
        assert_eq!(state.answer(true, &[1, 6]), "refused");
        assert_eq!(state.answer(true, &[1, 7]), "1");
        assert_eq!(state.answer(true, &[2]), "2", "without a token nothing is compared");
        assert_eq!((state.value, state.writes, state.refused), (2, 2, 1));
    }
}
