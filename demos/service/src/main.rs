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
use zookeeper_groups::KeptNode;
use zookeeper_recipes::{Options, Servers, Session, SessionState, path};

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
    tokio::try_join!(coordinate(&config, identifier, &app), serve(&config, listener, &app))?;
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

/// Connects as soon as a server is there, and leads whenever elected, until SIGTERM. Then it resigns, serves some time longer,
/// and drains the session: requests that wait for a lock are answered 503, and those that have one finish.
async fn coordinate(config: &Config, identifier: String, app: &Arc<App>) -> Result<()> {
    // Orders come and go, and so do the paths of their locks.
    let options = Options::new().with_identifier(&identifier).with_path_removal(true);
    let servers = Servers::new(&config.hosts).with_session_timeout(config.session_timeout);
    let session = Session::lazy(servers)?.with_lock_options(options);
    let mut states = session.states();
    let connected = states.wait_for(SessionState::is_connected);
    if app.draining.run_until_cancelled(connected).await.is_none() {
        return Ok(session.close().await?);
    }
    // For others to see who is there.
    let _member =
        KeptNode::keep(&session, &format!("/members/{}", path::segment(&identifier)), identifier.as_bytes())?;
    let fleet = Fleet::new(session.clone())?;
    let fleet = app.fleet.get_or_init(|| fleet);
    tracing::info!("ready");
    leader::lead(&fleet.election, app).await?;
    sleep(config.notice).await;
    match session.drain(config.drain).await {
        Ok(0) => tracing::info!("drained"),
        Ok(cut_off) => tracing::warn!(cut_off, "locks were released under their requests"),
        // The exit code does not depend on it: a session that cannot be closed now ends by itself.
        Err(error) => tracing::warn!(%error, "locks may stay until the session expires"),
    }
    Ok(())
}
