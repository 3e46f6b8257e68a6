//! The charts of the work without faults: bars for each way, one for each number of contenders.

use super::svg::{Scale, Svg, WIDTH, short};
use crate::cell::counted;
use crate::load::Load;
use crate::ways::Way;

const LEFT: f64 = 300.0;
const RIGHT: f64 = WIDTH - 70.0;
const TOP: f64 = 44.0;
const BAR: f64 = 9.0;
const GAP: f64 = 9.0;
/// By the number of contenders.
const CLASSES: [&str; 3] = ["few", "some", "many"];

/// A quantity of the work.
pub(super) struct Quantity {
    pub(super) title: &'static str,
    /// With its unit.
    pub(super) axis: &'static str,
    pub(super) is_log: bool,
    pub(super) value: fn(&Load) -> f64,
    /// To the end of a thin line, where there is one.
    pub(super) whisker: Option<fn(&Load) -> f64>,
}

pub(super) fn bars(ways: &[&Way], loads: &[Load], quantity: &Quantity) -> String {
    let mut sizes: Vec<_> = loads.iter().map(|load| load.contenders).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let ends = loads.iter().map(|load| quantity.whisker.map_or((quantity.value)(load), |end| end(load)));
    let high = ends.filter(|end| end.is_finite()).fold(0.0, f64::max);
    let low = loads.iter().map(quantity.value).filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let scale = match quantity.is_log {
        true => Scale::log(low.min(high), high.max(1e-3), LEFT, RIGHT),
        false => Scale::linear(high * 1.02, LEFT, RIGHT),
    };
    let shown: Vec<_> = ways.iter().filter(|way| loads.iter().any(|load| load.way == way.id)).collect();
    let group = BAR * sizes.len() as f64 + GAP;
    let bottom = TOP + group * shown.len() as f64;
    let mut svg = Svg::default();
    let words: Vec<_> = sizes.iter().map(|size| counted(*size, "contender")).collect();
    let legend: Vec<_> = CLASSES.into_iter().zip(words.iter().map(String::as_str)).collect();
    svg.legend(LEFT, 16.0, &legend);
    if quantity.whisker.is_some() {
        svg.text(LEFT + 420.0, 16.0, "small", "bar: median; line: 99th percentile");
    }
    for step in scale.steps() {
        let x = scale.at(step);
        svg.line((x, TOP - 6.0), (x, bottom), "grid");
        svg.text(x, TOP - 12.0, "tick", &short(step));
    }
    for (number, way) in shown.iter().enumerate() {
        let y = TOP + group * number as f64;
        svg.text(LEFT - 12.0, y + group / 2.0, "name", way.title);
        for (row, size) in sizes.iter().enumerate() {
            let Some(load) = loads.iter().find(|load| load.way == way.id && load.contenders == *size) else {
                continue;
            };
            let (value, y) = ((quantity.value)(load), y + BAR * row as f64);
            let tip = format!("{}, {}: {} ({})", way.title, counted(*size, "contender"), short(value), load.run);
            let class = CLASSES.get(row).copied().unwrap_or("many");
            svg.bar(LEFT, y, (scale.at(value) - LEFT, BAR - 1.5), class, &tip);
            let mut end = scale.at(value);
            if let Some(whisker) = quantity.whisker {
                end = end.max(scale.at(whisker(load)));
                svg.line((scale.at(value), y + BAR / 2.0 - 0.7), (end, y + BAR / 2.0 - 0.7), "whisker");
            }
            svg.text(end + 4.0, y + BAR - 2.0, "value", &short(value));
        }
    }
    svg.text((LEFT + RIGHT) / 2.0, bottom + 18.0, "axis", quantity.axis);
    svg.end(bottom + 28.0, quantity.title)
}
