//! Owns `zklock ls`: the locks below a path, with their holders, waiters and waits.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::iter;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use zookeeper_recipes::zookeeper_client::Error as ZkError;
use zookeeper_recipes::{Error, Session};

use crate::cli::{Ls, Order};
use crate::connect::{close, connect};
use crate::exit::{Failure, NO_PERMISSION, USAGE};
use crate::json;
use crate::list::aligned;
use crate::messages::{count, report};
use crate::queue::{Entry, Queue, is_sequential, plain, span};
use crate::size;

/// How many nodes are looked at at once.
const BURST: usize = 32;

/// The child of a semaphore with its permits, and that with its queue.
const OF_SEMAPHORE: [&str; 2] = ["leases", "locks"];

/// The longest identifier in the table.
const IDENTIFIER: usize = 40;

const COLUMNS: [&str; 6] = ["HOLDERS", "FOR", "WAITERS", "LONGEST", "HOLDER", "PATH"];

/// The columns that are left out on a narrow screen, the first one first.
const LEFT_OUT: [&str; 4] = ["HOLDERS", "FOR", "LONGEST", "HOLDER"];

/// A lock that somebody holds or waits for.
struct Lock {
    path: String,
    entries: Vec<Entry>,
}

/// A part of a path. Numbers have their order, so shard 9 comes before shard 10.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    /// The count of digits without leading zeros, the digits, and all of them.
    Number(usize, &'a str, &'a str),
    Text(&'a str),
}

fn parts(path: &str) -> Vec<Part<'_>> {
    let are_alike = |one: &u8, other: &u8| one.is_ascii_digit() == other.is_ascii_digit();
    let mut rest = path;
    path.as_bytes()
        .chunk_by(are_alike)
        .map(|chunk| {
            // All digits are ASCII, so it ends at a character.
            let (part, more) = rest.split_at(chunk.len());
            rest = more;
            let digits = part.trim_start_matches('0');
            if chunk[0].is_ascii_digit() { Part::Number(digits.len(), digits, part) } else { Part::Text(part) }
        })
        .collect()
}

pub(crate) async fn ls(given: &Ls) -> Result<u8, Failure> {
    let session = connect(&given.connection, None).await?;
    let (mut locks, denied) = walk(&session, &given.parent).await?;
    close(&session).await;
    locks.retain(|lock| given.search.as_deref().is_none_or(|text| lock.has(text)));
    locks.sort_by(|one, other| parts(&one.path).cmp(&parts(&other.path)));
    match given.sort {
        Order::Path => {}
        Order::Wait => locks.sort_by_key(|lock| Reverse(lock.first_waiter().map(Entry::age))),
        Order::Held => locks.sort_by_key(|lock| Reverse(lock.holder().map(Entry::age))),
        Order::Waiters => locks.sort_by_key(|lock| Reverse(lock.waiters())),
    }
    let mut out = io::stdout().lock();
    if given.json {
        json::print(&mut out, &locks.iter().map(Lock::to_json).collect())?;
    } else if locks.is_empty() {
        let found = given.search.as_ref().map_or(String::new(), |text| format!(" with {:?}", plain(text, 80)));
        report(format_args!("nobody holds or waits for a lock{found} below {}", given.parent));
    } else {
        let rows = iter::once(COLUMNS.map(str::to_owned)).chain(locks.iter().map(Lock::row));
        out.write_all(aligned(&rows.collect::<Vec<_>>(), &[], &LEFT_OUT, size::columns()).as_bytes())?;
    }
    out.flush()?;
    locks.iter().flat_map(|lock| &lock.entries).filter_map(Entry::of_no_session).for_each(report);
    if denied > 0 {
        report(format_args!("{} not shown: the ACLs do not let us look", count(denied, "node is", "nodes are")));
    }
    Ok(0)
}

/// What a node is.
enum Seen {
    /// A lock, and the nodes below that are not part of it.
    Lock(Lock, Vec<String>),
    Folder(Vec<String>),
    Denied,
}

/// Looks at all nodes below a path, level by level. Returns the locks, and how many nodes may not be looked at.
async fn walk(session: &Session, parent: &str) -> Result<(Vec<Lock>, usize), Failure> {
    let (mut locks, mut denied, mut level) = (Vec::new(), 0, vec![parent.to_owned()]);
    while !level.is_empty() {
        let seen: Vec<_> =
            stream::iter(&level).map(|path| look(session, path)).buffered(BURST).try_collect().await?;
        level = Vec::new();
        for seen in seen {
            match seen {
                Seen::Lock(lock, below) => {
                    locks.push(lock);
                    level.extend(below);
                }
                Seen::Folder(below) => level.extend(below),
                Seen::Denied => denied += 1,
            }
        }
    }
    Ok((locks, denied))
}

