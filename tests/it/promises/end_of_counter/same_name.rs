//! At its end the counter stands still: a client that uses the same prefix again gets the same name, for a younger node.

use std::sync::atomic::{AtomicUsize, Ordering};

use testbed::Server;
use testbed::frames::Op;
use testbed::proxy::{Cut, Verdict};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Election, Mutex};

use crate::counter::{PATH, server};
use crate::support::{TIMEOUT, World, admin_client, connect, locking, soon, wait_children};

async fn at_the_end() -> (Server, Client) {
    let server = server(&[PATH.to_owned()], i32::MAX).await;
    let admin = admin_client(&server.hosts()).await;
    (server, admin)
}

async fn create(admin: &Client, prefix: &str) -> String {
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) =
        admin.create(&format!("{PATH}/{prefix}"), prefix.as_bytes(), &ephemeral).await.expect("created");
    format!("{PATH}/{prefix}{number}")
}

/// As ZooKeeper's own recipe does it, whose names hold no more than the session.
#[tokio::test]
async fn contender_that_comes_back_under_its_old_name_queues_behind_the_waiters() {
    const THEIRS: &str = "x-72058475851939841-";
    let (server, admin) = at_the_end().await;
    let theirs = create(&admin, THEIRS).await;
    let mut places = Vec::new();
    for _ in 0..2 {
        let session = connect(&server.hosts()).await;
        let place = Mutex::new(&session, PATH).expect("a mutex").enqueue().await.expect("queued");
        places.push(place);
    }
    let second = places.pop().expect("two places");
    let first = places.pop().expect("two places");
    admin.delete(&theirs, None).await.expect("deleted");
    let first = soon("the first turn", first).await.expect("held");
    assert_eq!(create(&admin, THEIRS).await, theirs);
    first.release().await.expect("released");
    soon("the second turn", second).await.expect("held").release().await.expect("released");
    wait_children(&admin, PATH, 1).await;
}

/// After a create whose answer was lost, and whose node was deleted, another node is created. It has another name, although the
/// counter stands still.
#[tokio::test]
async fn waiter_whose_node_is_created_again_queues_behind_the_waiters() {
    let (server, admin) = at_the_end().await;
    let world = World::at(&server.hosts(), TIMEOUT).await;
    let [holder, other] = [connect(&server.hosts()).await, connect(&server.hosts()).await];
    let [holder, other] = [holder, other].map(|session| Mutex::new(&session, PATH).expect("a mutex"));
    let hold = holder.lock().await.expect("held");
    world.proxy.reset();
    // The next create, and the search for the node of the first.
    let creates = AtomicUsize::new(0);
    world.proxy.on_request(move |request| match request.op {
        Op::Create2 if creates.fetch_add(1, Ordering::Relaxed) == 0 => Verdict::Forward,
        Op::Create2 | Op::Multi => Verdict::Hold,
        _ => Verdict::Forward,
    });
    world.proxy.cut(Cut::BeforeAnswer(1));
    let ours = locking(Mutex::new(&world.session, PATH).expect("a mutex"));
    let held = hold.nodes()[0].clone();
    let names = wait_children(&admin, PATH, 2).await;
    let name = names.into_iter().find(|name| !held.ends_with(&**name)).expect("another");
    let waiting = other.enqueue().await.expect("queued");
    assert_eq!(waiting.position(), 2);
    admin.delete(&format!("{PATH}/{name}"), None).await.expect("deleted");
    world.let_pass();
    assert!(!wait_children(&admin, PATH, 3).await.contains(&name), "not the same name");
    hold.release().await.expect("released");
    let turn = soon("its turn", waiting).await.expect("held");
    assert!(!ours.is_finished(), "it came later");
    turn.release().await.expect("released");
    let ours = soon("our turn", ours).await.expect("no panic").expect("held");
    ours.release().await.expect("released");
    wait_children(&admin, PATH, 0).await;
}

#[tokio::test]
async fn observer_is_not_misled_by_an_old_name() {
    const FIRST: &str = "_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-latch-";
    const SECOND: &str = "_c_7a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-latch-";
    let (server, admin) = at_the_end().await;
    let session = connect(&server.hosts()).await;
    let election = Election::new(&session, PATH).expect("an election");
    let term = election.campaign().await.expect("leads");
    let first = create(&admin, FIRST).await;
    let mut observer = election.observe();
    let seen = soon("a leader", observer.changed()).await.expect("seen").expect("a leader");
    assert_eq!(seen.token(), term.fencing_token());
    create(&admin, SECOND).await;
    admin.delete(&first, None).await.expect("deleted");
    assert_eq!(create(&admin, FIRST).await, first);
    term.resign().await.expect("resigned");
    let seen = soon("another leader", observer.changed()).await.expect("seen").expect("a leader");
    assert_eq!(seen.identifier(), SECOND.as_bytes(), "{seen:?}");
    assert_eq!(election.leader().await.expect("asked").expect("a leader").token(), seen.token());
}
