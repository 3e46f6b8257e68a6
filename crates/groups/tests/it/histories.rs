//! Many small random histories at once: three members with four shards and two slots, which join, stop, leave, crash, flap, and are
//! cut off and expired. Each history is judged for what [`Shards`](zookeeper_groups::Shards), [`Members`] and [`Slots`] promise.
//!
//! `SHARDS_HISTORIES=100000 SHARDS_SEED=7` sets how many, and the seed of the first. The seed repeats the faults of a history, and not
//! the timing of threads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use zookeeper_groups::{Members, Slots, members::MemberChanges};
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::{Error, Session};

use crate::ledger::{Book, Ledger};
use crate::support::{Fleet, Member};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SHARDS: u32 = 4;
const SLOTS: u32 = 2;
/// The session timeout, and how much longer the servers let a session live.
const T: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(510);
/// What all that has settled may take to be seen, and to be done.
const SECOND: Duration = Duration::from_secs(1);
/// Histories on the same servers, which end with the last of them. Each link of a session is a port there.
const PER_SERVER: u64 = 200;
/// Between two looks at what has not come yet.
const SOON: Duration = Duration::from_millis(50);
/// How much lateness is a fault of its own, and how often at the end of a history that may be.
const STALL: Duration = Duration::from_millis(200);
const TRIES: usize = 10;
const STARVED: &str = "the machine gives this process no time";
/// No call takes longer.
const LONG: Duration = Duration::from_secs(10);

/// The time by which tasks of this runtime were late, in microseconds.
static LATE: AtomicU64 = AtomicU64::new(0);

/// What histories have in common, and how they went.
#[derive(Debug, Default)]
struct Numbers {
    histories: u64,
    grants: usize,
    moves: usize,
    claims: usize,
    late: usize,
    /// How many histories could not be judged, because the machine gave this process no time.
    starved: usize,
    /// The longest time from the last fault until all was as promised.
    longest: Duration,
}

/// A member of a group, and what its process does beside that.
struct Process {
    member: Member,
    changes: MemberChanges,
    claims: JoinHandle<()>,
    is_cut: bool,
}

/// A history as it goes on.
struct Play {
    fleet: Fleet,
    slots: Ledger,
    random: fastrand::Rng,
    alive: BTreeMap<&'static str, Process>,
    /// Sessions of processes that have crashed.
    crashed: Vec<LocalSession>,
    background: JoinSet<()>,
    /// Which end with the history.
    excuses: JoinSet<()>,
    grace: Duration,
    settling: Duration,
    began: Instant,
    log: String,
}

/// Returns by how much tasks of this runtime have been late so far, in all.
fn lateness() -> Duration {
    Duration::from_micros(LATE.load(Ordering::Relaxed))
}

/// Waits as long as a call may take, and for the time by which this process was late meanwhile.
async fn long<F: Future>(what: &str, future: F) -> Result<F::Output, String> {
    let (began, before) = (Instant::now(), lateness());
    let mut future = pin!(future);
    loop {
        if let Ok(done) = timeout(LONG, &mut future).await {
            return Ok(done);
        }
        let late = lateness() - before;
        if began.elapsed() > LONG + late {
            return Err(format!("timed out: {what}, after {:.1?}, late by {late:.1?}", began.elapsed()));
        }
    }
}

impl Play {
    fn new(root: LocalSession, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let grace = Duration::from_millis([0, 0, 300][random.usize(..3)]);
        let settling = Duration::from_millis([0, 50, 200][random.usize(..3)]);
        let moves = random.usize(1..=4);
        let fleet = Fleet::on(root, &format!("/histories/{seed}"), T, SHARDS).set(move |builder| {
            builder
                .grace(grace)
                .settling_time(settling)
                .moves_at_once(moves)
                .patience(Duration::from_millis(400))
                .drain_limit(Duration::from_millis(200))
        });
        let fleet = fleet.working(|service, shard| async move {
            shard.revoke_requested().await;
            drop(service);
        });
        Self {
            fleet,
            slots: Ledger::new(SLOTS),
            random,
            alive: BTreeMap::new(),
            crashed: Vec::new(),
            background: JoinSet::new(),
            excuses: JoinSet::new(),
            grace,
            settling,
            began: Instant::now(),
            log: format!("grace {grace:?}, settling time {settling:?}, {moves} moves at once\n"),
        }
    }

