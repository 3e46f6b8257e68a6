//! Rounds of random faults on the sessions of one process, three servers and a hasty operator.
//!
//! A round begins with cuts, held and silent connections, stalls, servers that are killed and paused, and deletions by hand. Then
//! all faults end, and every lock that is free must be granted to one of its waiters, within a second.

mod faults;
mod peer;
mod views;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::Ensemble;
use testbed::history::{Journal, now};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};
use zookeeper_recipes::{Options, Servers, Session};

use self::faults::Storm;
use self::peer::{Habit, Peer};
use self::views::Views;
use crate::arguments::Rounds;
use crate::client::Phase;
use crate::client::crew::Crew;
use crate::judgement::{self, Round};
use crate::line::{Mark, What};
use crate::operator::dirs;
use crate::run::keep_logs;
use crate::workload::{Workload, path};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The sessions' timeout. One that was cut off needs up to a third of it until it is trusted again, which must be well below the
/// second that a free lock may take.
const SESSION: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);
/// The sessions.
const HABITS: [Habit; 7] =
    [Habit::Idle, Habit::Idle, Habit::Keeps, Habit::Busy, Habit::Busy, Habit::Busy, Habit::Busy];
/// The longest and the shortest time with faults of a round, in milliseconds.
const STORM: std::ops::Range<u64> = 5_000..11_000;
/// How long the sessions go on working when all faults have ended.
const CALM: Duration = Duration::from_millis(3_000);
/// How long they may take to finish: sessions that are over end meanwhile, and all that wait must have had their turn.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a wait that does not end is watched. Each waiter lists its path again within half a minute.
const SLOW_LOOK: Duration = Duration::from_secs(35);
/// How many lines about queues are printed.
const SHOWN: usize = 40;
/// How long sessions may take to connect again when the servers are complete.
const RECONNECT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(100);
/// A thread that runs later than this was given no time.
const STALL: u64 = 40_000_000;
/// The servers are slow if they take longer than this to answer a write of somebody who has no part in the round.
const SLOW: u64 = 100_000_000;
const PROBE: &str = "/chaos-probe";

/// The locks of all rounds.
pub(crate) fn objects() -> impl Iterator<Item = &'static str> {
    let others = [Workload::LockSet, Workload::Members, Workload::Slots, Workload::Shards];
    let workloads = Workload::ALL.into_iter().filter(move |workload| !others.contains(workload));
    workloads.flat_map(|workload| workload.objects().iter().copied()).chain(["quiet", "kept"])
}

/// Plays rounds, and returns whether all promises were kept. It ends with the first round in which one was broken.
pub(crate) async fn run(settings: Rounds) -> Result<bool> {
    let (seed, out) = (settings.seed, settings.out());
    println!("chaos: random, seed {seed}, {:.1} minutes", settings.duration.as_secs_f64() / 60.0);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let mut fleet = Fleet::start(settings.journal(1)?).await?;
    let mut random = Rng::with_seed(seed);
    let (began, mut grants, mut longest, mut others) = (Instant::now(), 0, Duration::ZERO, 0);
    for number in 1.. {
        let folder = out.join(format!("round-{number}"));
        let (round, views) = play(&mut fleet, &mut random, number, &folder.join("processes")).await?;
        let differences = views.differences();
        if !differences.is_empty() {
            others += 1;
            println!(
                "chaos: +{:.0} s, round {number}: not judged, because the servers disagree, as ZooKeeper 3.8.0 may; its history \
                 is in {}",
                began.elapsed().as_secs_f64(),
                folder.display()
            );
            differences.iter().take(SHOWN).for_each(|difference| println!("DIFFERENCE {difference}"));
            fleet.print(&views);
            fleet.end()?;
            fleet = Fleet::start(settings.journal(1 + others)?).await?;
        } else {
            let numbers = judgement::of_round(&round, &folder)?;
            grants += numbers.grants;
            longest = longest.max(numbers.longest);
            println!(
                "chaos: +{:.0} s, round {number}: {} grants, {} faults, {} deletions by hand, {} losses; free locks were \
                 granted within {:.0} ms after the faults",
                began.elapsed().as_secs_f64(),
                numbers.grants,
                numbers.faults,
                numbers.deletions,
                numbers.losses,
                numbers.longest.as_secs_f64() * 1e3,
            );
            if !numbers.is_clean {
                println!("chaos: all servers show the same nodes");
                fleet.print(&views);
                fleet.end()?;
                println!(
                    "chaos: random, seed {seed}: a promise was broken in round {number}; its history is in {}",
                    folder.display()
                );
                return Ok(false);
            }
            fs::remove_dir_all(&folder)?;
        }
        if began.elapsed() > settings.duration {
            println!(
                "chaos: random, seed {seed}: {number} rounds, {others} of them on servers that disagreed, {grants} grants, no \
                 promise broken; the longest time that a lock was free and waited for after the faults was {:.0} ms",
                longest.as_secs_f64() * 1e3
            );
            break;
        }
    }
    for peer in &fleet.peers {
        peer.close().await?;
    }
    let left = crate::leftover::of_all(&fleet.ensemble.hosts()).await?;
    let differences = if left.is_empty() { Vec::new() } else { Views::take(&fleet.ensemble).await?.differences() };
    differences.iter().for_each(|difference| println!("DIFFERENCE {difference}"));
    if differences.is_empty() {
        left.iter()
            .for_each(|node| println!("VIOLATION {node} was left behind by the sessions, which are closed"));
    }
    fleet.end()?;
    Ok(left.is_empty() || !differences.is_empty())
}

