//! Many waiters behind one holder: when each was granted, what woke it, and what it requested.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::frames::{Kind, Op};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use zookeeper_recipes::LockGuard;

use crate::counter::number;
use crate::recipes::Recipe;
use crate::support::{TIMEOUT, World, children, slow_looks, soon, wait_children};
use crate::wait;

/// A holder, and all that wait behind it.
pub(super) struct Crowd {
    recipe: &'static Recipe,
    path: String,
    /// The path of the queue.
    queue: String,
    pub(super) first: World,
    guard: Box<dyn LockGuard>,
    pub(super) waiters: Vec<(World, JoinHandle<()>)>,
    since: Instant,
    floor: Arc<StdMutex<Vec<(i64, Step)>>>,
}

/// What a waiter did, by its session.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Enter,
    Leave,
}

/// How a waiter waited.
#[derive(Debug)]
pub(super) struct Waited {
    session: i64,
    /// How long it waited and held, at most.
    during: Duration,
    name: String,
    czxid: i64,
    listings: usize,
    /// How often it watched the node of another, and how often it was notified of one's deletion.
    pub(super) watches: usize,
    pub(super) woken: usize,
    /// How often it was notified that there may be room for its leases.
    woken_for_room: usize,
    /// How often it read the czxid of each node.
    reads: BTreeMap<String, usize>,
}

impl Waited {
    fn number(&self) -> i32 {
        number(&self.name)
    }

    fn is_reader(&self) -> bool {
        self.name.contains("__READ__")
    }

    /// Whether it has listed the queue `times` times, or more because it waited for long.
    pub(super) fn has_listed(&self, times: usize) -> bool {
        (times..=times + slow_looks(self.during)).contains(&self.listings)
    }

    fn excludes(&self, other: &Self) -> bool {
        !(self.is_reader() && other.is_reader())
    }
}

/// Whether the number alone does not determine the position.
pub(super) fn is_near_wrap(number: i32) -> bool {
    number == i32::MAX || number < 0
}

/// Where the nodes of a lock at `/name` are.
pub(super) fn queues(name: &str, recipe: &Recipe) -> Vec<String> {
    recipe.dirs.iter().map(|dir| format!("/{name}{dir}")).collect()
}

pub(super) async fn worlds(hosts: &str, count: usize) -> Vec<World> {
    join_all((0..count).map(|_| World::at(hosts, TIMEOUT))).await
}

fn session(world: &World) -> i64 {
    world.session.id().0
}

impl Crowd {
    pub(super) async fn behind(recipe: &'static Recipe, hosts: &str, path: &str) -> Self {
        let first = World::at(hosts, TIMEOUT).await;
        let guard = (recipe.lock)(&first.session, path).lock().await.expect("held");
        // A turn of a semaphore that is not yet deleted would be ahead.
        let dirs: Vec<_> = recipe.dirs.iter().map(|dir| format!("{path}{dir}")).collect();
        soon("the hold alone", wait::for_nodes(&first.admin, &dirs, (recipe.nodes)(0))).await;
        let (path, queue) = (path.to_owned(), format!("{path}{}", recipe.dirs[0]));
        Self {
            recipe,
            path,
            queue,
            first,
            guard,
            waiters: Vec::new(),
            since: Instant::now(),
            floor: Arc::default(),
        }
    }

    /// Lets all of these contend at once. They hold for a round trip, and until as many hold as the barrier wants.
    pub(super) fn join(&mut self, recipes: &[&Recipe], worlds: Vec<World>, meeting: Option<&Arc<Barrier>>) {
        for (recipe, world) in recipes.iter().cycle().zip(worlds) {
            let lock = (recipe.lock)(&world.session, &self.path);
            let (session, admin, queue) = (session(&world), world.admin.clone(), self.queue.clone());
            let (floor, meeting) = (self.floor.clone(), meeting.cloned());
            let note = move |step| floor.lock().expect("unpoisoned").push((session, step));
            let task = tokio::spawn(async move {
                let guard = lock.lock().await.expect("held");
                note(Step::Enter);
                let _ = children(&admin, &queue).await;
                if let Some(meeting) = meeting {
                    meeting.wait().await;
                }
                note(Step::Leave);
                guard.release().await.expect("released");
            });
            self.waiters.push((world, task));
        }
    }

    /// Waits until each of them has its watch.
    pub(super) async fn watching(&self) {
        for (world, _) in &self.waiters {
            let watches = world.proxy.wait_for(|request| request.watch && request.answer.is_some());
            soon("somebody to wait for", watches).await;
        }
    }

