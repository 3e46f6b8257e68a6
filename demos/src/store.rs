//! Owns [`Store`]: a number in SQLite, with or without a check of fencing tokens.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};
use zookeeper_recipes::FencingToken;

use crate::Result;

/// A number in SQLite. It refuses requests with a token older than the newest that it has seen, if it checks tokens.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    checks: bool,
}

impl Store {
    /// Creates a store with this number in a new file.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn create(file: &Path, number: usize) -> Result<()> {
        let connection = Connection::open(file)?;
        connection.execute("CREATE TABLE store (number INTEGER NOT NULL, token INTEGER NOT NULL)", [])?;
        connection.execute("INSERT INTO store VALUES (?1, 0)", params![number])?;
        Ok(())
    }

    /// Opens a store, with or without checking tokens.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn open(file: &Path, checks: bool) -> Result<Self> {
        let connection = Connection::open(file)?;
        Ok(Self { connection, checks })
    }

    /// The number, without a check.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn number(&self) -> Result<usize> {
        let number = |row: &Row<'_>| row.get(0);
        Ok(self.connection.query_row("SELECT number FROM store", [], number)?)
    }

    /// The number; `None` if the token is too old.
    ///
    /// A read records the token too: an older holder must not write between our read and our write.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn read(&self, token: FencingToken) -> Result<Option<usize>> {
        if !self.checks {
            return self.number().map(Some);
        }
        let statement = "UPDATE store SET token = ?1 WHERE token <= ?1 RETURNING number";
        let number = self.connection.query_row(statement, params![token.get()], |row| row.get(0));
        Ok(number.optional()?)
    }

    /// Writes the number; `false` if the token is too old.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn write(&self, number: usize, token: FencingToken) -> Result<bool> {
        let statement = if self.checks {
            "UPDATE store SET number = ?1, token = ?2 WHERE token <= ?2"
        } else {
            "UPDATE store SET number = ?1, token = ?2"
        };
        Ok(self.connection.execute(statement, params![number, token.get()])? == 1)
    }
}
