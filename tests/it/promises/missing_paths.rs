//! Missing paths: an acquire creates them together with its nodes, or creates nothing. It leaves nothing that the
//! server would never remove.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use testbed::Server;
use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::{Closing, Cut, Request, Verdict};
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};
use zookeeper_recipes::{DistributedLock, Error, LockGuard, MultiLock, Mutex, Options, Result, Semaphore};

use crate::recipes::{MULTI_LOCK, MUTEX, Recipe, SEMAPHORE, SEVERAL_PERMITS, rows};
use crate::support::{
    TIMEOUT, World, children, connect, hosts, make_paths, soon, tree, until_frame, wait_children,
};

/// How often the server removes empty containers, in milliseconds.
const CHECK_INTERVAL: &str = "100";

/// Far longer than a stall of the machine, or a delayed acknowledgement of a kernel.
const ANSWER_DELAY: Duration = Duration::from_millis(500);

/// A server that removes empty containers quickly, and a world on it.
async fn cleaned_world() -> (Server, World) {
    let server = Server::builder().property("znode.container.checkIntervalMs", CHECK_INTERVAL).start().await;
    let server = server.expect("a server");
    let world = World::at(&server.hosts(), TIMEOUT).await;
    (server, world)
}

/// Waits until clean-up has deleted all lock nodes.
async fn no_nodes(world: &World) {
    let nodes = async { while tree(&world.admin, "/").await.iter().any(|path| path.contains("/_c_")) {} };
    soon("the end of all nodes", nodes).await;
}

/// Waits until clean-up has deleted all lock nodes, and until the server has removed a deeper path that was used last.
/// Returns the paths that are left.
async fn left(world: &World) -> BTreeSet<String> {
    no_nodes(world).await;
    let top = format!("/control-{}", Uuid::new_v4().simple());
    let mutex = Mutex::new(&world.other().await, &format!("{top}/2/3/4/5/6/7")).expect("a mutex");
    drop(mutex.lock().await.expect("held"));
    let removed = async { while world.admin.check_stat(&top).await.expect("asked").is_some() {} };
    soon("the removal of the control path", removed).await;
    tree(&world.admin, "/").await
}

fn together(lock: Result<MultiLock>) -> Arc<dyn DistributedLock> {
    lock.and_then(|lock| lock.exclusive()).expect("a lock")
}

/// Options whose ACLs let nobody create children.
fn read_only() -> Options {
    Options::new().with_acls(Acls::new(&[Acl::new(Permission::READ, AuthId::anyone())]))
}

