//! Nodes in doubt: what a lost create has left. A server's answer about them counts only behind a quorum, and only for
//! nodes of our own session.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use testbed::frames::Op;
use testbed::proxy::{Cut, Proxy, Request, Verdict};
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Error, Loss, MultiLock, Mutex, Semaphore};

use crate::support::{BRIEF, World, connect_for, hosts, locking, polled, refuse_checks, soon, wait_children};

/// The name that a create asked for, with another number.
fn double_of(create: &Request, number: u32) -> String {
    assert!(matches!(create.op, Op::Create | Op::Create2), "{create:?}");
    format!("{}{number:010}", create.path)
}

async fn create(client: &Client, node: &str) {
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    client.create(node, b"", &ephemeral).await.expect("created");
}

/// The barrier of a search for nodes in `path`, or a check of one node.
fn is_barrier(request: &Request, path: &str) -> bool {
    request.op == Op::Multi && request.parts == [(Op::Check, path.to_owned())]
}

/// Whether the answer has reached the client.
fn is_answered(request: &Request) -> bool {
    request.answer.is_some_and(|answer| answer.forwarded.is_some())
}

/// Servers answer reads even if they lag behind or were deposed.
#[tokio::test]
async fn search_for_a_lost_create_follows_an_answer_of_a_quorum() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.reset();
    world.proxy.cut(Cut::BeforeRequest(1));
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    let requests = world.proxy.requests();
    let again = requests.iter().rposition(|request| request.op == Op::Create2).expect("a create");
    assert!(again > 0, "the lost create was not sent again");
    // The listing of the first burst may still be recorded, and is not a search. All of this connection are.
    let since = &requests[again..];
    let search = since.iter().position(|request| request.op == Op::GetChildren2).expect("a search");
    assert!(since[..search].iter().any(|request| is_barrier(request, &world.path)), "{requests:?}");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

/// Its node is not in a listing because its session has ended, which it does not know yet.
#[tokio::test]
async fn waiter_whose_session_ends_before_a_quorum_confirms_its_eviction_queues_again() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let waiting = locking(world.mutex());
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
    let node = format!("{}/{}", world.path, world.wait_children(2).await[1]);
    let checked = node.clone();
    world.proxy.on_request(move |one| if is_barrier(one, &checked) { Verdict::Hold } else { Verdict::Forward });
    world.admin.delete(&node, None).await.expect("deleted");
    drop(ahead);
    soon("a check", world.proxy.wait_for(|request| is_barrier(request, &node))).await;
    world.proxy.on_request(|_| Verdict::Forward);
    world.expire().await;
    let guard = soon("its turn", waiting).await.expect("no panic").expect("waits on in the next session");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

/// The same for one of several nodes, which is missing in a listing.
#[tokio::test]
async fn waiter_that_notices_the_end_of_its_session_by_one_node_queues_again() {
    let world = World::new().await;
    let other = world.other().await;
    let semaphore = |session| Semaphore::new(session, &world.path, 1).expect("a semaphore");
    let elsewhere = semaphore(&other);
    let permit = elsewhere.acquire().await.expect("free");
    let ours = semaphore(&world.session);
    let waiting = tokio::spawn(async move { ours.acquire().await });
    let room = |request: &Request| request.watch && request.path.ends_with("/leases") && request.answer.is_some();
    soon("a watch for room", world.proxy.wait_for(room)).await;
    let all = elsewhere.contenders().await.expect("listed");
    let next = all.iter().find(|one| !one.is_holder() && one.kind() == ContenderKind::Lease).expect("a lease");
    let node = format!("{}/{}", next.path(), next.name());
    let checked = node.clone();
    world.proxy.on_request(move |one| if is_barrier(one, &checked) { Verdict::Hold } else { Verdict::Forward });
    world.admin.delete(&node, None).await.expect("deleted");
    soon("a barrier", world.proxy.wait_for(|request| is_barrier(request, &node))).await;
    world.proxy.on_request(|_| Verdict::Forward);
    world.expire().await;
    drop(permit);
    let permit = soon("its turn", waiting).await.expect("no panic").expect("waits on in the next session");
    permit.release().await.expect("released");
}

