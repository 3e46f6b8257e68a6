//! The tables on the terminal.

use crate::cell::{Cell, Finding};
use crate::faults::FAULTS;
use crate::play::Results;
use crate::ways::Way;

/// What every table depends on: the machine, and the versions of what was played with.
pub fn header(machine: &str, results: &Results) -> String {
    let versions: Vec<_> = results.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!("{machine}\n{}\n", versions.join("; "))
}

/// Ways down, faults across; what is too wide for a column is in its cells' own lines.
pub fn faults(ways: &[&Way], results: &Results) -> String {
    let shown: Vec<_> =
        FAULTS.iter().filter(|fault| results.cells.iter().any(|cell| cell.fault == fault.id)).collect();
    let find = |way: &str, fault: &str| results.cells.iter().find(|cell| cell.way == way && cell.fault == fault);
    let mut rows = vec![vec![Vec::new()]];
    rows[0].extend(shown.iter().map(|fault| wrap(fault.title, 14)));
    for way in ways {
        let mut row = vec![wrap(way.title, 22)];
        row.extend(shown.iter().map(|fault| find(way.id, fault.id).map_or(Vec::new(), lines)));
        rows.push(row);
    }
    layout(&rows)
}

/// The same table for a document.
pub fn markdown(ways: &[&Way], results: &Results) -> String {
    let shown: Vec<_> =
        FAULTS.iter().filter(|fault| results.cells.iter().any(|cell| cell.fault == fault.id)).collect();
    let titles: Vec<_> = shown.iter().map(|fault| fault.title).collect();
    let mut text = format!("| | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(shown.len()));
    for way in ways {
        let cells = shown.iter().map(|fault| {
            let cell = results.cells.iter().find(|cell| cell.way == way.id && cell.fault == fault.id);
            cell.map_or_else(String::new, in_document)
        });
        text += &format!("| {} | {} |\n", way.title, cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// Bold where updates were lost, italic where contenders were stuck.
fn in_document(cell: &Cell) -> String {
    if cell.finding == Finding::NotRun {
        return "not run".to_owned();
    }
    let mark = match (cell.finding.has_lost(), cell.finding.is_stuck()) {
        (true, _) => "**",
        (false, true) => "*",
        (false, false) => "",
    };
    let (first, rest) =
        cell.text.split_once(", ").map_or((cell.text.as_str(), None), |(first, rest)| (first, Some(rest)));
    let rest = rest.map(|rest| format!(", {rest}")).unwrap_or_default();
    let run = if cell.run.is_empty() { String::new() } else { format!(" `{}`", cell.run) };
    format!("{mark}{first}{mark}{rest}{run}")
}

fn lines(cell: &Cell) -> Vec<String> {
    let text = match cell.text.strip_prefix("not run: ") {
        Some(_) => "not run",
        None => &cell.text,
    };
    let mut lines: Vec<_> = text.split(", ").flat_map(|part| wrap(part, 14)).collect();
    if !cell.run.is_empty() {
        lines.push(cell.run.clone());
    }
    lines
}

/// The work without faults.
pub fn work(ways: &[&Way], results: &Results) -> String {
    let head = "contenders,locks/s,p50 ms,p99 ms,requests,wake-ups,overtaking,server CPU,lost,run";
    let mut rows = vec![vec![Vec::new()]];
    rows[0].extend(head.split(',').map(|word| wrap(word, 12)));
    for load in &results.loads {
        let title = ways.iter().find(|way| way.id == load.way).map_or(load.way, |way| way.title);
        let contenders = match load.processes == load.contenders {
            true => load.contenders.to_string(),
            false => format!("{} in {}", load.contenders, load.processes),
        };
        let row = [
            title.to_owned(),
            contenders,
            format!("{:.0}", load.hand_overs_per_second),
            format!("{:.2}", load.p50_ms),
            format!("{:.1}", load.p99_ms),
            format!("{:.1}", load.requests_per_hand_over),
            format!("{:.1}", load.wake_ups_per_hand_over),
            format!("{:.0} %", load.overtaking_percent),
            format!("{:.2} ms", load.server_cpu_ms_per_hand_over),
            load.lost.to_string(),
            load.run.clone(),
        ];
        rows.push(row.into_iter().map(|cell| vec![cell]).collect());
    }
    layout(&rows)
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Rows of cells of lines. A row of several lines has an empty one after it.
fn layout(rows: &[Vec<Vec<String>>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).flatten();
        cells.map(|line| line.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let height = row.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            let mut whole = String::new();
            for (column, width) in widths.iter().enumerate() {
                let part = row.get(column).and_then(|cell| cell.get(line)).map_or("", String::as_str);
                whole += &format!("{part:<width$}  ");
            }
            text += whole.trim_end();
            text.push('\n');
        }
        if height > 1 {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_versions() {
        let versions = [("Redis", "7.0.15".to_owned()), ("Curator", "5.4.0, Java 17".to_owned())].into();
        let header = header("today, 2 cores", &Results { versions, ..Results::default() });
        assert_eq!(header, "today, 2 cores\nCurator 5.4.0, Java 17; Redis 7.0.15\n");
    }

    #[test]
    fn text_is_wrapped_at_words() {
        assert_eq!(wrap("stuck for over 12.3 s", 14), ["stuck for over", "12.3 s"]);
    }
}