async fn look(session: &Session, path: &str) -> Result<Seen, Failure> {
    let client = session.client().ok_or(Error::Closed)?;
    let names = match client.list_children(path).await {
        Ok(names) => names,
        Err(ZkError::NoNode) => Vec::new(),
        Err(ZkError::NoAuth) => return Ok(Seen::Denied),
        Err(source) => return Err(Error::Client { action: "list", path: path.to_owned(), source }.into()),
    };
    let is_semaphore = names.iter().any(|name| name == OF_SEMAPHORE[0]);
    let is_part = |name: &str| {
        is_sequential(name) || is_semaphore && OF_SEMAPHORE.contains(&name) || is_of_servers(path, name)
    };
    let child = |name: &String| if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
    let below = names.iter().filter(|name| !is_part(name)).map(child).collect();
    if path == "/" || !(is_semaphore || names.iter().any(|name| is_sequential(name))) {
        return Ok(Seen::Folder(below));
    }
    match Queue::look(session, path, None).await {
        Ok(queue) if queue.entries().is_empty() => Ok(Seen::Folder(below)),
        Ok(queue) => Ok(Seen::Lock(Lock { path: path.to_owned(), entries: queue.entries().to_vec() }, below)),
        Err(failure) if failure.code == NO_PERMISSION => Ok(Seen::Denied),
        // No lock can be there: the path has characters that no lock path has.
        Err(failure) if failure.code == USAGE => Ok(Seen::Folder(below)),
        Err(failure) => Err(failure),
    }
}

/// What the servers keep for themselves.
fn is_of_servers(path: &str, name: &str) -> bool {
    path == "/" && name == "zookeeper"
}

impl Lock {
    fn holder(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.position == 0)
    }

    fn first_waiter(&self) -> Option<&Entry> {
        self.entries.iter().filter(|entry| entry.position > 0).max_by_key(|entry| entry.age())
    }

    fn waiters(&self) -> usize {
        self.entries.iter().filter(|entry| entry.position > 0).count()
    }

    fn has(&self, text: &str) -> bool {
        let has_identifier = |entry: &Entry| entry.contender.identifier_lossy().contains(text);
        self.path.contains(text) || self.entries.iter().any(has_identifier)
    }

    fn row(&self) -> [String; 6] {
        let age = |entry: Option<&Entry>| entry.map_or("-".to_owned(), |entry| span(entry.age()));
        let waiters = self.waiters();
        let holder = self.holder().map_or("-".to_owned(), |holder| {
            let identifier = holder.contender.identifier_lossy();
            match identifier.is_empty() {
                true => format!("session {}", holder.contender.session_id()),
                false => plain(&identifier, IDENTIFIER),
            }
        });
        [
            (self.entries.len() - waiters).to_string(),
            age(self.holder()),
            waiters.to_string(),
            age(self.first_waiter()),
            holder,
            plain(&self.path, usize::MAX),
        ]
    }

    fn to_json(&self) -> Value {
        let (holder, waiters) = (self.holder(), self.waiters());
        json!({
            "path": self.path,
            "holder": holder.map(|holder| holder.contender.identifier_lossy()),
            "session": holder.map(|holder| holder.contender.session_id().to_string()),
            "for_s": holder.map(|holder| holder.age().as_secs()),
            "holders": self.entries.len() - waiters,
            "waiters": waiters,
            "longest_wait_s": self.first_waiter().map(|waiter| waiter.age().as_secs()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_paths_have_their_order() {
        let all = ["/a/9", "/a/010", "/a/10", "/a/10/x", "/a/é11", "/a/é11x"];
        assert!(all.is_sorted_by(|one, other| parts(one) < parts(other)));
    }

    #[test]
    fn contenders_have_numbers_at_their_end() {
        assert!(is_sequential("_c_0123-lock-0000000007") && is_sequential("x-0x10000-0000000007"));
        assert!(is_sequential("_c_0123-lock--2147483648"));
        assert!(!is_sequential("0000000007") && !is_sequential("orders") && !is_sequential("report-7"));
    }
}