/// The servers, the sessions, and the operator.
struct Fleet {
    ensemble: Ensemble,
    peers: Vec<Peer>,
    operator: Session,
    journal: Option<PathBuf>,
}

impl Fleet {
    async fn start(journal: Option<PathBuf>) -> Result<Self> {
        let ensemble = Ensemble::builder().tick(TICK).sync_limit(20).start().await?;
        ensemble.settled().await?;
        let mut peers = Vec::new();
        for (i, habit) in HABITS.into_iter().enumerate() {
            peers.push(Peer::start(&ensemble, habit, &format!("c{i}"), journal.as_deref()).await?);
        }
        let servers = Servers::new(&ensemble.hosts()).with_session_timeout(SESSION);
        let operator = Session::connect(servers).await?;
        Ok(Self { ensemble, peers, operator, journal })
    }

    /// Prints the queues, and which server each session uses.
    fn print(&self, views: &Views) {
        for (i, peer) in self.peers.iter().enumerate() {
            let servers: Vec<_> = (0..peer.proxies.len()).filter(|n| peer.proxies[*n].connections() > 0).collect();
            println!(
                "c{i}: session {:#x}, {}, with connections to the servers {servers:?}",
                peer.present().0,
                if peer.present().1 { "connected" } else { "disconnected" }
            );
        }
        let name_of = |session| {
            let peer = self.peers.iter().position(|peer| peer.present().0 == session);
            peer.map_or_else(|| format!("{session:#x}"), |i| format!("c{i}"))
        };
        views.queues(name_of).iter().take(SHOWN).for_each(|queue| println!("QUEUE {queue}"));
    }

    /// Keeps what the journal needs of the servers, before they end.
    fn end(&self) -> Result<()> {
        Ok(self.journal.iter().try_for_each(|folder| keep_logs(&self.ensemble, folder))?)
    }
}

/// Plays one round, and then looks at what each server shows.
async fn play(fleet: &mut Fleet, random: &mut Rng, number: usize, folder: &Path) -> Result<(Round, Views)> {
    let Fleet { ensemble, peers, operator, .. } = &mut *fleet;
    fs::create_dir_all(folder)?;
    let journal = Journal::create(folder.join("parent.jsonl"))?;
    let phase = watch::Sender::new(Phase::Storm);
    let mut working = Vec::new();
    for (i, peer) in peers.iter().enumerate() {
        let name = format!("c{i}.{number}");
        working.push(peer.work(Crew {
            name: name.as_str().into(),
            journal: Journal::create(folder.join(format!("{name}.jsonl")))?,
            session: peer.session.clone(),
            options: Options::new(),
            timeout: SESSION,
            register: Default::default(),
            random: random.fork(),
            phase: phase.subscribe(),
            neglects: if peer.habit == Habit::Busy { 1 } else { 8 },
        }));
    }
    let length = Duration::from_millis(random.u64(STORM));
    let hosts = ensemble.hosts();
    let storm = Storm { hosts: hosts.clone(), journal: journal.clone(), ends: Instant::now() + length };
    let mut wrong = Vec::new();
    let course = async {
        storm.rage(ensemble, peers, operator, random).await?;
        ensemble.settled().await?;
        // A connection that was lost is a fault, too, until there is another.
        let connecting = join_all(peers.iter().map(Peer::connected));
        if timeout(RECONNECT, connecting).await.is_err() {
            wrong.push(format!("a session was not connected {RECONNECT:?} after the last fault"));
        }
        let calm = now();
        phase.send_replace(Phase::Calm);
        sleep(CALM).await;
        phase.send_replace(Phase::Stop);
        let mut working = join_all(working);
        let ended = timeout(PATIENCE, &mut working).await;
        let end = now();
        let views = Views::take(ensemble).await?;
        if ended.is_err() {
            // A waiter that has missed an event is granted its lock by its next look, and one behind a node that only its server
            // shows is not.
            let later = timeout(SLOW_LOOK, &mut working).await;
            let outcome = if later.is_ok() { "all have had their turn" } else { "a contender still waits" };
            println!("chaos: round {number}: a wait did not end; another {SLOW_LOOK:?} later {outcome}");
        }
        Ok::<_, Box<dyn Error + Send + Sync>>((calm, ended, end, views))
    };
    let (calm, ended, end, views) = tokio::select! {
        done = course => done?,
        () = look(&hosts, peers, &journal) => unreachable!("it never returns"),
    };
    match ended {
        Ok(all) => {
            for done in all {
                if let Err(error) = done? {
                    wrong.push(error.to_string());
                }
            }
        }
        Err(_) => wrong.push(format!("somebody still waited {:?} after the last fault", CALM + PATIENCE)),
    }
    for peer in peers {
        peer.record.lock().unwrap_or_else(PoisonError::into_inner).take();
        peer.proxies.iter().for_each(testbed::proxy::Proxy::reset);
    }
    Ok((Round { session: SESSION, calm, end, wrong, folder: folder.to_owned() }, views))
}

