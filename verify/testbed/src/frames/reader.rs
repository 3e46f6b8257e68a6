//! Splits a stream of bytes into whole frames.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Frame, MAX_FRAME};

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It begins with the length of a frame.
    Frames,
    /// It begins with four letters, such as `isro`.
    Command,
    /// It ended before its first four bytes.
    Nothing,
}

/// Reads whole frames; the bytes of an incomplete frame stay in the buffer.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that were already returned.
    consumed: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, buffer: Vec::new(), consumed: 0 }
    }

    /// Reads the first four bytes without consuming them. Cancel safe.
    pub(crate) async fn opening(&mut self) -> io::Result<Opening> {
        loop {
            if let Some(head) = self.head() {
                // Read as a length, the letters would exceed one gigabyte.
                let is_command = head.iter().all(u8::is_ascii_alphabetic);
                return Ok(if is_command { Opening::Command } else { Opening::Frames });
            }
            if self.fill().await? == 0 {
                return Ok(Opening::Nothing);
            }
        }
    }

    /// The next whole frame, `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next bytes that arrive, `None` at the end of the stream. Cancel safe.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.buffer.len() == self.consumed {
            self.fill().await?;
        }
        let chunk = self.buffer.split_off(self.consumed);
        self.buffer.clear();
        self.consumed = 0;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.reserve(8 << 10);
        self.stream.read_buf(&mut self.buffer).await
    }

    fn head(&self) -> Option<[u8; 4]> {
        self.buffer[self.consumed..].first_chunk().copied()
    }

    fn take_frame(&mut self) -> io::Result<Option<Frame>> {
        let Some(head) = self.head() else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(head)).ok().filter(|length| *length <= MAX_FRAME);
        let Some(length) = length else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{head:?} is not the length of a frame"),
            ));
        };
        let end = self.consumed + 4 + length;
        let Some(bytes) = self.buffer.get(self.consumed..end) else {
            return Ok(None);
        };
        let frame = Frame { bytes: bytes.to_vec() };
        self.consumed = end;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames_of(mut bytes: &[u8]) -> Vec<Frame> {
        let mut reader = FrameReader::new(&mut bytes);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await.expect("well-formed frames") {
            frames.push(frame);
        }
        frames
    }

    #[tokio::test]
    async fn incomplete_frame_is_kept_back() {
        let (first, second) = (Frame::new(b"one"), Frame::new(b"second"));
        let bytes = [first.wire(), second.wire()].concat();
        assert_eq!(frames_of(&bytes).await, [first.clone(), second]);
        assert_eq!(frames_of(&bytes[..bytes.len() - 1]).await, [first]);
    }

    #[tokio::test]
    async fn frame_may_come_byte_by_byte() {
        let (mut near, far) = tokio::io::duplex(1);
        let frame = Frame::new(&vec![7; 1 << 10]);
        let sent = frame.clone();
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut near, sent.wire()).await });
        assert_eq!(FrameReader::new(far).next().await.expect("a frame"), Some(frame));
    }

    #[tokio::test]
    async fn frames_do_not_depend_on_how_their_bytes_are_split() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let frames: Vec<_> =
                (0..random.usize(0..9)).map(|_| Frame::new(&vec![random.u8(..); random.usize(0..40)])).collect();
            let mut bytes: Vec<u8> = frames.iter().flat_map(Frame::wire).copied().collect();
            // The last one is not whole.
            bytes.extend(&Frame::new(&[0; 40]).wire()[..random.usize(0..44)]);
            let (mut near, far) = tokio::io::duplex(random.usize(1..60));
            tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut near, &bytes).await });
            let (mut reader, mut read) = (FrameReader::new(far), Vec::new());
            while let Some(frame) = reader.next().await.expect("well-formed frames") {
                read.push(frame);
            }
            assert_eq!(read, frames);
        }
    }

    #[tokio::test]
    async fn length_out_of_range_is_an_error() {
        for head in [-1, i32::MAX] {
            let mut bytes: &[u8] = &head.to_be_bytes();
            assert!(FrameReader::new(&mut bytes).next().await.is_err());
        }
    }

    #[tokio::test]
    async fn command_is_recognised_and_not_consumed() {
        let mut bytes: &[u8] = b"isro";
        let mut reader = FrameReader::new(&mut bytes);
        assert_eq!(reader.opening().await.expect("an opening"), Opening::Command);
        assert_eq!(reader.chunk().await.expect("bytes").as_deref(), Some(&b"isro"[..]));
        assert_eq!(reader.chunk().await.expect("the end"), None);
    }
}