/// Or after the release, when the first search has not found it.
#[tokio::test]
async fn double_that_appears_after_the_first_search_is_found_by_the_second() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.reset();
    world.proxy.cut(Cut::AfterRequest(1));
    let path = world.path.clone();
    let searches = move |all: &[Request]| {
        let barriers = all.iter().enumerate().filter(|(_, one)| is_barrier(one, &path) && is_answered(one));
        let searched =
            barriers.filter(|(at, _)| all[*at..].iter().any(|one| one.op == Op::GetChildren2 && is_answered(one)));
        searched.count()
    };
    let (path, count) = (world.path.clone(), AtomicUsize::new(0));
    world.proxy.on_request(move |request| {
        let is_second = is_barrier(request, &path) && count.fetch_add(1, Ordering::Relaxed) > 0;
        if is_second { Verdict::Hold } else { Verdict::Forward }
    });
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    soon("the first search", world.proxy.wait_until(|all| searches(all) == 1)).await;
    guard.release().await.expect("released");
    world.wait_empty().await;
    // What this session requests may be held as well.
    let lost = world.proxy.requests().into_iter().find(|request| request.op == Op::Create2).expect("a create");
    create(&world.admin, &double_of(&lost, 99)).await;
    world.let_pass();
    world.wait_empty().await;
    assert_eq!(searches(&world.proxy.requests()), 2);
}

/// Rewrites the answer to a transaction: its part is refused because the session has expired.
fn expire_every_part(request: &Request, answer: &mut Vec<u8>) {
    const SESSION_EXPIRED: i32 = -112;
    if request.op == Op::Multi {
        // The numbers of the request and of the transaction stay. Then: no error; a part that is an error; the end.
        answer.truncate(12);
        let (error, end) = (SESSION_EXPIRED.to_be_bytes(), (-1_i32).to_be_bytes());
        answer.extend([&[0; 4][..], &end, &[0], &error, &error, &end, &[1], &end].concat());
    }
}

/// The server answers each part of a transaction separately, so a part refused for an expired session still arrives as
/// an answer.
#[tokio::test]
async fn check_refused_for_an_expired_session_does_not_renew_trust() {
    let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
    let session = connect_for(&proxy.hosts(), BRIEF).await;
    let path = format!("/it-{}/lock", uuid::Uuid::new_v4().simple());
    let guard = Mutex::new(&session, &path).expect("a mutex").lock().await.expect("free");
    proxy.rewrite_answers(expire_every_part);
    // Nothing else is wrong with the session, so other proofs would keep it trusted.
    assert_eq!(soon("the end of the last proof", guard.lost()).await, Loss::TrustEnded);
    drop(guard);
    session.close().await.expect("closes");
}

/// A server may refuse a check of several nodes by itself, so a refusal shows neither that they are there nor that they are not.
#[tokio::test]
async fn waiter_whose_nodes_cannot_be_checked_holds_nothing() {
    let world = World::new().await;
    // Listings of several paths show several moments, so the grant has to be checked.
    let paths = ["one", "other"].map(|name| format!("{}/{name}", world.path));
    let theirs = MultiLock::new(&world.other().await, &paths).expect("a lock");
    let held = theirs.lock().await.expect("free");
    let ours = MultiLock::new(&world.session, &paths).expect("a lock");
    let waiting = tokio::spawn(async move { ours.lock().await });
    let watches = |all: &[Request]| all.iter().filter(|one| one.watch && is_answered(one)).count();
    soon("watches", world.proxy.wait_until(|all| watches(all) >= 2)).await;
    refuse_checks(&world.proxy);
    held.release().await.expect("released");
    let refused = soon("an answer", waiting).await.expect("no panic");
    assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    for path in paths {
        wait_children(&world.admin, &path, 0).await;
    }
}

/// Only a session that a quorum has answered was evicted.
#[tokio::test]
async fn waiter_whose_session_cannot_be_checked_is_not_known_to_be_evicted() {
    let world = World::new().await;
    let theirs = Semaphore::new(&world.other().await, &world.path, 3).expect("a semaphore");
    let _permits = theirs.acquire_many(3).await.expect("free");
    let semaphore = Semaphore::new(&world.session, &world.path, 3).expect("a semaphore");
    let waiting = tokio::spawn(async move { semaphore.acquire_many(2).await });
    let leases = format!("{}/leases", world.path);
    let lease = wait_children(&world.admin, &leases, 5).await.remove(4);
    refuse_checks(&world.proxy);
    world.admin.delete(&format!("{leases}/{lease}"), None).await.expect("deleted");
    let refused = soon("an answer", waiting).await.expect("no panic");
    assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
}

