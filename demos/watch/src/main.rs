//! Locks seen from outside; see README.md.

mod config;
mod follow;
mod history;
mod http;
mod locks;
mod pace;
mod queue;
mod reader;
mod telemetry;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod work;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use zookeeper_recipes::{Mutex, Session, metrics, path};

use crate::config::Config;
use crate::history::History;
use crate::http::App;
use crate::locks::Locks;
use crate::reader::Reader;

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

    if config.parent != "/" {
        path::validate(&config.parent)?;
    }
    let connection = zookeeper_recipes::Config::from_env("ZK")?;
    let session = Session::lazy(&connection)?;
    let app = Arc::new(App {
        locks: Locks::new(&config.parent, History::open(config.history.as_deref(), config.keep)?),
        reader: Reader::new(&session, &connection),
        work: config.work.map(|path| Mutex::new(&session, &path)).transpose()?,
        metrics: recorder.clone(),
        closing: CancellationToken::new(),
    });

    let listener = TcpListener::bind(config.listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    let closing = app.closing.clone();
    let server = axum::serve(listener, http::routes(Arc::clone(&app)))
        .with_graceful_shutdown(async move { closing.cancelled().await });
    let server = tokio::spawn(server.into_future());
    tokio::select! {
        () = follow::follow(&app.reader, &app.locks, config.every, config.rate) => {}
        () = telemetry::upkeep(&recorder) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }

    // The server ends when its answers have: the streams of events now, work when its lock is asked back or lost.
    app.closing.cancel();
    if let Err(error) = session.drain(DRAIN).await {
        tracing::warn!(%error, "locks may stay until the session expires");
    }
    server.await??;
    if let Some(tracer) = tracer {
        tracer.shutdown()?;
    }
    Ok(())
}
