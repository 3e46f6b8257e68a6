//! What happened in a run as SVG: a row per server and per client, with a lane for each of its locks.

mod page;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use self::page::Page;
pub use self::page::Shade;

/// An interval in one lane of a row, or across all lanes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bar {
    row: Row,
    /// `None` for all lanes.
    lane: Option<Arc<str>>,
    begin: u64,
    end: u64,
    shade: Shade,
}

impl Bar {
    /// An interval from `begin` to `end`, in nanoseconds. Without a lane it goes across all lanes of its row.
    #[must_use]
    pub fn new(row: Row, lane: Option<Arc<str>>, (begin, end): (u64, u64), shade: Shade) -> Self {
        Self { row, lane, begin, end, shade }
    }
}

/// From top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Row {
    /// A server, by its number.
    Server(usize),
    /// Somebody who deletes nodes by hand.
    Operator,
    /// A client, by its number.
    Client(usize),
}

impl Row {
    fn name(self) -> String {
        match self {
            Self::Server(i) => format!("server {i}"),
            Self::Operator => "operator".to_owned(),
            Self::Client(i) => format!("client {i}"),
        }
    }
}

/// Writes pages of this length from `begin` to `end`, in nanoseconds, into a directory that exists. Returns their number.
///
/// # Errors
///
/// If a page cannot be written.
pub fn draw(
    mut bars: Vec<Bar>,
    (begin, end): (u64, u64),
    length: u64,
    title: &str,
    out: &Path,
) -> io::Result<usize> {
    // What concerns a whole client is drawn behind its holds.
    bars.sort_by_key(|bar| (bar.row, bar.lane.is_some(), bar.lane.clone(), bar.shade, bar.begin));
    let mut rows = BTreeMap::<Row, Vec<Arc<str>>>::new();
    for bar in &bars {
        let lanes = rows.entry(bar.row).or_default();
        lanes.extend(bar.lane.iter().filter(|lane| !lanes.contains(lane)).cloned().collect::<Vec<_>>());
    }
    rows.values_mut().for_each(|lanes| lanes.sort());
    let pages = usize::try_from((end - begin).div_ceil(length)).unwrap_or_default();
    for number in 0..pages {
        let from = begin + length * number as u64;
        let title = format!("{title}, page {} of {pages}", number + 1);
        let mut page = Page::new(&rows, begin, from, from + length, &title);
        bars.iter().for_each(|bar| page.add(bar));
        fs::write(out.join(format!("timeline-{:02}.svg", number + 1)), page.finish())?;
    }
    Ok(pages)
}
