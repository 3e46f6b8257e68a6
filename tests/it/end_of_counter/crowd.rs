//! A crowd in line behind one who holds: who comes in when, what wakes it, and what it asks for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::future::join_all;
use testbed::frames::{Kind, Op};
use testbed::{Ensemble, Server};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::LockGuard;

use super::{number, server};
use crate::recipes::{ELECTION, MUTEX, READER, REENTRANT_MUTEX, Recipe, SEMAPHORE, SEVERAL_PERMITS, WRITER};
use crate::support::{World, children, soon, wait_children};

/// So long that nobody has to prove that it lives, and no hold to watch its own node.
const UNHURRIED: Duration = Duration::from_secs(60);

/// All that wait, behind one who holds.
struct Crowd {
    recipe: &'static Recipe,
    path: String,
    /// The path under which they stand in line.
    line: String,
    first: World,
    guard: Box<dyn LockGuard>,
    waiters: Vec<(World, JoinHandle<()>)>,
    floor: Arc<StdMutex<Vec<(i64, Step)>>>,
}

/// What one of the crowd did, by its session.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Enter,
    Leave,
}

/// How one of the crowd waited.
#[derive(Debug)]
struct Stood {
    session: i64,
    name: String,
    czxid: i64,
    listings: usize,
    /// How often it looked for the end of another's node, and how often it was told of one.
    watches: usize,
    woken: usize,
    /// How often it was told that there may be room for its leases.
    woken_for_room: usize,
    /// How often it asked when a node was created.
    reads: BTreeMap<String, usize>,
}

impl Stood {
    fn number(&self) -> i32 {
        number(&self.name)
    }

    fn is_reader(&self) -> bool {
        self.name.contains("__READ__")
    }

    fn excludes(&self, other: &Self) -> bool {
        !(self.is_reader() && other.is_reader())
    }
}

/// Whether the number alone does not tell the place.
fn is_in_zone(number: i32) -> bool {
    number == i32::MAX || number < 0
}

/// Where the nodes of a lock at `/name` are.
fn lines(name: &str, recipe: &Recipe) -> Vec<String> {
    recipe.dirs.iter().map(|dir| format!("/{name}{dir}")).collect()
}

async fn worlds(hosts: &str, count: usize) -> Vec<World> {
    join_all((0..count).map(|_| World::at(hosts, UNHURRIED))).await
}

fn session(world: &World) -> i64 {
    world.session.id().0
}

impl Crowd {
    async fn behind(recipe: &'static Recipe, hosts: &str, path: &str) -> Self {
        let first = World::at(hosts, UNHURRIED).await;
        let guard = (recipe.lock)(&first.session, path).lock().await.expect("held");
        let (path, line) = (path.to_owned(), format!("{path}{}", recipe.dirs[0]));
        Self { recipe, path, line, first, guard, waiters: Vec::new(), floor: Arc::default() }
    }

    /// All of these ask at once. They hold for a round trip, and until as many do as are to meet.
    fn join(&mut self, recipes: &[&Recipe], worlds: Vec<World>, meeting: Option<&Arc<Barrier>>) {
        for (recipe, world) in recipes.iter().cycle().zip(worlds) {
            let lock = (recipe.lock)(&world.session, &self.path);
            let (session, admin, line) = (session(&world), world.admin.clone(), self.line.clone());
            let (floor, meeting) = (self.floor.clone(), meeting.cloned());
            let note = move |step| floor.lock().expect("unpoisoned").push((session, step));
            let task = tokio::spawn(async move {
                let guard = lock.lock().await.expect("held");
                note(Step::Enter);
                let _ = children(&admin, &line).await;
                if let Some(meeting) = meeting {
                    meeting.wait().await;
                }
                note(Step::Leave);
                guard.release().await.expect("released");
            });
            self.waiters.push((world, task));
        }
    }

