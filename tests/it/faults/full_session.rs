//! A session without room for another watch.

use futures_util::future::{join_all, try_join_all};
use testbed::frames::Op;
use testbed::proxy::Request;
use zookeeper_groups::KeptNode;
use zookeeper_recipes::{Election, Error, HoldState, Loss, MultiLock, Mutex, Session};

use crate::support::{BRIEF, World, connect, hosts, locking, pass, soon};

/// The limit in `Error::SessionFull`.
const LIMIT: usize = 100 * 1024;
const NAME: usize = "/_c_".len() + 36 + "-lock-".len() + 10;

fn watches(request: &Request) -> bool {
    request.watch && request.answer.is_some()
}

/// It looks every third of the timeout.
#[tokio::test]
async fn waiter_without_room_for_a_watch_gets_its_turn() {
    let world = World::new().await;
    let other = world.other().await;
    let path = |number: usize| format!("{}/{}{number:03}", world.path, "x".repeat(850));
    let lock = |session: &Session, number: usize| Mutex::new(session, &path(number)).expect("a mutex");
    let most = LIMIT / (path(0).len() + NAME);
    let held = join_all((0..=most).map(async |number| lock(&other, number).lock().await.expect("free"))).await;
    let waiting: Vec<_> = (0..=most).map(|number| locking(lock(&world.session, number))).collect();
    let watched = |requests: &[Request]| {
        let is_it =
            |one: &&Request| watches(one) && one.op == Op::GetChildren2 && one.path.starts_with(&world.path);
        requests.iter().filter(is_it).count()
    };
    soon("watches", world.proxy.wait_until(|requests| watched(requests) + 1 >= most)).await;
    for number in 0..=most {
        crate::support::wait_children(&world.admin, &path(number), 2).await;
    }
    assert!(watched(&world.proxy.requests()) <= most);
    drop(held);
    for waiter in waiting {
        soon("its turn", waiter).await.expect("no panic").expect("held").release().await.expect("released");
    }
}

/// It watches its node for as long as it is kept.
#[tokio::test]
async fn node_is_kept_only_where_the_session_has_room_for_its_watch() {
    let world = World::new().await;
    let (mut nodes, session) = (Vec::new(), &world.session);
    let keep = |number: usize| KeptNode::keep(session, &format!("{}/{number:x>4000}", world.path), b"");
    let error = loop {
        match keep(nodes.len()) {
            Ok(node) => nodes.push(node),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::SessionFull { what: "watches", limit: LIMIT }), "{error:?}");
    assert!(nodes.len() * 4000 <= LIMIT, "{} nodes are kept", nodes.len());
    for node in &nodes {
        soon("the node", node.created()).await.expect("created");
    }
    soon("its end", nodes.pop().expect("many").remove()).await.expect("removed");
    soon("the node", keep(1_000).expect("there is room").created()).await.expect("created");
    assert_eq!(soon("the close", session.close()).await, Ok(()));
}

/// A waiter in several queues with paths of different lengths reserves room for the longest from the start.
#[tokio::test]
async fn waiters_that_move_to_a_longer_path_keep_their_room() {
    let world = World::new().await;
    let other = world.other().await;
    let near = format!("{}/near", world.path);
    let far = |number: usize| format!("{}/{}{number:03}", world.path, "y".repeat(700));
    let many = LIMIT / (far(0).len() + NAME + "-__WRIT__".len() - "-lock-".len());
    let all: Vec<_> = (0..=many).map(far).collect();
    let held = Mutex::new(&other, &near).expect("a mutex").lock().await.expect("free");
    let far_held = MultiLock::new(&other, &all).expect("a lock").lock().await.expect("free");
    let lock = |far: &String| MultiLock::builder(&world.session).read(&near).write(far).build().expect("a lock");
    let wait = |far: &String| {
        let lock = lock(far);
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    let waiting: Vec<_> = all[..many].iter().map(wait).collect();
    let until = async |path: &str| {
        // Those of predecessors, and not of their own nodes.
        let is_other = |request: &Request| request.op == Op::GetChildren2 && request.path.starts_with(path);
        let watching = |request: &&Request| watches(request) && is_other(request);
        world.proxy.wait_until(|requests| requests.iter().filter(watching).count() >= many).await
    };
    soon("watches in the near queue", until(&near)).await;
    held.release().await.expect("released");
    soon("watches in the far queues", until(&format!("{}/yyy", world.path))).await;
    far_held.release().await.expect("released");
    for done in soon("all", try_join_all(waiting)).await.expect("no panic") {
        done.expect("held");
    }
}

/// An observer keeps the room of its watch from one leader to the next.
#[tokio::test]
async fn observers_in_an_almost_full_session_see_the_next_leader() {
    let world = World::new().await;
    let path = format!("{}/{}", world.path, "x".repeat(16_000));
    let election = |session: &Session| Election::new(session, &path).expect("an election");
    let mut observers: Vec<_> = (0..6).map(|_| election(&world.session).observe()).collect();
    for observer in &mut observers {
        assert_eq!(soon("nobody", observer.changed()).await, Ok(None));
    }
    let term = election(&world.other().await).campaign().await.expect("leads");
    for observer in &mut observers {
        let leader = soon("the leader", observer.changed()).await.expect("there is room").expect("a leader");
        assert_eq!(leader.token(), term.fencing_token());
    }
    term.resign().await.expect("resigned");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_leave_room_for_a_waiter() {
    // Answered in time for its holds to be fresh on a busy machine, too.
    let timeout = 6 * BRIEF;
    let world = World::at(&hosts(), timeout).await;
    let path = |number: usize| format!("{}/{}{number}", world.path, "x".repeat(600));
    // It holds meanwhile, however long a busy machine takes.
    let other = connect(&world.hosts).await;
    let ahead = Mutex::new(&other, &path(1000)).expect("a mutex").lock().await.expect("held");
    let mut holds = Vec::new();
    for number in 0..170 {
        holds.push(Mutex::new(&world.session, &path(number)).expect("a mutex").lock().await.expect("held"));
    }
    // By now all of them watch their nodes, or check them otherwise.
    pass(timeout / 2).await;
    let mutex = Mutex::new(&world.session, &path(1000)).expect("a mutex");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    crate::support::wait_children(&world.admin, &path(1000), 2).await;
    ahead.release().await.expect("released");
    let guard = soon("a turn", waiting).await.expect("no panic").expect("held");
    assert!(holds.iter().all(|hold| hold.state() == HoldState::Held));
    let last = holds.pop().expect("a hold");
    world.admin.delete(&last.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss of a hold without a watch", last.lost()).await, Loss::Deleted);
    guard.release().await.expect("released");
    world.session.close().await.expect("closed");
}
