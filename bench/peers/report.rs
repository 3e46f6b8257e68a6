//! The table on the terminal, and the same with every round as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Outcome;
use crate::about::About;
use crate::circumstances::Circumstances;
use crate::contenders::{Absence, Contender};
use crate::rounds::{Cell, Row};
use crate::sample::Sample;
use crate::summary::Summary;
use crate::workloads::{Measure, WORKLOADS};

/// A part of the table: what is compared, in which workloads.
struct Part {
    title: &'static str,
    value: fn(&Sample) -> f64,
    /// The floor's own value.
    show: fn(f64) -> String,
    /// Whether the others are shown in units of the floor.
    is_ratio: bool,
    has: fn(Measure) -> bool,
}

const PARTS: &[Part] = &[
    Part {
        title: "time per cycle, lower is better",
        value: Sample::time,
        show: duration,
        is_ratio: true,
        has: |measure| measure == Measure::Time,
    },
    Part {
        title: "cycles per second, higher is better",
        value: Sample::rate,
        show: |rate| format!("{rate:.0} /s"),
        is_ratio: true,
        has: |measure| measure == Measure::Rate,
    },
    Part {
        title: "client's CPU per cycle, lower is better",
        value: Sample::cpu,
        show: duration,
        is_ratio: true,
        has: |_| true,
    },
    Part {
        title: "requests per cycle, lower is better",
        value: Sample::requests,
        show: |requests| format!("{requests:.2}"),
        is_ratio: false,
        has: |_| true,
    },
];

/// Whom this crate is compared with.
const RIVALS: [(Contender, &str); 2] =
    [(Contender::Curator, "this crate / Curator"), (Contender::ClientLock, "this crate / client's lock")];

/// The whole table, with aligned columns.
pub(crate) fn table(rows: &[Row]) -> String {
    let others = &Contender::ALL[1..];
    let mut lines: Vec<Vec<String>> = Vec::new();
    for part in PARTS.iter().filter(|part| rows.iter().any(|row| (part.has)(row.workload.measure))) {
        let mut heads = vec![part.title, "floor"];
        heads.extend(others.iter().map(|contender| contender.name()));
        if part.is_ratio {
            heads.extend(RIVALS.map(|(_, title)| title));
        }
        lines.push(Vec::new());
        lines.push(heads.into_iter().map(str::to_owned).collect());
        for row in rows.iter().filter(|row| (part.has)(row.workload.measure)) {
            let floor = row
                .summary(Contender::Floor, part.value)
                .map_or_else(String::new, |floor| (part.show)(floor.median));
            let mut line = vec![row.workload.name.to_owned(), floor];
            line.extend(others.iter().map(|contender| cell(part, row, *contender)));
            if part.is_ratio {
                line.extend(RIVALS.map(|(rival, _)| {
                    let ratio = row.ratio(Contender::Ours, rival, part.value);
                    ratio.map_or_else(|| "-".to_owned(), range)
                }));
            }
            lines.push(line);
        }
    }
    let mut text = aligned(&lines);
    for (row, contender) in rows.iter().flat_map(|row| Contender::ALL.map(|contender| (row, contender))) {
        if let Cell::Failed(why) = row.cell(contender) {
            text += &format!("\n{}, {}: {why}", contender.name(), row.workload.name);
        }
    }
    text
}

fn cell(part: &Part, row: &Row, contender: Contender) -> String {
    match row.cell(contender) {
        Cell::Measured(_) if part.is_ratio => {
            row.ratio(contender, Contender::Floor, part.value).map_or_else(String::new, range)
        }
        Cell::Measured(_) => {
            row.summary(contender, part.value).map_or_else(String::new, |summary| (part.show)(summary.median))
        }
        Cell::Absent(Absence::NoSuchLock) => "-".to_owned(),
        Cell::Absent(Absence::NotInstalled) => "not installed".to_owned(),
        Cell::Failed(_) => "failed".to_owned(),
    }
}

fn range(Summary { median, low, high }: Summary) -> String {
    format!("{median:.2} ({low:.2}-{high:.2})")
}

fn duration(seconds: f64) -> String {
    format!("{:.0} µs", seconds * 1e6)
}

