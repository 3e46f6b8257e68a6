//! What of kazoo does not go together with ours, or with others, and what does.

use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{HoldState, Mutex, RwLock, Semaphore};

use crate::peer::{Language, Peer};
use crate::support::{connect, fresh_path, hosts, soon, wait_nodes};

/// Without `extra_lock_patterns` we wait for kazoo, but kazoo does not wait for us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_lock_does_not_see_ours() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let mutex = Mutex::new(&session, &path).expect("a mutex");
    let peer = Peer::start(Language::Python, &hosts).await;
    let mut theirs = peer.lock("plain", &path).await;

    theirs.acquire().await;
    assert!(mutex.try_lock().await.expect("answered").is_none(), "we see theirs");
    let waiting = mutex.enqueue().await.expect("in line");
    assert_eq!(waiting.position(), 1);
    theirs.release().await;
    let ours = soon("our turn", waiting).await.expect("held");

    theirs.acquire().await;
    assert_eq!(ours.state(), HoldState::Held, "two holders");
    theirs.release().await;
    ours.release().await.expect("released");
    peer.close().await;
    session.close().await.expect("closed");
}

/// Not even where there are no Rust services: kazoo does not see a node of Curator, unless it is told or renamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_told_or_renamed_it_waits_for_curator() {
    let (hosts, path) = (hosts(), fresh_path());
    let admin = Client::connect(&hosts).await.expect("connects");
    let open = Acls::anyone_all();
    admin.mkdir(&path, &CreateMode::Persistent.with_acls(open)).await.expect("made");
    let prefix = format!("{path}/_c_{}-lock-", uuid::Uuid::new_v4());
    let curators = CreateMode::EphemeralSequential.with_acls(open);
    let (_, number) = admin.create(&prefix, b"", &curators).await.expect("created");
    let peer = Peer::start(Language::Python, &hosts).await;
    for (kind, answer) in [("plain", "held"), ("lock", "timeout"), ("renamed", "timeout")] {
        let mut theirs = peer.lock(kind, &path).await;
        theirs.send("acquire 300").await;
        assert_eq!(theirs.answer().await.word, answer, "{kind}");
        if answer == "held" {
            theirs.release().await;
        }
    }
    admin.delete(&format!("{prefix}{number}"), None).await.expect("deleted");
    peer.close().await;
}

/// Curator locks what kazoo holds, told or not, but for a renamed one; and so it does with ZooKeeper's own recipe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_waits_for_a_renamed_one_only() {
    let holders = [
        (Language::Python, "plain", "held"),
        (Language::Python, "lock", "held"),
        (Language::Python, "renamed", "timeout"),
        (Language::Recipes, "lock", "held"),
    ];
    let curator = Peer::start(Language::Java, &hosts()).await;
    for (language, kind, answer) in holders {
        let path = fresh_path();
        let holder = Peer::start(language, &hosts()).await;
        let mut held = holder.lock(kind, &path).await;
        held.acquire().await;
        let mut curators = curator.lock("mutex", &path).await;
        curators.send("acquire 300").await;
        assert_eq!(curators.answer().await.word, answer, "{language:?} {kind}");
        if answer == "held" {
            curators.release().await;
        }
        held.release().await;
        holder.close().await;
    }
    curator.close().await;
}

/// Renamed, it waits for Curator and for ZooKeeper's own recipe; as it comes, for neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_one_waits_for_curator_and_zookeepers_own() {
    let kazoo = Peer::start(Language::Python, &hosts()).await;
    for (language, theirs) in [(Language::Java, "mutex"), (Language::Recipes, "lock")] {
        let (path, holder) = (fresh_path(), Peer::start(language, &hosts()).await);
        let mut held = holder.lock(theirs, &path).await;
        held.acquire().await;
        for (kind, answer) in [("renamed", "timeout"), ("plain", "held")] {
            let mut lock = kazoo.lock(kind, &path).await;
            lock.send("acquire 300").await;
            assert_eq!(lock.answer().await.word, answer, "{kind} beside {language:?}");
            if answer == "held" {
                lock.release().await;
            }
        }
        held.release().await;
        holder.close().await;
    }
    kazoo.close().await;
}

/// Readers of both are in together, and a writer of either waits for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_read_together() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let admin = Client::connect(&hosts).await.expect("connects");
    let dirs = std::slice::from_ref(&path);
    let lock = RwLock::new(&session, &path).expect("a lock");
    let peer = Peer::start(Language::Python, &hosts).await;
    let (mut their_reader, mut their_writer) = (peer.lock("read", &path).await, peer.lock("write", &path).await);
    for ours_is_first in [false, true] {
        let our_reader = if ours_is_first {
            let guard = lock.read().await.expect("held");
            their_reader.acquire().await;
            guard
        } else {
            their_reader.acquire().await;
            soon("our turn", lock.read()).await.expect("held")
        };
        their_writer.send("acquire").await;
        wait_nodes(&admin, dirs, 3).await;
        let our_writer = lock.enqueue_write().await.expect("in line");
        assert_eq!(our_writer.position(), 3);
        our_reader.release().await.expect("released");
        assert!(their_writer.is_silent());
        their_reader.release().await;
        their_writer.held().await;
        their_writer.release().await;
        soon("our turn", our_writer).await.expect("held").release().await.expect("released");
    }
    peer.close().await;
    session.close().await.expect("closed");
}

/// A semaphore of kazoo keeps its leases where ours keeps two folders: neither counts what the other has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_do_not_go_together() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let peer = Peer::start(Language::Python, &hosts).await;
    let mut theirs = peer.lock("semaphore", &format!("{path} 1")).await;
    theirs.acquire().await;
    let semaphore = Semaphore::new(&session, &path, 1).expect("a semaphore");
    let ours = soon("a permit", semaphore.acquire()).await.expect("held");
    assert_eq!(ours.state(), HoldState::Held, "two permits of one");
    ours.release().await.expect("released");
    theirs.release().await;
    // Nobody has a permit now, but they count our two folders.
    theirs.send("acquire 300").await;
    assert_eq!(theirs.answer().await.word, "timeout");
    peer.close().await;
    session.close().await.expect("closed");
}
