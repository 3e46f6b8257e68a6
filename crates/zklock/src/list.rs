//! Owns `zklock list`, and how contenders are printed: as a table, or as JSON.

use std::io::{self, Write};
use std::iter;

use serde_json::{Value, json};

use crate::cli::List;
use crate::connect::{close, connect};
use crate::connections::{Connections, Found};
use crate::exit::Failure;
use crate::json;
use crate::kazoo;
use crate::messages::{count, report};
use crate::queue::{Entry, Queue, is_sequential, plain, span, utc};
use crate::size;

/// The longest identifier in a table.
const IDENTIFIER: usize = 40;

const COLUMNS: [&str; 11] =
    ["POS", "STATE", "FOR", "KIND", "TOKEN", "SESSION", "SINCE", "HEARD", "ADDRESS", "IDENTIFIER", "NODE"];

/// The columns that are from the servers' lists of connections.
const OF_CONNECTIONS: [&str; 2] = ["HEARD", "ADDRESS"];

/// The columns that are left out on a narrow screen, the first one first.
const LEFT_OUT: [&str; 6] = ["NODE", "SESSION", "SINCE", "ADDRESS", "HEARD", "FOR"];

/// What stands for an identifier that a request to release has overwritten.
const OVERWRITTEN: &str = "(overwritten by a request to release)";

pub(crate) async fn list(list: &List) -> Result<u8, Failure> {
    let session = connect(&list.connection, None).await?;
    let queue = Queue::look(&session, &list.path, list.slots).await?;
    let entries = queue.entries();
    let connections = Connections::look(&list.connection, &session, entries).await?;
    let mut below = if entries.is_empty() { session.children_of(&list.path).await? } else { Vec::new() };
    // A contender may have come since.
    below.retain(|path| !path.rsplit('/').next().is_some_and(is_sequential));
    close(&session).await;
    let kazoo = kazoo::warning(&list.path, entries.iter().map(|entry| entry.node.as_str()));
    let mut out = io::stdout().lock();
    if list.json {
        let all = entries.iter().map(|entry| to_json(entry, &connections, kazoo.as_deref())).collect();
        json::print(&mut out, &all)?;
    } else if let Some(first) = below.first() {
        report(format_args!(
            "nobody holds or waits for {}; below it: {}, such as {}",
            list.path,
            count(below.len(), "lock path", "lock paths"),
            plain(first, 200)
        ));
    } else if entries.is_empty() {
        report(format_args!("nobody holds or waits for {}", list.path));
    } else {
        out.write_all(table(entries, &connections, size::columns()).as_bytes())?;
        if !connections.are_shown {
            report(
                "addresses, and when a client was last heard, are unknown: no server shows its connections; allow \
                 4lw.commands.whitelist=cons",
            );
        }
    }
    out.flush()?;
    for warning in entries.iter().filter_map(Entry::of_no_session).chain(kazoo) {
        report(warning);
    }
    Ok(0)
}

/// Columns that are as wide as they have to be. The last is the node, because it is long.
pub(crate) fn table(entries: &[Entry], connections: &Connections, screen: Option<usize>) -> String {
    let rows = iter::once(COLUMNS.map(str::to_owned)).chain(entries.iter().map(|entry| row(entry, connections)));
    let unknown: &[&str] = if connections.are_shown { &[] } else { &OF_CONNECTIONS };
    aligned(&rows.collect::<Vec<_>>(), unknown, &LEFT_OUT, screen)
}

/// The rows, the first of which names the columns, without the `unknown` columns. On a screen, columns of `left_out` are left out
/// until the rest fits, and what still does not fit is cut off.
pub(crate) fn aligned<const N: usize>(
    rows: &[[String; N]],
    unknown: &[&str],
    left_out: &[&str],
    screen: Option<usize>,
) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let mut shown: Vec<_> = (0..N).map(|column| (column, width(column))).collect();
    let without = |shown: &mut Vec<(usize, usize)>, name| shown.retain(|(column, _)| rows[0][*column] != name);
    unknown.iter().for_each(|&name| without(&mut shown, name));
    let screen = screen.unwrap_or(usize::MAX);
    for &name in left_out {
        if shown.iter().map(|(_, width)| width + 2).sum::<usize>() - 2 > screen {
            without(&mut shown, name);
        }
    }
    let mut table = String::new();
    for row in rows {
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

fn row(entry: &Entry, connections: &Connections) -> [String; 11] {
    let contender = &entry.contender;
    let session = contender.session_id();
    let (heard, address) = match connections.of(session) {
        Found::Unknown => ("?".to_owned(), "?".to_owned()),
        Found::Gone => ("no connection".to_owned(), "-".to_owned()),
        Found::At(connected) => {
            let heard = connected.heard.map_or("?".to_owned(), |heard| format!("{:.1}s", heard.as_secs_f64()));
            (format!("{heard} of {}", span(connected.timeout)), plain(&connected.address, 60))
        }
    };
    let identifier = match contender.revoke_requested() {
        true => OVERWRITTEN.to_owned(),
        false => plain(&contender.identifier_lossy(), IDENTIFIER),
    };
    [
        entry.position.to_string(),
        state(entry).to_owned(),
        span(entry.age()),
        contender.kind().to_string(),
        contender.token().to_string(),
        if entry.is_of_no_session() { "none".to_owned() } else { session.to_string() },
        utc(contender.since()),
        heard,
        address,
        identifier,
        plain(&entry.node, usize::MAX),
    ]
}

/// `kazoo`: the warning about its nodes, if there are some.
fn to_json(entry: &Entry, connections: &Connections, kazoo: Option<&str>) -> Value {
    let contender = &entry.contender;
    let found = connections.of(contender.session_id());
    let (is_connected, connected) = match found {
        Found::Unknown => (None, None),
        Found::Gone => (Some(false), None),
        Found::At(connected) => (Some(true), Some(connected)),
    };
    let milliseconds = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let of_kazoo = kazoo.filter(|_| kazoo::is_its_own(&entry.node)).map(str::to_owned);
    json!({
        "position": entry.position,
        "holds": contender.is_holder(),
        "kind": contender.kind().to_string(),
        "token": contender.token().get(),
        "session": contender.session_id().to_string(),
        "identifier": contender.identifier_lossy(),
        "since": utc(contender.since()),
        "for_s": entry.age().as_secs(),
        "revoke_requested": contender.revoke_requested(),
        "node": entry.node,
        "connected": is_connected,
        "address": connected.map(|connected| &connected.address),
        "session_timeout_ms": connected.map(|connected| milliseconds(connected.timeout)),
        "heard_ms": connected.and_then(|connected| connected.heard).map(milliseconds),
        "warning": entry.of_no_session().or(of_kazoo),
    })
}
