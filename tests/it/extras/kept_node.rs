//! An ephemeral node that is there over all sessions of a service.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::{Cut, Request};
use zookeeper_groups::KeptNode;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use zookeeper_recipes::{Error, Session, SessionState};

use crate::support::{World, at_most, is_keep_alive, polled, renewed, soon, stat_until, until};

const DATA: &[u8] = b"10.0.0.7:8080";

async fn kept(world: &World) -> (String, KeptNode) {
    let path = format!("{}/members/host-7", world.path);
    let kept = KeptNode::keep(&world.session, &path, DATA).expect("a valid path");
    soon("the node", kept.created()).await.expect("created");
    (path, kept)
}

#[tokio::test]
async fn node_is_created_again_when_it_was_deleted_and_in_every_session() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    let (data, first) = world.admin.get_data(&path).await.expect("it is there");
    assert_eq!((&*data, first.ephemeral_owner), (DATA, world.session.id().0));
    assert!(node.is_created());
    world.admin.delete(&path, None).await.expect("deleted");
    let second = stat_until(&world.admin, &path, |stat| stat.is_some()).await.expect("there");
    assert!(second.czxid > first.czxid);
    let old = world.session.id();
    world.expire().await;
    renewed(&world.session, old).await;
    let id = world.session.id().0;
    stat_until(&world.admin, &path, |stat| stat.is_some_and(|stat| stat.ephemeral_owner == id)).await;
    soon("the node", node.created()).await.expect("created");
    soon("its end", node.remove()).await.expect("removed");
    assert!(world.admin.check_stat(&path).await.expect("asked").is_none());
}

#[tokio::test]
async fn node_goes_with_the_value_that_keeps_it() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    drop(node);
    stat_until(&world.admin, &path, |stat| stat.is_none()).await;
}

/// Whether this request read what is at `path`, and was answered.
fn is_look(request: &Request, path: &str) -> bool {
    request.watch && request.path == path && request.answer.is_some()
}

#[tokio::test]
async fn node_of_somebody_else_is_left_alone() {
    let world = World::new().await;
    world.make_path().await;
    let path = format!("{}/taken", world.path);
    let foreign = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let (taken, _) = world.admin.create(&path, b"theirs", &foreign).await.expect("created");
    let looks = |all: &[Request]| all.iter().filter(|one| is_look(one, &path)).count();
    let session = world.other().await;
    let other = KeptNode::keep(&session, &path, DATA).expect("a valid path");
    let node = KeptNode::keep(&world.session, &path, DATA).expect("a valid path");
    soon("a look of both", world.proxy.wait_until(|all| looks(all) >= 2)).await;
    // A change wakes both. They look again only after they have reported what they saw at first.
    world.admin.set_data(&path, b"still theirs", None).await.expect("written");
    soon("another look of both", world.proxy.wait_until(|all| looks(all) >= 4)).await;
    assert_eq!(world.creates(), 0);
    assert!(!node.is_created() && !other.is_created());
    assert!(futures_util::poll!(std::pin::pin!(node.created())).is_pending());
    soon("its end", node.remove()).await.expect("there is nothing to remove");
    let (data, stat) = world.admin.get_data(&path).await.expect("it is there");
    assert_eq!((&*data, stat.czxid), (&b"still theirs"[..], taken.czxid));
    world.admin.delete(&path, None).await.expect("deleted");
    soon("the node", other.created()).await.expect("created");
    let (_, stat) = world.admin.get_data(&path).await.expect("it is there");
    assert!(stat.czxid > taken.czxid && stat.ephemeral_owner == session.id().0);
}