    fn note(&mut self, text: &str) {
        _ = writeln!(self.log, "{:>7.1} ms {text}", self.began.elapsed().as_secs_f64() * 1e3);
    }

    fn members(&self, session: &Session) -> Members {
        Members::new(session, &format!("{}/members", self.fleet.path)).expect("a path").with_grace(self.grace)
    }

    fn slots(&self, session: &Session) -> Slots {
        Slots::new(session, &format!("{}/slots", self.fleet.path), SLOTS).expect("a path")
    }

    /// A session. On a busy machine the servers may take longer than its timeout to answer.
    async fn session(&self) -> Result<LocalSession, String> {
        let began = Instant::now();
        loop {
            match self.fleet.root.another_with(|servers| servers.with_session_timeout(T)).await {
                Err(Error::Unavailable { .. }) if began.elapsed() > 6 * LONG => return Err(STARVED.to_owned()),
                Err(Error::Unavailable { .. }) => {}
                Err(error) => return Err(error.to_string()),
                Ok(session) => return Ok(session),
            }
        }
    }

    fn start(&mut self, session: LocalSession, name: &'static str) {
        let slots = self.slots(&session).with_preferred(self.random.u32(..SLOTS + 1));
        let claims = claim(slots, self.slots.clone(), name, self.random.fork());
        let process = Process {
            changes: self.members(&session).changes(),
            claims: tokio::spawn(claims),
            member: self.fleet.start_in(session, name),
            is_cut: false,
        };
        self.alive.insert(name, process);
    }

    async fn pause(&mut self, millis: u64) {
        // Tests do not sleep: this ends when a member of the background has done its part, or with the time.
        let pause = Duration::from_millis(self.random.u64(..=millis));
        _ = timeout(pause, std::future::pending::<()>()).await;
    }

    /// One thing that happens to one member.
    async fn step(&mut self) -> Result<(), String> {
        let name = NAMES[self.random.usize(..NAMES.len())];
        let Some(mut process) = self.alive.remove(name) else {
            self.note(&format!("{name} starts"));
            let session = self.session().await?;
            self.start(session, name);
            return Ok(());
        };
        let choice = self.random.u32(..9);
        if process.is_cut && choice < 7 {
            self.note(&format!("{name} is connected again"));
            process.member.session.reconnect();
            process.is_cut = false;
            self.alive.insert(name, process);
            return Ok(());
        }
        match choice {
            0 => {
                self.note(&format!("{name} stops"));
                process.claims.abort();
                process.member.shards.stop();
                self.background.spawn(async move {
                    _ = process.member.running.await;
                    _ = process.member.session.close().await;
                });
            }
            1 => {
                self.note(&format!("{name} leaves"));
                process.claims.abort();
                process.member.shards.leave();
                self.background.spawn(async move {
                    // Others may be cut off, and take nothing over.
                    if timeout(T, &mut process.member.running).await.is_err() {
                        process.member.shards.stop();
                        _ = process.member.running.await;
                    }
                    _ = process.member.session.close().await;
                });
            }
            2 | 7 => {
                self.note(&format!("{name} crashes"));
                process.claims.abort();
                process.member.session.disconnect();
                process.member.running.abort();
                self.crashed.push(process.member.session);
            }
            3 | 4 | 8 => {
                self.note(&format!("{name} is cut off"));
                process.member.session.disconnect();
                process.is_cut = true;
                self.alive.insert(name, process);
            }
            5 => {
                self.note(&format!("{name} expires"));
                let (ledgers, session) =
                    ([self.fleet.ledger.clone(), self.slots.clone()], process.member.session.clone());
                // The servers give its locks away before it can know.
                ledgers.iter().for_each(|ledger| ledger.stopped(name));
                let old = session.id();
                session.expire();
                self.excuses.spawn(async move {
                    session.states().wait_for(|state| state.is_connected() && session.id() != old).await;
                    ledgers.iter().for_each(|ledger| ledger.goes_on(name));
                });
                self.alive.insert(name, process);
            }
            _ if self.random.bool() => {
                self.note(&format!("{name} begins again in the same session"));
                process.member.running.abort();
                process.claims.abort();
                self.start(process.member.session.clone(), name);
            }
            _ => {
                self.note(&format!("{name} is deleted by hand, and a stranger flaps"));
                let client = self.fleet.root.client().expect("a client");
                // It may have no node.
                _ = client.delete(&format!("{}/members/{name}", self.fleet.path), None).await;
                let (members, random) = (self.members(&self.fleet.root), self.random.u64(..150));
                self.background.spawn(async move {
                    if let Ok(stranger) = members.join("stranger", SHARDS.to_string().as_bytes()).await {
                        _ = timeout(Duration::from_millis(random), std::future::pending::<()>()).await;
                        _ = stranger.leave().await;
                    }
                });
                self.alive.insert(name, process);
            }
        }
        Ok(())
    }

