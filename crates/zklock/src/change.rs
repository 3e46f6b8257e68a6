//! Owns `zklock break` and `zklock revoke`, which change the node of one contender.

use std::io::{self, IsTerminal, Write};

use zookeeper_recipes::{Contender, Error, Mutex, Semaphore, Session};

use crate::cli::{Break, Connection, Revoke, Target};
use crate::connect::{close, connect};
use crate::connections::{Connections, Found};
use crate::exit::{Failure, NO, USAGE};
use crate::list::table;
use crate::messages::report;
use crate::queue::{Entry, Queue, plain};
use crate::size;

#[derive(Clone, Copy)]
enum Change {
    Break,
    Revoke,
}

pub(crate) async fn break_node(given: &Break) -> Result<u8, Failure> {
    if !given.yes && !io::stdin().is_terminal() {
        let reason = "standard input is no terminal at which to confirm: give --yes to remove the node";
        return Err(Failure::new(USAGE, reason));
    }
    change(&given.connection, &given.target, Change::Break, !given.yes).await
}

pub(crate) async fn revoke(given: &Revoke) -> Result<u8, Failure> {
    change(&given.connection, &given.target, Change::Revoke, false).await
}

/// Shows the contender, and changes its node: this one, and not a later one of the same name.
async fn change(connection: &Connection, target: &Target, change: Change, asks: bool) -> Result<u8, Failure> {
    let session = connect(connection, None).await?;
    let queue = Queue::look(&session, &target.path, None).await?;
    let entry = queue.find(&target.path, &target.node)?;
    let connections = Connections::look(connection, &session, std::slice::from_ref(entry)).await?;
    let mut out = io::stdout();
    out.write_all(table(std::slice::from_ref(entry), &connections, size::columns()).as_bytes())?;
    if entry.is_of_no_session() && matches!(change, Change::Revoke) {
        report(
            "nobody was asked: the node belongs to no session (0x0), so no client hears a request; `zklock break` removes it",
        );
        close(&session).await;
        return Ok(NO);
    }
    if asks && !confirmed().await {
        report("nothing was changed");
        return Ok(NO);
    }
    let was_there = apply(&session, &target.path, &entry.contender, change).await;
    close(&session).await;
    match (was_there?, change) {
        (true, Change::Break) => writeln!(out, "removed")?,
        (true, Change::Revoke) => writeln!(out, "asked {} to release", who(entry, &connections))?,
        (false, _) => {
            report("it is gone already");
            return Ok(NO);
        }
    }
    Ok(0)
}

/// The contender as it was: the request overwrites its identifier, for every later look.
fn who(entry: &Entry, connections: &Connections) -> String {
    let (identifier, session) = (entry.contender.identifier_lossy(), entry.contender.session_id());
    let address = match connections.of(session) {
        Found::At(connected) => format!(", {}", plain(&connected.address, 60)),
        Found::Unknown | Found::Gone => String::new(),
    };
    match identifier.is_empty() {
        true => format!("session {session}{address}"),
        false => format!("{} (session {session}{address})", plain(&identifier, 200)),
    }
}

/// Asks the person at the terminal. A thread of its own waits for the answer, so that the session lives on.
async fn confirmed() -> bool {
    let mut question = io::stderr();
    _ = question.write_all(b"Remove this node? Its holder may still be at work. [y/N] ");
    _ = question.flush();
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await.ok().and_then(Result::ok).unwrap_or_default();
    matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Of a semaphore the contenders are in folders of its own.
async fn apply(session: &Session, path: &str, contender: &Contender, change: Change) -> Result<bool, Error> {
    if contender.path() == path {
        let lock = Mutex::new(session, path)?;
        match change {
            Change::Break => lock.break_lock(contender).await,
            Change::Revoke => lock.revoke(contender).await,
        }
    } else {
        let semaphore = Semaphore::new(session, path, u32::MAX)?;
        match change {
            Change::Break => semaphore.break_lock(contender).await,
            Change::Revoke => semaphore.revoke(contender).await,
        }
    }
}