#[tokio::test]
async fn refusal_is_reported_and_put_right() {
    let world = World::new().await;
    world.make_path().await;
    let closed = [Acl::new(Permission::READ | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &closed, None).await.expect("denied");
    let node = KeptNode::keep(&world.session, &format!("{}/node", world.path), DATA).expect("a valid path");
    let error = soon("a refusal", node.created()).await.expect_err("denied");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    world.admin.set_acl(&world.path, &[Acl::new(Permission::ALL, AuthId::anyone())], None).await.expect("allowed");
    stat_until(&world.admin, node.path(), |stat| stat.is_some()).await;
    let error = KeptNode::keep(&world.session, "/zookeeper/mine", DATA).expect_err("it belongs to the servers");
    assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    world.session.close().await.expect("closed");
    let error = async {
        loop {
            match node.created().await {
                Err(error @ Error::Closed) => return error,
                _ => next_look().await,
            }
        }
    };
    soon("the end", error).await;
}

/// A create that never finds a parent is not sent again and again.
#[tokio::test]
async fn node_in_a_chroot_that_is_gone_is_an_error() {
    let world = World::new().await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.mkdir(&world.path, &anyone).await.expect("created");
    let session = Session::connect(&format!("{}{}", world.proxy.hosts(), world.path)).await.expect("connects");
    world.admin.delete(&world.path, None).await.expect("deleted");
    let node = KeptNode::keep(&session, "/members/host-7", DATA).expect("a valid path");
    let error = soon("an error", node.created()).await.expect_err("no chroot");
    assert!(error.to_string().contains("does the chroot of the session exist?"), "{error}");
    world.admin.mkdir(&world.path, &anyone).await.expect("created");
    soon("the node", async {
        while node.created().await.is_err() {
            next_look().await;
        }
    })
    .await;
}

#[tokio::test]
async fn node_of_an_expired_session_is_not_reported_as_created() {
    let world = World::brief().await;
    let (_path, node) = kept(&world).await;
    world.proxy.refuse();
    let mut states = world.session.states();
    soon("the expiry", states.wait_for(|state| state == SessionState::Renewing)).await.expect("expired");
    until("the end", || !node.is_created()).await;
    let mut created = std::pin::pin!(node.created());
    assert!(futures_util::poll!(&mut created).is_pending(), "its session has expired, and no other is made");
    world.proxy.heal();
    soon("the node", created).await.expect("created");
}

#[tokio::test]
async fn refused_removal_is_an_error() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    let parent = path.rsplit_once('/').expect("a parent").0.to_owned();
    let read_only = [Acl::new(Permission::READ, AuthId::anyone())];
    world.admin.set_acl(&parent, &read_only, None).await.expect("set");
    let error = soon("its end", node.remove()).await.expect_err("refused");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    assert!(world.admin.check_stat(&path).await.expect("asked").is_some(), "it is there still");
}

/// A server may apply the create of a lost connection after somebody has looked for its node.
#[tokio::test]
async fn node_of_a_lost_create_that_the_first_look_misses_is_deleted() {
    for drops in [true, false] {
        let world = World::with_path().await;
        let path = format!("{}/member", world.path);
        world.proxy.reset();
        // After the look.
        world.proxy.black_hole_after_request(2);
        let node = KeptNode::keep(&world.session, &path, DATA).expect("a valid path");
        stat_until(&world.admin, &path, |stat| stat.is_some()).await;
        let (looked_for, hidden) = (path.clone(), AtomicBool::new(false));
        world.proxy.rewrite_answers(move |request, answer| {
            const NO_NODE: i32 = -101;
            let looks = request.op == Op::Exists && request.path == looked_for;
            if looks && !hidden.swap(true, Ordering::Relaxed) {
                // The numbers of the request and of the transaction stay.
                answer.truncate(12);
                answer.extend(NO_NODE.to_be_bytes());
            }
        });
        let removal = async move { if drops { drop(node) } else { node.remove().await.expect("removed") } };
        let mut removal = Box::pin(removal);
        // From here on nobody creates it again.
        let is_over = polled(1, &mut removal).await.is_some();
        world.proxy.heal();
        if is_over {
            stat_until(&world.admin, &path, |stat| stat.is_none()).await;
        } else {
            soon("its end", removal).await;
            assert!(world.admin.check_stat(&path).await.expect("asked").is_none(), "it is there still");
        }
        // A server that lags does not know of the create yet, so a look counts only behind a sync.
        let requests = world.proxy.requests();
        // One whose barrier was lost with the connection does not count.
        let is_barrier = |one: &Request| one.op == Op::Sync && one.path == path;
        let first = requests.iter().position(is_barrier).expect("a sync");
        let is_look = |at: &usize| requests[*at].op == Op::Exists && requests[*at].path == path;
        let looks: Vec<usize> = (first..requests.len()).filter(is_look).collect();
        assert!(!looks.is_empty() && looks.iter().all(|look| is_barrier(&requests[look - 1])), "{requests:?}");
    }
}

