//! Forwards the connections of one client to a server, until they are cut.

use std::net::Ipv4Addr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) struct Relay {
    open: watch::Sender<bool>,
    pub(crate) address: String,
    _task: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (open, mut is_open) = watch::channel(true);
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                is_open.wait_for(|open| *open).await.expect("a relay");
                let mut client = listener.accept().await.expect("a client").0;
                let (mut is_open, server) = (is_open.clone(), server.clone());
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.expect("connects");
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = is_open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { open, address, _task: task }
    }

    /// Cuts the connection, and keeps the client waiting for the next.
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn heal(&self) {
        self.open.send_replace(true);
    }
}
