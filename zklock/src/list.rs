//! Owns `zklock list`, and how contenders are printed: as a table, or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::cli::List;
use crate::connect::{close, connect};
use crate::exit::Failure;
use crate::messages::report;
use crate::queue::{Entry, Queue, plain, utc};

/// The longest identifier in a table.
const IDENTIFIER: usize = 40;

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
            "nobody holds or waits for {}; below it are {} nodes, such as {}",
            list.path,
            below.len(),
            plain(first, 200)
        ));
    } else if queue.entries().is_empty() {
        report(format_args!("nobody holds or waits for {}", list.path));
    } else {
        out.write_all(table(queue.entries()).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

/// Columns that are as wide as they have to be. The last is the node, because it is long.
pub(crate) fn table(entries: &[Entry]) -> String {
    let mut rows =
        vec![["POS", "STATE", "KIND", "TOKEN", "SESSION", "SINCE", "IDENTIFIER", "NODE"].map(str::to_owned)];
    rows.extend(entries.iter().map(row));
    let widths: Vec<_> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    let mut table = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        table += cells.collect::<Vec<_>>().join("  ").trim_end();
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
