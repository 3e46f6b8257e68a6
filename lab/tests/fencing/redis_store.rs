//! The record of `docs/fencing.md` in Redis: a hash, which one script reads and writes.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use lab::Outcome;
use lab::servers::Setup;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use zookeeper_recipes::FencingToken;

use crate::page::Page;
use crate::stores::{Database, Store};

#[derive(Debug)]
pub(crate) struct Redis(lab::servers::redis::Redis);

impl Redis {
    pub(crate) async fn start() -> Outcome<Arc<dyn Database>> {
        Ok(Arc::new(Self(lab::servers::redis::Redis::start(&Setup::default()).await?)))
    }
}

#[async_trait]
impl Database for Redis {
    async fn connect(&self) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(self.0.connect().await?))
    }
}

type Record = HashMap<String, String>;

/// Runs the script; the record if the token is accepted.
async fn run(
    connection: &mut MultiplexedConnection,
    id: i64,
    token: FencingToken,
    balance: Option<i64>,
) -> Outcome<Option<Record>> {
    let script = Script::new(Page::below("Redis"));
    let mut call = script.prepare_invoke();
    call.key(key(id)).arg(token.to_string());
    if let Some(balance) = balance {
        call.arg("balance").arg(balance);
    }
    Ok(call.invoke_async(connection).await?)
}

fn key(id: i64) -> String {
    format!("accounts:{id}")
}

fn number(record: &Record, field: &str) -> Outcome<i64> {
    Ok(record.get(field).map_or(Ok(0), |number| number.parse())?)
}

#[async_trait]
impl Store for MultiplexedConnection {
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>> {
        let record = run(self, id, token, None).await?;
        record.map(|record| number(&record, "balance")).transpose()
    }

    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        Ok(run(self, id, token, Some(balance)).await?.is_some())
    }

    async fn epoch(&mut self) -> Outcome<u8> {
        let keys: Vec<String> = self.keys("accounts:*").await?;
        let mut largest = 0;
        for key in keys {
            largest = largest.max(number(&self.hgetall(key).await?, "token")?);
        }
        Ok((largest >> 55).try_into()?)
    }

    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>> {
        let record: Record = self.hgetall(key(id)).await?;
        let row = || Outcome::Ok((number(&record, "balance")?, number(&record, "token")?));
        (!record.is_empty()).then(row).transpose()
    }
}