/// Names to the left, the rest to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |line: &Vec<String>| {
        let pad = |(column, cell): (usize, &String)| match column {
            0 => format!("{cell:<width$}", width = widths[0]),
            _ => format!("  {cell:>width$}", width = widths[column]),
        };
        line.iter().enumerate().map(pad).collect::<String>()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Summaries, and every sample. [`read`] reads it again.
pub(crate) fn json(rows: &[Row], about: &About) -> Value {
    let rows: Vec<_> = rows.iter().map(row_json).collect();
    json!({
        "date": about.circumstances.date,
        "machine": about.circumstances.machine,
        "load": about.circumstances.load,
        "versions": about.versions,
        "workloads": rows,
    })
}

/// The rounds in what [`json`] has made. Summaries are computed again.
pub(crate) fn read(report: &Value) -> Outcome<(Vec<Row>, About)> {
    let text = |key: &str| report[key].as_str().map(str::to_owned).ok_or_else(|| format!("no {key}"));
    let circumstances = Circumstances { date: text("date")?, machine: text("machine")?, load: text("load")? };
    let versions = serde_json::from_value(report["versions"].clone())?;
    let mut rows = Vec::new();
    for row in report["workloads"].as_array().ok_or("no workloads")? {
        let workload = WORKLOADS.iter().find(|workload| row["name"] == workload.name);
        let workload = workload.ok_or_else(|| format!("no workload is called {}", row["name"]))?;
        let cells = Contender::ALL.map(|contender| read_cell(&row["contenders"][contender.name()]));
        rows.push(Row::new(workload, cells.into_iter().collect::<Outcome<_>>()?));
    }
    Ok((rows, About { circumstances, versions }))
}

fn read_cell(value: &Value) -> Outcome<Cell> {
    if let Some(why) = value["failed"].as_str() {
        return Ok(Cell::Failed(why.to_owned()));
    }
    let Some(rounds) = value["rounds"].as_array() else {
        let absence = if value.is_null() { Absence::NoSuchLock } else { Absence::NotInstalled };
        return Ok(Cell::Absent(absence));
    };
    let sample = |round: &Value| {
        let seconds = |key: &str| Some(Duration::from_secs_f64(round[key].as_f64()?));
        Some(Sample {
            cycles: round["cycles"].as_u64()? as usize,
            elapsed: seconds("seconds")?,
            cpu: seconds("cpu_seconds")?,
            requests: round["requests"].as_u64()?,
        })
    };
    let samples = rounds.iter().map(|round| sample(round).ok_or_else(|| format!("not a round: {round}")));
    Ok(Cell::Measured(samples.collect::<Result<_, _>>()?))
}

fn row_json(row: &Row) -> Value {
    let summary = |summary: Option<Summary>| {
        summary.map(|Summary { median, low, high }| json!({ "median": median, "p10": low, "p90": high }))
    };
    let contender = |contender: Contender| {
        let value = match row.cell(contender) {
            Cell::Absent(Absence::NoSuchLock) => Value::Null,
            Cell::Absent(Absence::NotInstalled) => json!("not installed"),
            Cell::Failed(why) => json!({ "failed": why }),
            Cell::Measured(samples) => json!({
                "time_to_floor": summary(row.ratio(contender, Contender::Floor, Sample::time)),
                "rate_to_floor": summary(row.ratio(contender, Contender::Floor, Sample::rate)),
                "cpu_to_floor": summary(row.ratio(contender, Contender::Floor, Sample::cpu)),
                "requests_per_cycle": summary(row.summary(contender, Sample::requests)),
                "rounds": samples.iter().map(|sample| json!({
                    "cycles": sample.cycles,
                    "seconds": sample.elapsed.as_secs_f64(),
                    "cpu_seconds": sample.cpu.as_secs_f64(),
                    "requests": sample.requests,
                })).collect::<Vec<_>>(),
            }),
        };
        (contender.name().to_owned(), value)
    };
    json!({
        "name": row.workload.name,
        "sessions": row.workload.sessions,
        "workers": row.workload.workers,
        "contenders": Contender::ALL.map(contender).into_iter().collect::<serde_json::Map<_, _>>(),
        "rate_to_curator": summary(row.ratio(Contender::Ours, Contender::Curator, Sample::rate)),
        "rate_to_client_lock": summary(row.ratio(Contender::Ours, Contender::ClientLock, Sample::rate)),
        "cpu_to_curator": summary(row.ratio(Contender::Ours, Contender::Curator, Sample::cpu)),
    })
}
