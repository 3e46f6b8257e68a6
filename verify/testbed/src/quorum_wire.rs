//! The protocol between servers of an ensemble, as far as a link must understand it.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt};

const PING: i32 = 5;
const LONGEST: usize = 64 << 20;
// `QuorumCnxManager.PROTOCOL_VERSION_V1` and `V2`.
const INITIAL_MESSAGE: [i64; 2] = [-65536, -65535];

/// Splits the stream from a learner to its leader into packets, which have no length field:
/// `int type, long zxid, buffer data, vector<Id { string scheme, string id }> authinfo`.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    unread: Vec<u8>,
}

/// One whole packet.
#[derive(Debug)]
pub(crate) struct Packet(pub(crate) Vec<u8>);

impl Packet {
    pub(crate) fn is_ping(&self) -> bool {
        self.0.starts_with(&PING.to_be_bytes())
    }
}

impl Packets {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next packet, once all of it has been pushed.
    pub(crate) fn pop(&mut self) -> io::Result<Option<Packet>> {
        let mut cursor = Cursor { bytes: &self.unread, at: 12 };
        match cursor.skip_rest() {
            Some(Ok(length)) => Ok(Some(Packet(self.unread.drain(..length).collect()))),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }
}

/// Walks over a packet; `None` means that it is incomplete.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Skips from the end of `zxid` to the end of the packet, and returns that position.
    fn skip_rest(&mut self) -> Option<io::Result<usize>> {
        let mut buffers = 1;
        let mut seen_ids = false;
        while buffers > 0 {
            match self.count()? {
                Ok(length) => self.at += length,
                Err(error) => return Some(Err(error)),
            }
            buffers -= 1;
            if buffers == 0 && !seen_ids {
                seen_ids = true;
                match self.count()? {
                    Ok(ids) => buffers = 2 * ids,
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        (self.at <= self.bytes.len()).then_some(Ok(self.at))
    }

    /// A length or count, where -1 means null.
    fn count(&mut self) -> Option<io::Result<usize>> {
        let bytes = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        let number = i32::from_be_bytes(bytes.try_into().expect("four bytes"));
        Some(match usize::try_from(number) {
            Ok(count) if count <= LONGEST => Ok(count),
            _ if number == -1 => Ok(0),
            _ => Err(io::Error::new(ErrorKind::InvalidData, format!("not a quorum packet: length {number}"))),
        })
    }
}

/// Reads a server's introduction on an election connection, and replaces the address for connections back to it: the
/// true address would bypass the links.
pub(crate) async fn read_introduction(from: &mut (impl AsyncRead + Unpin), port: u16) -> io::Result<Vec<u8>> {
    let version = from.read_i64().await?;
    if !INITIAL_MESSAGE.contains(&version) {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("not an election connection: version {version}"),
        ));
    }
    let server = from.read_i64().await?;
    let length = from.read_i32().await?;
    let length = usize::try_from(length).map_err(|_| ErrorKind::InvalidData)?;
    from.take(length as u64).read_to_end(&mut Vec::new()).await?;

    let address = format!("127.0.0.1:{port}");
    let mut message = Vec::new();
    message.extend_from_slice(&version.to_be_bytes());
    message.extend_from_slice(&server.to_be_bytes());
    message.extend_from_slice(&(address.len() as u32).to_be_bytes());
    message.extend_from_slice(address.as_bytes());
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: i32, data: Option<&[u8]>, ids: Option<&[(&str, &str)]>) -> Vec<u8> {
        let mut bytes = kind.to_be_bytes().to_vec();
        bytes.extend(7i64.to_be_bytes());
        let mut buffer = |content: &[u8]| {
            bytes.extend((content.len() as i32).to_be_bytes());
            bytes.extend(content);
        };
        match data {
            Some(data) => buffer(data),
            None => bytes.extend((-1i32).to_be_bytes()),
        }
        match ids {
            None => bytes.extend((-1i32).to_be_bytes()),
            Some(ids) => {
                bytes.extend((ids.len() as i32).to_be_bytes());
                for text in ids.iter().flat_map(|(scheme, id)| [scheme, id]) {
                    bytes.extend((text.len() as i32).to_be_bytes());
                    bytes.extend(text.as_bytes());
                }
            }
        }
        bytes
    }

    #[test]
    fn stream_is_cut_into_packets_wherever_it_is_split() {
        let sent = [
            packet(11, Some(b"0123456789"), None),
            packet(5, Some(b""), None),
            packet(3, None, None),
            packet(1, Some(b"request"), Some(&[("ip", "127.0.0.1"), ("digest", "")])),
            packet(5, Some(b"touched"), Some(&[])),
        ];
        let stream = sent.concat();
        for step in 1..stream.len() {
            let mut packets = Packets::default();
            let mut received = Vec::new();
            for chunk in stream.chunks(step) {
                packets.push(chunk);
                while let Some(packet) = packets.pop().unwrap() {
                    received.push(packet);
                }
            }
            assert!(received.iter().map(|packet| &packet.0).eq(sent.iter()));
            let pings: Vec<bool> = received.iter().map(Packet::is_ping).collect();
            assert_eq!(pings, [false, true, false, false, true]);
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let mut packets = Packets::default();
        packets.push(&[0xf0; 20]);
        assert!(packets.pop().is_err());
    }
}