    /// Ends all faults.
    async fn heal(&mut self) -> Result<(), String> {
        self.note("all faults end");
        for process in self.alive.values_mut() {
            process.member.session.reconnect();
        }
        // What goes on beside the members is a fault as well.
        while long("its end", self.background.join_next()).await?.is_some() {}
        if self.alive.is_empty() {
            self.note("c starts, as the last one");
            let session = self.session().await?;
            self.start(session, NAMES[2]);
        }
        Ok(())
    }

    /// Starts members again whose join has failed: there were faults. Returns whether there was one.
    async fn start_again(&mut self) -> Result<bool, String> {
        let has_ended = |name: &&str| self.alive[name].member.running.is_finished();
        let ended: Vec<_> = self.alive.keys().copied().filter(has_ended).collect();
        for name in &ended {
            let Some(process) = self.alive.remove(name) else { continue };
            process.claims.abort();
            let why = process.member.running.await;
            self.note(&format!("{name} has ended with {why:?}, and starts again"));
            if !matches!(why, Ok(Err(Error::Unavailable { .. } | Error::NameTaken { .. }))) {
                return Err(format!("{name} has ended with {why:?}"));
            }
            let session = self.session().await?;
            self.start(session, name);
        }
        Ok(!ended.is_empty())
    }

    /// Waits until all is as it should be when there are no faults. Returns how long that took.
    async fn converge(&mut self) -> Result<Duration, String> {
        let (began, before) = (Instant::now(), lateness());
        let bound = T + TICK + self.settling + self.grace + SECOND;
        let is_in_time = |what: &str| {
            let late = lateness() - before;
            match began.elapsed() {
                took if took <= bound + late => Ok(()),
                took => {
                    Err(format!("{what}: took {took:.1?}, and {bound:?} are allowed, and {late:?} for lateness"))
                }
            }
        };
        // Sets: of their present sessions, and not of those before a crash.
        let sessions: BTreeMap<_, _> =
            self.alive.iter().map(|(name, process)| (*name, process.member.session.clone())).collect();
        let is_right = |set: &[zookeeper_groups::members::Member]| {
            let own = sessions.iter().map(|(name, session)| (*name, session.id()));
            set.iter().map(|member| (member.name(), member.session_id())).eq(own)
        };
        let group = self.members(&self.fleet.root);
        let mut why = String::new();
        loop {
            if began.elapsed() > LONG {
                return Err(why);
            }
            let servers = group.members().await.map_err(|error| error.to_string())?;
            if !is_right(&servers) {
                why = format!("the servers have {servers:?}, and the sessions are {sessions:?}");
                _ = timeout(SOON, std::future::pending::<()>()).await;
                continue;
            }
            let mut is_seen = true;
            for (name, process) in &mut self.alive {
                let seen = timeout(SOON, process.changes.wait_for(|set| set == servers)).await;
                if !matches!(seen, Ok(Ok(_))) {
                    why = format!("{name} does not see {servers:?}, but {:?}, {seen:?}", process.changes);
                    is_seen = false;
                }
            }
            if is_seen && group.members().await.is_ok_and(|set| set == servers) {
                break;
            }
        }
        is_in_time("the set of members")?;
        // Shards.
        let names: Vec<_> = self.alive.keys().copied().collect();
        let plan = self.fleet.plan(&names);
        let is_as_planned = |book: &Book| {
            (0..SHARDS).all(|shard| book.owner(shard).is_some() && book.owner(shard) == plan.owner(shard))
        };
        let owns = |(name, process): (&&str, &Process)| {
            process.member.shards.owned().into_iter().eq(plan.shards_of(name))
        };
        loop {
            let is_planned = self.fleet.ledger.is_so_within(LONG, is_as_planned).await;
            if is_planned && self.alive.iter().all(owns) {
                break;
            }
            if began.elapsed() > LONG {
                let owners = |book: &Book| {
                    (0..SHARDS).map(|shard| book.owner(shard).map(str::to_owned)).collect::<Vec<_>>()
                };
                let owners = self.fleet.ledger.read(owners);
                let shards = self.alive.values().map(|process| &process.member.shards);
                let plans: Vec<_> = shards.map(|shards| (shards.name(), shards.owned(), shards.plan())).collect();
                return Err(format!("{plan:?} is never followed; the owners are {owners:?}, and say {plans:?}"));
            }
            // By its clock a member has lost what it has not ended to serve yet.
            _ = timeout(SOON, std::future::pending::<()>()).await;
        }
        is_in_time("the owners of the shards")?;
        // Slots: the claims end, and all numbers can be had at once.
        self.alive.values().for_each(|process| process.claims.abort());
        let slots = self.slots(&self.fleet.root);
        let mut all = Vec::new();
        for _ in 0..SLOTS {
            let slot = long("a free slot", slots.claim()).await?.map_err(|error| error.to_string())?;
            let token = slot.fencing_token().get().cast_unsigned();
            all.push((self.slots.begin("root", slot.number(), token, Some(slot.monitor())), slot));
        }
        is_in_time("all slots")?;
        Ok(began.elapsed())
    }

