//! Owns the routes, and [`App`], what they share.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{Stream, unfold};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::sync::watch;
use zookeeper_recipes::{Error, Mutex};

use crate::queue::Queue;
use crate::work::{self, Ended};

/// The header of all requests that change something.
const FROM_HERE: &str = "x-status-page";

/// Nothing is loaded from elsewhere, and no other site can show the page in a frame and have its button clicked.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) struct App {
    pub(crate) lock: Mutex,
    /// Ends with the process.
    pub(crate) queue: watch::Receiver<Queue>,
    pub(crate) metrics: PrometheusHandle,
}

/// A status, and what to show with it.
type Answer<T> = Result<T, (StatusCode, String)>;

pub(crate) fn routes(app: Arc<App>) -> Router {
    let changes = Router::new()
        .route("/contenders/{name}/{token}/revoke", post(revoke))
        .route("/work/{millis}", post(work))
        .route_layer(from_fn(only_from_here));
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .merge(changes)
        .with_state(app)
}

/// Refuses what another site can have a browser send: a form has no header of its own, and a script may not add one without
/// our leave, which nobody gets.
async fn only_from_here(request: Request, next: Next) -> Answer<Response> {
    if !request.headers().contains_key(FROM_HERE) {
        return Err((StatusCode::FORBIDDEN, format!("the header {FROM_HERE} is missing\n")));
    }
    Ok(next.run(request).await)
}

async fn page() -> impl IntoResponse {
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY), (header::CACHE_CONTROL, "no-store")];
    (headers, Html(include_str!("page.html")))
}

/// The queue of now, and after each change.
async fn events(State(app): State<Arc<App>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut queue = app.queue.clone();
    queue.mark_changed();
    let path = app.lock.path().to_owned();
    let states = unfold((queue, path), async |(mut queue, path)| {
        queue.changed().await.ok()?;
        let mut state = queue.borrow_and_update().to_json();
        state["path"] = path.as_str().into();
        Some((Ok(Event::default().data(state.to_string())), (queue, path)))
    });
    Sse::new(states).keep_alive(KeepAlive::default())
}

/// Asks a contender to release, if it is still there.
async fn revoke(State(app): State<Arc<App>>, Path((name, token)): Path<(String, String)>) -> Answer<&'static str> {
    let contender = app.queue.borrow().find(&name, &token);
    let was_there = match contender {
        Some(contender) => app.lock.revoke(&contender).await.map_err(failed)?,
        None => false,
    };
    if !was_there {
        return Err((StatusCode::NOT_FOUND, "it has left the queue\n".to_owned()));
    }
    tracing::info!(name, token, "asked to release");
    Ok("asked to release\n")
}

/// A handler that works under the lock.
async fn work(State(app): State<Arc<App>>, Path(millis): Path<u64>) -> Answer<(StatusCode, Json<Value>)> {
    let worked = work::handle(&app.lock, Duration::from_millis(millis)).await.map_err(failed)?;
    let Some((token, ended)) = worked else {
        return Err((StatusCode::LOCKED, "others have the lock\n".to_owned()));
    };
    let (status, ended) = match ended {
        Ended::Done => (StatusCode::OK, "done".to_owned()),
        Ended::Revoked => (StatusCode::OK, "revoked".to_owned()),
        Ended::Lost(loss) => (StatusCode::CONFLICT, loss.to_string()),
    };
    Ok((status, Json(json!({ "token": token.to_string(), "ended": ended }))))
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render())
}

fn failed(error: Error) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
}
