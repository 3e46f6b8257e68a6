//! The record of `docs/fencing.md` in etcd: two keys, which one transaction compares and puts, by the gateway for JSON.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lab::Outcome;
use lab::servers::{Server, Setup};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_recipes::FencingToken;

use crate::page::Page;
use crate::stores::{Database, Store};

/// The operations of a write, and what a read has instead.
const PUT: &str = r#"{"requestPut": {"key": "$data_key", "value": "$data"}}"#;
const RANGE: &str = r#"{"requestRange": {"key": "$data_key"}}"#;

#[derive(Debug)]
pub(crate) struct Etcd(lab::servers::etcd::Etcd);

impl Etcd {
    pub(crate) async fn start() -> Outcome<Arc<dyn Database>> {
        Ok(Arc::new(Self(lab::servers::etcd::Etcd::start(&Setup::default()).await?)))
    }
}

#[async_trait]
impl Database for Etcd {
    async fn connect(&self) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(Gateway(self.0.address())))
    }
}

struct Gateway(SocketAddr);

impl Gateway {
    async fn post(&self, path: &str, body: &str) -> Outcome<Value> {
        let mut stream = TcpStream::connect(self.0).await?;
        let length = body.len();
        let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        if !head.contains(" 200 ") {
            return Err(answer.into());
        }
        Ok(serde_json::from_str(body)?)
    }

    /// Runs the transaction of the page; the answers to its operations if the token is accepted.
    async fn run(&self, id: i64, token: FencingToken, balance: Option<i64>) -> Outcome<Option<Vec<Value>>> {
        let text = Page::below("etcd");
        let text = if balance.is_none() { text.replace(PUT, RANGE) } else { text.to_owned() };
        let values = [
            ("$token_key", key(id, "token")),
            ("$data_key", key(id, "balance")),
            ("$token", digits(token.get().cast_unsigned())),
            ("$next", digits(token.get().cast_unsigned() + 1)),
            ("$data", balance.unwrap_or_default().to_string()),
        ];
        let quoted = |text: &str| format!("\"{text}\"");
        let filled =
            values.iter().fold(text, |text, (name, value)| text.replace(&quoted(name), &quoted(&encode(value))));
        let answer = self.post("/v3/kv/txn", &filled).await?;
        if answer["succeeded"] == true {
            return Ok(answer["responses"].as_array().cloned());
        }
        let inner = named(&answer["responses"][0], "response_txn", "responseTxn");
        Ok((inner["succeeded"] == true).then(|| inner["responses"].as_array().cloned()).flatten())
    }

    /// The keys that begin so, with their values.
    async fn range(&self, prefix: &str) -> Outcome<Vec<(String, i64)>> {
        let (last, rest) = prefix.as_bytes().split_last().ok_or("no prefix")?;
        let end = [rest, &[last + 1]].concat();
        let request = json!({ "key": encode(prefix), "range_end": STANDARD.encode(end) });
        let answer = self.post("/v3/kv/range", &request.to_string()).await?;
        let found = answer["kvs"].as_array().cloned().unwrap_or_default();
        found.iter().map(|found| Ok((decode(&found["key"])?, decode(&found["value"])?.parse()?))).collect()
    }
}

/// The field of an answer, as some versions of etcd or as others name it.
fn named<'a>(answer: &'a Value, old: &str, new: &str) -> &'a Value {
    if answer[old].is_null() { &answer[new] } else { &answer[old] }
}

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

fn decode(value: &Value) -> Outcome<String> {
    Ok(String::from_utf8(STANDARD.decode(value.as_str().ok_or("no text")?)?)?)
}

fn key(id: i64, field: &str) -> String {
    format!("accounts/{id}/{field}")
}

/// As wide as the largest token, and one more than that.
fn digits(number: u64) -> String {
    format!("{number:019}")
}

#[async_trait]
impl Store for Gateway {
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>> {
        let Some(answers) = self.run(id, token, None).await? else { return Ok(None) };
        let found = &named(&answers[1], "response_range", "responseRange")["kvs"][0]["value"];
        Ok(Some(if found.is_null() { 0 } else { decode(found)?.parse()? }))
    }

    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        Ok(self.run(id, token, Some(balance)).await?.is_some())
    }

    async fn epoch(&mut self) -> Outcome<u8> {
        let all = self.range("accounts/").await?;
        let tokens = all.iter().filter(|(key, _)| key.ends_with("/token")).map(|(_, token)| *token);
        Ok((tokens.max().unwrap_or_default() >> 55).try_into()?)
    }

    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>> {
        let all = self.range(&key(id, "")).await?;
        let field = |name: &str| all.iter().find(|(key, _)| key.ends_with(name)).map(|(_, value)| *value);
        Ok(field("/token").map(|token| (field("/balance").unwrap_or_default(), token)))
    }
}
