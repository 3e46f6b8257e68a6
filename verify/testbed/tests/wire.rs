//! The wire, which knows no protocol: what it forwards, holds and cuts.

use std::net::SocketAddr;
use std::time::Duration;

use testbed::Wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// Far longer than the machine needs to forward a byte.
const SILENCE: Duration = Duration::from_millis(300);

/// A server that sends back what it reads, after a byte of its own.
async fn server(own: u8) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                write.write_all(&[own]).await?;
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    address
}

async fn next(stream: &mut TcpStream) -> std::io::Result<u8> {
    timeout(PATIENCE, stream.read_u8()).await.expect("in time")
}

#[tokio::test]
async fn held_bytes_arrive_when_it_is_healed() {
    let wire = Wire::to(server(b's').await).await.expect("a wire");
    let mut client = TcpStream::connect(wire.address()).await.expect("connects");
    assert_eq!(next(&mut client).await.expect("a byte"), b's');
    wire.hold();
    client.write_all(b"x").await.expect("written");
    assert!(timeout(SILENCE, client.read_u8()).await.is_err(), "nothing passes");
    wire.heal();
    assert_eq!(next(&mut client).await.expect("a byte"), b'x');
}

#[tokio::test]
async fn cut_closes_connections_and_new_ones_too() {
    let wire = Wire::to(server(b's').await).await.expect("a wire");
    let mut client = TcpStream::connect(wire.address()).await.expect("connects");
    assert_eq!(next(&mut client).await.expect("a byte"), b's');
    wire.cut();
    next(&mut client).await.expect_err("closed");
    // It may be closed before the client has seen that it was accepted.
    if let Ok(mut refused) = TcpStream::connect(wire.address()).await {
        next(&mut refused).await.expect_err("closed");
    }
}

#[tokio::test]
async fn new_connections_reach_the_new_target() {
    let wire = Wire::to(server(b'1').await).await.expect("a wire");
    let mut before = TcpStream::connect(wire.address()).await.expect("connects");
    assert_eq!(next(&mut before).await.expect("a byte"), b'1');
    wire.point_to(server(b'2').await);
    let mut after = TcpStream::connect(wire.address()).await.expect("connects");
    assert_eq!(next(&mut after).await.expect("a byte"), b'2');
}