    /// Waits until each of them is set to be woken.
    async fn watching(&self) {
        for (world, _) in &self.waiters {
            let watches = world.proxy.wait_for(|request| request.watch && request.answer.is_some());
            soon("somebody to wait for", watches).await;
        }
    }

    /// Lets all of them in, one after the other, and tells how each of them waited, in the order of their creation.
    async fn go(self) -> Vec<Stood> {
        self.watching().await;
        let mut nodes = BTreeMap::new();
        for name in children(&self.first.admin, &self.line).await {
            let stat = self.first.admin.check_stat(&format!("{}/{name}", self.line)).await.expect("asked");
            let stat = stat.expect("nobody leaves");
            nodes.insert(stat.ephemeral_owner, (name, stat.czxid));
        }
        self.guard.release().await.expect("released");
        let mut crowd = Vec::new();
        for (world, task) in self.waiters {
            soon("its turn", task).await.expect("no panic");
            let (name, czxid) = nodes.remove(&session(&world)).expect("a node");
            crowd.push(stood(&world, &self.line, name, czxid));
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

fn stood(world: &World, line: &str, name: String, czxid: i64) -> Stood {
    let below = format!("{line}/");
    let own = format!("{below}{name}");
    let others = |path: &str| path.starts_with(&below) && path != own;
    let requests = world.proxy.requests();
    let asked = |op| requests.iter().filter(move |request| request.op == op);
    let mut reads = BTreeMap::new();
    for request in asked(Op::Exists).filter(|request| request.path.starts_with(&below)) {
        *reads.entry(request.path.clone()).or_default() += 1;
    }
    let frames = world.proxy.uncounted();
    let told = |wanted: &dyn Fn(&str) -> bool| {
        let told = |kind: &Kind| matches!(kind, Kind::Notification { path, .. } if wanted(path));
        frames.iter().filter(|frame| told(&frame.kind)).count()
    };
    Stood {
        session: session(world),
        czxid,
        listings: asked(Op::GetChildren).count(),
        watches: asked(Op::GetData).filter(|request| others(&request.path)).count(),
        woken: told(&others),
        woken_for_room: told(&|path| path.ends_with("/leases")),
        reads,
        name,
    }
}

/// Whoever was created before another and excludes it had left when the other came in.
fn assert_came_in_turn(crowd: &[Stood], floor: &[(i64, Step)]) {
    let when = |one: &Stood, step| floor.iter().position(|at| *at == (one.session, step)).expect("it was in");
    for (place, one) in crowd.iter().enumerate() {
        for before in crowd[..place].iter().filter(|before| before.excludes(one)) {
            let (left, entered) = (when(before, Step::Leave), when(one, Step::Enter));
            assert!(left < entered, "{} came in before {} had left: {floor:?}", one.name, before.name);
        }
    }
}

/// A `czxid` is asked for once, only if it is needed, and by those only who need it: the names and the asker are in the
/// zone. Returns how many were asked for.
fn assert_reads(crowd: &[Stood], what: &str) -> usize {
    for one in crowd {
        let (own, reads) = (one.number(), &one.reads);
        assert!(reads.values().all(|times| *times == 1), "{what}: {own} asked twice: {reads:?}");
        assert!(reads.keys().all(|path| is_in_zone(number(path))), "{what}: {own} needs no {reads:?}");
        assert!(is_in_zone(own) || reads.is_empty(), "{what}: {own} has a place of its own: {reads:?}");
        // Its own is known from its creation.
        assert!(!reads.keys().any(|path| path.ends_with(&one.name)), "{what}: {own} is its own: {reads:?}");
    }
    crowd.iter().map(|one| one.reads.len()).sum()
}

/// Each was woken once, for its turn.
fn assert_woken_once(crowd: &[Stood], recipe: &Recipe, what: &str) {
    for (place, one) in crowd.iter().enumerate() {
        let (number, woken) = (one.number(), (one.woken, one.woken_for_room));
        if recipe.dirs.len() == 1 {
            // As many readers as stand right before a writer may leave one after the other, the last one first.
            let readers = crowd[..place].iter().rev().take_while(|before| before.is_reader()).count();
            let most = if one.is_reader() { 1 } else { readers.max(1) };
            assert!((1..=most).contains(&woken.0), "{what}: {number} was woken {woken:?} times, of {most}");
            if most == 1 {
                assert_eq!((one.listings, one.watches), (2, 1), "{what}: {number}");
            }
        } else {
            // The first has the turn already, and all it waits for is room; for the others there may be room at once.
            assert_eq!(woken.0, usize::from(place > 0), "{what}: {number}");
            assert!(woken.1 <= 1 && (place > 0 || woken.1 == 1), "{what}: {number} was woken {woken:?} times");
        }
    }
}

fn numbers(crowd: &[Stood]) -> Vec<i32> {
    crowd.iter().map(Stood::number).collect()
}

/// Far from the end, across it, and at it.
const STARTS: [i32; 3] = [0, i32::MAX - 4, i32::MAX];

/// Counted on both sides of the end and across it. Whoever waits lists once to see who is ahead and once when it is its
/// turn, and watches one node; at the end it asks once for each number that does not tell its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_wakes_one_and_a_czxid_is_read_once_where_it_is_needed() {
    const CROWD: usize = 8;
    let recipes = [
        ("mutex", &MUTEX),
        ("reentrant", &REENTRANT_MUTEX),
        ("writer", &WRITER),
        ("election", &ELECTION),
        ("semaphore", &SEMAPHORE),
    ];
    for next in STARTS {
        let lines: Vec<_> = recipes.iter().flat_map(|(name, recipe)| lines(name, recipe)).collect();
        let server = server(&lines, next).await;
        for (name, recipe) in recipes {
            let what = format!("{name} from {next}");
            let mut crowd = Crowd::behind(recipe, &server.hosts(), &format!("/{name}")).await;
            crowd.join(&[recipe], worlds(&server.hosts(), CROWD).await, None);
            let crowd = crowd.go().await;
            let asked = assert_reads(&crowd, &what);
            let numbers = numbers(&crowd);
            println!("{what}: {asked} reads of a czxid for {CROWD} who waited, numbers {numbers:?}");
            assert_woken_once(&crowd, recipe, &what);
            assert_eq!(asked > 0, next > 0, "{what}: {asked}");
            let in_zone = numbers.iter().filter(|number| is_in_zone(**number)).count();
            assert_eq!(in_zone > 0, next > 0, "{what}: {numbers:?}");
            assert_eq!(in_zone == CROWD, next == i32::MAX, "{what}: {numbers:?}");
        }
    }
}

/// All readers behind a writer are in at once, each woken once by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_wakes_each_reader_once_and_all_come_in_together() {
    const CROWD: usize = 8;
    for next in STARTS {
        let server = server(&["/rw".to_owned()], next).await;
        let what = format!("readers from {next}");
        let mut crowd = Crowd::behind(&WRITER, &server.hosts(), "/rw").await;
        crowd.join(&[&READER], worlds(&server.hosts(), CROWD).await, Some(&Arc::new(Barrier::new(CROWD))));
        let crowd = crowd.go().await;
        let asked = assert_reads(&crowd, &what);
        println!("{what}: {asked} reads of a czxid for {CROWD} who waited, numbers {:?}", numbers(&crowd));
        assert_woken_once(&crowd, &WRITER, &what);
        // Nobody asks about other readers, and the writer's number tells its place unless it is at the end itself.
        assert_eq!(asked, if next == i32::MAX { CROWD } else { 0 }, "{what}");
    }
}

/// Who looks again because somebody in the middle has left knows the others already.
#[tokio::test]
async fn czxid_is_not_asked_for_again_when_somebody_ahead_gives_up() {
    let server = server(&["/mutex".to_owned()], i32::MAX).await;
    let hosts = server.hosts();
    let mut crowd = Crowd::behind(&MUTEX, &hosts, "/mutex").await;
    let first = format!("/mutex/{}", children(&crowd.first.admin, "/mutex").await[0]);
    for _ in 0..3 {
        crowd.join(&[&MUTEX], worlds(&hosts, 1).await, None);
        crowd.watching().await;
    }
    let (_gone, task) = crowd.waiters.remove(0);
    task.abort();
    let proxy = &crowd.waiters[0].0.proxy;
    let watches = proxy.wait_for(|request| request.watch && request.path == first && request.answer.is_some());
    soon("another look", watches).await;
    let crowd = crowd.go().await;
    // They asked for all who were ahead of them at first, and the one also for the other who came later.
    assert_eq!(assert_reads(&crowd, "mutex"), 3 + 3, "{crowd:?}");
    let woken: Vec<_> = crowd.iter().map(|one| (one.listings, one.watches, one.woken)).collect();
    assert_eq!(woken, [(3, 2, 2), (2, 1, 1)]);
}

/// Whatever is created while nothing is decided goes on counting beyond the end; then the counter falls back to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_of_numbers_from_before_at_and_beyond_the_end_goes_on() {
    const MAX: i32 = i32::MAX;
    const MIN: i32 = i32::MIN;
    let rw: &[&Recipe] = &[&READER, &WRITER, &READER];
    let recipes: [(_, _, &[&Recipe]); 5] = [
        ("mutex", &MUTEX, &[&MUTEX]),
        ("election", &ELECTION, &[&ELECTION]),
        ("rw", &WRITER, rw),
        ("semaphore", &SEMAPHORE, &[&SEMAPHORE]),
        ("permits", &SEVERAL_PERMITS, &[&SEVERAL_PERMITS]),
    ];
    // They wait for each other while the followers are paused, and are to be with us afterwards.
    let mut builder = Ensemble::builder().tick(Duration::from_millis(500)).sync_limit(100);
    for (name, recipe, _) in recipes {
        builder =
            recipe.dirs.iter().fold(builder, |builder, dir| builder.counter(format!("/{name}{dir}"), MAX - 3));
    }
    let ensemble = builder.start().await.expect("servers");
    ensemble.settled().await.expect("all take part");
    let leader = ensemble.server(ensemble.leader().await.expect("a leader"));
    let followers = ensemble.followers().await.expect("followers");
    let followers: Vec<_> = followers.into_iter().map(|follower| ensemble.server(follower)).collect();
    for (name, recipe, kinds) in recipes {
        let mut crowd = Crowd::behind(recipe, &leader.hosts(), &format!("/{name}")).await;
        for size in [6, 1, 4] {
            let worlds = worlds(&leader.hosts(), size).await;
            followers.iter().for_each(|follower| follower.pause());
            crowd.join(kinds, worlds, None);
            // Of each a create, and a listing that waits for it.
            soon("creates under way", under_way(leader, 2 * size)).await;
            followers.iter().for_each(|follower| follower.resume());
            crowd.watching().await;
        }
        let crowd = crowd.go().await;
        let asked = assert_reads(&crowd, name);
        println!("{name}: {asked} reads of a czxid for {} who waited, numbers {:?}", crowd.len(), numbers(&crowd));
        let one_by_one = [MAX - 2, MAX - 1, MAX, MIN, MIN + 1, MIN + 2, MAX, MAX, MIN, MIN + 1, MIN + 2];
        assert_eq!(numbers(&crowd), one_by_one, "{name}");
        assert_woken_once(&crowd, recipe, name);
        assert!(asked > 0, "{name}");
    }
}

/// Waits until a server has so many requests without an answer.
async fn under_way(server: &Server, count: usize) {
    let mut beat = interval(Duration::from_millis(10));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let counts = server.four_letter_word("mntr").await.expect("it answers");
        let found = counts.lines().find_map(|line| line.strip_prefix("zk_outstanding_requests"));
        let found = found.expect("a count of requests").trim();
        if found.parse::<usize>().expect("a number") >= count {
            return;
        }
    }
}
