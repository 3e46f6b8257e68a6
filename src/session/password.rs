//! Owns the way to the password of a session. The client has no method that returns it and none that takes one: it shows the
//! password to servers alone, and learns it from servers alone.
//!
//! So this process plays a server to its own client for a moment, on a port of 127.0.0.1. The client's connect request
//! carries the password of its session. After the answer the client has the session that the answer names.
//!
//! 1. Only our own client gets an answer. Its request carries a random session timeout, which no other program knows.
//! 2. The listener outlives the client's connection. Otherwise the client would connect again to a port that another program
//!    may have by then.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_net::{TcpListener, TcpStream};
use futures_util::future::try_join;
use futures_util::stream::FuturesUnordered;
use futures_util::{AsyncReadExt, AsyncWriteExt, StreamExt};
use tokio::time::timeout;
use uuid::Uuid;
use zookeeper_client::{Client, SessionId, SessionInfo};

/// Far longer than an exchange takes.
const LIMIT: Duration = Duration::from_secs(10);

/// Longer than any frame of a client that asks for nothing.
const LONGEST: usize = 1024;

/// What servers know a session by. It has no `Debug`, which would show the password.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) id: SessionId,
    pub(super) password: Vec<u8>,
}

/// Returns the credentials of a session of the client.
pub(super) async fn credentials_of(session: &SessionInfo) -> io::Result<Credentials> {
    Ok(exchange(Some(session.clone()), None).await?.1)
}

/// Makes credentials a session that the client can attach to.
pub(super) async fn session_of(credentials: Credentials) -> io::Result<SessionInfo> {
    Ok(exchange(None, Some(credentials)).await?.0)
}

/// Connects a client to a stub server in this process. The client resumes `session`, or asks for a new one. The stub assigns the session
/// of `answer`, or confirms what the client asked for. Returns the client's session, and the credentials in its connect request.
async fn exchange(
    session: Option<SessionInfo>,
    answer: Option<Credentials>,
) -> io::Result<(SessionInfo, Credentials)> {
    let exchanged = async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let hosts = format!("tcp://{}", listener.local_addr()?);
        // A minute at least, because the client also waits by it.
        let mark = (Uuid::new_v4().as_u128() as u32 >> 1) | 1 << 16;
        let mut connector = Client::connector().with_session_timeout(Duration::from_millis(mark.into()));
        // A client that is detached does not end the session when it is dropped.
        connector = connector.with_detached().with_fail_eagerly();
        if let Some(session) = session {
            connector = connector.with_session(session);
        }
        let client = async { connector.connect(&hosts).await.map(Client::into_session).map_err(io::Error::other) };
        try_join(client, serve(&listener, mark, answer)).await
    };
    // It is a task of its own, so a caller that is dropped does not cut it off.
    tokio::spawn(async { timeout(LIMIT, exchanged).await? }).await?
}

/// Answers the client whose connect request has this session timeout, until it disconnects. Returns the credentials in that request.
async fn serve(listener: &TcpListener, mark: u32, answer: Option<Credentials>) -> io::Result<Credentials> {
    // Another program may connect, and say nothing.
    let mut requests = FuturesUnordered::new();
    let (mut stream, shown) = loop {
        tokio::select! {
            accepted = listener.accept() => requests.push(request(accepted?.0)),
            Some(request) = requests.next() => match request {
                Some((stream, timeout, shown)) if timeout == mark => break (stream, shown),
                _ => {}
            },
        }
    };
    send(&mut stream, &connect_response(mark, answer.as_ref().unwrap_or(&shown))).await?;
    // The credentials are known, so a connection that breaks is as good as one that ends.
    while let Ok(Some(request)) = frame(&mut stream).await {
        // The client's first request over a connection is a ping, whose answer it waits for.
        let mut header = request.get(..4).ok_or(io::ErrorKind::InvalidData)?.to_vec();
        header.extend([0; 12]);
        if send(&mut stream, &header).await.is_err() {
            break;
        }
    }
    Ok(shown)
}

/// Reads the connect request of a connection: its session timeout and credentials. `None` if it is none.
async fn request(mut stream: TcpStream) -> Option<(TcpStream, u32, Credentials)> {
    let (timeout, shown) = connect_request(&frame(&mut stream).await.ok()??)?;
    Some((stream, timeout, shown))
}

/// Reads a frame; `None` at the end of the stream.
async fn frame(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(Some(frame))
}

async fn send(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    let mut all = (frame.len() as u32).to_be_bytes().to_vec();
    all.extend(frame);
    stream.write_all(&all).await
}

/// The session timeout, and the credentials, of a connect request.
fn connect_request(frame: &[u8]) -> Option<(u32, Credentials)> {
    // The first twelve bytes are the version of the protocol, and the last transaction that the client has seen.
    let (timeout, rest) = frame.get(12..)?.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let password = rest.get(..u32::from_be_bytes(*length) as usize)?.to_vec();
    Some((u32::from_be_bytes(*timeout), Credentials { id: SessionId(i64::from_be_bytes(*id)), password }))
}

fn connect_response(timeout: u32, session: &Credentials) -> Vec<u8> {
    let mut frame = 0_u32.to_be_bytes().to_vec();
    frame.extend(timeout.to_be_bytes());
    frame.extend(session.id.0.to_be_bytes());
    frame.extend((session.password.len() as u32).to_be_bytes());
    frame.extend(&session.password);
    // It is no read-only session.
    frame.push(0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn session_is_made_of_its_credentials_and_shows_them() {
        let given = Credentials { id: SessionId(0x1000_2000_3000_4000), password: (1..17).collect() };
        let session = session_of(given.clone()).await.expect("a session");
        assert_eq!(session.id(), given.id);
        let shown = credentials_of(&session).await.expect("credentials");
        assert_eq!((shown.id, shown.password), (given.id, given.password));
    }

    /// Another program of the machine that connects first.
    #[tokio::test]
    async fn stranger_gets_no_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let secret = || Credentials { id: SessionId(7), password: vec![42; 16] };
        let stranger = async {
            let mut stream = TcpStream::connect(address).await?;
            // After the first field a response is laid out as the rest of a request.
            let mut request = vec![0; 12];
            request
                .extend(&connect_response(99_999, &Credentials { id: SessionId(0), password: vec![0; 16] })[4..]);
            send(&mut stream, &request).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let client = async {
            // A second one says nothing.
            let _silent = TcpStream::connect(address).await?;
            let answer = stranger.await?;
            let connector =
                Client::connector().with_session_timeout(Duration::from_millis(70_000)).with_detached();
            let client = connector.connect(&format!("tcp://{address}")).await.map_err(io::Error::other)?;
            Ok((answer, client.into_session()))
        };
        let ((answer, session), _) =
            try_join(client, serve(&listener, 70_000, Some(secret()))).await.expect("served");
        assert_eq!((answer.len(), session.id()), (0, SessionId(7)));
    }
}
