//! Helpers of all tests: a server, a path of their own, and conditions to wait for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::{Cut, Proxy, Request, Verdict};
use tokio::task::JoinHandle;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, Permission, SessionId, Stat,
};
use zookeeper_recipes::{Error, Mutex, MutexGuard, Result, Servers, Session, SessionState};

use crate::recipes::Recipe;
use crate::wait;

/// The session timeout of the tests: no session ends and no hold is lost because the machine is busy, not even while three servers
/// start again. No hold watches its own node, and no waiter has to prove that its session lives, before some seconds have passed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(if cfg!(virtual_time) { 60 } else { 240 });

/// The session timeout of tests whose point is the end of a session or of the trust in it, or what is timed by them.
pub(crate) const BRIEF: Duration = Duration::from_secs(4);

/// Far longer than anything takes, also on a machine that stalls; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(if cfg!(virtual_time) { 60 } else { 300 });

/// The longest round trip through a proxy in virtual time: four hops of 3 ms each. Without a proxy it is half of it.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(12);

/// What is exact in virtual time, and what a machine that stalls needs in its place.
pub(crate) fn exact_or<T>(exact: T, roomy: T) -> T {
    if cfg!(virtual_time) { exact } else { roomy }
}

/// How long something may take at most, for every upper bound of time in a test. In virtual time the bound is exact. On a real
/// server it is at least [`PATIENCE`]: a shorter one measures the machine.
pub(crate) fn at_most(bound: Duration) -> Duration {
    exact_or(bound, bound.max(PATIENCE))
}

/// Asserts that something which began at this moment has ended after `time`. A timer may be late by two milliseconds.
#[track_caller]
pub(crate) fn assert_took(began: Instant, time: Duration) {
    let took = began.elapsed();
    assert!(took >= time && took <= at_most(time + Duration::from_millis(2)), "{took:?}, not {time:?}");
}

