//! The table of faults as a picture: a coloured box for each cell, with a word, because not every reader sees the colours.

use super::svg::{Svg, WIDTH};
use crate::Outcome;

const LEFT: f64 = 300.0;
const RIGHT: f64 = WIDTH - 55.0;
const TOP: f64 = 132.0;
const ROW: f64 = 19.0;
const GAP: f64 = 2.0;
const LEGEND: [(&str, &str); 4] = [
    ("safe", "no update lost, nobody stuck"),
    ("stuck", "other contenders stuck"),
    ("lost", "updates lost"),
    ("none", "not played, or neither good nor bad"),
];

/// Of the picture alone: on a page its own style sheet counts.
const STYLE: &str = "text { font: 11px 'DejaVu Sans', Helvetica, Arial, sans-serif; fill: #1c2733; } \
    .name { text-anchor: end; dominant-baseline: middle; } \
    .word { text-anchor: middle; dominant-baseline: middle; font-size: 8.5px; } \
    .safe { fill: #b7dfc0; } .stuck { fill: #f6d27a; } .lost { fill: #ee9a92; } .none { fill: #eceff2; }";

/// The first table of a document whose head has no title in its first column.
///
/// # Errors
///
/// If there is none.
pub fn picture(document: &str) -> Outcome<String> {
    let cells =
        |line: &str| line.trim().trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let mut lines = document.lines().skip_while(|line| !line.starts_with("| |"));
    let head: Vec<String> = cells(lines.next().ok_or("there is no table of faults")?.trim_start_matches("| "));
    let faults: Vec<_> = head.iter().map(|title| title.trim_start_matches(['|', ' '])).collect();
    let rows: Vec<Vec<String>> = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect();
    let column = (RIGHT - LEFT) / faults.len() as f64;
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = Svg::default();
    svg.style(STYLE);
    for (number, (class, words)) in LEGEND.into_iter().enumerate() {
        svg.bar(14.0, 14.0 + 18.0 * number as f64, (12.0, 11.0), class, words);
        svg.text(32.0, 24.0 + 18.0 * number as f64, "small", words);
    }
    for (number, fault) in faults.iter().enumerate() {
        svg.slanted(LEFT + column * (number as f64 + 0.5), TOP - 8.0, fault);
    }
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + ROW * number as f64;
        let Some((way, cells)) = row.split_first() else { continue };
        svg.text(LEFT - 10.0, y + ROW / 2.0, "name", way);
        for (number, cell) in cells.iter().enumerate() {
            let x = LEFT + column * number as f64;
            let (class, word) = meaning(cell);
            let fault = faults.get(number).copied().unwrap_or_default();
            svg.bar(x, y, (column - GAP, ROW - GAP), class, &format!("{way}, {fault}: {}", plain(cell)));
            svg.text(x + (column - GAP) / 2.0, y + ROW / 2.0, "word", &word);
        }
    }
    Ok(svg.end(bottom + 10.0, "Every way to lock under every fault"))
}

fn plain(cell: &str) -> String {
    cell.replace(['*', '`'], "")
}

/// The class of a cell, and its word.
fn meaning(cell: &str) -> (&'static str, String) {
    // `in k of n`, if it was played several times.
    let times = |what: &str| {
        let (_, rest) = cell.split_once(&format!("{what} in "))?;
        let mut words =
            plain(rest.split(',').next()?).split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter();
        Some(format!("{}/{}", words.next()?, words.nth(1)?))
    };
    let with = |word: &str, what| times(what).map_or_else(|| word.to_owned(), |times| format!("{word} {times}"));
    if ["update lost", "updates lost"].iter().any(|words| cell.contains(words)) {
        ("lost", with("lost", "updates lost"))
    } else if cell.contains("stuck") || cell.contains("waits for another lock") {
        ("stuck", with("stuck", "stuck"))
    } else if cell.starts_with("safe") || cell.starts_with("does not wait") {
        ("safe", "safe".to_owned())
    } else if cell.starts_with("re-entrant") {
        ("none", "yes".to_owned())
    } else if cell.starts_with("waits for itself") {
        ("none", "no".to_owned())
    } else {
        ("none", String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "text\n\n| | stopped | clock & time |\n|---|---|---|\n| a row | **6 updates lost**, stuck for 7.0 s `r1` | safe `r2` |\n\
                         | this crate | n/a | **updates lost in 2 of 5**, safe in 3 of 5 `r3` |\n\ntext\n";

    #[test]
    fn cells_have_the_meaning_of_their_words() {
        for (cell, class, word) in [
            ("**6 updates lost**, stuck for 7.0 s `r1`", "lost", "lost"),
            ("**1 update lost** `r1`", "lost", "lost"),
            ("**updates lost in 2 of 5**, safe in 3 of 5 `r3`", "lost", "lost 2/5"),
            ("*stuck for over 10.0 s* `r4`", "stuck", "stuck"),
            ("safe in 5 of 5, noticed in 4 of 5 `r5`", "safe", "safe"),
            ("*waits for another lock* `r6`", "stuck", "stuck"),
            ("does not wait `r7`", "safe", "safe"),
            ("re-entrant `r8`", "none", "yes"),
            ("n/a", "none", ""),
        ] {
            assert_eq!(meaning(cell), (class, word.to_owned()), "{cell}");
        }
    }

    #[test]
    fn picture_has_a_box_for_each_cell() {
        let picture = picture(TABLE).expect("a table");
        assert_eq!(picture.matches("class=\"mark").count(), LEGEND.len() + 4);
        for text in ["stopped", "clock &amp; time", "this crate", "lost 2/5"] {
            assert!(picture.contains(text), "{text}");
        }
    }

    #[test]
    fn picture_of_the_document_is_up_to_date() {
        let drawn = include_str!("../../../docs/comparison.svg");
        let table = picture(include_str!("../../../docs/comparison.md")).expect("a table");
        assert!(drawn == table, "run: cargo run --manifest-path lab/Cargo.toml -- picture docs/comparison.md");
    }
}
