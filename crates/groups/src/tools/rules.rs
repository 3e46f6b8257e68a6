//! Owns [`Rules`]: the text of the plan node, as operators write it. No IO.
//!
//! A line is a rule, a comment that begins with `#`, or empty. Before the first rule, a line gives the version of the format.
//! [`Rules`] are written with the version first, then the comments, then the rules, sorted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use zookeeper_recipes::{Error, Result, path};

/// The version of the format.
const VERSION: &str = "1";

/// The most bytes of the plan node. All members read the node again at each change.
const MOST_BYTES: usize = 256 * 1024;

const FORMS: &str = "write `drain NAME` or `pin SHARD NAME`";

/// The operators' rules for the [`Plan`](crate::tools::Plan): the text of the plan node, `<path>/plan`.
///
/// ```text
/// version 1
/// # Its disk is to be replaced.
/// drain orders-2
/// pin 17 orders-1
/// ```
///
/// * `drain NAME`: the member gets no shard, and takes none instead of another member. If all members of the group are drained,
///   drains are ignored.
/// * `pin SHARD NAME`: the plan gives the shard to this member. The pin is ignored while the member is drained or not in the
///   group.
///
/// A name is written as it is, or as [`path::segment`](fn@zookeeper_recipes::path::segment) writes it. All members read the same node, so
/// they compute the same plan. The holder of a shard's lock is its owner, whatever the node says.
///
/// # Examples
///
/// ```
/// use zookeeper_groups::tools::{Plan, Rules};
///
/// # fn main() -> Result<(), zookeeper_recipes::Error> {
/// let mut rules = Rules::parse(b"version 1\ndrain orders-2\n")?;
/// rules.pin(17, "orders-1")?;
/// assert_eq!(rules.to_string(), "version 1\ndrain orders-2\npin 17 orders-1\n");
/// let plan = Plan::with_rules(256, ["orders-0", "orders-1", "orders-2"], &rules);
/// assert_eq!(plan.owner(17), Some("orders-1"));
/// assert_eq!(plan.shards_of("orders-2").count(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    comments: Vec<String>,
    drained: BTreeSet<String>,
    pins: BTreeMap<u32, String>,
}