/// Fails the test if this has to wait for a look without an event, which comes after 20 s.
pub(crate) async fn promptly<F: Future>(what: &str, future: F) -> F::Output {
    let ended = tokio::time::timeout(at_most(Duration::from_secs(15)), future).await;
    ended.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// Stops this process: in virtual time nothing runs meanwhile.
pub(crate) fn stall(time: Duration) {
    std::thread::sleep(time);
}

/// A task that waits for a mutex.
pub(crate) fn locking(mutex: Mutex) -> JoinHandle<Result<MutexGuard>> {
    tokio::spawn(async move { mutex.lock().await })
}

/// Waits until a session is connected that has succeeded this one.
pub(crate) async fn renewed(session: &Session, old: SessionId) {
    let renewed = |state: SessionState| state.is_connected() && state != SessionState::Connected(old);
    soon("the renewal", session.states().wait_for(renewed)).await.expect("renewed");
}

/// Lets time pass: for scenes whose point is that time passes; never to wait for something.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The server given to the suite.
pub(crate) fn hosts() -> String {
    std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`")
}

/// The name of a test of a module, as its binary has it: for tests that start one of themselves as a process.
pub(crate) fn full_name(module: &str, test: &str) -> String {
    let (_, module) = module.split_once("::").expect("the crate and a path");
    format!("{module}::{test}")
}

/// Makes what the library makes once a process, before the first scene in virtual time.
#[cfg(virtual_time)]
pub(crate) async fn warm_up() {
    let mutex = Mutex::new(&connect(&hosts()).await, "/warm-up").expect("a mutex");
    mutex.lock().await.expect("held").release().await.expect("released");
}

pub(crate) async fn connect(hosts: &str) -> Session {
    connect_for(hosts, TIMEOUT).await
}

pub(crate) async fn connect_for(hosts: &str, timeout: Duration) -> Session {
    soon("a session", async {
        loop {
            match Session::connect(Servers::new(hosts).with_session_timeout(timeout)).await {
                // On a busy machine it may take longer than the session timeout.
                Err(Error::Unavailable { .. }) if !cfg!(virtual_time) => {}
                connected => return connected.expect("connects"),
            }
        }
    })
    .await
}

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out: {what}"),
    }
}

/// Waits until this is so. What a session logs and counts comes from a task of its own, so it comes a moment later.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    soon(what, async {
        while !is_so() {
            next_look().await;
        }
    })
    .await;
}

/// Asserts that a call ends with its time limit. Give the session a timeout that is much longer, so that nothing else ends it.
pub(crate) async fn ends_at<F: Future>(limit: Duration, call: F) -> F::Output {
    let began = Instant::now();
    let ended = soon("the time limit", call).await;
    assert_took(began, limit);
    ended
}

/// Whether the library sent this request by itself, to renew the trust in its session: a read of the root, or a
/// transaction with only a check of it. It does so when trust is about to end, which is sooner on a machine that
/// stalls.
pub(crate) fn is_keep_alive(request: &Request) -> bool {
    match request.op {
        Op::Exists => request.path == "/" && !request.watch,
        Op::Multi => request.parts == [(Op::Check, "/".to_owned())],
        _ => false,
    }
}

/// The error of a server that throttles.
const THROTTLED: i32 = -127;

/// Lets the answers to these counted requests be that they were throttled. They are done all the same, so there is more to clean up
/// than such a server leaves.
pub(crate) fn throttle(proxy: &Proxy, is_throttled: impl Fn(&Request) -> bool + Send + Sync + 'static) {
    proxy.rewrite_answers(move |request, answer| {
        if is_throttled(request) {
            // The numbers of the request and of the transaction stay.
            answer.truncate(12);
            answer.extend(THROTTLED.to_be_bytes());
        }
    });
}

/// The error of a server that denies a permission.
const NO_AUTH: i32 = -102;

/// Lets the answer to every counted transaction of checks alone be that it was refused as a whole, which a server can do by
/// itself. They are done all the same.
pub(crate) fn refuse_checks(proxy: &Proxy) {
    proxy.rewrite_answers(|request, answer| {
        if request.op == Op::Multi && request.parts.iter().all(|(op, _)| *op == Op::Check) {
            // The numbers of the request and of the transaction stay.
            answer.truncate(12);
            answer.extend(NO_AUTH.to_be_bytes());
        }
    });
}

/// How many extra listings a test has to allow for each session that waits or holds at a path for this long. Such a
/// session lists again from time to time, but not within 15 seconds.
pub(crate) fn slow_looks(during: Duration) -> usize {
    usize::try_from(during.as_secs() / 15).expect("a test is not that long")
}

/// A session through a proxy, an admin client beside it, and a fresh path.
///
/// The proxy does not count keep-alives, unless [`Proxy::leave_out`] is called with `|_| false`.
pub(crate) struct World {
    pub(crate) session: Session,
    pub(crate) proxy: Proxy,
    pub(crate) admin: Client,
    pub(crate) path: String,
    pub(crate) hosts: String,
    timeout: Duration,
    /// The folders of the nodes that it waits for.
    pub(crate) dirs: Vec<String>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::at(&hosts(), TIMEOUT).await
    }

    /// A world for tests whose point is that a session ends, or the trust in it.
    pub(crate) async fn brief() -> Self {
        Self::at(&hosts(), BRIEF).await
    }

    /// A world whose lock path exists, for tests that count the requests of a mutex.
    pub(crate) async fn with_path() -> Self {
        let world = Self::new().await;
        world.make_path().await;
        world
    }

    /// A world that waits in the folders of a recipe.
    pub(crate) async fn of(recipe: &Recipe) -> Self {
        let mut world = Self::new().await;
        world.dirs = recipe.dirs.iter().map(|dir| format!("{}{dir}", world.path)).collect();
        world
    }

    pub(crate) async fn at(hosts: &str, timeout: Duration) -> Self {
        let proxy = Proxy::start(hosts.split(',').next().expect("a host")).await.expect("a proxy");
        proxy.leave_out(is_keep_alive);
        let session = connect_for(&proxy.hosts(), timeout).await;
        let admin = admin_client(hosts).await;
        let path = format!("/it-{}/lock", Uuid::new_v4().simple());
        Self { session, proxy, admin, dirs: vec![path.clone()], path, hosts: hosts.to_owned(), timeout }
    }

    pub(crate) fn mutex(&self) -> Mutex {
        Mutex::new(&self.session, &self.path).expect("a mutex")
    }

    /// Lets pass what the proxy holds, and all that follows.
    pub(crate) fn let_pass(&self) {
        self.proxy.on_request(|_| Verdict::Forward);
        self.proxy.heal();
    }

    /// Another session with the same timeout, straight to the server.
    pub(crate) async fn other(&self) -> Session {
        connect_for(&self.hosts, self.timeout).await
    }

    pub(crate) async fn other_mutex(&self) -> Mutex {
        Mutex::new(&self.other().await, &self.path).expect("a mutex")
    }

    /// The kinds of the requests that the proxy has counted, in order.
    pub(crate) fn ops(&self) -> Vec<Op> {
        self.proxy.requests().iter().map(|request| request.op).collect()
    }

    /// How many requests of this kind the proxy has counted.
    pub(crate) fn count(&self, op: Op) -> usize {
        self.proxy.requests().iter().filter(|request| request.op == op).count()
    }

    /// How many requests that create nodes the proxy has counted.
    pub(crate) fn creates(&self) -> usize {
        let creates = |op: Op| matches!(op, Op::Create | Op::Create2);
        let is_create = |one: &&Request| creates(one.op) || one.parts.iter().any(|(op, _)| creates(*op));
        self.proxy.requests().iter().filter(is_create).count()
    }

    /// How many listings the proxy has counted of the lock path.
    pub(crate) fn listings(&self) -> usize {
        self.proxy.requests().iter().filter(|one| self.is_listing(one)).count()
    }

    pub(crate) fn is_listing(&self, one: &Request) -> bool {
        matches!(one.op, Op::GetChildren | Op::GetChildren2) && one.path == self.path
    }

    /// The names under the lock path, in the order of their numbers.
    pub(crate) async fn children(&self) -> Vec<String> {
        children(&self.admin, &self.path).await
    }

    /// Waits until there are `count` nodes of the lock, and returns their names.
    pub(crate) async fn wait_children(&self, count: usize) -> Vec<String> {
        wait_nodes(&self.admin, &self.dirs, count).await
    }

    /// Waits until the node at this place in the queue is watched by itself and that was answered, and returns it.
    pub(crate) async fn own_watch(&self, place: usize) -> String {
        let node = format!("{}/{}", self.path, self.children().await[place]);
        let is_own =
            |one: &Request| one.op == Op::GetData && one.watch && one.path == node && one.answer.is_some();
        soon("its own watch", self.proxy.wait_for(is_own)).await;
        node
    }

    /// Waits until no node is left.
    pub(crate) async fn wait_empty(&self) {
        self.wait_children(0).await;
    }

    /// Creates the paths of the recipe, so that a test does not count their creation.
    pub(crate) async fn make_path(&self) {
        make_paths(&self.admin, &self.dirs).await;
    }

    /// Creates the lock path with only this permission, for anyone.
    pub(crate) async fn restrict(&self, permission: Permission) {
        let root = self.path.rsplit_once('/').expect("two levels").0;
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.admin.create(root, b"", &open).await.expect("created");
        let acls = [Acl::new(permission, AuthId::anyone())];
        let mode = CreateMode::Persistent.with_acls(Acls::new(&acls));
        self.admin.create(&self.path, b"", &mode).await.expect("created");
    }

    /// Ends the present session on the server, and keeps its client disconnected from now on, as if its process had
    /// died.
    pub(crate) async fn kill(&self) {
        let session = self.proxy.session().expect("a session");
        self.proxy.refuse();
        testbed::expire::expire(&self.hosts, session).await.expect("expires");
    }

    /// Ends the present session on the server, without the library's knowledge.
    pub(crate) async fn expire(&self) {
        self.expire_that_of(&self.session).await;
    }

    /// Does the same to another session behind the proxy.
    pub(crate) async fn expire_that_of(&self, session: &Session) {
        self.expire_unseen(session).await;
        self.proxy.heal();
    }

    /// Does the same, and leaves the proxy closed: the client does not know yet.
    pub(crate) async fn expire_unseen(&self, session: &Session) {
        let id = session.id().0;
        let password = self.proxy.password(id).expect("the session went through the proxy");
        // The client would reattach to its session in the meantime.
        self.proxy.refuse();
        testbed::expire::expire(&self.hosts, (id, password)).await.expect("expires");
    }
}

/// A client whose session survives a busy machine or a paused server.
pub(crate) async fn admin_client(hosts: &str) -> Client {
    Client::connector().with_session_timeout(TIMEOUT).connect(hosts).await.expect("connects")
}

/// Creates these paths as persistent nodes. The server would remove the containers of a recipe at its next check,
/// perhaps while a test counts.
pub(crate) async fn make_paths(admin: &Client, paths: &[String]) {
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    join_all(paths.iter().map(async |path| admin.mkdir(path, &open).await.expect("created"))).await;
}

/// Deletes an empty path, unless the server has removed it already, as it does with containers.
pub(crate) async fn remove_path(admin: &Client, path: &str) {
    match admin.delete(path, None).await {
        Ok(()) | Err(ZkError::NoNode) => {}
        Err(error) => panic!("cannot delete {path}: {error}"),
    }
}

pub(crate) async fn children(admin: &Client, path: &str) -> Vec<String> {
    match admin.list_children(path).await {
        Ok(names) => sorted(names),
        Err(ZkError::NoNode) => Vec::new(),
        Err(error) => panic!("cannot list {path}: {error}"),
    }
}

/// Waits until what is at a path satisfies `condition`.
pub(crate) async fn stat_until(
    admin: &Client,
    path: &str,
    condition: impl Fn(Option<&Stat>) -> bool,
) -> Option<Stat> {
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

/// All paths below `root`, without `root` and the servers' own.
pub(crate) async fn tree(admin: &Client, root: &str) -> BTreeSet<String> {
    let (mut found, mut unseen) = (BTreeSet::new(), vec![root.trim_end_matches('/').to_owned()]);
    while let Some(parent) = unseen.pop() {
        let names = match admin.list_children(if parent.is_empty() { "/" } else { &parent }).await {
            Ok(names) => names,
            Err(ZkError::NoNode | ZkError::NoAuth) => continue,
            Err(error) => panic!("cannot list {parent}: {error}"),
        };
        let paths = names.iter().map(|name| format!("{parent}/{name}")).filter(|path| path != "/zookeeper");
        for path in paths {
            unseen.push(path.clone());
            found.insert(path);
        }
    }
    found
}

pub(crate) async fn wait_children(admin: &Client, path: &str, count: usize) -> Vec<String> {
    wait_nodes(admin, &[path.to_owned()], count).await
}

async fn wait_nodes(admin: &Client, dirs: &[String], count: usize) -> Vec<String> {
    match tokio::time::timeout(PATIENCE, wait::for_nodes(admin, dirs, count)).await {
        Ok(paths) => sorted(paths.iter().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned()).collect()),
        Err(_) => {
            let mut there = Vec::new();
            for dir in dirs {
                there.push(children(admin, dir).await);
            }
            panic!("timed out waiting for {count} nodes: {there:?}")
        }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
    names
}

/// Polls `future` at most `times` times, when it is woken, and drops it. `None` if it has not completed by then.
pub(crate) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    use std::task::Poll;

    let mut future = std::pin::pin!(future);
    let mut left = times;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Plays something with a cut before and behind each frame of its session, until one is over before its cut.
pub(crate) async fn at_every_frame(proxy: &Proxy, mut play: impl AsyncFnMut(Cut)) {
    for at in [Cut::BeforeRequest as fn(usize) -> Cut, Cut::AfterRequest, Cut::BeforeAnswer, Cut::AfterAnswer] {
        for k in 1.. {
            proxy.reset();
            proxy.cut(at(k));
            play(at(k)).await;
            // A cut that can fall has fallen, or will with the last answer.
            let fired = proxy.requests().len() >= k;
            proxy.heal();
            if !fired {
                assert!(k > 2, "{:?}: frames were cut", at(k));
                break;
            }
        }
    }
}

/// How many frames these requests and their answers are.
pub(crate) fn frames_of(requests: &[Request]) -> usize {
    requests.iter().map(|request| 1 + usize::from(request.answer.is_some())).sum()
}

/// Runs `future` until this many frames have passed the proxy since it began, requests and answers, and drops it. `None` if it has not
/// completed by then.
pub(crate) async fn until_frame<F: Future>(proxy: &Proxy, frames: usize, future: F) -> Option<F::Output> {
    proxy.reset();
    tokio::select! {
        biased;
        () = proxy.wait_until(|all| frames_of(all) >= frames) => None,
        output = future => Some(output),
    }
}
