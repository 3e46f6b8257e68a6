//! One session that watches as many paths as it may.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::try_join_all;
use testbed::Server;
use testbed::frames::{Kind, Op};
use testbed::proxy::Proxy;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, SessionState};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, MutexGuard, Semaphore, Session};

use crate::alone::{turn, unstuck, wait_for_watches, watcher};
use crate::support::{children, connect_for, soon, wait_children};

const PATH: &str = "/watched";
/// What `Error::SessionFull` names.
const LIMIT: usize = 100 * 1024;
/// The bytes of one node's path.
const NODE: usize = PATH.len() + "/_c_".len() + 36 + "-lock-".len() + 10;
const WAITERS: usize = LIMIT / NODE;

/// Long enough to come back to, and for all turns; and a hold without a watch asks three times in it.
const TIMEOUT: Duration = Duration::from_secs(15);

async fn lock(session: &Session, path: &str) -> Result<MutexGuard, Error> {
    Mutex::new(session, path).expect("a mutex").lock().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnect_brings_every_watch_back_up_to_the_limit() {
    let _turn = turn().await;
    let server = Server::start().await.expect("a server");
    let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
    let admin = watcher(&server).await;
    let gate = lock(&connect_for(&server.hosts(), TIMEOUT).await, PATH).await.expect("free");
    let session = connect_for(&proxy.hosts(), TIMEOUT).await;
    let id = session.id();
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { lock(&session, PATH).await?.release().await })
        })
        .collect();
    unstuck("all wait", wait_for_watches(&proxy, WAITERS)).await;

    // Past the limit nobody can wait; what need not wait, and what there is, goes on.
    let error = soon("a refusal", lock(&session, PATH)).await.expect_err("no room for a watch");
    assert!(matches!(error, Error::SessionFull { what: "watches", limit: LIMIT }), "{error:?}");
    wait_children(&admin, PATH, 1 + WAITERS).await;
    let free = lock(&session, "/free").await.expect("free");
    let many = Semaphore::new(&session, "/many", 100).expect("a semaphore").acquire_many(100).await.expect("free");
    // There is no room to watch these, so they are asked for.
    for (hold, node) in [(&*free, &free.nodes()[0]), (&*many, &many.nodes()[50])] {
        let lost = hold.lost();
        admin.delete(node, None).await.expect("deleted");
        assert_eq!(soon("a loss without a watch", lost).await, Loss::Deleted);
    }

    let mut line = children(&admin, PATH).await;
    line.pop();
    let watched: Vec<_> = line.iter().map(|name| format!("{PATH}/{name}")).collect();
    assert_eq!(watched.len(), WAITERS);

    // The node that the first waiter watches goes while nobody can hear of it.
    proxy.refuse();
    admin.delete(&gate.nodes()[0], None).await.expect("deleted");
    proxy.reset();
    proxy.heal();
    // Each is woken by its predecessor, so one watch that is lost stops all behind it.
    let done = unstuck("all had their turn", try_join_all(waiting)).await.expect("no panic");
    done.into_iter().for_each(|released| released.expect("held and released"));
    let seen = proxy.uncounted();
    let woken: BTreeSet<_> = seen
        .iter()
        .filter_map(|frame| match &frame.kind {
            Kind::Notification { path, .. } => Some(path),
            _ => None,
        })
        .collect();
    let set = seen.iter().filter(|frame| frame.kind == Kind::SetWatches).count();
    let listings = proxy.requests().iter().filter(|request| request.op == Op::GetChildren).count();
    println!(
        "{WAITERS} watches of {} bytes came back in {set} frames; {} wake-ups, {listings} listings",
        WAITERS * NODE,
        woken.len()
    );
    assert_eq!(set, 2, "one request and its answer");
    // A hold that takes long watches its own node.
    assert!(watched.iter().all(|node| woken.contains(node)), "{} of {WAITERS} were woken", woken.len());
    assert_eq!(session.id(), id, "the same session");
    assert_eq!(gate.state(), HoldState::Lost(Loss::Deleted));
    assert!(children(&admin, PATH).await.is_empty(), "nothing is left");
}

/// Why there is a limit: a client that has gone past it by itself does not come back from a lost connection. It takes
/// its time to find that out, and little of the machine, so it takes no turn.
#[tokio::test]
async fn past_the_limit_a_lost_connection_ends_the_session() {
    const WATCHES: usize = 2_500;
    /// What the client puts into one request.
    const REQUEST: usize = 128 * 1024;
    let server = Server::start().await.expect("a server");
    let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
    let client =
        Client::connector().with_session_timeout(TIMEOUT).connect(&proxy.hosts()).await.expect("connects");
    for (bytes, ends) in [(REQUEST / 2, false), (REQUEST + REQUEST / 8, true)] {
        let path = |watch: usize| format!("/{watch:0>width$}", width = bytes / WATCHES - 1);
        let watching = (0..WATCHES).map(|watch| {
            let (client, path) = (client.clone(), path(watch));
            async move { client.check_and_watch_stat(&path).await }
        });
        let _watches = try_join_all(watching).await.expect("watched");
        let mut state = client.state_watcher();
        state.state();
        proxy.cut_now();
        let answer = soon("what comes of the cut", async {
            loop {
                let state = state.changed().await;
                if state == SessionState::SyncConnected || state.is_terminated() {
                    // A request shows whether the connection stays.
                    match client.check_stat("/").await {
                        Err(ZkError::ConnectionLoss) => {}
                        answer => break answer,
                    }
                }
            }
        })
        .await;
        println!("{WATCHES} watches, {bytes} bytes of paths: {:?} after a cut", answer.as_ref().map(|_| "well"));
        assert_eq!(answer.is_err(), ends, "{answer:?}");
        assert_eq!(client.state().is_terminated(), ends);
    }
}
