//! What only Curator can do, next to our locks.

use std::net::IpAddr;

use futures_util::FutureExt;
use testbed::proxy::Op;
use zookeeper_groups::SharedCount;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Election, MultiLock, Mutex, Options, RwLock, Semaphore, Session};

use crate::ledger::Ledger;
use crate::pairs::{Guard, one_by_one};
use crate::peer::{Handle, Language};
use crate::support::{connect, dwell, fresh_path, hosts, soon, wait_nodes};
use crate::watched::{Outcome, Watched, watch};

/// A session on each side, and an admin client.
struct Both {
    theirs: Watched,
    session: Session,
    admin: Client,
    path: String,
}

impl Both {
    async fn new() -> Self {
        let hosts = hosts();
        Self {
            theirs: Watched::start(Language::Java).await,
            session: connect(&hosts).await,
            admin: Client::connect(&hosts).await.expect("connects"),
            path: fresh_path(),
        }
    }

    /// Waits until the path has `count` children.
    async fn nodes(&self, count: usize) {
        wait_nodes(&self.admin, std::slice::from_ref(&self.path), count).await;
    }

    /// Waits until a semaphore has this many turns and leases.
    async fn turns_and_leases(&self, turns: usize, leases: usize) {
        wait_nodes(&self.admin, &[format!("{}/locks", self.path)], turns).await;
        wait_nodes(&self.admin, &[format!("{}/leases", self.path)], leases).await;
    }

    fn mutex(&self) -> Mutex {
        Mutex::new(&self.session, &self.path).expect("a mutex")
    }

    /// Sends requests and awaits their answers. By then our session has handled every earlier event of the server.
    async fn settle(&self) {
        dwell(&self.session.client().expect("a client")).await;
    }

    /// Starts an acquire of theirs, and checks that it waits.
    async fn waits(&self, theirs: &mut Handle) {
        assert_eq!(self.theirs.acquire(theirs).await, Outcome::Waits);
    }

    async fn end(self) {
        self.theirs.peer.close().await;
        self.session.close().await.expect("closed");
    }
}

#[tokio::test]
async fn downgraded_writer_of_curator_admits_our_readers_and_no_writer() {
    let both = Both::new().await;
    let lock = RwLock::new(&both.session, &both.path).expect("a lock");
    let mut theirs = both.theirs.peer.lock("write", &both.path).await;
    theirs.acquire().await;
    let reader = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.expect("held") }
    });
    both.nodes(2).await;
    theirs.done("read").await;
    let writer = tokio::spawn(async move { lock.write().await.expect("held") });
    both.nodes(4).await;
    assert!(!reader.is_finished() && !writer.is_finished(), "they still write");
    theirs.release().await;
    let reader = soon("our reader", reader).await.expect("no panic");
    reader.release().await.expect("released");
    both.nodes(2).await;
    both.settle().await;
    assert!(!writer.is_finished(), "they still read");
    theirs.done("unread").await;
    let writer = soon("our writer", writer).await.expect("no panic");
    writer.release().await.expect("released");
    both.nodes(0).await;
    both.end().await;
}

/// CURATOR-621: before 5.5 a writer that downgrades queues as a reader at the tail, behind waiting writers. They
/// acquire while it reads, both Curator's and ours.
#[tokio::test]
async fn downgraded_writer_of_curator_5_4_does_not_exclude_earlier_waiters() {
    let both = Both::new().await;
    let mut theirs = both.theirs.peer.lock("write", &both.path).await;
    let mut their_writer = both.theirs.peer.lock("write", &both.path).await;
    for ours in [false, true] {
        theirs.acquire().await;
        let lock = RwLock::new(&both.session, &both.path).expect("a lock");
        let writing = async move { lock.write().await.expect("held") };
        let our_writer = if ours {
            Some(tokio::spawn(writing))
        } else {
            their_writer.send("acquire").await;
            None
        };
        both.nodes(2).await;
        theirs.done("read").await;
        both.nodes(3).await;
        theirs.release().await;
        if let Some(our_writer) = our_writer {
            let guard = soon("our writer", our_writer).await.expect("no panic");
            both.nodes(2).await;
            guard.release().await.expect("released");
        } else {
            their_writer.held().await;
            both.nodes(2).await;
            their_writer.release().await;
        }
        theirs.done("unread").await;
        both.nodes(0).await;
    }
    both.end().await;
}