impl Rules {
    /// Parses the text of a plan node. A text without rules has the same effect as no node.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] with the invalid line, or if the text is too long or no UTF-8. Members ignore such a node.
    pub fn parse(data: &[u8]) -> Result<Self> {
        if data.len() > MOST_BYTES {
            return Err(invalid(format!("it has {} bytes; {MOST_BYTES} are the most", data.len())));
        }
        let text = std::str::from_utf8(data).map_err(|_| invalid("it is no text in UTF-8"))?;
        let (mut rules, mut is_first) = (Self::default(), true);
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let refused = |reason: String| invalid(format!("line {number}: {reason}"));
            if line.starts_with('#') {
                rules.comments.push(line.to_owned());
            } else if line.is_empty() {
            } else if std::mem::take(&mut is_first) {
                let version = line.strip_prefix("version ").map(str::trim);
                match version {
                    Some(VERSION) => {}
                    Some(other) => {
                        let other = shown(other);
                        return Err(refused(format!("this program knows version {VERSION}, and not {other}")));
                    }
                    None => return Err(refused(format!("{} before `version {VERSION}`", shown(line)))),
                }
            } else {
                rules.add(line).map_err(refused)?;
            }
        }
        Ok(rules)
    }

    /// Adds the rule of a line.
    fn add(&mut self, line: &str) -> std::result::Result<(), String> {
        let unknown = || format!("{} is no rule; {FORMS}", shown(line));
        let (verb, rest) = line.split_once(char::is_whitespace).ok_or_else(unknown)?;
        let name = |text: &str| match text.trim() {
            "" => Err(unknown()),
            text => Ok(path::key(text).unwrap_or_else(|| text.to_owned())),
        };
        let is_new = match verb {
            "drain" => self.drained.insert(name(rest)?),
            "pin" => {
                let (shard, to) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(unknown)?;
                let shard = shard.parse().map_err(|_| format!("{} is no number of a shard", shown(shard)))?;
                self.pins.insert(shard, name(to)?).is_none()
            }
            _ => return Err(unknown()),
        };
        if is_new { Ok(()) } else { Err(format!("there are two rules such as {}", shown(line))) }
    }

    /// Checks the rules for a group with this many shards.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if a pinned shard does not exist. Members ignore such a node.
    pub fn check(&self, count: u32) -> Result<()> {
        match self.pins.last_key_value() {
            Some((shard, _)) if *shard >= count => {
                Err(invalid(format!("a pin is of shard {shard}, and there are {count}, from 0 on")))
            }
            _ => Ok(()),
        }
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.drained.is_empty() && self.pins.is_empty()
    }

    /// Whether a rule drains this member.
    #[must_use]
    pub fn is_drained(&self, name: &str) -> bool {
        self.drained.contains(name)
    }

    /// The member that this shard is pinned to.
    #[must_use]
    pub fn pinned(&self, shard: u32) -> Option<&str> {
        self.pins.get(&shard).map(String::as_str)
    }

    /// All pins: each a shard, and the member to which it is pinned.
    pub fn pins(&self) -> impl Iterator<Item = (u32, &str)> {
        self.pins.iter().map(|(shard, name)| (*shard, name.as_str()))
    }

    /// The names in the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.drained.iter().chain(self.pins.values()).map(String::as_str)
    }

    /// Drains this member, so it gets no shard. Returns whether the rules have changed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the name cannot be written in a line, or the node would be too large. The rules then stay as
    /// they are.
    pub fn drain(&mut self, name: &str) -> Result<bool> {
        self.change(name, |rules, name| _ = rules.drained.insert(name))
    }

    /// Removes the drain of this member. Returns whether there was one.
    pub fn undrain(&mut self, name: &str) -> bool {
        self.drained.remove(name)
    }

    /// Pins a shard to a member. Returns whether the rules have changed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the name cannot be written in a line, or the node would be too large. The rules then stay as
    /// they are.
    pub fn pin(&mut self, shard: u32, name: &str) -> Result<bool> {
        self.change(name, |rules, name| _ = rules.pins.insert(shard, name))
    }

    /// Removes the pin of a shard. Returns whether there was one.
    pub fn unpin(&mut self, shard: u32) -> bool {
        self.pins.remove(&shard).is_some()
    }

    /// Adds a rule about this member. After an error the rules are unchanged.
    fn change(&mut self, name: &str, add: impl FnOnce(&mut Self, String)) -> Result<bool> {
        if name.is_empty() || name.trim() != name {
            return Err(invalid(format!("the name {} is empty, or begins or ends with a space", shown(name))));
        }
        let mut changed = self.clone();
        add(&mut changed, name.to_owned());
        let bytes = changed.to_string().len();
        if bytes > MOST_BYTES {
            return Err(invalid(format!("it would have {bytes} bytes; {MOST_BYTES} are the most")));
        }
        let is_new = changed != *self;
        *self = changed;
        Ok(is_new)
    }
}

/// The text of the node.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version {VERSION}")?;
        self.comments.iter().try_for_each(|comment| writeln!(f, "{comment}"))?;
        self.drained.iter().try_for_each(|name| writeln!(f, "drain {}", path::segment(name)))?;
        self.pins.iter().try_for_each(|(shard, name)| writeln!(f, "pin {shard} {}", path::segment(name)))
    }
}