/// By its own clock the client has taken the old session for expired. The servers may have it for longer.
#[tokio::test]
async fn removal_is_not_confirmed_before_the_session_is_renewed() {
    let world = World::brief().await;
    let nodes = ["one", "other"].map(|name| {
        let path = format!("{}/{name}", world.path);
        (path.clone(), KeptNode::keep(&world.session, &path, DATA).expect("a valid path"))
    });
    for (_, node) in &nodes {
        soon("the node", node.created()).await.expect("created");
    }
    let mut states = world.session.states();
    world.proxy.refuse();
    soon("a renewal", states.wait_for(|state| state == SessionState::Renewing)).await.expect("not closed");
    let [(_, one), (path, other)] = nodes;
    let removed = soon("its end", one.remove()).await;
    assert!(matches!(removed, Err(Error::Unavailable { .. })), "{removed:?}");
    world.proxy.heal();
    soon("its end", other.remove()).await.expect("removed");
    stat_until(&world.admin, &path, |stat| stat.is_none()).await;
}

/// Disturbs a node again and again for a while, and returns how often, and how long it took. Ten disturbances are under
/// way at a time, because each waits for a disk.
async fn disturbed(disturb: impl AsyncFn()) -> (usize, f64) {
    let (mut times, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(3) {
        times += join_all((0..10).map(|_| disturb())).await.len();
    }
    (times, began.elapsed().as_secs_f64())
}

/// The most requests that a kept node may send in these seconds, if each of its five turns a second takes this number.
fn most(seconds: f64, requests: f64) -> f64 {
    (seconds * 5.0 + 2.0) * requests
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}

/// FLINK-27848: each event of the own node caused a write.
#[tokio::test]
async fn writes_of_somebody_else_cost_few_reads_and_no_write() {
    let world = World::with_path().await;
    let (path, node) = kept(&world).await;
    world.proxy.reset();
    let (writes, seconds) = disturbed(async || {
        world.admin.set_data(&path, b"theirs", None).await.expect("written");
    })
    .await;
    let requests = world.proxy.requests();
    println!("{writes} writes in {seconds:.1} s cost {} requests, {} creates", requests.len(), world.creates());
    assert!(requests.iter().all(|one| one.op == Op::GetData), "{} creates", world.creates());
    assert!(writes > 100 && as_f64(requests.len()) <= most(seconds, 1.0), "{} requests", requests.len());
    assert!(node.is_created());
    assert_eq!(world.admin.get_data(&path).await.expect("it is there").0, b"theirs");
}

#[tokio::test]
async fn deletions_by_somebody_else_cost_few_requests_and_the_node_is_back_soon() {
    let world = World::with_path().await;
    let (path, node) = kept(&world).await;
    let second = KeptNode::keep(&world.session, &path, DATA).expect_err("the session keeps one already");
    assert!(matches!(&second, Error::NameTaken { data, .. } if data == DATA), "{second:?}");
    world.proxy.reset();
    let (tries, seconds) = disturbed(async || {
        let _ = world.admin.delete(&path, None).await;
    })
    .await;
    let requests = world.proxy.requests();
    println!("{tries} deletions in {seconds:.1} s cost {} requests", requests.len());
    assert!(tries > 100 && as_f64(requests.len()) <= most(seconds, 3.0), "{} requests", requests.len());
    let stopped = Instant::now();
    stat_until(&world.admin, &path, |stat| stat.is_some()).await;
    until("it", || node.is_created()).await;
    // It has a turn five times a second.
    assert!(stopped.elapsed() < at_most(Duration::from_millis(500)), "{:?}", stopped.elapsed());
}

/// Two services of one name: the second is there as soon as the first has gone.
#[tokio::test]
async fn two_services_that_keep_one_path_do_not_fight_for_it() {
    let (world, other) = (World::with_path().await, World::with_path().await);
    let (path, node) = kept(&world).await;
    let second = KeptNode::keep(&other.session, &path, b"second").expect("a valid path");
    soon("a look", other.proxy.wait_for(|one| is_look(one, &path))).await;
    for one in [&world, &other] {
        one.proxy.reset();
    }
    let (_, seconds) = disturbed(async || {
        let _ = world.admin.delete(&path, None).await;
    })
    .await;
    for (name, one) in [("first", &world), ("second", &other)] {
        let requests = one.proxy.requests().len();
        println!("{name}: {requests} requests in {seconds:.1} s");
        assert!(as_f64(requests) <= most(seconds, 3.0), "{name}: {requests}");
    }
    let owner = stat_until(&world.admin, &path, |stat| stat.is_some()).await.expect("there").ephemeral_owner;
    let (first, last) = if owner == world.session.id().0 { (node, second) } else { (second, node) };
    soon("the owner", first.created()).await.expect("created");
    // Its node was deleted, which it may see a moment later.
    until("the other has none", || !last.is_created()).await;
    soon("its end", first.remove()).await.expect("removed");
    soon("the other", last.created()).await.expect("created");
}

/// KAFKA-1387: a service that was stuck on its own node of an earlier session.
#[tokio::test]
async fn node_of_a_crashed_process_stands_for_its_successors_until_it_expires() {
    let world = World::brief().await;
    let (path, node) = kept(&world).await;
    let first = world.admin.check_stat(&path).await.expect("asked").expect("there");
    world.proxy.refuse();
    let mut crashed = vec![(world, node)];
    for _ in 0..3 {
        let next = World::brief().await;
        let node = KeptNode::keep(&next.session, &path, DATA).expect("a valid path");
        soon("a look", next.proxy.wait_for(|one| is_look(one, &path))).await;
        assert!(!node.is_created());
        next.proxy.refuse();
        crashed.push((next, node));
    }
    let last = World::new().await;
    let node = KeptNode::keep(&last.session, &path, DATA).expect("a valid path");
    soon("the node", node.created()).await.expect("created");
    let stat = last.admin.check_stat(&path).await.expect("asked").expect("there");
    assert!(stat.czxid > first.czxid && stat.ephemeral_owner == last.session.id().0);
    assert!(last.proxy.requests().len() <= 5, "{:?}", last.proxy.requests());
}

async fn data(world: &World, path: &str) -> Vec<u8> {
    world.admin.get_data(path).await.expect("it is there").0
}

#[tokio::test]
async fn changed_data_is_written_and_remembered_for_later_sessions() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    let first = world.admin.check_stat(&path).await.expect("asked").expect("there");
    soon("the change", node.set_data(b"draining")).await.expect("written");
    let (bytes, stat) = world.admin.get_data(&path).await.expect("it is there");
    assert_eq!((&*bytes, stat.czxid, stat.version), (&b"draining"[..], first.czxid, 1));
    let old = world.session.id();
    world.expire().await;
    renewed(&world.session, old).await;
    soon("the node", node.created()).await.expect("created");
    let (bytes, stat) = world.admin.get_data(&path).await.expect("it is there");
    assert_eq!((&*bytes, stat.ephemeral_owner), (&b"draining"[..], world.session.id().0));
    world.admin.delete(&path, None).await.expect("deleted");
    let again = stat_until(&world.admin, &path, |stat| stat.is_some()).await.expect("there");
    assert!(again.czxid > stat.czxid);
    assert_eq!(data(&world, &path).await, b"draining");
}

