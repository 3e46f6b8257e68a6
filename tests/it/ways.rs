//! The ways by which a lock is granted with few requests: scenes in which each is taken, and how often it was.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use testbed::history::{Acquire, Held, History, Model};
use testbed::proxy::Request;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use zookeeper_recipes::{LockGuard, Mutex, Result, RwLock, Session};

use crate::support::{World, soon};
use crate::warnings::Warnings;

/// All ways but a listing.
pub(crate) const FAST: [&str; 3] = ["Counted", "HandedOver", "Deleted"];

/// Counts by what locks are granted, as the library logs it.
#[derive(Clone)]
pub(crate) struct Ways(Warnings);

impl Ways {
    pub(crate) fn new() -> Self {
        Self(Warnings::and_traces())
    }

    /// Counts the grants of this thread until the guard is dropped.
    pub(crate) fn listen(&self) -> DefaultGuard {
        self.0.listen()
    }

    /// For tasks that run on any thread.
    pub(crate) fn dispatch(&self) -> Dispatch {
        drop(self.0.listen());
        Dispatch::new(self.0.clone())
    }

    /// How many locks were granted in this way.
    pub(crate) fn count(&self, way: &str) -> usize {
        self.0.count(&format!(" by={way}"))
    }

    /// Whether the hold with this token was granted in this way.
    pub(crate) fn has(&self, token: impl Display, way: &str) -> bool {
        self.0.count(&format!(" token={token} by={way}")) == 1
    }

    /// The node of each grant, and by what it was granted.
    pub(crate) fn grants(&self) -> Vec<(String, String)> {
        let part = |text: &str, from: &str, to: char| {
            let (_, rest) = text.split_once(from).expect("a grant");
            rest.split(to).next().expect("a part").to_owned()
        };
        let grant = |text: &String| (part(text, " node=\"", '"'), part(text, " by=", ' '));
        self.0.with(" by=").iter().map(grant).collect()
    }

    /// How often each was taken.
    pub(crate) fn summary(&self) -> String {
        let ways = ["Listed"].into_iter().chain(FAST);
        ways.map(|way| format!("{way} {}", self.count(way))).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn assert_all_taken(&self) {
        let missing: Vec<_> = FAST.into_iter().filter(|way| self.count(way) == 0).collect();
        assert!(missing.is_empty(), "{missing:?} were not taken: {}", self.summary());
    }
}

/// Where a call is granted without a listing, or without another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// The session was alone here last, so its create counts, and the answer is the grant.
    Undisturbed,
    /// The session was not alone here last, so a listing goes out with its create.
    Alone,
    /// The session was alone here last, and another session holds. What its create counts is not the grant.
    Taken,
    /// A task of the same session holds.
    Neighbour,
    /// A task of the same session writes, and the call reads.
    Writer,
    /// Another session holds.
    Foreign,
}

type Call = BoxFuture<'static, Result<Box<dyn LockGuard>>>;

/// A lock that is held, and its record.
pub(crate) struct Turn {
    // Dropped first: the record ends before the hold.
    held: Held,
    guard: Box<dyn LockGuard>,
}

impl Turn {
    /// Releases the lock, which must not fail.
    pub(crate) async fn end(self) {
        tokio::task::yield_now().await;
        let releasing = self.held.release();
        self.guard.release().await.expect("released");
        releasing.ok();
    }
}

/// A session that takes part in a scene, beside another one that queues behind it.
pub(crate) struct Stage {
    scene: Scene,
    pub(crate) world: World,
    pub(crate) ways: Ways,
    other: Session,
    history: History,
    _listening: DefaultGuard,
}

impl Scene {
    /// The way in which the call is granted.
    pub(crate) fn way(self) -> &'static str {
        match self {
            Self::Undisturbed => "Counted",
            Self::Alone => "Listed",
            Self::Neighbour | Self::Writer => "HandedOver",
            Self::Taken | Self::Foreign => "Deleted",
        }
    }

    pub(crate) async fn stage(self) -> Stage {
        let ways = Ways::new();
        let _listening = ways.listen();
        let world = World::new().await;
        world.make_path().await;
        let other = world.other().await;
        Stage { scene: self, world, ways, other, history: History::new(), _listening }
    }
}

impl Stage {
    /// Sets the scene, and resets the proxy; returns the guard that is ahead of the call, if one is.
    pub(crate) async fn set(&self) -> Option<Turn> {
        let ahead = match self.set_up().await {
            Some(ahead) => Some(self.turn(self.exclusive(), "the predecessor", ahead).await),
            None => None,
        };
        self.world.proxy.reset();
        ahead
    }

    async fn set_up(&self) -> Option<Call> {
        let world = &self.world;
        let is_counted = async || {
            let guard = world.mutex().lock().await.expect("held");
            let token = guard.fencing_token();
            guard.release().await.expect("released");
            self.ways.has(token, "Counted")
        };
        let alone = async || soon("an undisturbed lock", async { while !is_counted().await {} }).await;
        match self.scene {
            Scene::Undisturbed => alone().await,
            Scene::Alone => {
                let held = self.lock(&self.other).await.expect("held");
                assert!(world.mutex().try_lock().await.expect("asked").is_none());
                held.release().await.expect("released");
            }
            Scene::Taken => {
                alone().await;
                return Some(self.lock(&self.other));
            }
            Scene::Neighbour => return Some(self.lock(&world.session)),
            Scene::Writer => return Some(self.write(&world.session)),
            Scene::Foreign => return Some(self.lock(&self.other)),
        }
        None
    }

