//! The storm: sessions that use all kinds beside each other, under faults of all sorts that overlap, recorded and judged by a model of
//! each kind. And the same workloads in calm, where the order of the queue is judged, too.
//!
//! `STORM_SEED=7` repeats a workload, as far as the scheduling of the machine lets it be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::{join, join_all};
use testbed::Server;
use testbed::history::{History, Model, Step};
use testbed::proxy::{Closing, Cut};
use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use uuid::Uuid;
use zookeeper_groups::{KeptNode, Members};
use zookeeper_recipes::zookeeper_client::{Acls, Client as ZkClient, CreateMode};

use crate::counter;
use crate::support::{
    TIMEOUT, World, admin_client, children, exact_or, pass, promptly, soon, stall, throttle, until,
};
use crate::ways::Ways;
use crate::workload::{
    Client, PERMITS, Round, campaign, claim, fire, lock, lock_again, lock_some, read_and_write_some,
    read_or_write, reenter, take_permits,
};

struct Kind {
    name: &'static str,
    round: Round,
    /// Where its nodes are, below its path.
    dirs: &'static [&'static str],
    model: Model,
    /// The model in calm.
    calm: Model,
}

const MEMBERS: &[&str] = &["/a", "/b", "/c", "/d"];

/// Of two numbers.
const SLOT_DIRS: &[&str] = &["/0", "/1", "/queue-2"];

const KINDS: [Kind; 10] = [
    kind("mutex", |client| Box::pin(lock(client)), &[""], Model::FencedMutex, Model::Fifo),
    kind(
        "mutex_again",
        |client| Box::pin(lock_again(client)),
        &["/often", "/now-and-then", "/0", "/1", "/2", "/3", "/4"],
        Model::FencedMutex,
        Model::Fifo,
    ),
    kind("reentrant", |client| Box::pin(reenter(client)), &[""], Model::ReentrantMutex, Model::Fifo),
    kind("rwlock", |client| Box::pin(read_or_write(client)), &[""], Model::ReadWrite, Model::Fifo),
    kind(
        "semaphore",
        |client| Box::pin(take_permits(client)),
        &["/locks", "/leases"],
        Model::Permits(PERMITS),
        Model::Permits(PERMITS),
    ),
    kind("multi_lock", |client| Box::pin(lock_some(client)), MEMBERS, Model::FencedMutex, Model::Mutex),
    kind(
        "mixed_multi_lock",
        |client| Box::pin(read_and_write_some(client)),
        MEMBERS,
        Model::ReadWrite,
        Model::ReadWrite,
    ),
    kind("election", |client| Box::pin(campaign(client)), &[""], Model::FencedMutex, Model::Fifo),
    kind("slots", |client| Box::pin(claim(client)), SLOT_DIRS, Model::FencedMutex, Model::FencedMutex),
    kind("job", |client| Box::pin(fire(client)), &["/lock"], Model::FencedMutex, Model::Fifo),
];

