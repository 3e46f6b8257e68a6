//! One session that keeps as many nodes as it may, and what becomes of the server when it ends.

use futures_util::future::join_all;
use testbed::Server;
use testbed::expire::expire;
use testbed::frames::Op;
use testbed::proxy::{Proxy, Request};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Error, HoldState, Loss, MultiLock, Mutex, Semaphore, SemaphorePermit, Session};

use crate::alone::{LONG, turn, unstuck, watcher};
use crate::support::{children, connect_for, soon, wait_children};

/// Where the permits are.
const PATH: &str = "/full";
const LEASES: &str = "/full/leases";
/// What `Error::SessionFull` names.
const LIMIT: usize = 900 * 1024;
/// The bytes that are reserved for one node: the longest kind, with the longest number.
const NODE: usize = LEASES.len() + "/_c_".len() + 36 + "-__READ__".len() + "-2147483648".len();
/// How many calls fill a session. Each also has room for its turn.
const CALLS: usize = 7;

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    Expired,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_can_be_restarted_after_the_end_of_a_full_session() {
    let _turn = turn().await;
    for end in [End::Expired, End::Closed] {
        let mut server = Server::start().await.expect("a server");
        let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
        let session = connect_for(&proxy.hosts(), LONG).await;
        let holds = unstuck("a full session", fill(&session)).await;
        let nodes: usize = holds.iter().map(|hold| hold.nodes().len()).sum();
        assert!(LIMIT - nodes * NODE < (CALLS + 1) * NODE, "{nodes} nodes fill it, with their turns");
        let admin = watcher(&server).await;
        still_works(&session, &proxy, &admin, &holds).await;
        match end {
            End::Closed => session.close().await.expect("closed"),
            End::Expired => {
                let password = proxy.session().expect("a session went through the proxy");
                proxy.refuse();
                expire(&server.hosts(), password).await.expect("expires");
                proxy.heal();
                let losses = join_all(holds.iter().map(|hold| hold.lost()));
                let losses = soon("all losses", losses).await;
                assert!(losses.iter().all(|loss| *loss == Loss::Expired));
            }
        }
        wait_children(&admin, LEASES, 0).await;
        drop((holds, session, admin));
        server.restart().await.expect("a server that can be started again");
        let session = connect_for(&server.hosts(), LONG).await;
        let again = Mutex::new(&session, PATH).expect("a mutex");
        soon("a lock", again.lock()).await.expect("free").release().await.expect("released");
        println!("{end:?} with {nodes} nodes, {} bytes of paths: the server starts again", nodes * NODE);
    }
}

/// Takes as many permits as there is room for, beside their turns.
async fn fill(session: &Session) -> Vec<SemaphorePermit> {
    let semaphore = Semaphore::new(session, PATH, u32::MAX).expect("a semaphore");
    let (mut holds, mut left) = (Vec::new(), LIMIT / NODE - CALLS);
    while left > 0 {
        let count = left.min(2_000);
        holds.push(semaphore.acquire_many(u32::try_from(count).expect("few")).await.expect("there is room"));
        left -= count;
    }
    assert_eq!(holds.len(), CALLS);
    holds
}

/// A full session refuses what is too much before it sends anything; what it has, it keeps.
async fn still_works(session: &Session, proxy: &Proxy, admin: &Client, holds: &[SemaphorePermit]) {
    let before = children(admin, LEASES).await;
    // The last turn may be on its way out.
    wait_children(admin, &format!("{PATH}/locks"), 0).await;
    proxy.reset();
    let full = |error: Error| matches!(error, Error::SessionFull { what: "nodes", limit: LIMIT });
    let several = MultiLock::new(session, ["/more/a", "/more/b"]).expect("a lock");
    let long = Mutex::new(session, &format!("/{}", "x".repeat(NODE))).expect("a lock");
    assert!(several.lock().await.is_err_and(full) && several.try_lock().await.is_err_and(full));
    assert!(long.lock().await.is_err_and(full));
    let requests = proxy.requests();
    let mut written = requests.iter().filter(|request| request.is_write());
    // Proofs of life go on.
    let checks =
        |request: &Request| request.parts.iter().all(|(op, _)| *op == Op::Check) && request.op == Op::Multi;
    assert!(written.all(checks), "nothing is sent");
    let permits = Semaphore::new(session, PATH, u32::MAX).expect("a lock");
    assert!(permits.acquire_many(2).await.is_err_and(full));
    wait_children(admin, &format!("{PATH}/locks"), 0).await;
    assert_eq!(children(admin, LEASES).await, before);
    assert!(holds.iter().all(|hold| hold.state() == HoldState::Held), "the session lives on");
}

/// Why there is a limit: twice as much keeps a server from starting. Seen with 3.6.3, 3.8.0 (Debian 12's) and 3.9.4; where
/// it fails with a newer one, that may have fixed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_cannot_be_restarted_after_the_end_of_a_session_beyond_the_limit() {
    const NODES: usize = 30_000;
    let _turn = turn().await;
    let mut server = Server::start().await.expect("a server");
    let version = version(&server).await;
    let client = watcher(&server).await;
    let open = CreateMode::Container.with_acls(Acls::anyone_all());
    for path in [PATH, LEASES] {
        client.create(path, b"", &open).await.expect("created");
    }
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{LEASES}/_c_{}-lease-", "0".repeat(36));
    for _ in 0..NODES / 3_000 {
        let mut writer = client.new_multi_writer();
        (0..3_000).for_each(|_| writer.add_create(&prefix, b"", &ephemeral).expect("fits"));
        writer.commit().await.expect("created");
    }
    let mut state = client.state_watcher();
    drop(client);
    while !state.state().is_terminated() {
        state.changed().await;
    }
    let admin = watcher(&server).await;
    wait_children(&admin, LEASES, 0).await;
    drop(admin);
    let restarted = server.restart().await;
    // The error has only the end of the log, and where that begins depends on the version.
    let log = std::fs::read_to_string(server.folder().join("server.log")).expect("a log");
    let why = log.lines().find(|line| line.contains("Unreasonable length"));
    let outcome = why.unwrap_or("nothing unreasonable");
    println!("{version}: after a session of {NODES} nodes, {} bytes of paths: {outcome}", NODES * NODE);
    assert!(why.is_some() && restarted.is_err(), "{version}: {restarted:?}");
}

/// The server's version: `Zookeeper version: 3.8.0-…`.
async fn version(server: &Server) -> String {
    let answer = server.four_letter_word("srvr").await.expect("it answers");
    let version = answer.strip_prefix("Zookeeper version: ").and_then(|rest| rest.split(['-', ',']).next());
    version.unwrap_or("an unknown version").to_owned()
}