    /// The call in question. Nothing is sent before it is polled.
    pub(crate) fn call(&self) -> BoxFuture<'static, Turn> {
        let (acquire, call) = match self.scene {
            Scene::Writer => (Acquire::shared(&*self.world.path), self.read(&self.world.session)),
            _ => (self.exclusive(), self.lock(&self.world.session)),
        };
        self.turn(acquire, "the call", call)
    }

    fn rw(&self, session: &Session) -> RwLock {
        RwLock::new(session, &self.world.path).expect("a lock")
    }

    fn lock(&self, session: &Session) -> Call {
        let mutex = Mutex::new(session, &self.world.path).expect("a mutex");
        Box::pin(async move { Ok(Box::new(mutex.lock().await?) as Box<dyn LockGuard>) })
    }

    fn read(&self, session: &Session) -> Call {
        let lock = self.rw(session);
        Box::pin(async move { Ok(Box::new(lock.read().await?) as Box<dyn LockGuard>) })
    }

    fn write(&self, session: &Session) -> Call {
        let lock = self.rw(session);
        Box::pin(async move { Ok(Box::new(lock.write().await?) as Box<dyn LockGuard>) })
    }

    /// Waits until the node of the call is there, behind another one, and its watches were answered; or the connection was cut.
    pub(crate) async fn waits(&self) {
        let set = |request: &Request| request.watch && request.answer.is_some();
        self.world.wait_children(2).await;
        let mut beat = interval(Duration::from_millis(1));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watches = || self.world.proxy.requests().iter().filter(|request| set(request)).count();
        soon("its watches", async {
            while watches() < 2 && !self.world.proxy.cut_fired() {
                beat.tick().await;
            }
        })
        .await;
        self.round_trip().await;
    }

    /// What was sent before is at the servers, and what they sent before is here; unless the connection was cut.
    pub(crate) async fn round_trip(&self) {
        let client = self.world.session.client().expect("a client");
        let _ = soon("an answer", client.check_stat("/")).await;
    }

    /// Two tasks of the same session, and one of another, which queue behind the call.
    pub(crate) fn others(&self) -> Vec<JoinHandle<()>> {
        let (same, other) = (&self.world.session, &self.other);
        let others = match self.scene {
            Scene::Writer => vec![
                (Acquire::shared(&*self.world.path), "a reader", self.read(same)),
                (Acquire::shared(&*self.world.path), "another reader", self.read(same)),
                (Acquire::exclusive(&*self.world.path), "a foreign writer", self.write(other)),
            ],
            _ => vec![
                (self.exclusive(), "a neighbour", self.lock(same)),
                (self.exclusive(), "another neighbour", self.lock(same)),
                (self.exclusive(), "a stranger", self.lock(other)),
            ],
        };
        let visit = |(acquire, name, call)| {
            let turn = self.turn(acquire, name, call);
            tokio::spawn(async move { turn.await.end().await })
        };
        others.into_iter().map(visit).collect()
    }

    fn exclusive(&self) -> Acquire {
        Acquire::exclusive(&*self.world.path)
    }

    /// Takes the lock, and records when it was granted.
    fn turn(&self, acquire: Acquire, name: &str, call: Call) -> BoxFuture<'static, Turn> {
        let process = self.history.process(Arc::from(name));
        Box::pin(async move {
            let acquiring = process.acquire(acquire);
            let guard = call.await.expect("held");
            let held = acquiring.ok(guard.fencing_token().get());
            Turn { held, guard }
        })
    }

    /// Whether the call depends on how the session released the lock before.
    pub(crate) fn follows_itself(&self) -> bool {
        self.scene == Scene::Undisturbed
    }

    pub(crate) fn assert_took_its_way(&self, turn: &Turn) {
        let (token, way) = (turn.guard.fencing_token(), self.scene.way());
        assert!(self.ways.has(token, way), "not {way}: {}", self.ways.summary());
    }

    /// Waits until all had their turn, and nothing is left.
    pub(crate) async fn end(&self, others: Vec<JoinHandle<()>>) {
        for other in others {
            soon("the turn of another", other).await.expect("no panic");
        }
        self.world.wait_empty().await;
    }

    /// Judges all that was held.
    pub(crate) fn judge(&self) {
        let model = if self.scene == Scene::Writer { Model::ReadWrite } else { Model::FencedMutex };
        self.history.judge(model).assert_clean();
    }
}

macro_rules! for_all_scenes {
    ($table:ident) => {
        $table! {
            undisturbed => Scene::Undisturbed;
            alone => Scene::Alone;
            taken => Scene::Taken;
            neighbour => Scene::Neighbour;
            writer => Scene::Writer;
            foreign => Scene::Foreign;
        }
    };
}

pub(crate) use for_all_scenes;
