//! An ephemeral node that is there over all sessions of a service.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Shared, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use testbed::frames::Op;
use testbed::proxy::Request;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission, Stat};
use zookeeper_recipes::{Error, KeptNode, Session, SessionState};

use crate::support::{World, polled, soon};

const DATA: &[u8] = b"10.0.0.7:8080";

async fn kept(world: &World) -> (String, KeptNode) {
    let path = format!("{}/members/host-7", world.path);
    let kept = world.session.keep_node(&path, DATA).expect("a valid path");
    soon("the node", kept.created()).await.expect("created");
    (path, kept)
}

/// Waits until what is at a path satisfies `condition`.
async fn until(admin: &Client, path: &str, condition: impl Fn(Option<&Stat>) -> bool) -> Option<Stat> {
    let seen = async {
        loop {
            let (stat, watch) = admin.check_and_watch_stat(path).await.expect("asked");
            if condition(stat.as_ref()) {
                return stat;
            }
            watch.changed().await;
        }
    };
    soon("another node", seen).await
}

#[tokio::test]
async fn node_is_created_again_when_it_was_deleted_and_in_every_session() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    let (data, first) = world.admin.get_data(&path).await.expect("it is there");
    assert_eq!((&*data, first.ephemeral_owner), (DATA, world.session.id().0));
    assert!(node.is_created());
    world.admin.delete(&path, None).await.expect("deleted");
    let second = until(&world.admin, &path, |stat| stat.is_some()).await.expect("there");
    assert!(second.czxid > first.czxid);
    let (mut states, old) = (world.session.states(), world.session.id());
    world.expire().await;
    let renewed = |state: SessionState| state.is_connected() && state != SessionState::Connected(old);
    soon("the renewal", states.wait_for(renewed)).await.expect("renewed");
    let id = world.session.id().0;
    until(&world.admin, &path, |stat| stat.is_some_and(|stat| stat.ephemeral_owner == id)).await;
    soon("the node", node.created()).await.expect("created");
    soon("its end", node.remove()).await.expect("removed");
    assert!(world.admin.check_stat(&path).await.expect("asked").is_none());
}

#[tokio::test]
async fn node_goes_with_the_value_that_keeps_it() {
    let world = World::new().await;
    let (path, node) = kept(&world).await;
    drop(node);
    until(&world.admin, &path, |stat| stat.is_none()).await;
}

fn is_create(request: &Request, path: &str) -> bool {
    matches!(request.op, Op::Create | Op::Create2) && request.path == path
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
    let creates = |all: &[Request]| all.iter().filter(|one| is_create(one, &path)).count();
    let other = world.session.keep_node(&path, DATA).expect("a valid path");
    let node = world.session.keep_node(&path, DATA).expect("a valid path");
    let looked = |all: &[Request]| all.iter().filter(|one| is_look(one, &path)).count() >= 2;
    soon("a look of both", world.proxy.wait_until(looked)).await;
    // A change wakes both. They create again only after they have reported what they saw at first.
    let before = creates(&world.proxy.requests());
    world.admin.set_data(&path, b"still theirs", None).await.expect("written");
    soon("another create of both", world.proxy.wait_until(|all| creates(all) >= before + 2)).await;
    assert!(!node.is_created() && !other.is_created());
    assert!(futures_util::poll!(std::pin::pin!(node.created())).is_pending());
    soon("its end", node.remove()).await.expect("there is nothing to remove");
    let (data, stat) = world.admin.get_data(&path).await.expect("it is there");
    assert_eq!((&*data, stat.czxid), (&b"still theirs"[..], taken.czxid));
    world.admin.delete(&path, None).await.expect("deleted");
    soon("the node", other.created()).await.expect("created");
    let (_, stat) = world.admin.get_data(&path).await.expect("it is there");
    assert!(stat.czxid > taken.czxid && stat.ephemeral_owner == world.session.id().0);
}

