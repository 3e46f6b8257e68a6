//! What each request is answered, with simulated servers.

use std::path::Path;
use std::sync::{Arc, mpsc};

use axum::body::{Body, to_bytes};
use tower::ServiceExt;
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::{Election, FencingToken, Mutex, Options, Session};

use crate::http::{App, Fleet, routes};
use crate::leader;
use crate::store::Store;

const SHIP: &str = "POST /orders/7/ship";

async fn connect(app: &App) -> LocalSession {
    let session = Session::local().await.unwrap();
    assert!(app.fleet.set(Fleet::new(named(&session, "first")).unwrap()).is_ok());
    session
}

fn named(session: &Session, identifier: &str) -> Session {
    session.clone().with_lock_options(Options::new().with_identifier(identifier))
}

/// A service with the order 7.
async fn ready() -> (Arc<App>, LocalSession) {
    let app = App::new(Store::open(Path::new(":memory:")).unwrap());
    let session = connect(&app).await;
    assert_eq!(status(&app, "PUT /orders/7").await, 200);
    (app, session)
}

async fn ask(app: &Arc<App>, request: &str) -> (u16, String) {
    let (method, page) = request.split_once(' ').unwrap();
    let request = axum::http::Request::builder().method(method).uri(page).body(Body::empty()).unwrap();
    let (head, body) = routes(app.clone()).oneshot(request).await.unwrap().into_parts();
    (head.status.as_u16(), String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().into()).unwrap())
}

async fn status(app: &Arc<App>, request: &str) -> u16 {
    ask(app, request).await.0
}

#[tokio::test]
async fn is_ready_from_the_first_session_until_it_drains() {
    let app = App::new(Store::open(Path::new(":memory:")).unwrap());
    assert_eq!(status(&app, "GET /live").await, 200);
    assert_eq!(status(&app, "GET /ready").await, 503);
    assert_eq!(status(&app, SHIP).await, 503);
    let _session = connect(&app).await;
    assert_eq!(status(&app, "GET /ready").await, 200);
    app.draining.cancel();
    assert_eq!(status(&app, "GET /ready").await, 503);
}

#[tokio::test]
async fn order_is_shipped_once() {
    let (app, _session) = ready().await;
    assert_eq!(ask(&app, SHIP).await, (200, "shipped\n".to_owned()));
    assert_eq!(ask(&app, SHIP).await, (200, "shipped before\n".to_owned()));
}

#[tokio::test]
async fn ids_are_checked() {
    let (app, _session) = ready().await;
    assert_eq!(status(&app, "POST /orders/8/ship").await, 404);
    assert_eq!(status(&app, "POST /orders/7%00/ship").await, 422);
    assert_eq!(status(&app, &format!("POST /orders/{}/ship", "7".repeat(65))).await, 422);
}

#[tokio::test]
async fn contended_and_unavailable_locks_differ() {
    let (app, session) = ready().await;
    let elsewhere = session.another().await.unwrap();
    let other = Mutex::new(&elsewhere, "/orders/7").unwrap().lock().await.unwrap();
    assert_eq!(status(&app, SHIP).await, 423);
    other.release().await.unwrap();
    session.disconnect();
    assert_eq!(status(&app, SHIP).await, 503);
    session.reconnect();
    assert_eq!(status(&app, SHIP).await, 200);
}

#[tokio::test]
async fn lock_that_is_lost_under_the_work_is_a_conflict() {
    let (app, session) = ready().await;
    // Keeps the store busy until the lock is lost.
    let (go_on, waits) = mpsc::channel::<()>();
    let store = app.store.clone();
    tokio::spawn(async move { store.transaction(move |_| Ok(_ = waits.recv())).await });
    let lose = async {
        let lock = Mutex::new(&session, "/orders/7").unwrap();
        while lock.contenders().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        session.lose("/orders/7").await.unwrap();
    };
    assert_eq!(tokio::join!(status(&app, SHIP), lose).0, 409);
    drop(go_on);
    assert_eq!(ask(&app, SHIP).await, (200, "shipped\n".to_owned()));
}

#[tokio::test]
async fn token_that_the_store_refuses_is_a_conflict() {
    let (app, _session) = ready().await;
    app.store.is_shipped("7".to_owned(), FencingToken::try_from(i64::MAX).unwrap()).await.unwrap();
    assert_eq!(status(&app, SHIP).await, 409);
}

#[tokio::test]
async fn leader_is_known_and_probed() {
    let (app, session) = ready().await;
    assert_eq!(ask(&app, "GET /leader").await.1, "null");
    let script = async {
        while status(&app, "GET /leads").await == 503 {
            tokio::task::yield_now().await;
        }
        assert!(ask(&app, "GET /leader").await.1.contains("first"));
        let elsewhere = session.another().await.unwrap();
        let other = Election::new(&named(&elsewhere, "second"), "/leader").unwrap();
        let lose = async {
            while other.contenders().await.unwrap().len() < 2 {
                tokio::task::yield_now().await;
            }
            session.lose("/leader").await.unwrap();
        };
        let _leads = tokio::join!(other.campaign(), lose).0.unwrap();
        assert_eq!(status(&app, "GET /leads").await, 503);
        assert!(ask(&app, "GET /leader").await.1.contains("second"));
        app.draining.cancel();
    };
    tokio::join!(leader::lead(&app.fleet.get().unwrap().election, &app), script).0.unwrap();
}
