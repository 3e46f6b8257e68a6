//! Draws who owned which shard over time, as SVG.

use std::fmt::Write;
use std::time::Duration;

use crate::history::History;

/// What has happened, and when it began.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) what: String,
}

const COLOURS: [&str; 4] = ["#1b6ca8", "#d9762b", "#3f8f5b", "#a2679f"];

/// In pixels: the space for the labels of the events, of the shards, and to the right; the size of a lane, and the width of all.
const TOP: f64 = 176.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 130.0;
const LANE: f64 = 18.0;
const WIDTH: f64 = 960.0;

pub(crate) fn picture(history: &History, events: &[Event], names: &[&str], shards: u32, end: Duration) -> String {
    let bottom = TOP + LANE * f64::from(shards);
    let height = bottom + 60.0;
    let x = |at: Duration| LEFT + (WIDTH - LEFT - RIGHT) * at.as_secs_f64() / end.as_secs_f64();
    let y = |shard: u32| TOP + LANE * f64::from(shard);
    let colour = |owner: &str| {
        names.iter().position(|name| *name == owner).and_then(|at| COLOURS.get(at)).copied().unwrap_or("#888")
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><pattern id=\"stopped\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"3\" height=\"6\" fill=\"#fff\" fill-opacity=\"0.75\"/></pattern></defs>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">Who owns which of {shards} shards, over time</text>\n"
    );
    // Writing to a string does not fail.
    let mut line = |text: String| _ = writeln!(svg, "{text}");
    for shard in 0..shards {
        let middle = y(shard) + LANE / 2.0 + 4.0;
        line(format!(
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\" fill=\"#666\">{shard}</text>",
            LEFT - 8.0
        ));
    }
    let bar = |shard: u32, from: f64, to: f64, fill: &str| {
        let (top, tall) = (y(shard) + 1.0, LANE - 2.0);
        // A span of a moment is seen, too.
        let wide = (to - from).max(0.5);
        format!("<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"{fill}\"/>")
    };
    for span in &history.spans {
        let to = span.to.unwrap_or(end);
        line(bar(span.shard, x(span.from), x(to), colour(&span.owner)));
        for stop in history.stops.iter().filter(|stop| stop.owner == span.owner) {
            let (from, to) = (stop.from.max(span.from), stop.to.unwrap_or(end).min(to));
            if from < to {
                line(bar(span.shard, x(from), x(to), "url(#stopped)"));
            }
        }
    }
    for second in (0..=end.as_secs()).step_by(5) {
        let at = x(Duration::from_secs(second));
        line(format!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{second} s</text>",
            bottom + 18.0
        ));
    }
    let mut free = 0.0;
    for Event { at, what } in events {
        let at = x(*at);
        // Labels of events in a row keep a distance.
        let label = at.max(free);
        free = label + 17.0;
        line(format!(
            "<path d=\"M{at:.1} {bottom:.1}V{TOP}L{label:.1} {:.1}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1\"/>",
            TOP - 10.0
        ));
        line(format!(
            "<text transform=\"translate({:.1} {:.1}) rotate(-40)\">{}</text>",
            label + 2.0,
            TOP - 14.0,
            escaped(what)
        ));
    }
    for (number, name) in names.iter().enumerate() {
        let at = LEFT + 80.0 * number as f64;
        line(format!(
            "<rect x=\"{at:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            bottom + 34.0,
            colour(name)
        ));
        line(format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", at + 17.0, bottom + 44.0, escaped(name)));
    }
    let at = LEFT + 80.0 * names.len() as f64;
    line(format!("<rect x=\"{at:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"#666\"/>", bottom + 34.0));
    line(format!(
        "<rect x=\"{at:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"url(#stopped)\"/>",
        bottom + 34.0
    ));
    line(format!(
        "<text x=\"{:.1}\" y=\"{:.1}\">its process is stopped; white: no owner</text>",
        at + 17.0,
        bottom + 44.0
    ));
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_has_a_bar_for_each_owner_and_a_line_for_each_event() {
        let second = Duration::from_secs(1);
        let mut history = History::default();
        history.begin(second, "a", 0, 7);
        history.stopped(second * 2, "a");
        history.begin(second * 4, "b", 0, 9);
        let events = [Event { at: second * 2, what: "a < b & c".to_owned() }];
        let svg = picture(&history, &events, &["a", "b"], 1, second * 8);
        let count = |text: &str| svg.matches(text).count();
        // One of each is of the legend.
        assert_eq!([COLOURS[0], COLOURS[1], "url(#stopped)"].map(count), [2; 3], "{svg}");
        assert_eq!((count("<path"), count("a &lt; b &amp; c")), (1, 1), "{svg}");
        assert!(svg.ends_with("</svg>\n") && count("<text") == count("</text>"), "{svg}");
    }
}
