//! Reads and writes the fields of a record, in the format of frames and snapshots: big-endian numbers, and buffers that
//! begin with their length.

use super::Frame;

/// The rest of a record; every read is `None` if the rest is too short.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        Some(self.take(1)?[0] != 0)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A buffer; a length of -1 means no buffer, and reads as an empty one.
    pub(crate) fn buffer(&mut self) -> Option<&'a [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.buffer()?).into_owned())
    }

    pub(crate) fn skip_all(&mut self) {
        self.rest = &[];
    }
}

/// Writes a record field by field.
#[derive(Debug, Default)]
pub(crate) struct RecordWriter {
    body: Vec<u8>,
}

impl RecordWriter {
    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.body.push(value.into());
        self
    }

    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.body.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.body.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn buffer(&mut self, value: &[u8]) -> &mut Self {
        self.int(i32::try_from(value.len()).expect("a buffer is shorter than 2 GiB"));
        self.body.extend_from_slice(value);
        self
    }

    #[cfg(not(virtual_time))]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn into_frame(self) -> Frame {
        Frame::new(&self.body)
    }
}
