//! What ZooKeeper's own recipe ignores, and where it needs help.

use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{HoldState, Mutex, RwLock};

use crate::peer::{Language, Peer};
use crate::support::{connect, fresh_path, hosts, soon, wait_nodes};
use crate::watched::{Outcome, Watched};

/// It sorts a name without a number after its last `-` behind its own. We wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_does_not_see_writers() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let lock = RwLock::new(&session, &path).expect("a lock");
    let peer = Peer::start(Language::Java, &hosts).await;
    let mut theirs = peer.lock("recipe", &path).await;
    theirs.acquire().await;
    assert!(lock.try_read().await.expect("answered").is_none(), "we see theirs");
    let writer = lock.enqueue_write().await.expect("enqueued");
    theirs.release().await;
    let writer = soon("our turn", writer).await.expect("held");
    theirs.acquire().await;
    assert_eq!(writer.state(), HoldState::Held, "two holders");
    theirs.release().await;
    writer.release().await.expect("released");
    peer.close().await;
    session.close().await.expect("closed");
}

/// It sees kazoo's renamed lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_does_not_see_kazoos_own_names() {
    let kazoo = Peer::start(Language::Python, &hosts()).await;
    let recipes = Watched::start(Language::Java).await;
    for (kind, outcome) in [("lock", Outcome::Holds), ("renamed", Outcome::Waits)] {
        let path = fresh_path();
        let mut kazoos = kazoo.lock(kind, &path).await;
        kazoos.acquire().await;
        let mut theirs = recipes.peer.lock("recipe", &path).await;
        assert_eq!(recipes.acquire(&mut theirs).await, outcome, "{kind}");
        if outcome == Outcome::Waits {
            assert!(theirs.is_silent(), "{kind}");
            kazoos.release().await;
            theirs.held().await;
        } else {
            kazoos.release().await;
        }
        theirs.release().await;
    }
    recipes.peer.close().await;
    kazoo.close().await;
}

/// The holder goes between its listing and its watch, so it watches a node that no longer exists. Called once, it would
/// wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_called_once_misses_a_holder_that_goes_meanwhile() {
    let path = fresh_path();
    let session = connect(&hosts()).await;
    let recipes = Watched::start(Language::Java).await;
    let mut theirs = recipes.peer.lock("recipe", &path).await;
    let guard = Mutex::new(&session, &path).expect("a mutex").lock().await.expect("held");
    recipes.proxy.reset();
    let watches = |request: &Request| request.watch;
    recipes.proxy.on_request(move |request| if watches(request) { Verdict::Hold } else { Verdict::Forward });
    theirs.send("ask").await;
    soon("their watch", recipes.proxy.wait_for(watches)).await;
    guard.release().await.expect("released");
    recipes.proxy.on_request(|_| Verdict::Forward);
    recipes.proxy.heal();
    assert_eq!(theirs.answer().await.rest, "false", "it does not hold");
    let watch = recipes.proxy.wait_for(watches).await;
    assert_ne!(watch.answer.expect("an answer").err, 0, "the watched node is gone");
    let nodes = session.client().expect("a client").list_children(&path).await.expect("listed");
    assert!(nodes.len() == 1 && nodes[0].starts_with("x-"), "it is alone in the queue: {nodes:?}");
    assert_eq!(theirs.done("ask").await, "true", "called again, it holds");
    theirs.release().await;
    recipes.peer.close().await;
    session.close().await.expect("closed");
}

/// The watch of an abandoned acquire fires later, and the lock queues again unless it is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_is_not_closed_locks_again_by_itself() {
    let path = fresh_path();
    let session = connect(&hosts()).await;
    let recipes = Peer::start(Language::Java, &hosts()).await;
    let mut theirs = recipes.lock("recipe", &path).await;
    let guard = Mutex::new(&session, &path).expect("a mutex").lock().await.expect("held");
    let admin = Client::connect(&hosts()).await.expect("connects");
    assert_eq!(theirs.done("ask").await, "false");
    theirs.done("unlock").await;
    let dirs = std::slice::from_ref(&path);
    wait_nodes(&admin, dirs, 1).await;
    guard.release().await.expect("released");
    let nodes = wait_nodes(&admin, dirs, 1).await;
    assert!(nodes[0].starts_with(&format!("{path}/x-")), "it queued by itself: {nodes:?}");
    theirs.release().await;
    wait_nodes(&admin, dirs, 0).await;
    recipes.close().await;
    session.close().await.expect("closed");
}
