//! Owns `zklock watch`: the queue of a lock, live.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use rustix::process::Signal;
use zookeeper_recipes::SessionState;

use crate::changes::Changes;
use crate::cli::Watch;
use crate::connect::connect;
use crate::connections::Connections;
use crate::exit::{self, Failure, NO_SERVER};
use crate::input;
use crate::list::{state, table};
use crate::messages::report;
use crate::queue::{Entry, Queue, plain, utc};
use crate::screen::{Keys, Redraws};
use crate::signals::{Signals, catch};
use crate::size;

/// The key that ends it.
const QUIT: u8 = b'q';

pub(crate) async fn watch(watch: &Watch) -> Result<u8, Failure> {
    let Some(keys) = io::stdout().is_terminal().then(Keys::take).flatten() else {
        return show(watch).await;
    };
    // The terminal gets its settings back, however this ends.
    let (mut signals, mut stops) = (Signals::catch()?, catch(Signal::TSTP)?);
    let (quit, show) = (input::key(QUIT), show(watch));
    tokio::pin!(quit, show);
    loop {
        tokio::select! {
            biased;
            number = signals.next() => return Ok(exit::signal(number)),
            () = &mut quit => return Ok(0),
            _ = stops.recv() => keys.stop(),
            done = &mut show => return done,
        }
    }
}

async fn show(watch: &Watch) -> Result<u8, Failure> {
    let session = connect(&watch.connection, None).await?;
    let mut redraws = io::stdout().is_terminal().then(Redraws::catch).transpose()?;
    let (mut changes, mut shown, mut is_current) = (Changes::of(&session, &watch.path), None, false);
    loop {
        changes.arm().await;
        match Queue::look(&session, &watch.path, watch.slots).await {
            Ok(queue) if is_current && shown.as_ref() == Some(&queue) => {}
            Ok(queue) => {
                let text = match redraws {
                    Some(_) => drawing(&watch.path, &queue),
                    None => lines(shown.as_ref().map_or(&[], Queue::entries), queue.entries()),
                };
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                (shown, is_current) = (Some(queue), true);
            }
            // They come back, and the session with them.
            Err(failure) if failure.code == NO_SERVER => report(failure),
            Err(failure) => return Err(failure),
        }
        tokio::select! {
            () = Redraws::next(&mut redraws) => is_current = false,
            () = changes.next() => {}
        }
        if session.state() == SessionState::Ended {
            return Err(Failure::new(NO_SERVER, "the session is over"));
        }
    }
}

/// The whole table, from the upper left corner; what does not fit is counted.
fn drawing(path: &str, queue: &Queue) -> String {
    let (rows, columns) = size::size(io::stdout()).unwrap_or((24, 80));
    let entries = queue.entries();
    let waiting = entries.iter().filter(|entry| entry.position > 0).count();
    let now = utc(SystemTime::now());
    let mut text = format!("{path}   {} hold, {waiting} wait   {now}\n", entries.len() - waiting);
    // The head, the names of the columns, what does not fit, and where the cursor stays.
    let fits = entries.len().min(usize::max(rows, 5) - 4);
    if !entries.is_empty() {
        text += &table(&entries[..fits], &Connections::default(), Some(columns));
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
