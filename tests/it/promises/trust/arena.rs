//! The setup of the trust tests: an ensemble, and a lock that changes hands between sessions on its servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use testbed::{Ensemble, next_look};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Error, HoldState, Mutex, MutexGuard, Options, Session};

use crate::support::{admin_client, connect, connect_for, pass, soon, wait_children};

const TICK: Duration = Duration::from_millis(200);

/// The session timeout: shorter than the timeouts of the servers with each other.
pub(super) const T: Duration = Duration::from_secs(2);

/// A small machine cannot run all of them at once.
static ENSEMBLES: Semaphore = Semaphore::const_new(3);

/// Three servers, and a lock that changes hands between sessions on them.
pub(super) struct Arena {
    pub(super) ensemble: Ensemble,
    /// The seed of the random moments.
    pub(super) seed: u64,
    random: Rng,
    pub(super) path: String,
    /// The options of the holder.
    pub(super) options: Options,
    _permit: SemaphorePermit<'static>,
}

impl Arena {
    pub(super) async fn start(sync_limit: u32) -> Self {
        Self::start_with(sync_limit, []).await
    }

    /// Starts servers with these Java properties.
    pub(super) async fn start_with<'a>(
        sync_limit: u32,
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let seed = std::env::var("TRUST_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
        let permit = ENSEMBLES.acquire().await.expect("never closed");
        let builder = Ensemble::builder().tick(TICK).sync_limit(sync_limit);
        let builder = properties.into_iter().fold(builder, |builder, (key, value)| builder.property(key, value));
        let ensemble = builder.start().await.unwrap_or_else(|error| panic!("{error}"));
        ensemble.settled().await.expect("settles");
        Self {
            ensemble,
            seed,
            random: Rng::with_seed(seed),
            path: format!("/it-{}/lock", Uuid::new_v4().simple()),
            options: Options::new(),
            _permit: permit,
        }
    }

    pub(super) async fn leader_and_follower(&mut self) -> (usize, usize) {
        let leader = self.ensemble.leader().await.expect("a leader");
        (leader, self.other_than(leader))
    }

    fn other_than(&mut self, server: usize) -> usize {
        (server + self.random.usize(1..=2)) % 3
    }

    /// A session that knows only one server, and whose end is the point.
    pub(super) async fn brief_session(&self, server: usize) -> Session {
        connect_for(&self.ensemble.server(server).hosts(), T).await
    }

    /// A session that knows only one server, and outlasts every fault.
    pub(super) async fn session(&self, server: usize) -> Session {
        connect(&self.ensemble.server(server).hosts()).await
    }

    pub(super) async fn client(&self, server: usize) -> Client {
        admin_client(&self.ensemble.server(server).hosts()).await
    }

    /// Creates a holder on `server` and a waiter behind it on another server, and lets a random part of a timeout pass.
    ///
    /// On a very busy machine a hold may be lost before any fault. That is correct behaviour, but not a round.
    pub(super) async fn round(&mut self, server: usize) -> Round {
        for attempt in 1..=5 {
            let holds = self.brief_session(server).await;
            let elsewhere = self.other_than(server);
            let next = self.session(elsewhere).await;
            let holder = Mutex::with_options(&holds, &self.path, self.options.clone())
                .expect("a mutex")
                .lock()
                .await
                .expect("free");
            let round = Round::new(holds.clone(), holder, next, &self.path);
            // Of its own: a session whose client was handed out reports at its end that there may be a clone, on a busy machine.
            let admin = self.client(elsewhere).await;
            let both = wait_children(&admin, &self.path, 2);
            if tokio::time::timeout(T, both).await.is_ok() {
                pass(T.mul_f64(self.random.f64())).await;
                if round.holder.state() == HoldState::Held {
                    return round;
                }
            }
            println!("trust: attempt {attempt}: {:?} before any fault, on a busy machine", round.holder.state());
            // So busy a machine may not close them within a timeout, either.
            for session in [&holds, &round.next] {
                let closed = session.close().await;
                assert!(matches!(closed, Ok(()) | Err(Error::Unavailable { .. })), "{closed:?}");
            }
        }
        panic!("lost five holds before any fault");
    }

    /// Releases everything, once the servers have settled again.
    pub(super) async fn end(&self, round: Round) {
        self.ensemble.settled().await.expect("settles");
        let holder = Arc::into_inner(round.holder).expect("no other reference");
        let released = holder.release().await;
        assert!(matches!(released, Err(Error::Lost(_))), "release returned {released:?}");
        let guard = round.granted.expect("it was granted");
        // On a busy machine it may have been lost since, which this test does not check.
        let released = guard.release().await;
        assert!(matches!(released, Ok(()) | Err(Error::Lost(_))), "release returned {released:?}");
        wait_children(&self.client(0).await, &self.path, 0).await;
        round.next.close().await.expect("closes");
    }
}

/// A holder, and the waiter that acquires the lock next.
pub(super) struct Round {
    /// The holder's session.
    pub(super) holds: Session,
    pub(super) holder: Arc<MutexGuard>,
    reported: JoinHandle<Instant>,
    pub(super) next: Session,
    grant: JoinHandle<(Instant, HoldState, MutexGuard)>,
    granted: Option<MutexGuard>,
    pace: Pace,
}

/// The end of one hold and the beginning of the next.
pub(super) struct Change {
    pub(super) reported: Instant,
    pub(super) granted: Instant,
    /// The state of the lost hold as soon as the next was granted.
    pub(super) holder_at_grant: HoldState,
    /// How long this process stood still at most. What it has noted the time of may have been so much earlier.
    pub(super) stalled: Duration,
}

/// Notes for how long this process stands still.
struct Pace {
    longest: Arc<AtomicU64>,
    beats: JoinHandle<()>,
}

impl Pace {
    fn start() -> Self {
        let longest = Arc::<AtomicU64>::default();
        let noted = longest.clone();
        let beats = tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                next_look().await;
                let gap = last.elapsed().as_micros();
                noted.fetch_max(u64::try_from(gap).expect("a test is not that long"), Ordering::Relaxed);
                last = Instant::now();
            }
        });
        Self { longest, beats }
    }

    async fn longest(&self) -> Duration {
        // One that has just ended is noted with the next beat.
        pass(Duration::from_millis(10)).await;
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

impl Round {
    fn new(holds: Session, holder: MutexGuard, next: Session, path: &str) -> Self {
        let holder = Arc::new(holder);
        let held = holder.clone();
        let reported = tokio::spawn(async move {
            let loss = held.lost().await;
            assert_eq!(held.state(), HoldState::Lost(loss));
            Instant::now()
        });
        let held = holder.clone();
        let mutex = Mutex::new(&next, path).expect("a mutex");
        let grant = tokio::spawn(async move {
            let guard = mutex.lock().await.expect("waits as long as it takes");
            (Instant::now(), held.state(), guard)
        });
        Self { holds, holder, reported, next, grant, granted: None, pace: Pace::start() }
    }

    /// Waits until the lock is lost here and granted there.
    pub(super) async fn change_hands(&mut self) -> Change {
        let grant = soon("the next grant", &mut self.grant).await;
        let (granted, holder_at_grant, guard) = grant.expect("does not panic");
        assert!(guard.fencing_token() > self.holder.fencing_token());
        self.granted = Some(guard);
        let reported = soon("the loss", &mut self.reported).await;
        let stalled = self.stalled().await;
        Change { reported: reported.expect("does not panic"), granted, holder_at_grant, stalled }
    }

    /// How long this process has stood still at most since the round began.
    pub(super) async fn stalled(&self) -> Duration {
        self.pace.longest().await
    }
}