/// The future that is dropped stops the waiting only.
#[tokio::test]
async fn change_of_data_that_is_not_awaited_is_written() {
    let world = World::with_path().await;
    let (path, node) = kept(&world).await;
    drop(node.set_data(b"never polled"));
    assert!(polled(1, node.set_data(b"polled once")).await.is_none());
    stat_until(&world.admin, &path, |stat| stat.is_some_and(|stat| stat.version > 0)).await;
    assert_eq!(data(&world, &path).await, b"polled once");
}

#[tokio::test]
async fn data_of_somebody_else_stays_until_the_next_change() {
    let world = World::with_path().await;
    let (path, node) = kept(&world).await;
    world.admin.set_data(&path, b"theirs", None).await.expect("written");
    world.proxy.reset();
    soon("a look", world.proxy.wait_for(|one| is_look(one, &path))).await;
    assert_eq!(data(&world, &path).await, b"theirs");
    // Also if it is what the node had before.
    soon("the change", node.set_data(DATA)).await.expect("written");
    assert_eq!(data(&world, &path).await, DATA);
}

/// The node may not be read for a while.
#[tokio::test]
async fn data_of_somebody_else_stays_over_a_refusal() {
    let world = World::with_path().await;
    let (path, node) = kept(&world).await;
    let set_acl = async |permissions| {
        world.admin.set_acl(&path, &[Acl::new(permissions, AuthId::anyone())], None).await.expect("set");
    };
    set_acl(Permission::WRITE | Permission::ADMIN).await;
    world.admin.set_data(&path, b"theirs", None).await.expect("written");
    let refused = async {
        while node.created().await.is_ok() {
            next_look().await;
        }
    };
    soon("a refusal", refused).await;
    set_acl(Permission::ALL).await;
    world.proxy.reset();
    let looks = |all: &[Request]| all.iter().filter(|one| is_look(one, &path)).count();
    soon("a look", world.proxy.wait_until(|all| looks(all) >= 1)).await;
    soon("the node", async {
        while node.created().await.is_err() {
            next_look().await;
        }
    })
    .await;
    assert_eq!(data(&world, &path).await, b"theirs");
}

