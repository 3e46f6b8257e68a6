//! One page of the timeline as SVG.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::{Bar, Row};

const LEFT: f64 = 150.0;
const TOP: f64 = 60.0;
const WIDTH: f64 = 1_800.0;
const LANE: f64 = 11.0;
/// The strip above a client's lanes, where its faults are visible beside its holds.
const STRIP: f64 = 4.0;
const GAP: f64 = 5.0;
/// How far lines of the grid may be apart, in nanoseconds.
const STEPS: [u64; 6] = [100_000_000, 200_000_000, 500_000_000, 1_000_000_000, 2_000_000_000, 5_000_000_000];
/// Bars with a smaller gap are drawn as one.
const MERGED: f64 = 0.6;

/// The meaning of a bar, in drawing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shade {
    /// Cut off from the others.
    CutOff,
    /// Paused by a signal.
    Paused,
    /// Killed, until it is started again.
    Killed,
    /// Waits for a lock.
    Waiting,
    /// Holds a lock with others.
    Shared,
    /// Holds a lock alone.
    Held,
    /// Holds a lock, and has no connection.
    Suspended,
    /// Deletes a node by hand.
    Deleted,
    /// A loss is reported.
    Lost,
}

impl Shade {
    const ALL: [Self; 9] = [
        Self::Held,
        Self::Shared,
        Self::Suspended,
        Self::Waiting,
        Self::Lost,
        Self::Paused,
        Self::Killed,
        Self::CutOff,
        Self::Deleted,
    ];

    /// The class in the style sheet, and the text of the legend.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::CutOff => ("cut", "cut off"),
            Self::Paused => ("paused", "paused"),
            Self::Killed => ("killed", "killed, until started again"),
            Self::Waiting => ("waiting", "waits"),
            Self::Shared => ("shared", "holds, shared"),
            Self::Held => ("held", "holds"),
            Self::Suspended => ("suspended", "holds, suspended"),
            Self::Deleted => ("deleted", "deletes a node"),
            Self::Lost => ("lost", "loss reported"),
        }
    }

    fn is_instant(self) -> bool {
        matches!(self, Self::Deleted | Self::Lost)
    }
}

const STYLE: &str = "\
text{font:11px sans-serif}.title{font-size:15px}.lane{font-size:8px;fill:#555}.grid{stroke:#ddd}
.row{fill:#f7f7f7}.held{fill:#2166ac}.shared{fill:#67a9cf}.suspended{fill:#c51b7d}.lost{fill:#d7191c}
.paused{fill:#9e9e9e}.killed{fill:#4d4d4d}.cut{fill:#fdae61}
.waiting{fill:#d9d9d9}.deleted{fill:#7b3294}";

/// A page under construction.
#[derive(Debug)]
pub(super) struct Page {
    begin: u64,
    end: u64,
    /// The upper edge and the height of each row.
    rows: BTreeMap<Row, (f64, f64)>,
    lanes: BTreeMap<(Row, Arc<str>), f64>,
    height: f64,
    svg: String,
    /// What is on it, for the legend.
    shades: BTreeSet<Shade>,
    /// The last bar, which the next one may extend.
    open: Option<Drawn>,
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    top: f64,
    height: f64,
    left: f64,
    right: f64,
    shade: Shade,
}

impl Page {
    /// The page from `begin` to `end`, of a run which began at `origin`.
    pub(super) fn new(
        rows: &BTreeMap<Row, Vec<Arc<str>>>,
        origin: u64,
        begin: u64,
        end: u64,
        title: &str,
    ) -> Self {
        let mut page = Self {
            begin,
            end,
            rows: BTreeMap::new(),
            lanes: BTreeMap::new(),
            height: TOP,
            svg: String::new(),
            shades: BTreeSet::new(),
            open: None,
        };
        page.text(10.0, 22.0, "title", title);
        for (row, lanes) in rows {
            let is_client = matches!(row, Row::Client(_));
            let strip = if lanes.is_empty() || !is_client { 0.0 } else { STRIP };
            let (top, height) = (page.height, strip + LANE * lanes.len().max(1) as f64);
            page.rows.insert(*row, (top, height));
            page.rect(LEFT, top, WIDTH, height, "row");
            page.text(10.0, top + 9.0, "", &row.name());
            for (number, lane) in (0..).zip(lanes) {
                let top = top + strip + LANE * f64::from(number);
                page.lanes.insert((*row, Arc::clone(lane)), top);
                if is_client {
                    page.text(75.0, top + 8.5, "lane", lane);
                }
            }
            page.height += height + GAP;
        }
        let step = STEPS.into_iter().find(|step| (end - begin) / step < 16).unwrap_or(end - begin);
        for at in (begin..=end).step_by(step as usize) {
            let (x, bottom) = (page.x(at), page.height);
            let _ = writeln!(page.svg, "<path class='grid' d='M{x:.1} {:.1}V{bottom:.1}'/>", TOP - 5.0);
            page.text(x - 8.0, TOP - 10.0, "", &format!("{} s", (at - origin) as f64 / 1e9));
        }
        page
    }

    /// Draws the part of a bar that lies on this page. Bars are added by row, lane, shade and time.
    pub(super) fn add(&mut self, bar: &Bar) {
        if bar.end < self.begin || bar.begin > self.end {
            return;
        }
        self.shades.insert(bar.shade);
        let (mut top, mut height) = self.rows[&bar.row];
        if let Some(lane) = &bar.lane {
            (top, height) = (self.lanes[&(bar.row, Arc::clone(lane))] + 1.0, LANE - 3.0);
        }
        let (left, mut right) = (self.x(bar.begin.max(self.begin)), self.x(bar.end.min(self.end)));
        if bar.shade.is_instant() {
            right = left + 2.0;
        }
        let drawn = Drawn { top, height, left, right: right.max(left + MERGED), shade: bar.shade };
        match &mut self.open {
            Some(open) if open.top == top && open.shade == bar.shade && left - open.right < MERGED => {
                open.right = open.right.max(drawn.right);
            }
            _ => {
                self.close();
                self.open = Some(drawn);
            }
        }
    }

    fn close(&mut self) {
        if let Some(Drawn { top, height, left, right, shade }) = self.open.take() {
            self.rect(left, top, right - left, height, shade.words().0);
        }
    }

    /// The complete document, with a legend.
    pub(super) fn finish(mut self) -> String {
        self.close();
        let mut left = LEFT;
        let top = self.height + 15.0;
        let shades = std::mem::take(&mut self.shades);
        for (class, meaning) in Shade::ALL.into_iter().filter(|shade| shades.contains(shade)).map(Shade::words) {
            self.rect(left, top, 14.0, LANE, class);
            self.text(left + 18.0, top + 9.0, "", meaning);
            left += 40.0 + 6.2 * meaning.len() as f64;
        }
        let (width, height) = (LEFT + WIDTH + 20.0, top + 30.0);
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>\n\
             <style>{STYLE}</style>\n<rect width='100%' height='100%' fill='white'/>\n{}</svg>\n",
            self.svg
        )
    }

    fn x(&self, at: u64) -> f64 {
        LEFT + WIDTH * (at - self.begin) as f64 / (self.end - self.begin) as f64
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let _ = writeln!(
            self.svg,
            "<rect class='{class}' x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}'/>"
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.svg, "<text class='{class}' x='{x:.1}' y='{y:.1}'>{text}</text>");
    }
}