#[tokio::test]
async fn refusal_is_reported_and_put_right() {
    let world = World::new().await;
    world.make_path().await;
    let closed = [Acl::new(Permission::READ | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &closed, None).await.expect("denied");
    let node = world.session.keep_node(&format!("{}/node", world.path), DATA).expect("a valid path");
    let error = soon("a refusal", node.created()).await.expect_err("denied");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    world.admin.set_acl(&world.path, &[Acl::new(Permission::ALL, AuthId::anyone())], None).await.expect("allowed");
    until(&world.admin, node.path(), |stat| stat.is_some()).await;
    let error = world.session.keep_node("/zookeeper/mine", DATA).expect_err("it belongs to the servers");
    assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    world.session.close().await.expect("closed");
    let error = async {
        loop {
            match node.created().await {
                Err(error @ Error::Closed) => return error,
                _ => tokio::task::yield_now().await,
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
    let node = session.keep_node("/members/host-7", DATA).expect("a valid path");
    let error = soon("an error", node.created()).await.expect_err("no chroot");
    assert!(error.to_string().contains("does the chroot of the session exist?"), "{error}");
    world.admin.mkdir(&world.path, &anyone).await.expect("created");
    soon("the node", async {
        while node.created().await.is_err() {
            tokio::task::yield_now().await
        }
    })
    .await;
}

#[tokio::test]
async fn node_of_an_expired_session_is_not_reported_as_created() {
    let world = World::new().await;
    let (_path, node) = kept(&world).await;
    world.proxy.refuse();
    let mut states = world.session.states();
    soon("the expiry", states.wait_for(|state| state == SessionState::Renewing)).await.expect("expired");
    soon("the end", async {
        while node.is_created() {
            tokio::task::yield_now().await
        }
    })
    .await;
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
        let world = World::calm().await;
        let path = format!("{}/member", world.path);
        world.proxy.reset();
        world.proxy.black_hole_after_request(1);
        let node = world.session.keep_node(&path, DATA).expect("a valid path");
        until(&world.admin, &path, |stat| stat.is_some()).await;
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
            until(&world.admin, &path, |stat| stat.is_none()).await;
        } else {
            soon("its end", removal).await;
            assert!(world.admin.check_stat(&path).await.expect("asked").is_none(), "it is there still");
        }
        // A server that lags does not know of the create yet, so a look counts only behind an answer of a quorum.
        let requests = world.proxy.requests();
        // One whose barrier was lost with the connection does not count.
        let is_barrier = |one: &Request| one.parts == [(Op::Check, path.clone())];
        let first = requests.iter().position(is_barrier).expect("a barrier");
        let is_look = |at: &usize| requests[*at].op == Op::Exists && requests[*at].path == path;
        let looks: Vec<usize> = (first..requests.len()).filter(is_look).collect();
        assert!(!looks.is_empty() && looks.iter().all(|look| is_barrier(&requests[look - 1])), "{requests:?}");
    }
}

#[tokio::test]
async fn removal_leaves_the_node_of_another_session_alone() {
    let world = World::calm().await;
    let path = format!("{}/taken", world.path);
    let foreign = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let (taken, _) = world.admin.create(&path, b"theirs", &foreign).await.expect("created");
    let node = world.session.keep_node(&path, DATA).expect("a valid path");
    soon("a look", world.proxy.wait_for(|one| one.watch && one.path == path && one.answer.is_some())).await;
    soon("its end", node.remove()).await.expect("nothing of ours is there");
    let stat = world.admin.check_stat(&path).await.expect("asked").expect("it is there still");
    assert_eq!(stat.czxid, taken.czxid);
}

#[tokio::test]
async fn node_of_another_session_does_not_count_as_created() {
    let world = World::calm().await;
    let path = format!("{}/taken", world.path);
    let foreign = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(&path, b"theirs", &foreign).await.expect("created");
    let node = world.session.keep_node(&path, DATA).expect("a valid path");
    soon("a look", world.proxy.wait_for(|one| one.watch && one.path == path && one.answer.is_some())).await;
    world.admin.set_data(&path, b"still theirs", None).await.expect("written");
    // It tries again when it has judged what it saw first.
    let creates = |one: &Request| one.op == Op::Create2 && one.path == path;
    let twice = world.proxy.wait_until(|requests| requests.iter().filter(|one| creates(one)).count() == 2);
    soon("another create", twice).await;
    assert!(!node.is_created());
    let mut created = std::pin::pin!(node.created());
    assert!(futures_util::poll!(&mut created).is_pending());
}

/// Holds up the task that wakes it, in the middle of its poll, until the other end of `wait` is dropped.
struct HoldsUp {
    is_woken: UnboundedSender<()>,
    wait: Shared<mpsc::Receiver<()>>,
}

impl Wake for HoldsUp {
    fn wake(self: Arc<Self>) {
        let _ = self.is_woken.send(());
        let _ = self.wait.lock().expect("no panic").recv_timeout(Duration::from_secs(10));
    }
}

/// The task that keeps the node reports that it is absent, and creates it in the same poll. Its runtime runs when the report is
/// awaited, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn removal_waits_for_a_create_that_is_about_to_be_sent() {
    let world = World::calm().await;
    world.make_path().await;
    let path = format!("{}/member", world.path);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let node = {
        let _entered = runtime.enter();
        world.session.keep_node(&path, DATA).expect("a valid path")
    };
    let ((is_woken, mut wakes), (goes_on, wait)) = (unbounded_channel(), mpsc::channel());
    let waker = Waker::from(Arc::new(HoldsUp { is_woken, wait: Shared::new(wait) }));
    let mut created = Box::pin(node.created());
    assert!(created.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let (ends, end) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || drop(runtime.block_on(end)));
    soon("the task that keeps it", wakes.recv()).await;
    drop(created);
    let mut removal = Box::pin(node.remove());
    let early = polled(1, &mut removal).await;
    // If it has looked for the node, it has the answer now.
    soon("an answer", world.session.client().expect("a client").check_stat("/")).await.expect("answered");
    drop(goes_on);
    let removed = if let Some(early) = early { early } else { soon("the removal", removal).await };
    removed.expect("removed");
    soon("the create", world.proxy.wait_for(|one| is_create(one, &path) && one.answer.is_some())).await;
    assert!(world.admin.check_stat(&path).await.expect("asked").is_none(), "it is there still");
    drop(ends);
    thread.join().expect("no panic");
}