const fn kind(name: &'static str, round: Round, dirs: &'static [&'static str], model: Model, calm: Model) -> Kind {
    Kind { name, round, dirs, model, calm }
}

#[derive(Clone, Copy, PartialEq)]
enum Weather {
    Calm,
    Storm,
    /// A storm in which somebody deletes nodes by hand, too.
    Deletions,
}

/// The sessions, with the tasks of each kind, and a server of their own.
struct Fleet {
    worlds: Vec<World>,
    server: Server,
    admin: ZkClient,
    path: String,
    history: History,
    ways: Ways,
    is_over: Arc<AtomicBool>,
    random: Rng,
}

impl Fleet {
    async fn start(sessions: usize, timeout: Duration) -> Self {
        Self::on(Server::start().await.expect("a server"), sessions, timeout).await
    }

    async fn on(server: Server, sessions: usize, timeout: Duration) -> Self {
        // In virtual time what is random comes from the seed of the world.
        let of_world = exact_or(Uuid::new_v4().as_u64_pair().0, 1);
        let seed = std::env::var("STORM_SEED").map_or(of_world, |seed| seed.parse().expect("a seed"));
        println!("STORM_SEED={seed}");
        let mut worlds = Vec::new();
        for _ in 0..sessions {
            worlds.push(World::at(&server.hosts(), timeout).await);
        }
        Self {
            admin: admin_client(&server.hosts()).await,
            path: worlds[0].path.clone(),
            worlds,
            server,
            history: History::new(),
            ways: Ways::new(),
            is_over: Arc::default(),
            random: Rng::with_seed(seed),
        }
    }

    /// Plays rounds of a kind in each session: this many, by as many tasks, or until it is over. Returns how often each task has held.
    fn play(
        &mut self,
        kind: &Kind,
        tasks: usize,
        rounds: usize,
        weather: Weather,
    ) -> Vec<impl Future<Output = usize> + use<>> {
        let logged = self.ways.dispatch();
        let mut playing = Vec::new();
        for (number, world) in self.worlds.iter().enumerate() {
            for task in 0..tasks {
                let name = format!("session {number}, {} {task}", kind.name);
                let path = format!("{}/{}", self.path, kind.name);
                let client = Client::new(&world.session, &path, &self.history, name, self.random.fork());
                let mut client = client
                    .with_home(number.to_string())
                    .lingering(weather != Weather::Calm)
                    .evicted_by_hand(weather == Weather::Deletions);
                let (round, is_over, mut random) = (kind.round, self.is_over.clone(), self.random.fork());
                let play = async move {
                    for _ in 0..rounds {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        round(&mut client).await;
                        if weather != Weather::Calm {
                            pass(Duration::from_millis(random.u64(0..600))).await;
                        }
                    }
                    client.held
                };
                let task = tokio::spawn(play.with_subscriber(logged.clone()));
                playing.push(async move { task.await.expect("no panic") });
            }
        }
        playing
    }

    /// Waits until nothing is left of a kind.
    async fn wait_empty(&self, kind: &Kind) {
        for dir in kind.dirs {
            crate::support::wait_children(&self.admin, &format!("{}/{}{dir}", self.path, kind.name), 0).await;
        }
    }

    /// Judges each object of a kind.
    fn judge(&self, kind: &Kind, models: &[Model]) {
        let below = format!("{}/{}", self.path, kind.name);
        let is_own = |object: &str| {
            object.strip_prefix(&*below).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let own: Vec<_> = self.history.events().into_iter().filter(|event| is_own(&event.object)).collect();
        let history = History::from_events(own);
        if kind.name == "job" {
            let run = history.events().into_iter().filter(|event| matches!(event.step, Step::Acquired { .. }));
            let mut slots: Vec<_> = run.map(|event| event.object).filter(|object| **object != below).collect();
            slots.sort();
            assert!(slots.is_sorted_by(|one, next| one < next), "a slot was run twice: {slots:?}");
        }
        // Each session had its turn.
        assert!(history.summary().acquired >= self.worlds.len(), "{}: there is something to judge", kind.name);
        models.iter().for_each(|model| history.judge(*model).assert_clean());
    }

    fn print(&self) {
        println!("{}\ngranted by: {}", self.history.summary(), self.ways.summary());
    }
}

/// How many rounds each task plays in calm.
const ROUNDS: usize = 25;

/// Plays a kind without faults, and returns the ways by which its locks were granted.
async fn in_calm(name: &str) -> Ways {
    calm_of(Fleet::start(4, TIMEOUT).await, name).await.ways
}

async fn calm_of(mut fleet: Fleet, name: &str) -> Fleet {
    let kind = KINDS.iter().find(|kind| kind.name == name).expect("a kind");
    let playing = fleet.play(kind, 3, ROUNDS, Weather::Calm);
    soon("all rounds", join_all(playing)).await;
    fleet.wait_empty(kind).await;
    fleet.print();
    fleet.judge(kind, &[kind.model, kind.calm]);
    fleet
}

macro_rules! in_calm {
    ($($name:ident),*) => {
        mod calm {
            use super::*;

            $(#[tokio::test]
            async fn $name() {
                in_calm(stringify!($name)).await;
            })*

            /// Each way by which a lock is granted is taken.
            #[tokio::test]
            async fn mutex_again() {
                in_calm("mutex_again").await.assert_all_taken();
            }

            /// From a number before the end of the servers' counter, and from one behind it.
            #[tokio::test]
            async fn all_across_the_end_of_the_counter() {
                for (kind, next) in KINDS.iter().flat_map(|kind| [(kind, i32::MAX - 40), (kind, -40)]) {
                    let path = |dir: &&str| format!("{}/{}{dir}", counter::PATH, kind.name);
                    let paths: Vec<_> = kind.dirs.iter().map(path).collect();
                    let mut fleet = Fleet::on(counter::server(&paths, next).await, 4, TIMEOUT).await;
                    fleet.path = counter::PATH.to_owned();
                    let fleet = calm_of(fleet, kind.name).await;
                    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
                    let after = fleet.admin.create(&format!("{}/after-lock-", paths[0]), b"", &mode).await.expect("created");
                    let number = after.1.into_i64();
                    let end = if next < 0 { 0 } else { i64::from(i32::MAX) };
                    assert!(!(i64::from(next)..end).contains(&number), "{}: {number} is before the end", kind.name);
                }
            }
        }
    };
}

in_calm!(mutex, reentrant, rwlock, semaphore, multi_lock, mixed_multi_lock, election, slots, job);

/// The timeout of sessions that some faults outlast.
const SESSION: Duration = Duration::from_secs(2);

/// How long the faults come.
const STORM: Duration = Duration::from_secs(20);

#[tokio::test]
async fn exclusion_order_of_tokens_and_progress_outlast_all_faults() {
    storm(Weather::Storm).await;
}

/// A holder whose node somebody deletes knows it some round trips later than the next one, so only tokens, turns and leftovers are
/// judged.
#[tokio::test]
async fn all_have_their_turn_after_nodes_were_deleted_by_hand() {
    storm(Weather::Deletions).await;
}

async fn storm(weather: Weather) {
    let mut fleet = Fleet::start(5, SESSION).await;
    let kept = keep(&fleet).await;
    let playing: Vec<_> = KINDS.iter().flat_map(|kind| fleet.play(kind, 2, usize::MAX, weather)).collect();
    let storm = Storm { until: Instant::now() + STORM };
    let disturbed: Vec<_> = fleet.worlds.iter().map(|world| storm.disturb(world, fleet.random.fork())).collect();
    let (of_server, of_nodes) = (fleet.random.fork(), fleet.random.fork());
    let (path, admin) = (fleet.path.clone(), fleet.admin.clone());
    let deleted = async {
        if weather == Weather::Deletions {
            storm.delete(&admin, &path, of_nodes).await;
        }
    };
    join(join(join_all(disturbed), deleted), storm.of_server(&mut fleet.server, of_server)).await;
    // A fallback poll would come later.
    promptly("all sessions are connected", join_all(fleet.worlds.iter().map(connected))).await;
    fleet.is_over.store(true, Ordering::Relaxed);
    let held = promptly("all have had their turn", join_all(playing)).await;
    fleet.print();
    // Two tasks of a session for each kind.
    assert!(held.chunks(2).all(|tasks| tasks.iter().sum::<usize>() > 0), "every session had its turn: {held:?}");
    for kind in &KINDS {
        fleet.wait_empty(kind).await;
        if weather == Weather::Storm {
            fleet.judge(kind, &[kind.model]);
        }
    }
    fleet.ways.assert_all_taken();
    kept.are_whole(&fleet).await;
    for world in &fleet.worlds {
        soon("the close", world.session.close()).await.expect("nothing is left");
    }
}

async fn connected(world: &World) {
    world.session.states().wait_for(|state| state.is_connected()).await.expect("it is not closed");
}

/// What each session keeps all the time.
struct Kept {
    memberships: Vec<zookeeper_groups::Membership>,
    nodes: Vec<KeptNode>,
}

async fn keep(fleet: &Fleet) -> Kept {
    let mut kept = Kept { memberships: Vec::new(), nodes: Vec::new() };
    for (number, world) in fleet.worlds.iter().enumerate() {
        let members = Members::new(&world.session, &format!("{}/members", fleet.path)).expect("valid");
        kept.memberships.push(members.join(&format!("m{number}"), b"").await.expect("joined"));
        let node = format!("{}/kept/{number}", fleet.path);
        kept.nodes.push(KeptNode::keep(&world.session, &node, node.as_bytes()).expect("valid"));
    }
    kept
}

impl Kept {
    /// All of them are there again, once each, and go.
    async fn are_whole(self, fleet: &Fleet) {
        let count = fleet.worlds.len();
        until("all are joined", || self.memberships.iter().all(|one| one.is_joined())).await;
        until("all nodes are created", || self.nodes.iter().all(KeptNode::is_created)).await;
        for dir in ["members", "kept"] {
            let found = children(&fleet.admin, &format!("{}/{dir}", fleet.path)).await;
            assert_eq!(found.len(), count, "{dir}: {found:?}");
        }
        for membership in self.memberships {
            soon("the leave", membership.leave()).await.expect("left");
        }
        for node in self.nodes {
            soon("the removal", node.remove()).await.expect("removed");
        }
    }
}

/// Faults until an instant, in streams that overlap: one of each session, one of the server and one of an operator.
struct Storm {
    until: Instant,
}

impl Storm {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Waits a random part of this many timeouts.
    async fn some(&self, random: &mut Rng, timeouts: f64) {
        pass(SESSION.mul_f64(timeouts * random.f64())).await;
    }

    /// Faults of the connections of one session.
    async fn disturb(&self, world: &World, mut random: Rng) {
        let proxy = &world.proxy;
        loop {
            self.some(&mut random, 0.8).await;
            if self.is_over() {
                return;
            }
            proxy.close_by(if random.bool() { Closing::Fin } else { Closing::Reset });
            match random.u8(0..12) {
                0..3 => proxy.cut_now(),
                3..5 => {
                    proxy.refuse();
                    self.some(&mut random, 1.2).await;
                }
                5..7 => {
                    proxy.black_hole();
                    self.some(&mut random, 1.2).await;
                }
                7 => {
                    proxy.hold_answers(SESSION.mul_f64(0.1 * random.f64()));
                    self.some(&mut random, 0.5).await;
                    proxy.hold_answers(Duration::ZERO);
                }
                8 => {
                    proxy.reset();
                    let first = random.usize(1..10);
                    throttle(proxy, move |request| (first..first + 2).contains(&request.number));
                    self.some(&mut random, 0.5).await;
                    proxy.rewrite_answers(|_, _| {});
                }
                _ => {
                    proxy.reset();
                    let at = random.usize(1..10);
                    let cuts = [Cut::BeforeRequest, Cut::AfterRequest, Cut::BeforeAnswer, Cut::AfterAnswer];
                    proxy.cut(cuts[random.usize(..cuts.len())](at));
                    self.some(&mut random, 0.5).await;
                }
            }
            proxy.heal();
            // Otherwise the pauses between attempts to connect would grow without end.
            let _ = timeout(SESSION, connected(world)).await;
        }
    }

    /// Restarts and pauses of the server, and stalls of the process.
    async fn of_server(&self, server: &mut Server, mut random: Rng) {
        loop {
            self.some(&mut random, 3.0).await;
            if self.is_over() {
                return;
            }
            match random.u8(0..3) {
                0 => {
                    server.kill();
                    self.some(&mut random, 0.5).await;
                    server.restart().await.expect("restarted");
                }
                1 => {
                    server.pause();
                    self.some(&mut random, 0.8).await;
                    server.resume();
                }
                _ => stall(SESSION.mul_f64(0.4 * random.f64())),
            }
        }
    }

    /// Deletes nodes of holders and of waiters.
    async fn delete(&self, admin: &ZkClient, path: &str, mut random: Rng) {
        loop {
            self.some(&mut random, 0.3).await;
            if self.is_over() {
                return;
            }
            let kind = &KINDS[random.usize(..KINDS.len())];
            let dir = format!("{path}/{}{}", kind.name, kind.dirs[random.usize(..kind.dirs.len())]);
            // Without a server nothing is deleted, and a node may be gone by then.
            let Ok(nodes) = admin.list_children(&dir).await else { continue };
            let Some(node) = random.choice(nodes) else { continue };
            let _ = admin.delete(&format!("{dir}/{node}"), None).await;
        }
    }
}
