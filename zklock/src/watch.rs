//! Owns `zklock watch`: the queue of a lock, live.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use rustix::termios::tcgetwinsize;
use zookeeper_recipes::SessionState;

use crate::changes::Changes;
use crate::cli::Watch;
use crate::connect::connect;
use crate::exit::{Failure, NO_SERVER};
use crate::list::{state, table};
use crate::messages::report;
use crate::queue::{Entry, Queue, plain, utc};

pub(crate) async fn watch(watch: &Watch) -> Result<u8, Failure> {
    let session = connect(&watch.connection, None).await?;
    let is_terminal = io::stdout().is_terminal();
    let (mut changes, mut shown) = (Changes::of(&session, &watch.path), None);
    loop {
        changes.arm().await;
        match Queue::look(&session, &watch.path, watch.slots).await {
            Ok(queue) if shown.as_ref() == Some(&queue) => {}
            Ok(queue) => {
                let text = match is_terminal {
                    true => screen(&watch.path, &queue),
                    false => lines(shown.as_ref().map_or(&[], Queue::entries), queue.entries()),
                };
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                shown = Some(queue);
            }
            // They come back, and the session with them.
            Err(failure) if failure.code == NO_SERVER => report(failure),
            Err(failure) => return Err(failure),
        }
        changes.next().await;
        if session.state() == SessionState::Ended {
            return Err(Failure::new(NO_SERVER, "the session is over"));
        }
    }
}

/// The whole table, from the upper left corner; what does not fit is counted.
fn screen(path: &str, queue: &Queue) -> String {
    let (rows, columns) = match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    };
    let entries = queue.entries();
    let waiting = entries.iter().filter(|entry| entry.position > 0).count();
    let now = utc(SystemTime::now());
    let mut text = format!("{path}   {} hold, {waiting} wait   {now}\n", entries.len() - waiting);
    // The head, the names of the columns, what does not fit, and where the cursor stays.
    let fits = entries.len().min(usize::max(rows, 5) - 4);
    if !entries.is_empty() {
        text += &table(&entries[..fits]);
    }
    if fits < entries.len() {
        text += &format!("… and {} more\n", entries.len() - fits);
    }
    // Each row is erased to its end, and so is the rest of the screen: it does not flicker.
    let row = |row: &str| format!("{}\x1b[K\r\n", row.chars().take(columns).collect::<String>());
    format!("\x1b[H{}\x1b[J", text.lines().map(row).collect::<String>())
}

/// A line for each difference: who has come, who holds now, who was asked to release, and who has gone.
fn lines(before: &[Entry], after: &[Entry]) -> String {
    let old: BTreeMap<_, _> = before.iter().map(|entry| ((&entry.node, entry.contender.token()), entry)).collect();
    let new: BTreeMap<_, _> = after.iter().map(|entry| ((&entry.node, entry.contender.token()), entry)).collect();
    let gone = before.iter().filter(|entry| !new.contains_key(&(&entry.node, entry.contender.token())));
    let changed = after.iter().filter(|entry| {
        let same = old.get(&(&entry.node, entry.contender.token()));
        same.is_none_or(|same| state(same) != state(entry))
    });
    let now = utc(SystemTime::now());
    let line = |entry: &Entry, what: &str| {
        let contender = &entry.contender;
        let identifier = plain(&contender.identifier_lossy(), 200);
        let (kind, token, node) = (contender.kind(), contender.token(), plain(&entry.node, usize::MAX));
        format!("{now} {what} {kind} token={token} node={node} identifier={identifier}\n")
    };
    gone.map(|entry| line(entry, "left")).chain(changed.map(|entry| line(entry, state(entry)))).collect()
}
