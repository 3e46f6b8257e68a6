//! Ends a ZooKeeper session from outside.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time;

use crate::frames::{Frame, FrameReader, FromServer, RecordWriter};

const LIMIT: Duration = Duration::from_secs(300);
/// How long one server may take before the next one is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const CLOSE_SESSION: i32 = -11;
const XID: i32 = 1;

/// Ends the session with this id and password: moves it to a new connection, and closes it there.
///
/// `hosts` is `host:port`, or several separated by commas, with or without a chroot; they are tried
/// in turn. When it returns, the leader has deleted the session's ephemeral nodes, and its owner
/// learns of the expiry as soon as it reconnects. A session that has already ended is not an error,
/// nor is a wrong password, to which servers give the same answer.
///
/// # Errors
///
/// If no server answers within some minutes.
pub async fn expire(hosts: &str, session: (i64, Vec<u8>)) -> io::Result<()> {
    let (id, password) = session;
    let ended = async {
        let servers = hosts.split_once('/').map_or(hosts, |(servers, _chroot)| servers);
        for server in servers.split(',').cycle() {
            // The owner may have taken the session back between our two requests, so only an answer is
            // proof.
            if let Ok(Ok(Outcome::Ended)) = time::timeout(PATIENCE, attempt(server.trim(), id, &password)).await {
                return;
            }
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(LIMIT, ended).await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("session {id:#x} could not be ended at {hosts} in {LIMIT:?}"),
        )
    })
}

enum Outcome {
    Ended,
    Unknown,
}

async fn attempt(server: &str, id: i64, password: &[u8]) -> io::Result<Outcome> {
    let mut stream = TcpStream::connect(server).await?;
    let (reader, mut writer) = stream.split();
    let mut reader = FrameReader::new(reader);

    writer.write_all(connect_request(id, password).wire()).await?;
    let Some(response) = reader.next().await?.and_then(|frame| frame.connect_response()) else {
        return Ok(Outcome::Unknown);
    };
    if response.session == 0 {
        return Ok(Outcome::Ended);
    }

    let mut request = RecordWriter::default();
    request.int(XID).int(CLOSE_SESSION);
    writer.write_all(request.into_frame().wire()).await?;
    while let Some(frame) = reader.next().await? {
        if let Some(FromServer::Answer { xid: XID, err: 0, .. }) = frame.sent_by_server() {
            return Ok(Outcome::Ended);
        }
    }
    Ok(Outcome::Unknown)
}

fn connect_request(id: i64, password: &[u8]) -> Frame {
    let timeout_ms = 10_000;
    let mut record = RecordWriter::default();
    let (protocol_version, last_zxid, read_only) = (0, 0, false);
    record.int(protocol_version).long(last_zxid).int(timeout_ms).long(id).buffer(password).bool(read_only);
    record.into_frame()
}
