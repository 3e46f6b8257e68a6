//! The proxy's thread: a small runtime that accepts connections until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time;

use super::connection;
use super::shared::Shared;

/// Runs until `stopped` resolves; `report` says whether it began.
pub(super) fn run(
    listener: std::net::TcpListener,
    upstream: Vec<SocketAddr>,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
    report: oneshot::Sender<io::Result<()>>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report.send(Err(error)).unwrap_or_default(),
    };
    let accepting = async {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return report.send(Err(error)).unwrap_or_default(),
        };
        report.send(Ok(())).unwrap_or_default();
        let upstream: Arc<[SocketAddr]> = upstream.into();
        loop {
            match listener.accept().await {
                Ok((client, _)) => {
                    tokio::spawn(connection::serve(Arc::clone(&shared), client, Arc::clone(&upstream)));
                }
                // Most likely there are too many open files, and a moment later there may not be.
                Err(_) => time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = stopped => (),
            () = accepting => (),
        }
    });
}