    async fn play(&mut self) -> Result<Duration, String> {
        for name in NAMES {
            if self.random.u32(..4) > 0 {
                let session = self.session().await?;
                self.start(session, name);
            }
        }
        for _ in 0..self.random.usize(2..8) {
            let millis = [0, 30, 200, 600][self.random.usize(..4)];
            self.pause(millis).await;
            self.step().await?;
        }
        self.heal().await?;
        for _ in 0..TRIES {
            let before = lateness();
            let converged = self.converge().await;
            // When the machine gives this process no time for so long, that is one more fault.
            let has_stalled = lateness() - before > STALL;
            if !self.start_again().await? && (converged.is_ok() || !has_stalled) {
                return converged;
            }
            self.note("all again");
        }
        Err(STARVED.to_owned())
    }
}

/// Claims numbers, holds each for a moment, and releases it, for ever.
async fn claim(slots: Slots, ledger: Ledger, name: &str, mut random: fastrand::Rng) {
    loop {
        let claimed = match random.u32(..4) {
            0 => slots.try_claim().await,
            1 => match timeout(Duration::from_millis(random.u64(..200)), slots.claim()).await {
                Ok(claimed) => claimed.map(Some),
                Err(_) => Ok(None),
            },
            _ => slots.claim().await.map(Some),
        };
        if let Ok(Some(slot)) = claimed {
            let token = slot.fencing_token().get().cast_unsigned();
            let service = ledger.begin(name, slot.number(), token, Some(slot.monitor()));
            let hold = Duration::from_millis(random.u64(..200));
            _ = timeout(hold, slot.lost()).await;
            drop(service);
            if random.bool() {
                _ = slot.release().await;
            }
        }
        // Other claims have a turn, and the machine.
        _ = timeout(Duration::from_millis(random.u64(20..100)), std::future::pending::<()>()).await;
    }
}

