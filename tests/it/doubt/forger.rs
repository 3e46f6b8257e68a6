//! A proxy that puts other answers in the place of those to transactions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const MULTI: i32 = 14;
const SESSION_EXPIRED: i32 = -112;

/// Forwards to one server, until it is told to forge.
pub(super) struct Forger {
    port: u16,
    forges: Arc<AtomicBool>,
}

impl Forger {
    pub(super) async fn start(upstream: &str) -> Self {
        let upstream = upstream.split(',').next().expect("a host").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let forges = Arc::<AtomicBool>::default();
        let flag = forges.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&upstream).await.expect("the server is there");
                let multis = Arc::<Mutex<HashSet<i32>>>::default();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(requests(from_client, to_server, multis.clone()));
                tokio::spawn(answers(from_server, to_client, multis, flag.clone()));
            }
        });
        Self { port, forges }
    }

    pub(super) fn hosts(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on says that each part of a transaction was refused because the session has expired.
    pub(super) fn expire_every_part(&self) {
        self.forges.store(true, Ordering::Release);
    }
}

async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut frame = vec![0; from.read_u32().await.ok()? as usize];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn send(to: &mut OwnedWriteHalf, frame: &[u8]) -> Option<()> {
    to.write_all(&[&(frame.len() as u32).to_be_bytes(), frame].concat()).await.ok()
}

fn number(frame: &[u8], at: usize) -> i32 {
    let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_be_bytes)
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    multis: Arc<Mutex<HashSet<i32>>>,
) -> Option<()> {
    // The first frame opens the session.
    let opening = frame(&mut from).await?;
    send(&mut to, &opening).await?;
    loop {
        let request = frame(&mut from).await?;
        if number(&request, 4) == MULTI {
            multis.lock().expect("no panic").insert(number(&request, 0));
        }
        send(&mut to, &request).await?;
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    multis: Arc<Mutex<HashSet<i32>>>,
    forges: Arc<AtomicBool>,
) -> Option<()> {
    let opened = frame(&mut from).await?;
    send(&mut to, &opened).await?;
    loop {
        let mut answer = frame(&mut from).await?;
        let is_multi = multis.lock().expect("no panic").remove(&number(&answer, 0));
        if is_multi && forges.load(Ordering::Acquire) {
            // The numbers of the request and of the transaction stay. No error; a part that is one; the end.
            answer.truncate(12);
            let (error, end) = (SESSION_EXPIRED.to_be_bytes(), (-1_i32).to_be_bytes());
            answer.extend([&[0; 4][..], &end, &[0], &error, &error, &end, &[1], &end].concat());
        }
        send(&mut to, &answer).await?;
    }
}
