//! Owns [`Announcement`]: the data of a member's node.

use crate::tools::MOST;

/// Ends the first line if the member is leaving.
const LEAVING: &str = " leaving";

/// Separates the first line from the member's own data.
const END: u8 = b'\n';

/// A member's announcement to the others: the data of its node `<path>/members/<name>`. For tools that show a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    count: u32,
    is_leaving: bool,
    data: Vec<u8>,
}

impl Announcement {
    pub(crate) fn new(count: u32, is_leaving: bool, data: &[u8]) -> Self {
        Self { count, is_leaving, data: data.to_owned() }
    }

    /// Parses the data of a member's node. `None` if it is not an announcement with 1 to 8,192 shards.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (head, data) = match data.iter().position(|byte| *byte == END) {
            Some(at) => (&data[..at], &data[at + 1..]),
            None => (data, &[][..]),
        };
        let head = std::str::from_utf8(head).ok()?;
        let count = head.strip_suffix(LEAVING);
        let shards = count.unwrap_or(head).parse().ok().filter(|shards| (1..=MOST).contains(shards))?;
        Some(Self::new(shards, count.is_some(), data))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}{}", self.count, if self.is_leaving { LEAVING } else { "" }).into_bytes();
        if !self.data.is_empty() {
            bytes.push(END);
            bytes.extend(&self.data);
        }
        bytes
    }

    /// The number of shards with which the member was built.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the member is [leaving](crate::Shards::leave), so the others plan without it.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// The [data](crate::shards::ShardsBuilder::data) of the member.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_is_read_back_and_other_data_is_none() {
        for (count, is_leaving, data) in
            [(256, false, &b""[..]), (1, true, b""), (7, false, b"10.0.0.7:80"), (8192, true, b"\xff\n leaving")]
        {
            let announcement = Announcement::new(count, is_leaving, data);
            assert_eq!(Announcement::parse(&announcement.to_bytes()), Some(announcement));
        }
        assert_eq!(Announcement::new(256, true, b"").to_bytes(), b"256 leaving");
        for data in [
            &b""[..],
            b"x",
            b"256 going",
            b"256going\nx",
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
