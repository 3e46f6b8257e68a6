//! What ZooKeeper's own recipe takes no notice of.

use zookeeper_recipes::{HoldState, RwLock};

use crate::peer::{Language, Peer};
use crate::support::{connect, fresh_path, hosts, soon};

/// It puts a name that has no number after its last `-` behind its own. We wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_does_not_see_writers() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let lock = RwLock::new(&session, &path).expect("a lock");
    let peer = Peer::start(Language::Recipes, &hosts).await;
    let mut theirs = peer.lock("lock", &path).await;
    theirs.acquire().await;
    assert!(lock.try_read().await.expect("answered").is_none(), "we see theirs");
    let writer = lock.enqueue_write().await.expect("in line");
    theirs.release().await;
    let writer = soon("our turn", writer).await.expect("held");
    theirs.acquire().await;
    assert_eq!(writer.state(), HoldState::Held, "two holders");
    theirs.release().await;
    writer.release().await.expect("released");
    peer.close().await;
    session.close().await.expect("closed");
}

/// Renamed, kazoo's is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_does_not_see_kazoos_own_names() {
    let hosts = hosts();
    let kazoo = Peer::start(Language::Python, &hosts).await;
    let peer = Peer::start(Language::Recipes, &hosts).await;
    for (kind, answer) in [("lock", "held"), ("renamed", "timeout")] {
        let path = fresh_path();
        let mut kazoos = kazoo.lock(kind, &path).await;
        kazoos.acquire().await;
        let mut theirs = peer.lock("lock", &path).await;
        theirs.send("acquire 500").await;
        assert_eq!(theirs.answer().await.word, answer, "{kind}");
        if answer == "held" {
            theirs.release().await;
        }
        kazoos.release().await;
    }
    peer.close().await;
    kazoo.close().await;
}
