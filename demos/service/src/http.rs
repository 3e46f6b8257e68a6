//! Owns the routes, and [`App`], what they share.

use std::sync::{Arc, OnceLock};

use axum::extract::{Path, State};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use zookeeper_recipes::{Election, Error, HoldState, Session};

use crate::failure::Failure;
use crate::ship;
use crate::store::Store;

pub(crate) struct App {
    pub(crate) store: Store,
    /// Empty until ZooKeeper was reached for the first time.
    pub(crate) fleet: OnceLock<Fleet>,
    pub(crate) draining: CancellationToken,
}

/// What ZooKeeper provides.
pub(crate) struct Fleet {
    session: Session,
    /// One value for all: it knows the term that was won through it.
    pub(crate) election: Election,
}

impl Fleet {
    pub(crate) fn new(session: Session) -> Result<Self, Error> {
        Ok(Self { election: Election::new(&session, "/leader")?, session })
    }
}

impl App {
    pub(crate) fn new(store: Store) -> Arc<Self> {
        Arc::new(Self { store, fleet: OnceLock::new(), draining: CancellationToken::new() })
    }

    fn fleet(&self) -> Result<&Fleet, Failure> {
        self.fleet.get().ok_or(Failure::NotNow("not connected to ZooKeeper yet"))
    }
}

pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/live", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .route("/leads", get(leads))
        .route("/leader", get(leader))
        .route("/orders/{id}", put(place))
        .route("/orders/{id}/ship", post(ship_order))
        .with_state(app)
}

/// Not about outages of ZooKeeper, which hit the whole fleet: a balancer without any process to choose would answer no
/// better than our own 503.
async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, Failure> {
    app.fleet()?;
    if app.draining.is_cancelled() { Err(Failure::NotNow("draining")) } else { Ok("ready\n") }
}

/// The term compares clocks whenever it is asked. A flag would still be set when the process goes on after a pause.
async fn leads(State(app): State<Arc<App>>) -> Result<&'static str, Failure> {
    let term = app.fleet()?.election.current_term().filter(|term| term.state() == HoldState::Held);
    term.map(|_| "leads\n").ok_or(Failure::NotNow("does not lead"))
}

/// The token as text: JavaScript loses digits above 2^53.
async fn leader(State(app): State<Arc<App>>) -> Result<Json<Value>, Failure> {
    let leader = app.fleet()?.election.leader().await?;
    let shown = leader.map(|it| json!({ "address": it.identifier_lossy(), "token": it.token().to_string() }));
    Ok(Json(shown.unwrap_or_default()))
}

async fn place(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<&'static str, Failure> {
    app.store.place(checked(id)?).await.map(|()| "placed\n")
}

async fn ship_order(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<&'static str, Failure> {
    let shipped = ship::ship(&app.fleet()?.session, &app.store, &checked(id)?).await?;
    Ok(if shipped { "shipped\n" } else { "shipped before\n" })
}

fn checked(id: String) -> Result<String, Failure> {
    let is_good = |id: &String| (1..=64).contains(&id.chars().count()) && !id.contains(char::is_control);
    Some(id).filter(is_good).ok_or(Failure::BadId)
}
