//! Owns the routes, and [`App`], what they share.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{Stream, unfold};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use zookeeper_recipes::{Error, Mutex};

use crate::Result;
use crate::locks::{Locks, Status};
use crate::reader::Reader;
use crate::text::plain;
use crate::view;
use crate::work::{self, Ended};

/// The header of all requests that change something.
const FROM_HERE: &str = "x-status-page";

/// Nothing is loaded from elsewhere, and no other site can show the page in a frame and have its button clicked.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An event comes at least this often. It keeps the connection, and shows that the page is up to date.
const EVENTS_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct App {
    pub(crate) locks: Locks,
    pub(crate) reader: Reader,
    /// The lock of `POST /work`.
    pub(crate) work: Option<Mutex>,
    pub(crate) metrics: PrometheusHandle,
    /// Ends the streams of events.
    pub(crate) closing: CancellationToken,
}

/// A status, and what to show with it.
type Answer<T> = Result<T, (StatusCode, String)>;

/// The path of a lock, in the query of a request.
type Of = Query<Vec<(String, String)>>;

pub(crate) fn routes(app: Arc<App>) -> Router {
    let changes = Router::new()
        .route("/contenders/{name}/{token}/revoke", post(revoke))
        .route("/work/{millis}", post(work))
        .route_layer(from_fn(only_from_here));
    Router::new()
        .route("/", get(|| file("text/html", include_str!("page/index.html"))))
        .route("/style.css", get(|| file("text/css", include_str!("page/style.css"))))
        .route("/main.js", get(|| file("text/javascript", include_str!("page/main.js"))))
        .route("/locks.js", get(|| file("text/javascript", include_str!("page/locks.js"))))
        .route("/lock.js", get(|| file("text/javascript", include_str!("page/lock.js"))))
        .route("/table.js", get(|| file("text/javascript", include_str!("page/table.js"))))
        .route("/locks", get(locks))
        .route("/queue", get(queue))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
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

async fn file(kind: &str, text: &'static str) -> impl IntoResponse + use<> {
    let headers = [
        (header::CONTENT_TYPE, format!("{kind}; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY.to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, text)
}

/// The list of locks, at first and after each round.
async fn locks(State(app): State<Arc<App>>) -> impl IntoResponse {
    let rounds = app.locks.rounds();
    events(app, rounds, |app, round, status| view::list(&app.locks, *round, status))
}

/// The queue of a lock, at first and after each change.
async fn queue(State(app): State<Arc<App>>, query: Of) -> Answer<impl IntoResponse> {
    let path = lock_of(query)?;
    let queue = app.locks.open(&path).ok_or_else(|| not_here(&path))?;
    Ok(events(app, queue, move |app, queue, status| view::lock(&app.locks, &path, queue, status)))
}

/// A stream of what there is to show, at first and after each change of `of` or of the status.
fn events<T: Send + Sync + 'static>(
    app: Arc<App>,
    mut of: watch::Receiver<T>,
    show: impl Fn(&App, &T, &Status) -> Result<Value> + Send + Sync + 'static,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    of.mark_changed();
    let status = app.locks.status();
    let state = (app, of, status, show);
    Sse::new(unfold(state, async |(app, mut of, mut status, show)| {
        tokio::select! {
            () = app.closing.cancelled() => return None,
            changed = of.changed() => changed.ok()?,
            changed = status.changed() => changed.ok()?,
            () = sleep(EVENTS_EVERY) => {}
        }
        // Not borrowed meanwhile: the looks would wait for it.
        let now = status.borrow_and_update().clone();
        let shown = show(&app, &of.borrow_and_update(), &now);
        let shown = shown.unwrap_or_else(|error| json!({ "error": error.to_string() }));
        Some((Ok(Event::default().data(shown.to_string())), (app, of, status, show)))
    }))
}

fn lock_of(Query(query): Of) -> Answer<String> {
    let lock = query.into_iter().find(|(name, _)| name == "lock");
    lock.map(|(_, path)| path)
        .ok_or((StatusCode::BAD_REQUEST, "the path of a lock is missing: ?lock=/…\n".to_owned()))
}

fn not_here(path: &str) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, format!("{} is no lock that is shown here\n", plain(path)))
}

/// Asks a contender to release, if it is still there.
async fn revoke(
    State(app): State<Arc<App>>,
    Path((name, token)): Path<(String, String)>,
    query: Of,
) -> Answer<&'static str> {
    let path = lock_of(query)?;
    let contender = app.locks.open(&path).ok_or_else(|| not_here(&path))?.borrow().find(&name, &token);
    let was_there = match contender {
        Some(contender) => app.reader.revoke(&path, &contender).await.map_err(failed)?,
        None => false,
    };
    if !was_there {
        return Err((StatusCode::NOT_FOUND, "it has left the queue\n".to_owned()));
    }
    tracing::info!(path = plain(&path), name = plain(&name), token, "asked to release");
    Ok("asked to release\n")
}

/// A handler that works under the lock.
async fn work(State(app): State<Arc<App>>, Path(millis): Path<u64>) -> Answer<(StatusCode, Json<Value>)> {
    let lock = app.work.as_ref().ok_or((StatusCode::NOT_FOUND, "there is no --work\n".to_owned()))?;
    let worked = work::handle(lock, Duration::from_millis(millis)).await.map_err(failed)?;
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

/// Whether the last look at the locks has succeeded.
async fn health(State(app): State<Arc<App>>) -> Answer<&'static str> {
    let status = app.locks.status().borrow().clone();
    match (status.error, status.looked) {
        (None, Some(_)) => Ok("ok\n"),
        (Some(error), _) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", plain(&error)))),
        (None, None) => Err((StatusCode::SERVICE_UNAVAILABLE, "the locks were not seen yet\n".to_owned())),
    }
}

/// Refused by the servers, or not answered.
fn failed(error: Error) -> (StatusCode, String) {
    let status = match error {
        Error::NoAuth { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{}\n", plain(&error.to_string())))
}
