//! Owns [`plain`]: text of other clients, as it is shown.

/// Escapes control characters and those that change the direction of text, as `zklock list` does.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => plain.push(c),
            c => plain.extend(c.escape_debug()),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn no_character_changes_the_direction_of_text() {
        for c in ['\u{61c}', '\u{200e}', '\u{200f}']
            .into_iter()
            .chain('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
        {
            assert_eq!(plain(&c.to_string()), c.escape_unicode().to_string());
        }
        assert_eq!(plain("it's \"7\" \\ \n\u{1b}[2J bücher"), "it's \"7\" \\ \\n\\u{1b}[2J bücher");
    }
}
