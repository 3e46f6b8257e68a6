//! The client goes on reporting `SyncConnected` when it loses a connection right after the handshake.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::sleep;
use zookeeper_client::{Client, SessionState};

use crate::support::{Outcome, Result, TIMEOUT, block_on, connect, soon};

/// The bytes of a `ConnectRequest`.
const OPENING: usize = 49;

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?.to_string();
        let cut = Notify::new();
        let relay = async {
            let (mut client, mut server) = (listener.accept().await?.0, TcpStream::connect(hosts).await?);
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                () = cut.notified() => {}
            }
            drop((client, server));
            let mut client = listener.accept().await?.0;
            answer_once(&mut client, hosts).await?;
            // From here on connections are refused.
            drop((client, listener));
            Result::<()>::Ok(())
        };
        let lost = async {
            let client = connect(&address, TIMEOUT).await?;
            cut.notify_one();
            Result::<Client>::Ok(client)
        };
        let ((), client) = soon(async { tokio::try_join!(relay, lost) }).await??;
        sleep(TIMEOUT / 2).await;
        let state = client.state();
        println!("{:?} after the connection was lost, with no server to connect to: {state}", TIMEOUT / 2);
        let mut states = client.state_watcher();
        let began = tokio::time::Instant::now();
        while soon(states.changed()).await? == SessionState::Disconnected {}
        let after = began.elapsed() + TIMEOUT / 2;
        println!("after {:.1} s: {}", Duration::as_secs_f64(&after), client.state());
        Ok(Outcome::of(state == SessionState::SyncConnected))
    })
}

/// Passes the handshake on, and nothing else.
async fn answer_once(client: &mut TcpStream, hosts: &str) -> Result<()> {
    let mut server = TcpStream::connect(hosts).await?;
    let mut opening = [0; OPENING];
    client.read_exact(&mut opening).await?;
    server.write_all(&opening).await?;
    let length = server.read_u32().await?;
    let mut response = vec![0; usize::try_from(length)?];
    server.read_exact(&mut response).await?;
    client.write_u32(length).await?;
    client.write_all(&response).await?;
    Ok(())
}