/// Only the known node counts, not what somebody else has created with its guid.
#[tokio::test]
async fn node_with_the_guid_of_a_waiter_is_not_taken_for_its_own() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let waiting = locking(world.mutex());
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
    let waiter = world.wait_children(2).await.remove(1);
    let guid = waiter.strip_suffix(&waiter["_c_00000000-0000-0000-0000-000000000000".len()..]).expect("a guid");
    for note in [format!("{guid}-note"), format!("{guid}-lock-0000000000-note")] {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        world.admin.create(&format!("{}/{note}", world.path), b"", &persistent).await.expect("created");
    }
    world.admin.delete(&format!("{}/{waiter}", world.path), None).await.expect("deleted");
    world.proxy.reset();
    ahead.release().await.expect("released");
    let error = soon("an answer", waiting).await.expect("no panic").expect_err("its node is gone");
    assert!(matches!(error, Error::Evicted { .. }), "{error:?}");
    assert_eq!(world.children().await.len(), 2, "what is not ours stays");
}

/// A server was seen to apply the create of a lost connection after the search for its node.
#[tokio::test]
async fn double_of_a_hold_that_turns_up_late_is_deleted() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.reset();
    world.proxy.cut(Cut::BeforeRequest(1));
    let (path, searches) = (world.path.clone(), AtomicUsize::new(0));
    world.proxy.on_request(move |request| {
        let is_second = is_barrier(request, &path) && searches.fetch_add(1, Ordering::Relaxed) > 0;
        if is_second { Verdict::Hold } else { Verdict::Forward }
    });
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    let lost = world.proxy.requests().into_iter().find(|request| request.op == Op::Create2).expect("a create");
    create(&world.admin, &double_of(&lost, 7)).await;
    world.let_pass();
    let names = world.wait_children(1).await;
    assert_eq!(guard.nodes()[0], format!("{}/{}", world.path, names[0]));
    guard.release().await.expect("still held");
    world.wait_empty().await;
}

/// Of a caller that has left before it was granted.
#[tokio::test]
async fn node_of_a_given_up_place_that_the_first_search_misses_is_found_by_the_second() {
    let world = World::with_path().await;
    world.proxy.reset();
    world.proxy.black_hole_after_request(1);
    let mutex = world.mutex();
    let mut locking = Box::pin(mutex.lock());
    assert!(polled(1, &mut locking).await.is_none());
    world.wait_children(1).await;
    drop(locking);
    let hidden = AtomicBool::new(false);
    world.proxy.rewrite_answers(move |request, answer| {
        if request.op == Op::GetChildren && !hidden.swap(true, Ordering::Relaxed) {
            // No error, and no name.
            answer.truncate(16);
            answer.extend(0_i32.to_be_bytes());
        }
    });
    world.proxy.heal();
    world.wait_empty().await;
}

/// The create of a lost connection may be applied after the search for it.
#[tokio::test]
async fn double_that_appears_late_is_not_waited_for() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    world.proxy.cut(Cut::AfterRequest(1));
    let waiting = locking(world.mutex());
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
    assert!(world.proxy.cut_fired(), "its create has an unknown outcome");
    let names = world.wait_children(2).await;
    // It has the same session and guid, and a lower number.
    let (ours, _) = names[1].split_at(names[1].len() - 10);
    let double = format!("{}/{ours}{}", world.path, &names[0][names[0].len() - 10..]);
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.session.client().expect("a client").create(&double, b"", &ephemeral).await.expect("created");
    ahead.release().await.expect("released");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    assert_eq!(guard.nodes(), [format!("{}/{}", world.path, names[1])]);
    assert_eq!(world.wait_children(1).await, [names[1].as_str()]);
    guard.release().await.expect("released");
    world.wait_empty().await;
}
