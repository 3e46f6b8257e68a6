//! Three clients at once on one path: ours, kazoo, and Go's; and once with Curator beside them.

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tracing::instrument::WithSubscriber;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Mutex, Options, Session};

use crate::golang::fails_to_acquire;
use crate::ledger::Ledger;
use crate::peer::{Handle, Language, Peer};
use crate::support::{connect, fresh_path, hosts, soon, wait_nodes};
use crate::warnings::Warnings;

const TURNS: usize = 25;

/// All three need kazoo to use the names of the other two.
const KAZOO: &str = "renamed";

struct Three {
    session: Session,
    kazoo: Peer,
    go: Peer,
    admin: Client,
    path: String,
}

impl Three {
    async fn new() -> Self {
        let hosts = hosts();
        Self {
            session: connect(&hosts).await,
            kazoo: Peer::start(Language::Python, &hosts).await,
            go: Peer::start(Language::Go, &hosts).await,
            admin: Client::connect(&hosts).await.expect("connects"),
            path: fresh_path(),
        }
    }

    fn ours(&self) -> Mutex {
        let options = Options::new().with_identifier("ours");
        Mutex::with_options(&self.session, &self.path, options).expect("a mutex")
    }

    async fn nodes(&self, count: usize) {
        wait_nodes(&self.admin, std::slice::from_ref(&self.path), count).await;
    }

