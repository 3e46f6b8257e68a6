//! The timeline of one stopped holder for each way: when each contender held the lock and wrote.

use super::svg::{Scale, Svg, WIDTH};
use crate::cell::Cell;
use crate::event::{Event, What};
use crate::ways::Way;

const LEFT: f64 = 300.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 44.0;
const LANE: f64 = 9.0;
const GROUP: f64 = 3.0 * LANE + 17.0;
const CONTENDERS: [(&str, &str); 3] = [("holder", "first"), ("second", "second"), ("third", "third")];

pub(super) fn timeline(ways: &[&Way], cells: &[Cell], fault: &str) -> String {
    let shown: Vec<(&Way, &Cell)> = ways
        .iter()
        .filter_map(|way| {
            let mut cells = cells.iter().filter(|cell| cell.way == way.id && cell.fault == fault);
            cells.find(|cell| cell.finding.is_played()).map(|cell| (*way, cell))
        })
        .collect();
    let ends = shown.iter().flat_map(|(_, cell)| &cell.events).map(|event| event.at).max().unwrap_or(0);
    let starts = shown.iter().map(|(_, cell)| stop(&cell.events)).max().unwrap_or(0);
    // Each begins when its holder is stopped; what it took to start its processes is left out.
    let before = 0.5;
    let scale = Scale::linear((ends.saturating_sub(starts)) as f64 / 1e9 + before + 0.3, LEFT, RIGHT);
    let bottom = TOP + GROUP * shown.len() as f64;
    let mut svg = Svg::default();
    let held =
        [("first", "the holder has the lock"), ("second", "the second has it"), ("third", "the third has it")];
    svg.legend(LEFT, 16.0, &held);
    let marks = [
        ("pause", "is stopped"),
        ("good", "write kept"),
        ("bad", "write over those of others"),
        ("fenced", "write refused, or not sent"),
    ];
    svg.legend(LEFT, 32.0 - 1.0, &marks);
    for step in scale.steps().into_iter().filter(|step| *step < scale_end(&scale)) {
        let x = scale.at(step + before);
        svg.line((x, TOP + 4.0), (x, bottom), "grid");
        svg.text(x, bottom + 13.0, "tick", &super::svg::short(step));
    }
    for (number, (way, cell)) in shown.into_iter().enumerate() {
        let top = TOP + GROUP * number as f64 + 8.0;
        svg.text(LEFT - 12.0, top + 8.0, "name", way.title);
        svg.text(LEFT - 12.0, top + 26.0, "note", &format!("{} ({})", cell.text, cell.run));
        let start = stop(&cell.events) as f64 / 1e9 - before;
        let at = |event: &Event| scale.at((event.at as f64 / 1e9 - start).max(0.0));
        one(&mut svg, cell, top, &at);
    }
    svg.text((LEFT + RIGHT) / 2.0, bottom + 30.0, "axis", "seconds since the holder was stopped");
    svg.end(bottom + 40.0, "One stopped holder")
}

fn scale_end(scale: &Scale) -> f64 {
    scale.steps().last().copied().unwrap_or(0.0) + 0.1
}

/// When the laboratory stopped the holder.
fn stop(events: &[Event]) -> u64 {
    events.iter().find(|event| event.what == What::Fault).map_or(0, |event| event.at)
}

fn one(svg: &mut Svg, cell: &Cell, top: f64, at: &dyn Fn(&Event) -> f64) {
    for (lane, (contender, class)) in CONTENDERS.into_iter().enumerate() {
        let y = top + LANE * lane as f64;
        let mut granted = None;
        for event in cell.events.iter().filter(|event| event.contender == contender) {
            match event.what {
                What::Granted => granted = Some(at(event)),
                What::Released | What::ReleaseFailed => {
                    if let Some(from) = granted.take() {
                        svg.bar(
                            from,
                            y,
                            (at(event) - from, LANE - 2.0),
                            class,
                            &format!("{contender} has the lock"),
                        );
                    }
                }
                _ => (),
            }
        }
    }
    let faults: Vec<_> = cell.events.iter().filter(|event| event.what == What::Fault).map(at).collect();
    if let [from, to, ..] = faults[..] {
        svg.bar(from, top, (to - from, LANE - 2.0), "pause", "the holder is stopped");
    }
    for (lane, (contender, _)) in CONTENDERS.into_iter().enumerate() {
        let y = top + LANE * lane as f64 + (LANE - 2.0) / 2.0;
        for event in cell.events.iter().filter(|event| event.contender == contender) {
            let (class, words) = match event.what {
                What::Written if contender == "holder" && cell.lost > 0 => {
                    ("bad", "writes over the others' updates")
                }
                What::Written => ("good", "writes"),
                What::Refused | What::Conflict => ("fenced", "is refused by the store"),
                What::Noticed => ("fenced", "notices that the lock is lost"),
                _ => continue,
            };
            svg.dot(at(event), y, class, &format!("{contender} {words}"));
        }
    }
}
