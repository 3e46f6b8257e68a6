//! The chart: bars of the speed of each contender, in units of the floor.

use crate::about::About;
use crate::contenders::Contender;
use crate::rounds::Row;
use crate::sample::Sample;
use crate::summary::Summary;

const BARS: [(Contender, &str); 4] = [
    (Contender::Ours, "#1b6ca8"),
    (Contender::ClientLock, "#93bbdc"),
    (Contender::Curator, "#d9762b"),
    (Contender::Kazoo, "#8c8c8c"),
];
const WIDTH: f64 = 960.0;
/// Where the bars begin; names are to the left.
const LEFT: f64 = 250.0;
/// Where the longest bar ends; medians are to the right, and the ratios to others.
const RIGHT: f64 = WIDTH - 190.0;
const RATIOS: [(Contender, f64, &str); 2] =
    [(Contender::Curator, WIDTH - 135.0, "/ Curator"), (Contender::ClientLock, WIDTH - 65.0, "/ client's")];
/// A ratio below this is far enough from 1 to be called slower.
const BEHIND: f64 = 0.95;
const TOP: f64 = 98.0;
const BAR: f64 = 11.0;
const GAP: f64 = 12.0;

/// An SVG. Rates are shown for every workload, so that a longer bar is always better.
pub(crate) fn svg(rows: &[Row], about: &About) -> String {
    let bars = |row: &Row| {
        BARS.map(|(contender, colour)| (contender, colour, row.ratio(contender, Contender::Floor, Sample::rate)))
    };
    let ends = rows.iter().flat_map(bars).filter_map(|(_, _, rate)| rate.map(|rate| rate.median));
    let scale = (RIGHT - LEFT) / ends.fold(1.0, f64::max);
    let mut body = text(
        12.0,
        22.0,
        "Speed of locks on ZooKeeper: a longer bar is better; 1 is the speed of the bare requests",
        "font-size=\"15\"",
    );
    let lines = "lines: from the 10th to the 90th percentile";
    let circumstances = format!("{}; {lines}", about.circumstances);
    body += &text(12.0, 40.0, &circumstances, "fill=\"#666\"");
    body += &text(12.0, 55.0, &about.versions(), "fill=\"#666\" font-size=\"9\"");
    for (place, (contender, colour)) in BARS.into_iter().enumerate() {
        let x = LEFT + 130.0 * place as f64;
        body += &bar(x, 80.0, 10.0, colour);
        body += &text(x + 15.0, 89.0, contender.name(), "");
    }
    body += &text(12.0, 69.0, &behind(rows), "");
    body += &text(RATIOS[0].1, 78.0, "this crate, higher is better", "font-size=\"9\"");
    for (_, x, title) in RATIOS {
        body += &text(x, 90.0, title, "font-size=\"10\"");
    }
    let mut y = TOP;
    for row in rows {
        y += GAP;
        let first = y;
        // Nothing is drawn for a contender that has no such lock.
        for (_, colour, rate) in bars(row) {
            let Some(rate) = rate else { continue };
            body += &bar(LEFT, y, rate.median * scale, colour);
            // A range may be much longer than all bars; it is cut off.
            let [low, high] = [rate.low, rate.high].map(|end| (LEFT + end * scale).min(RIGHT + 8.0));
            body += &format!("<path d=\"M{low:.1} {}H{high:.1}\" stroke=\"#222\"/>\n", y + BAR / 2.0);
            body += &text(RIGHT + 14.0, y + BAR - 1.5, &format!("{:.2}", rate.median), "font-size=\"10\"");
            y += BAR;
        }
        let middle = (first + y) / 2.0 + 4.0;
        body += &text(12.0, middle, row.workload.name, "");
        for (rival, x, _) in RATIOS {
            let ratio = row.ratio(Contender::Ours, rival, Sample::rate);
            let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.median));
            let color = if is_behind(ratio) { "fill=\"#b00020\" font-weight=\"bold\"" } else { "" };
            body += &text(x, middle, &shown, color);
        }
    }
    let (floor, height) = (LEFT + scale, y + GAP);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{body}\
         <path d=\"M{floor:.1} {TOP}V{y}\" stroke=\"#222\" stroke-dasharray=\"4 3\"/>\n</svg>\n"
    )
}

/// Whether this crate is slower than another by more than what differs from run to run.
fn is_behind(ratio: Option<Summary>) -> bool {
    ratio.is_some_and(|ratio| ratio.median < BEHIND)
}

/// Where this crate is slower than another.
fn behind(rows: &[Row]) -> String {
    let ratio = |row: &Row, rival| row.ratio(Contender::Ours, rival, Sample::rate);
    let is_behind_one = |row: &&Row| RATIOS.iter().any(|(rival, ..)| is_behind(ratio(row, *rival)));
    let all: Vec<_> = rows.iter().filter(is_behind_one).map(|row| row.workload.name).collect();
    if all.is_empty() {
        "this crate is behind in none".to_owned()
    } else {
        format!("this crate is behind (below {BEHIND}, red) in: {}", all.join("; "))
    }
}

fn bar(x: f64, y: f64, width: f64, colour: &str) -> String {
    format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\n", BAR - 1.0)
}

fn text(x: f64, y: f64, text: &str, attributes: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y}\" {attributes}>{text}</text>\n")
}
