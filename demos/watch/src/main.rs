//! Locks seen from outside; see README.md.

mod config;
mod http;
mod queue;
mod telemetry;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use zookeeper_recipes::{Mutex, Servers, Session, metrics};

use crate::config::Config;
use crate::http::App;
use crate::queue::Queue;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// How long the work of requests may take after SIGTERM. It is asked to end.
const DRAIN: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let config = Config::parse();
    let tracer = config.traces.then(|| telemetry::tracer(opentelemetry_stdout::SpanExporter::default()));
    tracing::subscriber::set_global_default(telemetry::subscriber(tracer.as_ref()))?;
    let recorder = telemetry::recorder()?.install_recorder()?;
    metrics::describe();
    telemetry::label_locks();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let servers = Servers::new(&config.hosts).with_session_timeout(config.session_timeout);
    let session = Session::lazy(servers)?;
    let lock = Mutex::new(&session, &config.path)?;
    let (queue, seen) = watch::channel(Queue::default());
    let app = Arc::new(App { lock: lock.clone(), queue: seen, metrics: recorder.clone() });

    let listener = TcpListener::bind(config.listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, http::routes(app)).with_graceful_shutdown(async {
        stopped.await.ok();
    });
    let server = tokio::spawn(server.into_future());
    tokio::select! {
        () = queue::follow(&lock, config.every, &queue) => {}
        () = telemetry::upkeep(&recorder) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }

    // The server ends when its answers have: the streams of events now, work when its lock is asked back or lost.
    drop((queue, stop));
    if let Err(error) = session.drain(DRAIN).await {
        tracing::warn!(%error, "locks may stay until the session expires");
    }
    server.await??;
    if let Some(tracer) = tracer {
        tracer.shutdown()?;
    }
    Ok(())
}