#[tokio::test]
async fn change_of_data_outlasts_lost_connections_and_nodes_of_others() {
    let world = World::with_path().await;
    let (path, node) = kept(&world).await;
    world.proxy.leave_out(|one| one.op != Op::SetData);
    for (cut, text) in [(Cut::BeforeRequest(1), "never done"), (Cut::AfterRequest(1), "done")] {
        world.proxy.reset();
        world.proxy.cut(cut);
        soon("the change", node.set_data(text.as_bytes())).await.expect("written");
        assert!(world.proxy.cut_fired());
        assert_eq!(data(&world, &path).await, text.as_bytes());
    }
    world.proxy.leave_out(is_keep_alive);
    soon("its end", node.remove()).await.expect("removed");
    let foreign = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(&path, b"theirs", &foreign).await.expect("created");
    let node = KeptNode::keep(&world.session, &path, DATA).expect("a valid path");
    world.proxy.reset();
    let mut change = Box::pin(node.set_data(b"ours"));
    assert!(polled(1, &mut change).await.is_none());
    soon("a look", world.proxy.wait_for(|one| is_look(one, &path))).await;
    assert!(polled(1, &mut change).await.is_none());
    assert_eq!(data(&world, &path).await, b"theirs");
    world.admin.delete(&path, None).await.expect("deleted");
    soon("the change", change).await.expect("written");
    assert_eq!(data(&world, &path).await, b"ours");
}

#[tokio::test]
async fn refused_change_of_data_is_an_error_and_the_node_stays() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    let long = vec![0; 1 << 21];
    let error = node.set_data(&long).await.expect_err("too long");
    assert!(matches!(error, Error::InvalidInput { what: "data", .. }), "{error:?}");
    let acl = |permissions| [Acl::new(permissions, AuthId::anyone())];
    world.admin.set_acl(&path, &acl(Permission::READ | Permission::ADMIN), None).await.expect("set");
    let error = soon("the change", node.set_data(b"second")).await.expect_err("refused");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    assert!(node.is_created());
    soon("the node", node.created()).await.expect("it is there");
    assert_eq!(data(&world, &path).await, DATA);
    world.admin.set_acl(&path, &acl(Permission::ALL), None).await.expect("set");
    stat_until(&world.admin, &path, |stat| stat.is_some_and(|stat| stat.version > 0)).await;
    assert_eq!(data(&world, &path).await, b"second");
    soon("the close", world.session.close()).await.expect("closed");
    let error = soon("the change", node.set_data(b"late")).await.expect_err("closed");
    assert_eq!(error, Error::Closed);
}