#[tokio::test]
async fn our_downgraded_writer_admits_curator_readers_and_no_writer() {
    let both = Both::new().await;
    let lock = RwLock::new(&both.session, &both.path).expect("a lock");
    let guard = lock.write().await.expect("held");
    let mut reader = both.theirs.peer.lock("read", &both.path).await;
    let mut writer = both.theirs.peer.lock("write", &both.path).await;
    both.waits(&mut reader).await;
    both.waits(&mut writer).await;
    both.nodes(3).await;
    assert!(reader.is_silent() && writer.is_silent());
    let guard = guard.downgrade().await.expect("still held");
    reader.held().await;
    both.theirs.proxy.reset();
    reader.release().await;
    both.nodes(2).await;
    // It waited for the reader, and lists again.
    watch(&both.theirs.proxy).await;
    assert!(writer.is_silent(), "we still read");
    guard.release().await.expect("released");
    writer.held().await;
    writer.release().await;
    both.nodes(0).await;
    both.end().await;
}

#[tokio::test]
async fn curator_asks_us_to_release() {
    let both = Both::new().await;
    let mut theirs = both.theirs.peer.lock("mutex", &both.path).await;
    let guard = both.mutex().lock().await.expect("held");
    let asked = guard.revoke_requested();
    theirs.done(&format!("revoke {}", guard.nodes()[0])).await;
    soon("their request", asked).await;
    guard.release().await.expect("released");
    theirs.acquire().await;
    theirs.release().await;
    both.end().await;
}

#[tokio::test]
async fn we_ask_curator_to_release() {
    let both = Both::new().await;
    for kind in ["mutex", "write", "read"] {
        let mut theirs = both.theirs.peer.lock(kind, &both.path).await;
        theirs.done("revocable").await;
        theirs.acquire().await;
        let mutex = both.mutex();
        let contenders = mutex.contenders().await.expect("listed");
        assert!(mutex.revoke(&contenders[0]).await.expect("asked"), "{kind}");
        assert_eq!(theirs.answer().await.word, "revoked", "{kind}");
        // The listener made its thread release.
        assert_eq!(theirs.answer().await.word, "ok", "{kind}");
        both.nodes(0).await;
    }
    both.end().await;
}

#[tokio::test]
async fn contenders_are_listed_on_both_sides() {
    let both = Both::new().await;
    let mut theirs = both.theirs.peer.lock("mutex", &both.path).await;
    theirs.acquire().await;
    let options = Options::new().with_identifier("ours");
    let mutex = Mutex::with_options(&both.session, &both.path, options).expect("a mutex");
    let waiting = mutex.enqueue().await.expect("enqueued");
    let listed = mutex.contenders().await.expect("listed");
    let nodes: Vec<_> = listed.iter().map(|one| format!("{}/{}", one.path(), one.name())).collect();
    assert_eq!(theirs.done("participants").await, nodes.join(" "));
    let [first, second] = &listed[..] else { panic!("two contend: {listed:?}") };
    assert!(first.is_holder() && !second.is_holder(), "{listed:?}");
    assert!(first.identifier_lossy().parse::<IpAddr>().is_ok(), "Curator writes its address: {first:?}");
    assert_eq!(second.identifier(), b"ours");
    drop(waiting);
    theirs.release().await;
    both.nodes(0).await;
    both.end().await;
}

#[tokio::test]
async fn leader_is_known_on_both_sides() {
    let both = Both::new().await;
    let mut theirs = both.theirs.peer.lock("latch", &format!("{} curator", both.path)).await;
    let options = Options::new().with_identifier("ours");
    let election = Election::with_options(&both.session, &both.path, options).expect("an election");
    theirs.acquire().await;
    let ours = election.enqueue().await.expect("enqueued");
    let leader = election.leader().await.expect("asked").expect("somebody leads");
    assert_eq!((leader.identifier(), theirs.done("leader").await.as_str()), (&b"curator"[..], "curator"));
    theirs.release().await;
    let leadership = soon("our term", ours).await.expect("leads");
    let leader = election.leader().await.expect("asked").expect("we lead");
    assert_eq!((leader.identifier(), theirs.done("leader").await.as_str()), (&b"ours"[..], "ours"));
    leadership.proclaim("elsewhere").await.expect("proclaimed");
    assert_eq!(theirs.done("leader").await, "elsewhere");
    leadership.resign().await.expect("resigned");
    both.end().await;
}

