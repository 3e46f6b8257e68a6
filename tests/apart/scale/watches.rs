//! One session that watches as many paths as it may.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use testbed::Server;
use testbed::frames::{Kind, Op};
use testbed::proxy::{Proxy, Request};
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, SessionState};
use zookeeper_recipes::{Error, Loss, Mutex, MutexGuard, Semaphore, Session};

use crate::alone::{LONG, turn, unstuck, watcher};
use crate::support::{connect_for, soon};

/// What `Error::SessionFull` names.
const LIMIT: usize = 100 * 1024;
/// The bytes of one node's path.
const NODE: usize = "/watched/0000".len() + "/_c_".len() + 36 + "-lock-".len() + 10;
/// More than there is room for.
const WAITERS: usize = LIMIT / NODE;
/// Each has room for the longest name.
const WATCHED: usize = LIMIT / (NODE + "-__READ__".len() - "-lock-".len() + 1);

/// Long enough to come back to, and for all turns; and a hold without a watch asks three times in it.
const TIMEOUT: Duration = Duration::from_secs(15);

async fn lock(session: &Session, path: &str) -> Result<MutexGuard, Error> {
    Mutex::new(session, path).expect("a mutex").lock().await
}

fn path(waiter: usize) -> String {
    format!("/watched/{waiter:04}")
}

/// Each waiter has a path of its own, behind a holder of another session: waiters of one queue need a watch or two together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnect_brings_every_watch_back_up_to_the_limit() {
    let _turn = turn().await;
    let server = Server::start().await.expect("a server");
    let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
    let admin = watcher(&server).await;
    let holds = connect_for(&server.hosts(), LONG).await;
    let gates = join_all((0..=WAITERS).map(|waiter| {
        let (holds, path) = (&holds, path(waiter));
        async move { lock(holds, &path).await.expect("free") }
    }));
    let gates = gates.await;
    let session = connect_for(&proxy.hosts(), TIMEOUT).await;
    let id = session.id();
    let waiting: Vec<_> = (0..WAITERS)
        .map(|waiter| {
            let session = session.clone();
            tokio::spawn(async move { lock(&session, &path(waiter)).await?.release().await })
        })
        .collect();
    let watches = |one: &Request| one.watch && one.op != Op::GetData && one.answer.is_some();
    let all_wait = proxy.wait_until(|requests| requests.iter().filter(|one| watches(one)).count() >= WATCHED);
    unstuck("all wait", all_wait).await;

    // Past the limit waiters look now and then; what need not wait, and what there is, goes on.
    let free = lock(&session, "/free").await.expect("free");
    let many = Semaphore::new(&session, "/many", 100).expect("a semaphore").acquire_many(100).await.expect("free");
    // There is no room to watch these, so they are asked for.
    for (hold, node) in [(&*free, &free.nodes()[0]), (&*many, &many.nodes()[50])] {
        let lost = hold.lost();
        admin.delete(node, None).await.expect("deleted");
        assert_eq!(soon("a loss without a watch", lost).await, Loss::Deleted);
    }

    let watched: Vec<_> = proxy.requests().into_iter().filter(watches).map(|one| one.path).collect();
    let gone: BTreeSet<_> = gates.iter().flat_map(|gate| gate.nodes().to_vec()).collect();
    let watched: Vec<_> = watched.into_iter().filter(|node| gone.contains(node)).collect();
    assert!(watched.len() > WAITERS / 2, "{} of {WAITERS} wait", watched.len());

    // What they watch goes while nobody can hear of it.
    proxy.refuse();
    for released in join_all(gates.into_iter().map(MutexGuard::release)).await {
        released.expect("released");
    }
    proxy.reset();
    proxy.heal();
    // One watch that is lost leaves its waiter behind.
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
    println!("{} watches came back in {set} frames; {} wake-ups", watched.len(), woken.len());
    assert_eq!(set, 2, "one request and its answer");
    assert!(watched.iter().all(|node| woken.contains(node)), "{} of {} were woken", woken.len(), watched.len());
    assert_eq!(session.id(), id, "the same session");
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
