//! Owns how JSON is printed. Names of nodes are anyone's text, and the output may be a terminal.

use std::io::{self, Write};

use serde_json::Value;

/// Prints `value`, over several lines.
pub(crate) fn print(out: &mut impl Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{}", harmless(&format!("{value:#}")))
}

/// JSON of the same meaning, without the characters that [`plain`](crate::queue::plain) escapes.
fn harmless(json: &str) -> String {
    let mut harmless = String::with_capacity(json.len());
    for c in json.chars() {
        // `serde_json` has escaped what JSON requires: the control characters before the space.
        if c == '\u{7f}' || (!c.is_ascii() && c.escape_debug().len() > 1) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                harmless += &format!("\\u{unit:04x}");
            }
        } else {
            harmless.push(c);
        }
    }
    harmless
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_printed_and_nothing_is_lost() {
        let steering = "\u{7f}\u{80}\u{9b}2J\u{9f}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0001}\x1b[2J\n\"\\";
        let value = json!({ steering: [steering, "Zoë's 鍵 🔑"] });
        let mut printed = Vec::new();
        print(&mut printed, &value).expect("a vector takes every write");
        let printed = String::from_utf8(printed).expect("it is text");
        let harmless = |c: char| c == '\n' || " ~ëé鍵🔑".contains(c) || c.is_ascii_graphic();
        assert!(printed.chars().all(harmless), "{printed:?}");
        assert!(printed.contains(r"\u009b2J") && printed.contains("Zoë's 鍵 🔑"), "{printed:?}");
        assert_eq!(serde_json::from_str::<Value>(&printed).expect("it is JSON"), value);
    }
}