#[tokio::test]
async fn refusal_for_wrong_acls_creates_nothing() {
    let (_server, world) = cleaned_world().await;
    let [a, b] = ["/locks/a", "/locks/b/c"];
    let locks: [Arc<dyn DistributedLock>; 3] = [
        Arc::new(Mutex::with_options(&world.session, a, read_only()).expect("a mutex")),
        Arc::new(Mutex::with_options(&world.session, "/locks", read_only()).expect("a mutex")),
        together(MultiLock::builder(&world.session).options(read_only()).lock(a).lock(b).build()),
    ];
    for (index, lock) in locks.iter().enumerate() {
        for error in [lock.lock().await.expect_err("refused"), lock.try_lock().await.expect_err("refused")] {
            assert!(matches!(&error, Error::NoAuth { path } if path.starts_with("/locks")), "{index}: {error:?}");
        }
        assert_eq!(left(&world).await, BTreeSet::new(), "{index}");
    }
    let semaphore = Semaphore::with_options(&world.session, a, 2, read_only()).expect("a semaphore");
    assert!(matches!(semaphore.acquire_many(2).await, Err(Error::NoAuth { .. })));
    assert_eq!(left(&world).await, BTreeSet::new());
    // One typo does not exclude anybody else.
    let guard = Mutex::new(&world.other().await, a).expect("a mutex").lock().await.expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn refusal_of_one_member_creates_no_path_of_the_others() {
    let (_server, world) = cleaned_world().await;
    let closed = [Acl::new(Permission::READ, AuthId::anyone())];
    let closed = CreateMode::Persistent.with_acls(Acls::new(&closed));
    world.admin.create("/bad", b"", &closed).await.expect("created");
    let multi = MultiLock::new(&world.session, ["/new/a", "/bad", "/new/z"]).expect("a lock");
    let error = multi.lock().await.expect_err("refused");
    assert!(matches!(&error, Error::NoAuth { path } if path == "/bad"), "{error:?}");
    let below = MultiLock::new(&world.session, ["/new/a", "/bad/b", "/new/y/z"]).expect("a lock");
    let error = below.lock().await.expect_err("refused");
    assert!(matches!(&error, Error::NoAuth { path } if path == "/bad/b"), "{error:?}");
    assert_eq!(left(&world).await, BTreeSet::from(["/bad".to_owned()]));
}

async fn cut_fired(world: &World) {
    while !world.proxy.cut_fired() {
        next_look().await;
    }
}

/// Where the connection is cut, relative to the k-th request or answer.
type At = fn(usize) -> Cut;

/// Each with whether requests after the k-th may reach the server.
const CUTS: [(At, bool); 5] = [
    (Cut::BeforeRequest, true),
    (Cut::AfterRequest, true),
    (Cut::BeforeAnswer, true),
    (Cut::BeforeAnswer, false),
    (Cut::AfterAnswer, true),
];

/// Acquires at missing paths with a cut at every frame, to the end or dropped at the cut.
async fn acquire_with_cuts(recipe: &Recipe, dropped: bool) {
    let (_server, mut world) = cleaned_world().await;
    for (index, (at, others_pass)) in CUTS.into_iter().enumerate() {
        world.proxy.close_by(if index % 2 == 0 { Closing::Fin } else { Closing::Reset });
        for k in 1.. {
            let lock = (recipe.lock)(&world.session, &format!("/cut-{index}-{k}/deep"));
            world.proxy.reset();
            world.proxy.cut(at(k));
            let most = if others_pass { usize::MAX } else { k };
            world.proxy.on_request(move |one| if one.number > most { Verdict::Hold } else { Verdict::Forward });
            let acquire = async { soon("an acquire with a cut", lock.lock()).await.expect("held") };
            let held: Option<Box<dyn LockGuard>> = if dropped {
                tokio::select! {
                    biased;
                    () = cut_fired(&world) => None,
                    guard = acquire => Some(guard),
                }
            } else {
                let healed = async {
                    cut_fired(&world).await;
                    world.let_pass();
                    std::future::pending().await
                };
                tokio::select! {
                    never = healed => never,
                    guard = acquire => Some(guard),
                }
            };
            // If there is a k-th frame, the cut has happened, or happens with this answer.
            let fired = world.proxy.requests().len() >= k;
            world.let_pass();
            drop(held);
            no_nodes(&world).await;
            // Its clean-up, which searches twice, must not be cut in the next round.
            drop(lock);
            world.session.close().await.expect("closed");
            if !fired {
                assert!(k > 4, "frames were cut");
                break;
            }
            world.session = connect(&world.proxy.hosts()).await;
        }
        world.session = connect(&world.proxy.hosts()).await;
    }
    assert_eq!(left(&world).await, BTreeSet::new());
}

/// Drops acquires at missing paths after 1, 2, 3… frames.
async fn cancelled_after_any_frame_leaves_no_path(recipe: &Recipe) {
    let (_server, world) = cleaned_world().await;
    for frames in 1.. {
        let lock = (recipe.lock)(&world.session, &format!("/cancelled/deep/{frames}"));
        if soon("frames", until_frame(&world.proxy, frames, lock.lock())).await.is_some() {
            assert!(frames > 4, "something was cancelled");
            break;
        }
    }
    assert_eq!(left(&world).await, BTreeSet::new());
}

async fn cut_at_any_frame_leaves_no_path(recipe: &Recipe) {
    acquire_with_cuts(recipe, false).await;
}

async fn cut_and_dropped_at_any_frame_leaves_no_path(recipe: &Recipe) {
    acquire_with_cuts(recipe, true).await;
}

macro_rules! missing_path_tests {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            rows!($of =>
                cut_at_any_frame_leaves_no_path, cut_and_dropped_at_any_frame_leaves_no_path,
                cancelled_after_any_frame_leaves_no_path
            );
        }
    )*};
}

missing_path_tests! {
    mutex => MUTEX;
    semaphore => SEMAPHORE;
    several_permits => SEVERAL_PERMITS;
    multi_lock => MULTI_LOCK;
}

/// A fresh path of this many levels.
fn path_of(levels: usize) -> String {
    (2..=levels).fold(format!("/it-{}", Uuid::new_v4().simple()), |path, level| format!("{path}/{level}"))
}

/// The transactions that create containers, successful or not.
fn guesses(world: &World) -> Vec<Request> {
    let requests = world.proxy.requests().into_iter();
    requests.filter(|request| request.parts.iter().any(|(op, _)| *op == Op::CreateContainer)).collect()
}

async fn no_nodes_below(admin: &Client, path: &str) {
    let nodes = async { while tree(admin, path).await.iter().any(|path| path.contains("/_c_")) {} };
    soon("the end of all nodes", nodes).await;
}

#[tokio::test]
async fn missing_path_of_any_depth_costs_two_more_round_trips() {
    let world = World::new().await;
    world.proxy.hold_answers(ANSWER_DELAY);
    for levels in [1, 2, 6, 100] {
        let path = path_of(levels);
        let mutex = Mutex::new(&world.session, &path).expect("a mutex");
        world.proxy.reset();
        let guard = mutex.lock().await.expect("held");
        assert_eq!((world.proxy.round_trips(), guesses(&world).len()), (3, 1), "{path}");
        guard.release().await.expect("released");
        wait_children(&world.admin, &path, 0).await;
    }
}

