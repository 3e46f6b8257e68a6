//! A lock path into which a neighbour has put a hundred thousand children: docs/limits.md has what they cost.

use std::time::Instant;

use testbed::Server;
use testbed::frames::Op;
use testbed::proxy::Proxy;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Error, HoldState, Mutex, Semaphore, Session};

use crate::alone::{LONG, forget_peak, peak, resident, turn, unstuck, watcher};
use crate::support::{connect_for, wait_children};

const CHILDREN: usize = 100_000;
const PATH: &str = "/strangers";
/// Of this process, with what the proxy keeps of each request. The most that was seen is half of it.
const MOST_MEMORY: usize = 256 << 20;
/// What fits well into one request.
const AT_ONCE: usize = 5_000;

struct Scene {
    server: Server,
    proxy: Proxy,
    admin: Client,
    session: Session,
    /// The memory before.
    resident: Option<usize>,
}

impl Scene {
    async fn new(parent: &str, name: impl Fn(usize) -> String) -> Self {
        let server = Server::start().await.expect("a server");
        let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
        let admin = watcher(&server).await;
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        admin.mkdir(parent, &open).await.expect("created");
        for first in (0..CHILDREN).step_by(AT_ONCE) {
            let mut writer = admin.new_multi_writer();
            for number in first..first + AT_ONCE {
                writer.add_create(&format!("{parent}/{}", name(number)), b"", &open).expect("fits");
            }
            writer.commit().await.expect("created");
        }
        let session = connect_for(&proxy.hosts(), LONG).await;
        forget_peak();
        Self { resident: resident(), server, proxy, admin, session }
    }

    async fn delete(&self, name: impl Fn(usize) -> String) {
        for first in (0..CHILDREN).step_by(AT_ONCE) {
            let mut writer = self.admin.new_multi_writer();
            for number in first..first + AT_ONCE {
                writer.add_delete(&format!("{PATH}/{}", name(number)), None).expect("fits");
            }
            writer.commit().await.expect("deleted");
        }
    }

    fn count(&self, op: Op) -> usize {
        self.proxy.requests().iter().filter(|request| request.op == op).count()
    }

    fn print(&self, what: &str, began: Instant) {
        let (stats, listings, reads) =
            (self.count(Op::Exists), self.count(Op::GetChildren), self.count(Op::GetData));
        let took = began.elapsed();
        println!("{what}: {took:.2?}, {listings} listings, {reads} reads, {stats} stats, {}", self.grown());
        self.proxy.reset();
    }

    /// By how much the memory has grown, at its peak.
    fn grown(&self) -> String {
        let Some((peak, before)) = peak().zip(self.resident) else {
            return "memory unknown".to_owned();
        };
        let grown = peak.saturating_sub(before);
        assert!(grown < MOST_MEMORY, "{} MiB", grown >> 20);
        format!("{} MiB at the peak", grown >> 20)
    }
}

fn mutex(session: &Session) -> Mutex {
    Mutex::new(session, PATH).expect("a mutex")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_children_that_are_nobodys_make_listings_long_and_nothing_else() {
    let _turn = turn().await;
    let scene = Scene::new(PATH, |number| format!("job-{number:010}")).await;
    let began = Instant::now();
    let guard = unstuck("the lock", mutex(&scene.session).lock()).await.expect("held");
    scene.print("a lock among strangers' children", began);
    guard.release().await.expect("released");

    let began = Instant::now();
    let guard = mutex(&scene.session).lock().await.expect("held");
    let other = connect_for(&scene.server.hosts(), LONG).await;
    let waiting = unstuck("the queue", mutex(&other).enqueue()).await.expect("queued");
    assert_eq!(waiting.position(), 1);
    guard.release().await.expect("released");
    let guard = unstuck("its turn", waiting).await.expect("held");
    scene.print("a hand-over", began);
    assert_eq!(mutex(&scene.session).contenders().await.expect("listed").len(), 1);
    assert!(mutex(&scene.session).try_lock().await.expect("asked").is_none());
    guard.release().await.expect("released");
    wait_children(&scene.admin, PATH, CHILDREN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_contenders_ahead_are_waited_for_without_looking_at_them() {
    let _turn = turn().await;
    let name = |number: usize| format!("x-lock-{number:010}");
    let scene = Scene::new(PATH, name).await;
    let began = Instant::now();
    // Their numbers are no server's: that of the path is where they end.
    assert!(mutex(&scene.session).try_lock().await.expect("asked").is_none());
    scene.print("try_lock behind strangers", began);
    let began = Instant::now();
    let waiting = unstuck("the queue", mutex(&scene.session).enqueue()).await.expect("queued");
    assert_eq!(waiting.position(), CHILDREN);
    scene.print("a place behind strangers", began);
    let began = Instant::now();
    match mutex(&scene.session).contenders().await {
        Ok(contenders) => assert_eq!(contenders.len(), CHILDREN + 1),
        Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error:?}"),
    }
    scene.print("all contenders", began);
    let began = Instant::now();
    let waiting = tokio::spawn(waiting);
    scene.delete(name).await;
    let guard = unstuck("its turn", waiting).await.expect("no panic").expect("held");
    scene.print("the wait, while all strangers' nodes are deleted", began);
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
    wait_children(&scene.admin, PATH, 0).await;
}

/// Where numbers do not show the order, each contender is looked at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_contenders_at_the_end_of_the_counter_are_looked_at_once_each() {
    let _turn = turn().await;
    let name = |number: usize| format!("x-lock-{:010}", -1 - i32::try_from(number).expect("fits"));
    let scene = Scene::new(PATH, name).await;
    let began = Instant::now();
    let waiting = unstuck("the queue", mutex(&scene.session).enqueue()).await;
    assert!(scene.count(Op::Exists) <= CHILDREN + 1, "{} stats", scene.count(Op::Exists));
    scene.print("a place behind strangers at the end of the counter", began);
    let waiting = tokio::spawn(waiting.expect("queued"));
    scene.delete(name).await;
    let guard = unstuck("its turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
    wait_children(&scene.admin, PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_children_among_the_permits_take_all_room() {
    let _turn = turn().await;
    let scene = Scene::new(&format!("{PATH}/leases"), |number| format!("job-{number:010}")).await;
    let semaphore = Semaphore::new(&scene.session, PATH, 3).expect("a semaphore");
    let began = Instant::now();
    assert_eq!(semaphore.available_permits().await.expect("counted"), 0);
    assert!(semaphore.try_acquire().await.expect("asked").is_none());
    scene.print("a permit among strangers' children", began);
    wait_children(&scene.admin, &format!("{PATH}/leases"), CHILDREN).await;
}