#[tokio::test]
async fn holder_that_acquired_twice_holds_until_it_released_twice() {
    let both = Both::new().await;
    for kind in ["mutex", "write", "read"] {
        let mut theirs = both.theirs.peer.lock(kind, &both.path).await;
        theirs.acquire().await;
        // A nested read does not queue behind a waiting writer.
        let lock = RwLock::new(&both.session, &both.path).expect("a lock");
        let ours = tokio::spawn(async move { lock.write().await.expect("held") });
        both.nodes(2).await;
        theirs.acquire().await;
        theirs.release().await;
        both.nodes(2).await;
        both.settle().await;
        assert!(!ours.is_finished(), "{kind}: they released once");
        theirs.release().await;
        soon("our turn", ours).await.expect("no panic").release().await.expect("released");
        both.nodes(0).await;
    }
    both.end().await;
}

/// We hold one of three permits. Curator's caller for three keeps the other two, so we cannot acquire them.
#[tokio::test]
async fn curator_sits_on_a_part_of_its_leases() {
    let both = Both::new().await;
    let semaphore = Semaphore::new(&both.session, &both.path, 3).expect("a semaphore");
    let permit = semaphore.acquire().await.expect("held");
    let mut theirs = both.theirs.peer.lock("semaphore", &format!("{} 3 3", both.path)).await;
    theirs.send("acquire").await;
    // Our lease, their two, and the third they wait with in their turn.
    both.turns_and_leases(1, 4).await;
    assert!(semaphore.try_acquire().await.expect("asked").is_none(), "nobody holds the two others");
    assert!(theirs.is_silent());
    permit.release().await.expect("released");
    theirs.held().await;
    theirs.release().await;
    both.turns_and_leases(0, 0).await;
    both.end().await;
}

/// As our locks do.
#[tokio::test]
async fn curator_makes_paths_containers() {
    let curator = Watched::start(Language::Java).await;
    let path = fresh_path();
    let mut theirs = curator.peer.lock("mutex", &path).await;
    curator.proxy.reset();
    theirs.acquire().await;
    let requests = curator.proxy.requests();
    let made: Vec<_> =
        requests.iter().filter(|one| one.op == Op::CreateContainer).map(|one| &one.path[..]).collect();
    let parent = path.rsplit_once('/').expect("a parent").0;
    assert_eq!(made, [parent, &path]);
    theirs.release().await;
    curator.peer.close().await;
}

/// Five permits. Curator takes its leases one by one, so two of its callers may keep one each; three are left for us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_permits_at_once_never_exceed_the_limit() {
    const TURNS: usize = 25;
    let both = Both::new().await;
    let ledger = Ledger::new();
    let new = format!("{} 5 2", both.path);
    let mut theirs =
        [both.theirs.peer.lock("semaphore", &new).await, both.theirs.peer.lock("semaphore", &new).await];
    for handle in &theirs {
        handle.send(&format!("work {} w 5 {TURNS}", ledger.path().display())).await;
    }
    let semaphore = Semaphore::new(&both.session, &both.path, 5).expect("a semaphore");
    let ours = [2, 3].map(|count| {
        let (both, semaphore, ledger) = (&both, &semaphore, &ledger);
        async move {
            for _ in 0..TURNS {
                let permits = soon("our permits", semaphore.acquire_many(count)).await.expect("held");
                let names: Vec<_> = (0..count).map(|permit| format!("ours-{count}-{permit}")).collect();
                names.iter().for_each(|name| ledger.enter('w', name, 5));
                dwell(&both.admin).await;
                names.iter().for_each(|name| ledger.leave('w', name));
                permits.release().await.expect("released");
            }
        }
    });
    futures_util::future::join_all(ours).await;
    for handle in &mut theirs {
        let answer = handle.answer().await;
        assert_eq!(answer.word, "ok", "{}", answer.rest);
    }
    ledger.check(5);
    assert_eq!(ledger.entries().len(), TURNS * (2 + 2 + 2 + 3));
    both.turns_and_leases(0, 0).await;
    both.end().await;
}