#[tokio::test]
async fn paths_of_which_some_are_missing_cost_two_more_round_trips_than_one() {
    let world = World::new().await;
    let there = format!("{}/b", world.path);
    make_paths(&world.admin, std::slice::from_ref(&there)).await;
    let paths = ["a", "b", "b/c", "b/d/e/f"].map(|path| format!("{}/{path}", world.path));
    let multi = MultiLock::new(&world.session, &paths).expect("a lock");
    world.proxy.hold_answers(ANSWER_DELAY);
    world.proxy.reset();
    let guard = multi.lock().await.expect("held");
    assert_eq!(world.proxy.round_trips(), 5);
    world.proxy.hold_answers(Duration::ZERO);
    for path in &paths {
        let nodes = children(&world.admin, path).await.into_iter().filter(|name| name.starts_with("_c_")).count();
        assert_eq!(nodes, 1, "{path}");
    }
    guard.release().await.expect("released");
    no_nodes_below(&world.admin, &world.path).await;
}

#[tokio::test]
async fn missing_paths_that_do_not_fit_into_a_request_are_refused() {
    let world = World::new().await;
    let paths: Vec<_> = (0..600).map(|number| format!("{}/{number}{}", world.path, "x".repeat(1_000))).collect();
    let multi = MultiLock::new(&world.session, &paths).expect("their nodes fit");
    world.proxy.reset();
    let error = soon("a refusal", multi.lock()).await.expect_err("too large");
    assert!(matches!(error, Error::InvalidInput { what: "lock path", .. }), "{error:?}");
    for part in ["602 missing paths", "1000000 are the most", "jute.maxbuffer", "create the paths first"] {
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
    }
    assert!(guesses(&world).is_empty(), "no request was sent");
    assert_eq!(tree(&world.admin, &world.path).await, BTreeSet::new());
    make_paths(&world.admin, &paths).await;
    let guard = soon("all", multi.lock()).await.expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn path_deleted_and_created_repeatedly_can_be_locked() {
    let world = World::new().await;
    let other = Mutex::with_options(&connect(&hosts()).await, &world.path, Options::new().with_path_removal(true));
    let (other, done) = (other.expect("a mutex"), AtomicBool::new(false));
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let others = async {
        while !done.load(Ordering::Relaxed) {
            soon("a lock", other.lock()).await.expect("held").release().await.expect("released");
            for path in [&world.path, root] {
                let _ = world.admin.delete(path, None).await;
            }
            let _ = world.admin.mkdir(&world.path, &open).await;
            for path in [&world.path, root] {
                let _ = world.admin.delete(path, None).await;
            }
        }
    };
    let sibling = format!("{}-sibling", world.path);
    let ours = async {
        for round in 0..200 {
            let lock: Arc<dyn DistributedLock> = match round % 2 {
                0 => Arc::new(world.mutex()),
                _ => together(MultiLock::new(&world.session, [&world.path, &sibling])),
            };
            soon("a lock", lock.lock()).await.expect("held").release().await.expect("released");
        }
        done.store(true, Ordering::Relaxed);
    };
    join(others, ours).await;
    no_nodes_below(&world.admin, root).await;
}

#[tokio::test]
async fn missing_chroot_is_reported_by_locks_of_several_nodes() {
    let world = World::new().await;
    let chroot = format!("/chroot-{}", Uuid::new_v4().simple());
    make_paths(&world.admin, std::slice::from_ref(&chroot)).await;
    let session = connect(&format!("{}{chroot}", world.hosts)).await;
    world.admin.delete(&chroot, None).await.expect("deleted");
    let [a, b] = ["/a", "/b/c/d"];
    let multi = MultiLock::new(&session, [a, b]).expect("a lock");
    let semaphore = Semaphore::new(&session, a, 3).expect("a semaphore");
    for error in [
        soon("a refusal", multi.lock()).await.expect_err("no chroot"),
        soon("a refusal", semaphore.acquire_many(2)).await.expect_err("no chroot"),
    ] {
        assert!(matches!(error, Error::InvalidInput { what: "chroot", .. }), "{error:?}");
    }
    assert!(world.admin.check_stat(&chroot).await.expect("asked").is_none(), "nothing was created");
    session.close().await.expect("closed");
}

/// The server also refuses to create nodes that exist.
#[tokio::test]
async fn existing_path_below_a_restricted_node_can_be_locked() {
    let world = World::new().await;
    let below = |path: &str| format!("{}/{path}", world.path);
    make_paths(&world.admin, &[below("open"), below("open-too")]).await;
    let closed = [Acl::new(Permission::READ | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &closed, None).await.expect("closed");
    let deep = MultiLock::new(&world.session, [below("open/a/b"), below("open-too/c")]).expect("a lock");
    soon("a lock", deep.lock()).await.expect("held").release().await.expect("released");
    let mixed = MultiLock::new(&world.session, [below("open/d"), below("new/e")]).expect("a lock");
    let error = soon("a refusal", mixed.lock()).await.expect_err("closed");
    assert!(matches!(&error, Error::NoAuth { path } if *path == below("new")), "{error:?}");
    let single = Mutex::new(&world.session, &below("new/e/f")).expect("a mutex");
    let error = soon("a refusal", single.lock()).await.expect_err("closed");
    assert!(matches!(&error, Error::NoAuth { path } if *path == below("new")), "{error:?}");
    let left = tree(&world.admin, &world.path).await;
    assert!(!left.contains(&below("open/d")) && !left.contains(&below("new")), "{left:?}");
}