/// Plays the history of a seed.
async fn history(root: LocalSession, seed: u64) -> Result<Numbers, String> {
    let mut play = Play::new(root, seed);
    let played = play.play().await;
    let (shards, slots) = (&play.fleet.ledger, &play.slots);
    let mut faults = shards.faults();
    faults.extend(slots.faults().into_iter().map(|fault| format!("slots: {fault}")));
    let longest = match played {
        Ok(longest) if faults.is_empty() => longest,
        // The servers and the members are in this process.
        Err(why) if faults.is_empty() && why == STARVED => {
            return Ok(Numbers { starved: 1, ..Numbers::default() });
        }
        played => {
            faults.extend(played.err());
            return Err(format!("SHARDS_SEED={seed}: {}\n{}", faults.join("; "), play.log));
        }
    };
    let late = shards.late() + slots.late();
    let numbers = Numbers {
        histories: 1,
        starved: 0,
        grants: shards.grants(),
        moves: shards.moves(),
        claims: slots.grants(),
        late,
        longest,
    };
    for process in play.alive.values() {
        process.member.running.abort();
    }
    Ok(numbers)
}

/// Counts by how much tasks of this runtime are late, for as long as it is polled.
async fn measure_lateness() {
    const BEAT: Duration = Duration::from_millis(10);
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        beats.tick().await;
        let late = last.elapsed().saturating_sub(2 * BEAT);
        LATE.fetch_add(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        last = Instant::now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_histories_keep_all_promises() {
    let given = |variable: &str| std::env::var(variable).ok().and_then(|given| given.parse::<u64>().ok());
    let (count, seed) = (given("SHARDS_HISTORIES").unwrap_or(60), given("SHARDS_SEED").unwrap_or(44));
    let width = given("SHARDS_WIDTH").unwrap_or(30);
    println!("SHARDS_HISTORIES={count} SHARDS_SEED={seed} SHARDS_WIDTH={width}");
    let measuring = tokio::spawn(measure_lateness());
    let room = Arc::new(Semaphore::new(usize::try_from(width).expect("a width")));
    let (mut running, mut all, mut failed) = (JoinSet::new(), Numbers::default(), Vec::new());
    let began = Instant::now();
    let mut root = None;
    let mut note = |played: Result<Result<Numbers, String>, _>| match played.expect("no panic") {
        Ok(one) => {
            all.histories += one.histories;
            all.grants += one.grants;
            all.moves += one.moves;
            all.claims += one.claims;
            all.late += one.late;
            all.starved += one.starved;
            all.longest = all.longest.max(one.longest);
            if all.histories.is_multiple_of(1_000) {
                println!("{:.0} s: {all:?}", began.elapsed().as_secs_f64());
            }
        }
        Err(why) => {
            println!("{why}");
            failed.push(why);
        }
    };
    for number in 0..count {
        let permit = room.clone().acquire_owned().await.expect("open");
        if number % PER_SERVER == 0 {
            root = Some(Session::local().await.expect("servers"));
        }
        let root = root.clone().expect("servers");
        running.spawn(async move {
            let played = history(root, seed.wrapping_add(number)).await;
            drop(permit);
            played
        });
        while let Some(played) = running.try_join_next() {
            note(played);
        }
    }
    while let Some(played) = running.join_next().await {
        note(played);
    }
    measuring.abort();
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("{all:?} in {:.0?}, {rate:.1} a second, late by {:.1?}", began.elapsed(), lateness());
    assert!(all.histories > 0 || count == 0, "no history could be judged: {STARVED}");
    assert!(failed.is_empty(), "{} histories failed:\n{}", failed.len(), failed.join("\n"));
}
