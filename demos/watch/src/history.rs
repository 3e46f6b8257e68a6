//! Owns [`History`]: the grants that were seen, in SQLite.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Result, Row, params};
use zookeeper_recipes::Contender;

/// Times in milliseconds. `began_seen` is 0 if the grant is from before `began`, when it was seen first, and `ended_seen` is 0 if the
/// hold ended before `ended`, when it was found gone: nobody was looking in between.
const TABLE: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS grants (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, token INTEGER NOT NULL, kind TEXT NOT NULL,
        identifier TEXT NOT NULL, began INTEGER NOT NULL, began_seen INTEGER NOT NULL, ended INTEGER, ended_seen INTEGER,
        UNIQUE (path, token, name)
    );
    CREATE INDEX IF NOT EXISTS held ON grants (path) WHERE ended IS NULL;";

/// How many grants of a lock are shown. Those that hold are shown anyway.
const SHOWN: u32 = 100;

pub(crate) struct History {
    database: Mutex<Connection>,
    keep: u32,
}

/// A hold, by when it was seen.
pub(crate) struct Grant {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) token: i64,
    pub(crate) kind: String,
    pub(crate) identifier: String,
    pub(crate) began: Moment,
    /// `None` while it holds.
    pub(crate) ended: Option<Moment>,
}

/// A time in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: i64,
    /// Whether the change was seen. Otherwise it was before `at`.
    pub(crate) seen: bool,
}

impl History {
    /// Opens a file, or begins a history that ends with the process. It keeps this many grants, and those that hold.
    pub(crate) fn open(file: Option<&Path>, keep: u32) -> Result<Self> {
        let database = match file {
            Some(file) => Connection::open(file)?,
            None => Connection::open_in_memory()?,
        };
        database.execute_batch(TABLE)?;
        Ok(Self { database: Mutex::new(database), keep })
    }

    fn database(&self) -> MutexGuard<'_, Connection> {
        // A panic leaves no transaction open.
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in who holds the lock at a path now. `seen`: whether it was looked at all the time until now.
    pub(crate) fn record<'a>(
        &self,
        path: &str,
        holders: impl Iterator<Item = (&'a Contender, &'a str)>,
        now: SystemTime,
        seen: bool,
    ) -> Result<()> {
        let mut database = self.database();
        let change = database.transaction()?;
        let mut held = BTreeSet::new();
        for (holder, identifier) in holders {
            let token = i64::from(holder.token());
            held.insert((token, holder.name().to_owned()));
            change
                .prepare_cached(
                    "INSERT OR IGNORE INTO grants (path, name, token, kind, identifier, began, began_seen)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute(params![
                    path,
                    holder.name(),
                    token,
                    holder.kind().to_string(),
                    identifier,
                    millis(now),
                    seen
                ])?;
        }
        for grant in grants(&change, "path = ?1 AND ended IS NULL", [path])? {
            if !held.contains(&(grant.token, grant.name.clone())) {
                let ended =
                    "UPDATE grants SET ended = ?4, ended_seen = ?5 WHERE path = ?1 AND name = ?2 AND token = ?3";
                change.prepare_cached(ended)?.execute(params![
                    path,
                    grant.name,
                    grant.token,
                    millis(now),
                    seen
                ])?;
            }
        }
        let old = "DELETE FROM grants WHERE ended IS NOT NULL AND id <= (SELECT max(id) FROM grants) - ?1";
        change.prepare_cached(old)?.execute([self.keep])?;
        change.commit()
    }

    /// The latest grants of a lock, the latest first.
    pub(crate) fn of(&self, path: &str) -> Result<Vec<Grant>> {
        let latest = "path = ?1 AND (ended IS NULL OR id IN
            (SELECT id FROM grants WHERE path = ?1 ORDER BY id DESC LIMIT ?2))";
        grants(&self.database(), latest, params![path, SHOWN])
    }

    /// The grants of all locks that hold.
    pub(crate) fn held(&self) -> Result<Vec<Grant>> {
        grants(&self.database(), "ended IS NULL", [])
    }
}

fn grants(database: &Connection, which: &str, of: impl rusqlite::Params) -> Result<Vec<Grant>> {
    let columns = "path, name, token, kind, identifier, began, began_seen, ended, ended_seen";
    let mut select =
        database.prepare_cached(&format!("SELECT {columns} FROM grants WHERE {which} ORDER BY id DESC"))?;
    let grant = |row: &Row<'_>| {
        let ended: Option<i64> = row.get(7)?;
        let ended = ended.map(|at| row.get(8).map(|seen| Moment { at, seen })).transpose()?;
        Ok(Grant {
            path: row.get(0)?,
            name: row.get(1)?,
            token: row.get(2)?,
            kind: row.get(3)?,
            identifier: row.get(4)?,
            began: Moment { at: row.get(5)?, seen: row.get(6)? },
            ended,
        })
    };
    select.query_map(of, grant)?.collect()
}

pub(crate) fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