/// Our semaphore keeps to its own number. Where the node has another, each side keeps to its own.
#[tokio::test]
async fn count_in_a_node_applies_only_to_theirs() {
    let both = Both::new().await;
    let new = format!("{0} {0}-count 2", both.path);
    let mut theirs = Vec::new();
    for _ in 0..3 {
        theirs.push(both.theirs.peer.lock("shared", &new).await);
    }
    let [first, second, third] = &mut theirs[..] else { unreachable!("three") };
    let semaphore = Semaphore::new(&both.session, &both.path, 2).expect("a semaphore");
    // The same number: two permits in all.
    first.acquire().await;
    let permit = semaphore.acquire().await.expect("held");
    assert!(semaphore.try_acquire().await.expect("asked").is_none());
    both.waits(second).await;
    both.turns_and_leases(1, 3).await;
    dwell(&both.admin).await;
    assert!(second.is_silent());
    permit.release().await.expect("released");
    second.held().await;
    // More in the node: they take a third, we do not.
    first.done("count 3").await;
    assert!(semaphore.try_acquire().await.expect("asked").is_none());
    third.acquire().await;
    both.turns_and_leases(0, 3).await;
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.expect("held") }
    });
    both.turns_and_leases(1, 4).await;
    third.release().await;
    both.turns_and_leases(1, 3).await;
    both.settle().await;
    assert!(!waiting.is_finished(), "their two are all that we allow");
    second.release().await;
    let permit = soon("our permit", waiting).await.expect("no panic");
    // Fewer in the node: we take a second, they do not.
    first.done("count 1").await;
    first.release().await;
    let another = soon("our second", semaphore.acquire()).await.expect("held");
    // They read the new number some time after the write.
    soon("their refusal", async {
        loop {
            first.send("acquire 0").await;
            match first.answer().await.word.as_str() {
                "timeout" => break,
                word => assert_eq!(word, "held"),
            }
            first.release().await;
        }
    })
    .await;
    another.release().await.expect("released");
    permit.release().await.expect("released");
    both.turns_and_leases(0, 0).await;
    both.end().await;
}

#[tokio::test]
async fn number_that_both_follow_is_changed_by_either() {
    let both = Both::new().await;
    let (path, new) = (format!("{}-count", both.path), format!("{0} {0}-count 1", both.path));
    let (mut first, mut second) =
        (both.theirs.peer.lock("shared", &new).await, both.theirs.peer.lock("shared", &new).await);
    let count = SharedCount::follow(&both.session, &path, 0).await.expect("followed");
    assert_eq!(count.get(), 1);
    let semaphore = Semaphore::following(&both.session, &both.path, count.watch(), Options::new());
    let semaphore = semaphore.expect("a semaphore");
    first.acquire().await;
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    both.turns_and_leases(1, 2).await;
    first.done("count 2").await;
    let permit = soon("our permit", waiting).await.expect("no panic").expect("held");
    both.waits(&mut second).await;
    both.turns_and_leases(1, 3).await;
    count.set(3).await.expect("set");
    second.held().await;
    let set = SharedCount::read_at(&both.session, &path).await.expect("read").expect("a node");
    assert_eq!(set.by, both.session.lock_options().identifier());
    for theirs in [&mut first, &mut second] {
        theirs.release().await;
    }
    permit.release().await.expect("released");
    both.end().await;
}

/// Why `docs/mixed-fleets.md` has a loop: one contender enters all queues at once, the other one by one, and each can be
/// ahead of the other somewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_lock_at_once_deadlocks_with_one_by_one_and_a_loop_does_not() {
    for in_a_loop in [false, true] {
        let both = Both::new().await;
        let paths = ["a", "b", "c"].map(|member| format!("{}/{member}", both.path));
        let nodes = |count| wait_nodes(&both.admin, &paths, count);
        let blocker = Mutex::new(&both.session, &paths[0]).expect("a mutex").lock().await.expect("held");
        let mut theirs = both.theirs.peer.lock("multi", &both.path).await;
        both.waits(&mut theirs).await;
        nodes(2).await;
        let lock = MultiLock::new(&both.session, &paths).expect("a lock");
        let ours = tokio::spawn(if in_a_loop {
            one_by_one(&both.session, &both.path)
        } else {
            async move { Box::new(lock.lock().await.expect("held")) as Guard }.boxed()
        });
        nodes(if in_a_loop { 3 } else { 5 }).await;
        both.theirs.proxy.reset();
        blocker.release().await.expect("released");
        if in_a_loop {
            theirs.held().await;
            assert!(!ours.is_finished());
            theirs.release().await;
        } else {
            // They hold the first and are behind us in the second; we hold that, and are behind them in the first.
            nodes(5).await;
            let second = wait_nodes(&both.admin, &paths[1..2], 2).await;
            watch(&both.theirs.proxy).await;
            both.settle().await;
            assert!(theirs.is_silent() && !ours.is_finished(), "{second:?}");
            theirs.send("cancel").await;
            assert_eq!(theirs.answer().await.word, "cancelled");
        }
        soon("our turn", ours).await.expect("no panic").release().await.expect("released");
        nodes(0).await;
        both.end().await;
    }
}
