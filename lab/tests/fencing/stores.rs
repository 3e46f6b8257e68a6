//! Owns [`Store`], and the table of `docs/fencing.md` in each of the databases with SQL.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lab::Outcome;
use lab::servers::mariadb::MariaDb;
use lab::servers::postgresql::PostgreSql;
use lab::servers::{Server, Setup};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, params};
use rusqlite::{OptionalExtension, named_params};
use tempfile::TempDir;
use zookeeper_recipes::FencingToken;

use crate::page::Page;

/// A database with the table. It ends when this is dropped.
#[async_trait]
pub(crate) trait Database: Debug + Send + Sync {
    /// A connection of its own.
    async fn connect(&self) -> Outcome<Box<dyn Store>>;
}

/// A connection that runs the statements of the page.
#[async_trait]
pub(crate) trait Store: Send {
    /// `read`: the balance; `None` if it is refused.
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>>;

    /// `write`; whether it is accepted.
    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool>;

    /// `update`; whether it is accepted. Where the page has none, `write`.
    async fn update(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        self.write(id, balance, token).await
    }

    /// `epoch`, or what a look at all records shows.
    async fn epoch(&mut self) -> Outcome<u8>;

    /// The balance and the token of a row, without a check.
    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>>;
}

const ROW: &str = "SELECT balance, token FROM accounts WHERE id = ";

#[derive(Debug)]
pub(crate) struct Sqlite(TempDir);

impl Sqlite {
    pub(crate) async fn start() -> Outcome<Arc<dyn Database>> {
        let database = Self(tempfile::tempdir()?);
        rusqlite::Connection::open(database.file())?.execute(Page::sql().statement("table"), [])?;
        Ok(Arc::new(database))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("accounts.db")
    }
}

#[async_trait]
impl Database for Sqlite {
    async fn connect(&self) -> Outcome<Box<dyn Store>> {
        let connection = rusqlite::Connection::open(self.file())?;
        connection.busy_timeout(Duration::from_secs(60))?;
        Ok(Box::new(connection))
    }
}

#[async_trait]
impl Store for rusqlite::Connection {
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>> {
        let values = named_params! { "$id": id, "$token": token.get() };
        Ok(self.query_row(Page::sql().statement("read"), values, |row| row.get(0)).optional()?)
    }

    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        let values = named_params! { "$id": id, "$balance": balance, "$token": token.get() };
        is_accepted(self.execute(Page::sql().statement("write"), values)? as u64)
    }

    async fn update(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        let values = named_params! { "$id": id, "$balance": balance, "$token": token.get() };
        is_accepted(self.execute(Page::sql().statement("update"), values)? as u64)
    }

    async fn epoch(&mut self) -> Outcome<u8> {
        Ok(self.query_row(Page::sql().statement("epoch"), [], |row| row.get(0))?)
    }

    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>> {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        Ok(self.query_row(&format!("{ROW}?1"), [id], row).optional()?)
    }
}

#[derive(Debug)]
pub(crate) struct Postgres(PostgreSql);

impl Postgres {
    pub(crate) async fn start() -> Outcome<Arc<dyn Database>> {
        let server = PostgreSql::start(&Setup::default()).await?;
        server.connect().await?.batch_execute(Page::sql().statement("table")).await?;
        Ok(Arc::new(Self(server)))
    }
}

#[async_trait]
impl Database for Postgres {
    async fn connect(&self) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(self.0.connect().await?))
    }
}

/// A statement of the page with numbered parameters, in the order of these names.
pub(crate) fn numbered(statement: &str, names: &[&str]) -> String {
    let numbered = names.iter().enumerate();
    numbered.fold(statement.to_owned(), |text, (index, name)| text.replace(name, &format!("${}", index + 1)))
}

#[async_trait]
impl Store for tokio_postgres::Client {
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>> {
        let read = numbered(Page::sql().statement("read"), &["$id", "$token"]);
        Ok(self.query_opt(&read, &[&id, &token.get()]).await?.map(|row| row.get(0)))
    }

    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        let write = numbered(Page::sql().statement("write"), &["$id", "$balance", "$token"]);
        is_accepted(self.execute(&write, &[&id, &balance, &token.get()]).await?)
    }

    async fn update(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        let update = numbered(Page::sql().statement("update"), &["$id", "$balance", "$token"]);
        is_accepted(self.execute(&update, &[&id, &balance, &token.get()]).await?)
    }

    async fn epoch(&mut self) -> Outcome<u8> {
        Ok(self.query_one(Page::sql().statement("epoch"), &[]).await?.get::<_, i64>(0).try_into()?)
    }

    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>> {
        let row = self.query_opt(&format!("{ROW}$1"), &[&id]).await?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }
}

#[derive(Debug)]
pub(crate) struct Maria(MariaDb);

impl Maria {
    pub(crate) async fn start() -> Outcome<Arc<dyn Database>> {
        let database = Self(MariaDb::start(&Setup::default()).await?);
        database.connection(true).await?.query_drop(Page::mariadb().statement("table")).await?;
        Ok(Arc::new(database))
    }
}

/// Not by the options of the laboratory's own clients: the flag is what the page is about.
pub(crate) async fn mariadb(server: &MariaDb, counts_found_rows: bool) -> Outcome<Conn> {
    let options = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(server.address().port());
    let options = options.user(Some("root")).db_name(Some("lab")).prefer_socket(false);
    Ok(Conn::new(Opts::from(options.client_found_rows(counts_found_rows))).await?)
}

impl Maria {
    async fn connection(&self, counts_found_rows: bool) -> Outcome<Conn> {
        mariadb(&self.0, counts_found_rows).await
    }
}

#[async_trait]
impl Database for Maria {
    async fn connect(&self) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(self.connection(true).await?))
    }
}

pub(crate) fn values(id: i64, balance: i64, token: FencingToken) -> Params {
    params! { "id" => id, "balance" => balance, "token" => token.get() }
}

#[async_trait]
impl Store for Conn {
    async fn read(&mut self, id: i64, token: FencingToken) -> Outcome<Option<i64>> {
        let values = params! { "id" => id, "token" => token.get() };
        let row: Option<(i64, i64)> = self.exec_first(Page::mariadb().statement("read"), values).await?;
        let (largest, balance) = row.ok_or("it returns a row")?;
        Ok((largest == token.get()).then_some(balance))
    }

    async fn write(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        let write = Page::mariadb().statement("write");
        let largest: Option<i64> = self.exec_first(write, values(id, balance, token)).await?;
        Ok(largest.ok_or("it returns a row")? == token.get())
    }

    async fn update(&mut self, id: i64, balance: i64, token: FencingToken) -> Outcome<bool> {
        self.exec_drop(Page::mariadb().statement("update"), values(id, balance, token)).await?;
        is_accepted(self.affected_rows())
    }

    async fn epoch(&mut self) -> Outcome<u8> {
        Ok(self.query_first(Page::mariadb().statement("epoch")).await?.ok_or("it returns a row")?)
    }

    async fn row(&mut self, id: i64) -> Outcome<Option<(i64, i64)>> {
        Ok(self.exec_first(format!("{ROW}?"), (id,)).await?)
    }
}

fn is_accepted(rows: u64) -> Outcome<bool> {
    match rows {
        0 => Ok(false),
        1 => Ok(true),
        more => Err(format!("{more} rows of one").into()),
    }
}