/// A text in quotes, shortened.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidInput { what: "plan node", reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version 1\n# Its disk is to be replaced.\ndrain orders-2\npin 17 eu west\n";

    fn reason(text: &str) -> String {
        Rules::parse(text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn node_is_read_and_written_as_it_is() {
        let rules = Rules::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(rules.to_string(), TEXT);
        assert!(rules.is_drained("orders-2") && !rules.is_drained("orders-0"));
        assert_eq!((rules.pinned(17), rules.pinned(18)), (Some("eu west"), None));
        assert_eq!(rules.names().collect::<Vec<_>>(), ["orders-2", "eu west"]);
        let by_hand = "\r\n # by hand\r\nversion  1\r\n  drain   orders-2 \r\n";
        let rules = Rules::parse(by_hand.as_bytes()).unwrap();
        assert!(rules.is_drained("orders-2"));
        assert_eq!(rules.to_string(), "version 1\n# by hand\ndrain orders-2\n");
        for empty in ["", "\n\n", "# nothing yet\n", "version 1"] {
            assert!(Rules::parse(empty.as_bytes()).unwrap().is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn rubbish_is_refused_with_its_line() {
        for (text, why) in [
            ("drain a", "line 1: \"drain a\" before `version 1`"),
            ("version 2\ndrain a", "line 1: this program knows version 1, and not \"2\""),
            ("version 1\n\ndrian a", "line 3: \"drian a\" is no rule; write `drain NAME`"),
            ("version 1\ndrain", "line 2: \"drain\" is no rule"),
            ("version 1\npin 7", "line 2: \"pin 7\" is no rule"),
            ("version 1\npin x a", "\"x\" is no number of a shard"),
            ("version 1\npin -1 a", "\"-1\" is no number of a shard"),
            ("version 1\npin 7 a\npin 7 b", "there are two rules such as \"pin 7 b\""),
            ("version 1\ndrain a\ndrain a", "two rules"),
            ("{\"version\": 1}", "before `version 1`"),
        ] {
            assert!(reason(text).contains(why), "{text:?}: {}", reason(text));
        }
        assert!(Rules::parse(b"version 1\ndrain \xff").unwrap_err().to_string().contains("no text in UTF-8"));
        let beyond = Rules::parse(b"version 1\npin 255 a\npin 256 a").unwrap();
        assert!(beyond.check(257).is_ok() && Rules::default().check(0).is_ok());
        assert!(beyond.check(256).unwrap_err().to_string().contains("a pin is of shard 256, and there are 256"));
        assert!(reason(&"#".repeat(300_000)).contains("300000 bytes"));
        assert!(reason(&format!("version 1\n{}", "x".repeat(2000))).len() < 300);
    }

    #[test]
    fn rules_are_changed_and_comments_stay() {
        let mut rules = Rules::parse(TEXT.as_bytes()).unwrap();
        assert!(!rules.drain("orders-2").unwrap() && rules.drain("orders-1").unwrap());
        assert!(rules.undrain("orders-2") && !rules.undrain("orders-2"));
        assert!(rules.pin(17, "orders-0").unwrap() && !rules.pin(17, "orders-0").unwrap());
        let after = "version 1\n# Its disk is to be replaced.\ndrain orders-1\npin 17 orders-0\n";
        assert_eq!(rules.to_string(), after);
        assert!(rules.unpin(17) && !rules.unpin(17));
    }

    #[test]
    fn any_name_is_read_back_or_refused() {
        for name in ["a", "eu west", "eu/west", "a\nb", "#a", "%", "100 %", "🔒", "1", ".", "a b  c"] {
            let mut rules = Rules::default();
            rules.drain(name).unwrap();
            rules.pin(7, name).unwrap();
            let again = Rules::parse(rules.to_string().as_bytes()).unwrap();
            assert_eq!(again, rules, "{name:?}");
            assert!(again.is_drained(name) && again.pinned(7) == Some(name), "{name:?}");
        }
        for name in ["", " ", " a", "a "] {
            assert!(Rules::default().drain(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn rule_that_makes_the_node_too_large_leaves_the_rules_as_they_are() {
        let text = format!("version 1\npin 17 a\n#{}\n", "x".repeat(MOST_BYTES - 40));
        let mut rules = Rules::parse(text.as_bytes()).unwrap();
        let (before, long) = (rules.clone(), "b".repeat(40));
        for refused in [rules.pin(17, &long), rules.pin(18, &long), rules.drain(&long)] {
            assert!(refused.unwrap_err().to_string().contains("262144 are the most"));
        }
        assert!(rules == before, "{}", &rules.to_string()[..80]);
        assert!(rules.pin(17, "b").unwrap() && !rules.pin(17, "b").unwrap());
    }

    #[test]
    fn random_text_is_read_or_refused() {
        let mut random = fastrand::Rng::with_seed(46);
        let words = ["version", "1", "drain", "pin", " ", "\n", "#", "a", "7", "%", "\t", "é"];
        for _ in 0..20_000 {
            let text: String = (0..random.usize(..20)).map(|_| words[random.usize(..words.len())]).collect();
            if let Ok(rules) = Rules::parse(text.as_bytes()) {
                assert_eq!(Rules::parse(rules.to_string().as_bytes()).unwrap(), rules, "{text:?}");
            }
        }
    }
}
