//! A service from its start to SIGTERM; see README.md.

mod config;
mod failure;
mod http;
mod leader;
mod ship;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Options, Session};

use crate::config::Config;
use crate::http::{App, Fleet};
use crate::store::Store;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().init();
    let config = Config::parse();
    // Before all that SIGTERM would kill otherwise.
    let mut terminate = signal(SignalKind::terminate())?;
    let app = App::new(Store::open(&config.database)?);
    let draining = app.draining.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        draining.cancel();
    });

    if config.advertise.is_none() && config.listen.ip().is_unspecified() {
        return Err("others cannot reach the leader at an address like 0.0.0.0; give --advertise, too".into());
    }
    let listener = TcpListener::bind(config.listen).await?;
    let address = listener.local_addr()?.to_string();
    tracing::info!(address, "listening");
    let identifier = config.advertise.clone().unwrap_or(address);
    // HTTP is up before ZooKeeper is. The first error ends both.
    let (session, ()) = tokio::try_join!(coordinate(&config, identifier, &app), serve(&config, listener, &app))?;
    // Last: requests in flight need their locks. The exit code does not depend on it: a session that cannot be closed
    // now ends by itself.
    if let Some(session) = session
        && let Err(error) = session.close().await
    {
        tracing::warn!(%error, "locks may stay until the session expires");
    }
    Ok(())
}

/// Serves until SIGTERM and some time after: first others learn that we stop, then we do.
async fn serve(config: &Config, listener: TcpListener, app: &Arc<App>) -> Result<()> {
    let stop = async |draining: CancellationToken, rest: Duration| {
        draining.cancelled().await;
        sleep(rest).await;
    };
    let server = axum::serve(listener, http::routes(app.clone()))
        .with_graceful_shutdown(stop(app.draining.clone(), config.notice));
    tokio::select! {
        served = server.into_future() => served?,
        () = stop(app.draining.clone(), config.notice + config.drain) => tracing::warn!("requests are cut off"),
    }
    Ok(())
}

/// Connects, and leads whenever elected. Returns the session once it leads no more.
async fn coordinate(config: &Config, identifier: String, app: &Arc<App>) -> Result<Option<Session>> {
    let Some(session) = app.draining.run_until_cancelled(connect(config)).await.transpose()? else {
        return Ok(None);
    };
    // Orders come and go, and so do the paths of their locks.
    let session = session.with_lock_options(Options::new().with_identifier(identifier).with_path_removal(true));
    let fleet = Fleet::new(Arc::new(session.clone()))?;
    let fleet = app.fleet.get_or_init(|| fleet);
    tracing::info!("ready");
    leader::lead(&*fleet.election, app).await?;
    Ok(Some(session))
}

/// Connects as soon as a server is there.
async fn connect(config: &Config) -> Result<Session, zookeeper_recipes::Error> {
    let mut pause = Duration::from_millis(250);
    loop {
        let connector = Client::connector().with_session_timeout(config.session_timeout);
        match Session::connect_with(connector, &config.hosts).await {
            // It has the reason of each host.
            Err(error) if error.is_transient() => tracing::warn!(%error, retry_in = ?pause, "cannot connect"),
            // Connected; or a mistake that no retry fixes.
            connected => return connected,
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
