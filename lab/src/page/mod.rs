//! One page with everything, which needs no network and no server.

mod charts;
mod picture;
mod svg;
mod timeline;

use self::charts::{Quantity, bars};
pub use self::picture::picture;
use self::svg::escape;
use crate::cell::{Cell, Finding};
use crate::faults::FAULTS;
use crate::machine::Machine;
use crate::play::Results;
use crate::stage::PATIENCE;
use crate::ways::{LEASE, Way};

const STYLE: &str = include_str!("style.css");
const CHECK: &str = include_str!("check.js");

const QUANTITIES: [(&str, Quantity); 3] = [
    (
        "From the request to the lock, by the number of contenders that want it at the same time. Each holds it for two \
         requests to the store and a millisecond.",
        Quantity {
            title: "Time to lock",
            axis: "milliseconds from request to grant (logarithmic)",
            is_log: true,
            value: |load| load.p50_ms,
            whisker: Some(|load| load.p99_ms),
        },
    ),
    (
        "How often the lock goes from one hold to the next, work included.",
        Quantity {
            title: "Hand-overs",
            axis: "hand-overs per second",
            is_log: false,
            value: |load| load.hand_overs_per_second,
            whisker: None,
        },
    ),
    (
        "How often a waiter is woken, or wakes to look again, for each hold. One is what it takes. Of ZooKeeper these are \
         the watches that its server counts.",
        Quantity {
            title: "The herd",
            axis: "wake-ups per hand-over",
            is_log: false,
            value: |load| load.wake_ups_per_hand_over,
            whisker: None,
        },
    ),
];

/// The page.
pub fn page(ways: &[&Way], results: &Results, machine: &Machine) -> String {
    let versions: Vec<_> = results.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let mut body = format!(
        "<h1>Every way to lock, side by side</h1>\n<p>{}.<br>{}. Lease and session timeout: {} s.</p>\n",
        escape(&machine.to_string()),
        escape(&versions.join("; ")),
        LEASE.as_secs()
    );
    body += &format!(
        "<h2>Faults</h2>\n<p>Several processes add one to a counter under the lock. A cell counts increments that were \
         acknowledged and are not in the counter. <i>Stuck</i>: no other contender got the lock within {} s. <i>Noticed</i>: \
         the holder checked in time that the lock was lost. <i>Late write refused</i>: the store refused the holder's old \
         token or version. <i>Honest writers refused</i>: it refused contenders that were not hit by the fault. <i>k of \
         n</i>: the fault was played several times. MariaDB stands for MySQL, and Redis for Tair. The run's steps are in \
         <code>lab.json</code>.</p>\n{}",
        PATIENCE.as_secs(),
        faults(ways, results)
    );
    body += "<dl>";
    for fault in FAULTS {
        body += &format!("<dt>{}</dt><dd>{}</dd>\n", escape(fault.title), escape(fault.about));
    }
    body += "</dl>\n<h2>One stopped holder</h2>\n<p>The holder is stopped between its check and its write, and continues \
             when the others have had their turns, if they could.</p>\n";
    body += &timeline::timeline(ways, &results.cells, "stopped-after-check");
    // Without the work there is nothing to draw of it.
    for (about, quantity) in QUANTITIES.iter().filter(|_| !results.loads.is_empty()) {
        body += &format!("<h2>{}</h2>\n<p>{about}</p>\n", quantity.title);
        body += &bars(ways, &results.loads, quantity);
    }
    body += &work(ways, results);
    for failure in &results.failures {
        body += &format!("<p>{}</p>\n", escape(failure));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Ways to lock</title>\n<style>\n\
         {STYLE}</style>\n</head>\n<body>\n{body}<script>\n{CHECK}</script>\n</body>\n</html>\n"
    )
}

fn faults(ways: &[&Way], results: &Results) -> String {
    let shown: Vec<_> =
        FAULTS.iter().filter(|fault| results.cells.iter().any(|cell| cell.fault == fault.id)).collect();
    let head: String = shown.iter().map(|fault| format!("<th>{}</th>", escape(fault.title))).collect();
    let mut text = format!("<div class=\"wide\"><table>\n<tr><th></th>{head}</tr>\n");
    for way in ways {
        let cells = shown.iter().map(|fault| {
            let cell = results.cells.iter().find(|cell| cell.way == way.id && cell.fault == fault.id);
            cell.map_or_else(|| "<td></td>".to_owned(), in_table)
        });
        text += &format!("<tr><th>{}</th>{}</tr>\n", escape(way.title), cells.collect::<String>());
    }
    text + "</table></div>\n"
}

fn in_table(cell: &Cell) -> String {
    let class = match cell.finding {
        Finding::Safe => "safe",
        Finding::Lost | Finding::LostAndStuck => "lost",
        Finding::Stuck => "stuck",
        Finding::Shown | Finding::NotRun | Finding::NotApplicable => "none",
    };
    let text = if cell.finding == Finding::NotRun { "not run" } else { &cell.text };
    let why: Vec<_> = match cell.finding {
        Finding::NotRun | Finding::NotApplicable => {
            cell.events.iter().filter_map(|event| event.text.clone()).collect()
        }
        _ => cell.waited_s.map(|waited| format!("next grant after {waited:.2} s")).into_iter().collect(),
    };
    let (text, tip, run) = (escape(text).replace(", ", "<br>"), escape(&why.join(" ")), &cell.run);
    format!("<td class=\"{class}\" title=\"{tip}\">{text}<small>{run}</small></td>")
}

fn work(ways: &[&Way], results: &Results) -> String {
    let head = [
        "",
        "contenders",
        "grants",
        "hand-overs/s",
        "p50, ms",
        "p99, ms",
        "requests each",
        "wake-ups each",
        "overtaking",
        "server CPU each, ms",
        "updates lost",
        "run",
    ];
    let head: String = head.iter().map(|word| format!("<th>{word}</th>")).collect();
    let mut text =
        format!("<h2>The work in figures</h2>\n<div class=\"wide\"><table class=\"figures\">\n<tr>{head}</tr>\n");
    for load in &results.loads {
        let title = ways.iter().find(|way| way.id == load.way).map_or(load.way, |way| way.title);
        let contenders = match load.processes == load.contenders {
            true => load.contenders.to_string(),
            false => format!("{} threads of {}", load.contenders, load.processes),
        };
        text += &format!(
            "<tr><th>{}</th><td>{contenders}</td><td>{}</td><td>{:.0}</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{:.0} %</td><td>{:.2}</td><td>{}</td><td>{}</td></tr>\n",
            escape(title),
            load.grants,
            load.hand_overs_per_second,
            load.p50_ms,
            load.p99_ms,
            load.requests_per_hand_over,
            load.wake_ups_per_hand_over,
            load.overtaking_percent,
            load.server_cpu_ms_per_hand_over,
            load.lost,
            load.run
        );
    }
    text + "</table></div>\n"
}
