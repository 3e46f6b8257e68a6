//! Which locks of kazoo work with ours and with other clients', and which do not.

use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{HoldState, Mutex, RwLock, Semaphore};

use crate::pairs::{Ours, mutex, reader, writer};
use crate::peer::{Language, Peer};
use crate::support::{connect, fresh_path, hosts, soon, wait_nodes};
use crate::watched::{Outcome, Watched, proxy, watch};

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
    let waiting = mutex.enqueue().await.expect("enqueued");
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

/// Curator acquires while kazoo or ZooKeeper's own recipe holds. It waits only for kazoo's renamed lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_waits_for_a_renamed_one_only() {
    use Outcome::{Holds, Waits};
    let holders = [
        (Language::Python, "plain", Holds),
        (Language::Python, "lock", Holds),
        (Language::Python, "renamed", Waits),
        (Language::Java, "recipe", Holds),
    ];
    let curator = Watched::start(Language::Java).await;
    for (language, kind, outcome) in holders {
        let holder = Peer::start(language, &hosts()).await;
        acquire_beside(&curator, "mutex", &holder, kind, outcome).await;
        holder.close().await;
    }
    curator.peer.close().await;
}

/// With `extra_lock_patterns`, or renamed, it waits for Curator; by default it does not. Only renamed it waits for
/// ZooKeeper's own recipe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_others_if_configured_or_renamed() {
    use Outcome::{Holds, Waits};
    let kazoo = Watched::start(Language::Python).await;
    for (language, theirs, outcomes) in
        [(Language::Java, "mutex", [Holds, Waits, Waits]), (Language::Java, "recipe", [Holds, Holds, Waits])]
    {
        let holder = Peer::start(language, &hosts()).await;
        for (kind, outcome) in ["plain", "lock", "renamed"].into_iter().zip(outcomes) {
            acquire_beside(&kazoo, kind, &holder, theirs, outcome).await;
        }
        holder.close().await;
    }
    kazoo.peer.close().await;
}

/// kazoo's readers and writers, configured with Curator's names, wait for Curator's. Curator's do not wait for kazoo's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curators_readers_and_writers_do_not_see_kazoos() {
    let (kazoo, curator) = (Watched::start(Language::Python).await, Watched::start(Language::Java).await);
    for (one, other) in [("write", "write"), ("write", "read"), ("read", "write")] {
        acquire_beside(&kazoo, one, &curator.peer, other, Outcome::Waits).await;
        acquire_beside(&curator, one, &kazoo.peer, other, Outcome::Holds).await;
    }
    kazoo.peer.close().await;
    curator.peer.close().await;
}

/// Acquires a lock that another client holds, on a fresh path, and checks the outcome.
async fn acquire_beside(client: &Watched, kind: &str, holder: &Peer, held: &str, outcome: Outcome) {
    let path = fresh_path();
    let mut theirs = holder.lock(held, &path).await;
    theirs.acquire().await;
    let mut lock = client.peer.lock(kind, &path).await;
    assert_eq!(client.acquire(&mut lock).await, outcome, "{kind} beside {held}");
    if outcome == Outcome::Waits {
        assert!(lock.is_silent(), "{kind} beside {held}");
        theirs.release().await;
        lock.held().await;
        lock.release().await;
    } else {
        lock.release().await;
        theirs.release().await;
    }
}

/// Beside our other kind of lock, which is not its counterpart, it needs other names configured. We always wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_our_other_kind_if_configured_with_its_names() {
    use Outcome::{Holds, Waits};
    let proxy = proxy().await;
    let session = connect(&proxy.hosts()).await;
    let kazoo = Watched::start(Language::Python).await;
    let rows: [(&str, Ours, Outcome); 8] = [
        ("lock", reader, Holds),
        ("lock", writer, Holds),
        ("lock-of-read-write", reader, Waits),
        ("lock-of-read-write", writer, Waits),
        ("write", mutex, Holds),
        ("read", mutex, Holds),
        ("write-of-mutex", mutex, Waits),
        ("read-of-mutex", mutex, Waits),
    ];
    for (kind, ours, outcome) in rows {
        let path = fresh_path();
        let mut theirs = kazoo.peer.lock(kind, &path).await;
        theirs.acquire().await;
        proxy.reset();
        let waiting = tokio::spawn(ours(&session, &path));
        watch(&proxy).await;
        assert!(!waiting.is_finished(), "we wait for {kind}");
        theirs.release().await;
        let guard = soon("our turn", waiting).await.expect("no panic");
        assert_eq!(kazoo.acquire(&mut theirs).await, outcome, "{kind}");
        assert_eq!(guard.state(), HoldState::Held, "{kind}");
        if outcome == Waits {
            assert!(theirs.is_silent(), "{kind}");
            guard.release().await.expect("released");
            theirs.held().await;
            theirs.release().await;
        } else {
            theirs.release().await;
            guard.release().await.expect("released");
        }
    }
    kazoo.peer.close().await;
    session.close().await.expect("closed");
}

/// Readers of both hold together, and a writer of either waits for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_read_together() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let admin = Client::connect(&hosts).await.expect("connects");
    let dirs = std::slice::from_ref(&path);
    let lock = RwLock::new(&session, &path).expect("a lock");
    let kazoo = Watched::start(Language::Python).await;
    let peer = &kazoo.peer;
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
        assert_eq!(kazoo.acquire(&mut their_writer).await, Outcome::Waits);
        let our_writer = lock.enqueue_write().await.expect("enqueued");
        assert_eq!(our_writer.position(), 3);
        kazoo.proxy.reset();
        our_reader.release().await.expect("released");
        if !ours_is_first {
            // It waited for the nearest, and waits for the other now.
            watch(&kazoo.proxy).await;
        }
        wait_nodes(&admin, dirs, 3).await;
        assert!(their_writer.is_silent());
        their_reader.release().await;
        their_writer.held().await;
        their_writer.release().await;
        soon("our turn", our_writer).await.expect("held").release().await.expect("released");
    }
    kazoo.peer.close().await;
    session.close().await.expect("closed");
}

/// A semaphore of kazoo keeps its leases where ours has two folders, so neither counts the other's leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_do_not_go_together() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let kazoo = Watched::start(Language::Python).await;
    let mut theirs = kazoo.peer.lock("semaphore", &format!("{path} 1")).await;
    theirs.acquire().await;
    let semaphore = Semaphore::new(&session, &path, 1).expect("a semaphore");
    let ours = soon("a permit", semaphore.acquire()).await.expect("held");
    assert_eq!(ours.state(), HoldState::Held, "two permits of one");
    ours.release().await.expect("released");
    theirs.release().await;
    // Nobody has a permit now, but they count our two folders.
    assert_eq!(kazoo.acquire(&mut theirs).await, Outcome::Waits);
    assert!(theirs.is_silent());
    theirs.send("cancel").await;
    assert_eq!(theirs.answer().await.word, "cancelled");
    kazoo.peer.close().await;
    session.close().await.expect("closed");
}
