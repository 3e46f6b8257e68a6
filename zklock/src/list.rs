//! Owns `zklock list`, and how contenders are printed: as a table, or as JSON.

use std::io::{self, Write};
use std::iter;

use serde_json::{Value, json};

use crate::cli::List;
use crate::connect::{close, connect};
use crate::exit::Failure;
use crate::kazoo;
use crate::messages::{count, report};
use crate::queue::{Entry, Queue, plain, utc};
use crate::screen;

/// The longest identifier in a table.
const IDENTIFIER: usize = 40;

const COLUMNS: [&str; 8] = ["POS", "STATE", "KIND", "TOKEN", "SESSION", "SINCE", "IDENTIFIER", "NODE"];

/// The columns that are left out on a narrow screen, the first one first.
const LEFT_OUT: [&str; 3] = ["NODE", "SESSION", "SINCE"];

pub(crate) async fn list(list: &List) -> Result<u8, Failure> {
    let session = connect(&list.connection, None).await?;
    let queue = Queue::look(&session, &list.path, list.slots).await?;
    let below = if queue.entries().is_empty() { session.locks_under(&list.path).await? } else { Vec::new() };
    close(&session).await;
    let mut out = io::stdout().lock();
    if list.json {
        let entries: Vec<_> = queue.entries().iter().map(to_json).collect();
        serde_json::to_writer_pretty(&mut out, &entries).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if let Some(first) = below.first() {
        report(format_args!(
            "nobody holds or waits for {}; below it: {}, such as {}",
            list.path,
            count(below.len(), "lock path", "lock paths"),
            plain(first, 200)
        ));
    } else if queue.entries().is_empty() {
        report(format_args!("nobody holds or waits for {}", list.path));
    } else {
        out.write_all(table(queue.entries(), screen::columns()).as_bytes())?;
    }
    out.flush()?;
    if let Some(warning) = kazoo::warning(&list.path, queue.entries().iter().map(|entry| entry.node.as_str())) {
        report(warning);
    }
    Ok(0)
}

/// Columns that are as wide as they have to be. The last is the node, because it is long. On a screen of some width, columns that
/// do not fit are left out, and the rest is cut off.
pub(crate) fn table(entries: &[Entry], screen: Option<usize>) -> String {
    let rows: Vec<_> = iter::once(COLUMNS.map(str::to_owned)).chain(entries.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let mut shown: Vec<_> = (0..COLUMNS.len()).map(|column| (column, width(column))).collect();
    let screen = screen.unwrap_or(usize::MAX);
    for name in LEFT_OUT {
        if shown.iter().map(|(_, width)| width + 2).sum::<usize>() - 2 > screen {
            shown.retain(|(column, _)| COLUMNS[*column] != name);
        }
    }
    let mut table = String::new();
    for row in &rows {
        let cells = shown.iter().map(|&(column, width)| format!("{:<width$}", row[column]));
        let cells = cells.collect::<Vec<_>>().join("  ");
        table.extend(cells.trim_end().chars().take(screen));
        table.push('\n');
    }
    table
}

/// What the contender does: it holds, was asked to release, or waits.
pub(crate) fn state(entry: &Entry) -> &'static str {
    match (entry.position, entry.contender.revoke_requested()) {
        (0, false) => "holds",
        (0, true) => "holds,asked",
        (_, false) => "waits",
        (_, true) => "waits,asked",
    }
}

fn row(entry: &Entry) -> [String; 8] {
    let contender = &entry.contender;
    [
        entry.position.to_string(),
        state(entry).to_owned(),
        contender.kind().to_string(),
        contender.token().to_string(),
        contender.session_id().to_string(),
        utc(contender.since()),
        plain(&contender.identifier_lossy(), IDENTIFIER),
        plain(&entry.node, usize::MAX),
    ]
}

fn to_json(entry: &Entry) -> Value {
    let contender = &entry.contender;
    json!({
        "position": entry.position,
        "holds": contender.is_holder(),
        "kind": contender.kind().to_string(),
        "token": contender.token().get(),
        "session": contender.session_id().to_string(),
        "identifier": contender.identifier_lossy(),
        "since": utc(contender.since()),
        "revoke_requested": contender.revoke_requested(),
        "node": entry.node,
    })
}