/// Records which locks wait for the end of a session that is over, and when a server or the machine is slow. It never returns.
async fn look(hosts: &str, peers: &[Peer], journal: &Journal) {
    let _beats = beat(journal.clone());
    // One server alone may stand still, with the sessions that are connected to it.
    let probes = join_all(hosts.split(',').map(|host| look_at(host, journal)));
    tokio::join!(probes, find_dead(hosts, peers, journal));
}

/// Records when a server is slow to answer. It never returns.
async fn look_at(host: &str, journal: &Journal) {
    loop {
        // Faults end it again and again.
        let since = now();
        match Client::connector().with_session_timeout(SESSION).connect(host).await {
            Ok(client) => {
                let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
                // It is there from the second round on.
                let _ = client.create(PROBE, b"", &open).await;
                probe(&client, journal).await;
            }
            Err(_) => note(journal, "servers", What::Stalled { since }),
        }
    }
}

fn note(journal: &Journal, process: &str, what: What) {
    journal.write(&Mark { at: now(), process: process.into(), what }).expect("the journal can be written");
}

/// Records when the machine gave this process no time, until the value is dropped.
fn beat(journal: Journal) -> Arc<()> {
    let alive = Arc::new(());
    let beating = Arc::downgrade(&alive);
    std::thread::spawn(move || {
        let mut last = now();
        while beating.upgrade().is_some() {
            std::thread::sleep(Duration::from_millis(10));
            let since = std::mem::replace(&mut last, now());
            if last - since > STALL {
                note(&journal, "machine", What::Stalled { since });
            }
        }
    });
    alive
}

/// Writes again and again, and records when that takes long. It ends with an error.
async fn probe(client: &Client, journal: &Journal) {
    let mut beat = interval(LOOK / 2);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let since = now();
        let written = client.set_data(PROBE, b"", None).await;
        if written.is_err() || now() - since > SLOW {
            note(journal, "servers", What::Stalled { since });
        }
        if written.is_err() {
            return;
        }
    }
}

/// Lists the nodes of sessions that are over again and again. It never returns.
async fn find_dead(hosts: &str, peers: &[Peer], journal: &Journal) {
    let mut since = now();
    let mut beat = interval(LOOK);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Ok(client) = Client::connector().with_session_timeout(SESSION).connect(hosts).await else { continue };
        loop {
            beat.tick().await;
            let began = now();
            if note_dead(&client, peers, journal, since).await.is_err() {
                break;
            }
            since = began;
        }
    }
}

async fn note_dead(
    client: &Client,
    peers: &[Peer],
    journal: &Journal,
    since: u64,
) -> std::result::Result<(), ZkError> {
    for object in objects() {
        let living: Vec<_> = peers.iter().map(|peer| peer.present().0).collect();
        if has_dead(client, &path(object), &living).await? {
            note(journal, "operator", What::Dead { object: path(object), since });
        }
    }
    Ok(())
}

/// Whether a node in the queue belongs to none of these sessions.
async fn has_dead(client: &Client, path: &str, living: &[i64]) -> std::result::Result<bool, ZkError> {
    // A path that is gone has no nodes.
    for dir in dirs(client, path).await.unwrap_or_default() {
        for name in client.list_children(&dir).await.unwrap_or_default() {
            let stat = client.check_stat(&format!("{dir}/{name}")).await?;
            if stat.is_some_and(|stat| stat.ephemeral_owner != 0 && !living.contains(&stat.ephemeral_owner)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