    async fn end(self) {
        self.nodes(0).await;
        self.kazoo.close().await;
        self.go.close().await;
        self.session.close().await.expect("closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_admitted_in_order() {
    let three = Three::new().await;
    let gate = three.ours().lock().await.expect("held");
    let (admitted, mut order) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for turn in 0..6 {
        let admitted = admitted.clone();
        if turn % 3 == 0 {
            let mutex = three.ours();
            tasks.push(tokio::spawn(async move {
                let guard = mutex.lock().await.expect("held");
                admitted.send(turn).expect("received");
                guard.release().await.expect("released");
            }));
        } else {
            let mut theirs = match turn % 3 {
                1 => three.kazoo.lock(KAZOO, &three.path).await,
                _ => three.go.lock("lock", &three.path).await,
            };
            tasks.push(tokio::spawn(async move {
                theirs.acquire().await;
                admitted.send(turn).expect("received");
                theirs.release().await;
            }));
        }
        three.nodes(turn + 2).await;
    }
    gate.release().await.expect("released");
    for turn in 0..6 {
        assert_eq!(soon("the next turn", order.recv()).await, Some(turn));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    three.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_one_at_a_time() {
    let three = Three::new().await;
    let ledger = Ledger::new();
    let mut theirs = [three.kazoo.lock(KAZOO, &three.path).await, three.go.lock("lock", &three.path).await];
    for handle in &theirs {
        handle.send(&format!("work {} w 1 {TURNS}", ledger.path().display())).await;
    }
    let ours = async {
        // A driver may start late, so ours continue until theirs are done.
        let mut turns = 0..;
        while turns.next().expect("no end") < TURNS || theirs.iter().any(Handle::is_silent) {
            let guard = soon("our turn", three.ours().lock()).await.expect("held");
            ledger.enter('w', "ours", 1);
            ledger.leave('w', "ours");
            guard.release().await.expect("released");
        }
    };
    soon("all turns", ours).await;
    for handle in &mut theirs {
        let answer = handle.answer().await;
        assert_eq!(answer.word, "ok", "{}", answer.rest);
    }
    ledger.check(1);
    assert!(ledger.entries().len() >= 3 * TURNS);
    three.end().await;
}

/// Locks that are granted without a listing, or without another one, exclude the others as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_one_at_a_time_beside_tasks_of_one_session() {
    const TASKS: usize = 4;
    let (three, curator) = (Three::new().await, Peer::start(Language::Java, &hosts()).await);
    let (ledger, logged) = (Ledger::new(), Warnings::and_traces());
    drop(logged.listen());
    let granted = |way: &str| logged.count(&format!(" by={way}"));
    let mut theirs = [
        three.kazoo.lock(KAZOO, &three.path).await,
        three.go.lock("lock", &three.path).await,
        curator.lock("mutex", &three.path).await,
    ];
    for handle in &theirs {
        handle.send(&format!("work {} w 1 {TURNS}", ledger.path().display())).await;
    }
    let turn = async |who: &str| {
        let guard = soon("our turn", three.ours().lock()).await.expect("held");
        ledger.enter('w', who, 1);
        ledger.leave('w', who);
        guard.release().await.expect("released");
    };
    let ours = (0..TASKS).map(async |task| {
        let mut turns = 0..;
        while turns.next().expect("no end") < TURNS || theirs.iter().any(Handle::is_silent) {
            turn(&format!("ours-{task}")).await;
        }
    });
    soon("all turns", join_all(ours)).with_subscriber(logged.clone()).await;
    for handle in &mut theirs {
        let answer = handle.answer().await;
        assert_eq!(answer.word, "ok", "{}", answer.rest);
    }
    let quiet = async {
        for handle in &mut theirs {
            // We were alone here last, but they hold now.
            for _ in 0..5 {
                turn("ours").await;
            }
            handle.acquire().await;
            let mut ours = three.ours().enqueue().await.expect("queued");
            assert!(three.ours().try_lock().await.expect("asked").is_none());
            let client = three.session.client().expect("a client");
            let watches = async {
                for _ in 0..3 {
                    client.check_stat("/").await.expect("asked");
                }
            };
            tokio::select! {
                biased;
                _ = &mut ours => panic!("they hold"),
                () = watches => {}
            }
            ledger.enter('w', "theirs", 1);
            ledger.leave('w', "theirs");
            handle.release().await;
            let guard = soon("our turn", ours).await.expect("held");
            // Behind us they wait.
            handle.send("acquire").await;
            three.nodes(2).await;
            assert!(handle.is_silent());
            guard.release().await.expect("released");
            handle.held().await;
            handle.release().await;
        }
    };
    quiet.with_subscriber(logged.clone()).await;
    let ways = ["Listed", "Counted", "HandedOver", "Deleted"];
    println!("granted by: {:?}", ways.map(|way| (way, granted(way))));
    assert!(ways.iter().all(|way| granted(way) > 0));
    ledger.check(1);
    curator.close().await;
    three.end().await;
}

/// Each is listed with its identifier, the data of its node. Go writes none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn are_listed_in_order() {
    let three = Three::new().await;
    let ours = three.ours().lock().await.expect("held");
    let mut kazoo = three.kazoo.lock(KAZOO, &format!("{} theirs", three.path)).await;
    kazoo.send("acquire").await;
    three.nodes(2).await;
    let mut go = three.go.lock("lock", &three.path).await;
    go.send("acquire").await;
    three.nodes(3).await;

    let contenders = three.ours().contenders().await.expect("listed");
    let listed: Vec<_> = contenders.iter().map(|one| (one.identifier_lossy(), one.is_holder())).collect();
    assert_eq!(listed, [("ours".into(), true), ("theirs".into(), false), ("".into(), false)]);
    for kind in ["lock", "renamed"] {
        let seen = three.kazoo.lock(kind, &three.path).await.done("contenders").await;
        assert_eq!(seen, "ours,theirs,", "{kind}");
    }

    ours.release().await.expect("released");
    kazoo.held().await;
    kazoo.release().await;
    go.held().await;
    go.release().await;
    three.end().await;
}

/// With kazoo's own names Go fails and leaves its node, which blocks everybody else until Go's session ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_fails_beside_kazoos_own_names() {
    let three = Three::new().await;
    let mut kazoo = three.kazoo.lock("lock", &three.path).await;
    kazoo.acquire().await;
    let mut go = three.go.lock("lock", &three.path).await;
    fails_to_acquire(&mut go).await;
    three.nodes(2).await;
    let ours = three.ours().enqueue().await.expect("enqueued");
    assert_eq!(ours.position(), 2);
    kazoo.release().await;
    three.nodes(2).await;
    assert!(three.ours().try_lock().await.expect("answered").is_none());
    let Three { session, kazoo, go, admin, path } = three;
    go.close().await;
    soon("our turn", ours).await.expect("held").release().await.expect("released");
    wait_nodes(&admin, &[path], 0).await;
    kazoo.close().await;
    session.close().await.expect("closed");
}
