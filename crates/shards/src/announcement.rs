//! Owns [`Announcement`]: the data of a member's node.

use std::fmt;

use crate::builder::MOST;

/// What the data of a member ends with that leaves.
const LEAVING: &str = " leaving";

/// What a member announces to the others, in the data of its node `<path>/members/<name>`. For tools that show a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    count: u32,
    is_leaving: bool,
}

impl Announcement {
    pub(crate) fn new(count: u32, is_leaving: bool) -> Self {
        Self { count, is_leaving }
    }

    /// Reads the data of a member. `None` if it is no member of a group that divides shards: they have 1 to 8,192.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let data = std::str::from_utf8(data).ok()?;
        let count = data.strip_suffix(LEAVING);
        let shards = count.unwrap_or(data).parse().ok().filter(|shards| (1..=MOST).contains(shards))?;
        Some(Self { count: shards, is_leaving: count.is_some() })
    }

    /// How many shards the member divides with the others.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether it [leaves](crate::Shards::leave), so the others plan without it.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }
}

/// The data.
impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, if self.is_leaving { LEAVING } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_is_read_back_and_other_data_is_none() {
        for announcement in [Announcement::new(256, false), Announcement::new(1, true)] {
            assert_eq!(Announcement::parse(announcement.to_string().as_bytes()), Some(announcement));
        }
        assert_eq!(Announcement::new(256, true).to_string(), "256 leaving");
        for data in [
            &b""[..],
            b"x",
            b"256 going",
            b" leaving",
            b"\xff",
            b"-1",
            b"0",
            b"8193",
            b"1732320000",
            b"4294967295",
        ] {
            assert_eq!(Announcement::parse(data), None, "{data:?}");
        }
    }
}