    /// Grants all of them, one after the other, and returns how each of them waited, in the order of their creation.
    pub(super) async fn go(self) -> Vec<Waited> {
        self.watching().await;
        let mut nodes = BTreeMap::new();
        for name in children(&self.first.admin, &self.queue).await {
            let stat = self.first.admin.check_stat(&format!("{}/{name}", self.queue)).await.expect("asked");
            let stat = stat.expect("nobody leaves");
            nodes.insert(stat.ephemeral_owner, (name, stat.czxid));
        }
        self.guard.release().await.expect("released");
        let mut crowd = Vec::new();
        for (world, task) in self.waiters {
            soon("its turn", task).await.expect("no panic");
            let (name, czxid) = nodes.remove(&session(&world)).expect("a node");
            crowd.push(waited(&world, &self.queue, name, czxid, self.since.elapsed()));
            world.session.close().await.expect("closed");
        }
        for dir in self.recipe.dirs {
            wait_children(&self.first.admin, &format!("{}{dir}", self.path), 0).await;
        }
        crowd.sort_by_key(|one| one.czxid);
        let floor = self.floor.lock().expect("unpoisoned").clone();
        assert_came_in_turn(&crowd, &floor);
        crowd
    }
}

fn waited(world: &World, queue: &str, name: String, czxid: i64, during: Duration) -> Waited {
    let below = format!("{queue}/");
    let own = format!("{below}{name}");
    let others = |path: &str| path.starts_with(&below) && path != own;
    let requests = world.proxy.requests();
    let asked = |op| requests.iter().filter(move |request| request.op == op);
    let mut reads = BTreeMap::new();
    for request in asked(Op::Exists).filter(|request| request.path.starts_with(&below)) {
        *reads.entry(request.path.clone()).or_default() += 1;
    }
    let frames = world.proxy.uncounted();
    let notified = |wanted: &dyn Fn(&str) -> bool| {
        let is_wanted = |kind: &Kind| matches!(kind, Kind::Notification { path, .. } if wanted(path));
        frames.iter().filter(|frame| is_wanted(&frame.kind)).count()
    };
    Waited {
        session: session(world),
        during,
        czxid,
        listings: asked(Op::GetChildren2).filter(|request| request.path == queue).count(),
        watches: requests.iter().filter(|request| request.watch && others(&request.path)).count(),
        woken: notified(&others),
        woken_for_room: notified(&|path| path.ends_with("/leases")),
        reads,
        name,
    }
}

/// A contender that was created before another and excludes it had left when the other was granted.
fn assert_came_in_turn(crowd: &[Waited], floor: &[(i64, Step)]) {
    let when = |one: &Waited, step| floor.iter().position(|at| *at == (one.session, step)).expect("it was in");
    for (place, one) in crowd.iter().enumerate() {
        for before in crowd[..place].iter().filter(|before| before.excludes(one)) {
            let (left, entered) = (when(before, Step::Leave), when(one, Step::Enter));
            assert!(left < entered, "{} was granted before {} had left: {floor:?}", one.name, before.name);
        }
    }
}

/// A `czxid` is read once, only if it is needed, and only by a waiter that needs it: both its name and the waiter are in the
/// zone. Returns how many were read.
pub(super) fn assert_reads(crowd: &[Waited], what: &str) -> usize {
    for one in crowd {
        let (own, reads) = (one.number(), &one.reads);
        assert!(reads.values().all(|times| *times == 1), "{what}: {own} asked twice: {reads:?}");
        assert!(reads.keys().all(|path| is_near_wrap(number(path))), "{what}: {own} needs no {reads:?}");
        assert!(is_near_wrap(own) || reads.is_empty(), "{what}: {own} alone determines the position: {reads:?}");
        // Its own is known from its creation.
        assert!(!reads.keys().any(|path| path.ends_with(&one.name)), "{what}: {own} is its own: {reads:?}");
    }
    crowd.iter().map(|one| one.reads.len()).sum()
}

/// Each was woken once, for its grant.
pub(super) fn assert_woken_once(crowd: &[Waited], recipe: &Recipe, what: &str) {
    for (place, one) in crowd.iter().enumerate() {
        let (number, woken) = (one.number(), (one.woken, one.woken_for_room));
        if recipe.dirs.len() == 1 {
            // The readers right before a writer may leave one after the other, the last one first.
            let readers = crowd[..place].iter().rev().take_while(|before| before.is_reader()).count();
            let most = if one.is_reader() { 1 } else { readers.max(1) };
            assert!((1..=most).contains(&woken.0), "{what}: {number} was woken {woken:?} times, of {most}");
            if most == 1 {
                // The first need not list again: nobody else was ahead of the only one that was.
                let has_listed = one.has_listed(2) || (place == 0 && one.has_listed(1));
                assert!(has_listed && one.watches == 1, "{what}: {number}: {one:?}");
            }
        } else {
            // The first has the turn already, and all it waits for is room; for the others there may be room at once.
            assert_eq!(woken.0, usize::from(place > 0), "{what}: {number}");
            assert!(woken.1 <= 1 && (place > 0 || woken.1 == 1), "{what}: {number} was woken {woken:?} times");
        }
    }
}

pub(super) fn numbers(crowd: &[Waited]) -> Vec<i32> {
    crowd.iter().map(Waited::number).collect()
}
