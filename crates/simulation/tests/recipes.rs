//! That the recipes of the library work on a simulated server, unchanged.

use std::time::Duration;

use zookeeper_recipes::{Mutex, RwLock, Semaphore, Servers, Session};
use zookeeper_simulation::{Config, Server};

const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> Server {
    Server::start().expect("a server")
}

async fn connect(hosts: &str) -> Session {
    let servers = Servers::new(hosts).with_session_timeout(Duration::from_secs(4));
    Session::connect(servers).await.expect("connects")
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

async fn sessions(server: &Server) -> [Session; 2] {
    [connect(&server.address()).await, connect(&server.address()).await]
}

#[tokio::test]
async fn mutex_is_handed_over() {
    let server = start();
    let [first, second] = sessions(&server).await;
    let held = soon(Mutex::new(&first, "/jobs/a").expect("a mutex").lock()).await.expect("acquired");
    let other = Mutex::new(&second, "/jobs/a").expect("a mutex");
    assert!(soon(other.try_lock()).await.expect("an answer").is_none());
    let waiting = tokio::spawn(async move { other.lock().await });
    let token = held.fencing_token();
    soon(held.release()).await.expect("released");
    let next = soon(waiting).await.expect("no panic").expect("acquired");
    assert!(next.fencing_token() > token);
}

#[tokio::test]
async fn semaphore_counts_its_permits() {
    let server = start();
    let [first, second] = sessions(&server).await;
    let [ours, theirs] = [&first, &second].map(|one| Semaphore::new(one, "/pool", 3).expect("a semaphore"));
    let two = soon(ours.acquire_many(2)).await.expect("acquired");
    let _one = soon(theirs.acquire()).await.expect("acquired");
    assert!(soon(theirs.try_acquire()).await.expect("an answer").is_none());
    assert_eq!(soon(ours.available_permits()).await.expect("an answer"), 0);
    soon(two.release()).await.expect("released");
    drop(soon(theirs.acquire_many(2)).await.expect("acquired"));
}

#[tokio::test]
async fn writer_that_downgrades_lets_readers_in() {
    let server = start();
    let [first, second] = sessions(&server).await;
    let writing = soon(RwLock::new(&first, "/book").expect("a lock").write()).await.expect("acquired");
    let other = RwLock::new(&second, "/book").expect("a lock");
    let waiting = tokio::spawn(async move { other.read().await });
    let _reading = soon(writing.downgrade()).await.expect("downgraded");
    drop(soon(waiting).await.expect("no panic").expect("acquired"));
}

#[tokio::test]
async fn holder_whose_session_expires_learns_it_and_the_next_is_granted() {
    let server = start();
    let [first, second] = sessions(&server).await;
    let held = soon(Mutex::new(&first, "/jobs/b").expect("a mutex").lock()).await.expect("acquired");
    let other = Mutex::new(&second, "/jobs/b").expect("a mutex");
    let waiting = tokio::spawn(async move { other.lock().await });
    server.expire(first.id().0);
    soon(held.lost()).await;
    drop(soon(waiting).await.expect("no panic").expect("acquired"));
}

#[tokio::test]
async fn hold_survives_a_disconnect() {
    let server = start();
    let [first, _] = sessions(&server).await;
    let held = soon(Mutex::new(&first, "/jobs/c").expect("a mutex").lock()).await.expect("acquired");
    let id = first.id();
    server.disconnect(id.0);
    soon(held.release()).await.expect("released");
    assert_eq!(first.id(), id);
}

#[tokio::test]
async fn hold_is_lost_while_the_server_answers_nothing() {
    let server = start();
    let [first, _] = sessions(&server).await;
    let held = soon(Mutex::new(&first, "/jobs/d").expect("a mutex").lock()).await.expect("acquired");
    server.pause();
    soon(held.lost()).await;
    server.resume();
}

#[tokio::test]
async fn mutex_is_handed_over_by_a_server_that_lags() {
    let server = Server::start_with(Config::default(), &[0, 0]).expect("servers");
    let hosts: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    let (first, second) = (connect(&hosts[0]).await, connect(&hosts[1]).await);
    let held = soon(Mutex::new(&first, "/jobs/e").expect("a mutex").lock()).await.expect("acquired");
    let other = Mutex::new(&second, "/jobs/e").expect("a mutex");
    let waiting = tokio::spawn(async move { other.lock().await });
    server.lag(1, true);
    soon(held.release()).await.expect("released");
    server.lag(1, false);
    drop(soon(waiting).await.expect("no panic").expect("acquired"));
}
