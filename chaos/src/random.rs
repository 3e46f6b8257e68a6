//! Rounds of random faults on the sessions of one process, three servers and a hasty operator.
//!
//! A round begins with cuts, held and silent connections, stalls, servers that are killed and paused, and deletions by hand. Then
//! all faults end, and every lock that is free must be granted to somebody who waits for it, within a second.

mod faults;
mod peer;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::Ensemble;
use testbed::history::{Journal, now};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Options, Session};

use self::faults::Storm;
use self::peer::{Habit, Peer};
use crate::arguments::Rounds;
use crate::client::Phase;
use crate::client::crew::Crew;
use crate::judgement::{self, Round};
use crate::line::{Mark, What};
use crate::operator::dirs;
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
/// How long sessions may take to connect again when the servers are complete.
const RECONNECT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(100);
/// The servers are slow if they take longer than this to answer a write of somebody who has no part in the round.
const SLOW: u64 = 100_000_000;
const PROBE: &str = "/chaos-probe";

/// The locks of all rounds.
pub(crate) fn objects() -> impl Iterator<Item = &'static str> {
    let workloads = Workload::ALL.into_iter().filter(|workload| *workload != Workload::LockSet);
    workloads.flat_map(|workload| workload.objects().iter().copied()).chain(["quiet", "kept"])
}

/// Plays rounds, and returns whether all promises were kept. It ends with the first round in which one was broken.
pub(crate) async fn run(settings: Rounds) -> Result<bool> {
    let (seed, out) = (settings.seed, settings.out());
    println!("chaos: random, seed {seed}, {:.1} minutes", settings.duration.as_secs_f64() / 60.0);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let mut ensemble = Ensemble::builder().tick(TICK).sync_limit(20).start().await?;
    ensemble.settled().await?;
    let mut peers = Vec::new();
    for habit in HABITS {
        peers.push(Peer::start(&ensemble, habit).await?);
    }
    let connector = Client::connector().with_session_timeout(SESSION);
    let operator = Session::connect_with(connector, &ensemble.hosts()).await?;
    let mut random = Rng::with_seed(seed);
    let (began, mut grants, mut longest) = (Instant::now(), 0, Duration::ZERO);
    for number in 1.. {
        let folder = out.join(format!("round-{number}"));
        let round = play(&mut ensemble, &peers, &operator, &mut random, number, &folder.join("processes")).await?;
        let verdict = judgement::of_round(&round, &folder)?;
        grants += verdict.grants;
        longest = longest.max(verdict.longest);
        println!(
            "chaos: +{:.0} s, round {number}: {} grants, {} faults, {} deletions by hand, {} losses; free locks were granted \
             within {:.0} ms after the faults",
            began.elapsed().as_secs_f64(),
            verdict.grants,
            verdict.faults,
            verdict.deletions,
            verdict.losses,
            verdict.longest.as_secs_f64() * 1e3,
        );
        if !verdict.is_clean {
            println!(
                "chaos: random, seed {seed}: a promise was broken in round {number}; its history is in {}",
                folder.display()
            );
            return Ok(false);
        }
        fs::remove_dir_all(&folder)?;
        if began.elapsed() > settings.duration {
            println!(
                "chaos: random, seed {seed}: {number} rounds, {grants} grants, no promise broken; the longest time that a \
                 lock was free and waited for after the faults was {:.0} ms",
                longest.as_secs_f64() * 1e3
            );
            break;
        }
    }
    for peer in &peers {
        peer.session.close().await?;
    }
    let left = crate::leftover::of_all(&ensemble.hosts()).await?;
    left.iter().for_each(|node| println!("VIOLATION {node} was left behind by the sessions, which are closed"));
    Ok(left.is_empty())
}

async fn play(
    ensemble: &mut Ensemble,
    peers: &[Peer],
    operator: &Session,
    random: &mut Rng,
    number: usize,
    folder: &Path,
) -> Result<Round> {
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
    let storm = Storm { hosts: ensemble.hosts(), journal: journal.clone(), ends: Instant::now() + length };
    storm.rage(ensemble, peers, operator, random).await?;
    ensemble.settled().await?;
    // A connection that was lost is a fault, too, until there is another.
    let mut wrong = Vec::new();
    let connecting = join_all(peers.iter().map(Peer::connected));
    if timeout(RECONNECT, connecting).await.is_err() {
        wrong.push(format!("a session was not connected {RECONNECT:?} after the last fault"));
    }
    let calm = now();
    phase.send_replace(Phase::Calm);
    let finished = async {
        sleep(CALM).await;
        phase.send_replace(Phase::Stop);
        timeout(PATIENCE, join_all(working)).await
    };
    let ended = tokio::select! {
        ended = finished => ended,
        failed = look(ensemble, peers, &journal) => return Err(failed.expect_err("it goes on")),
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
    let end = now();
    for peer in peers {
        peer.record.lock().unwrap_or_else(PoisonError::into_inner).take();
        peer.proxies.iter().for_each(testbed::proxy::Proxy::reset);
    }
    Ok(Round { session: SESSION, calm, end, wrong, folder: folder.to_owned() })
}

/// Records which locks wait for the end of a session that is over, and when the servers or the machine are slow.
async fn look(ensemble: &Ensemble, peers: &[Peer], journal: &Journal) -> Result<()> {
    let client = Client::connector().with_session_timeout(SESSION).connect(&ensemble.hosts()).await?;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    // It is there from the second round on.
    let _ = client.create(PROBE, b"", &open).await;
    let write = |process: &str, at, what| {
        journal.write(&Mark { at, process: process.into(), what }).expect("the journal can be written");
    };
    let beats = Arc::new(Mutex::new(journal.clone()));
    let beating = Arc::downgrade(&beats);
    std::thread::spawn(move || {
        let mut last = now();
        while let Some(journal) = beating.upgrade() {
            std::thread::sleep(Duration::from_millis(10));
            let since = std::mem::replace(&mut last, now());
            if last - since > 40_000_000 {
                let mark = Mark { at: last, process: "machine".into(), what: What::Stalled { since } };
                let journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                // The round may be over, and its files gone.
                let _ = journal.write(&mark);
            }
        }
    });
    let probed = async {
        let mut beat = interval(LOOK / 2);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let sent = now();
            client.set_data(PROBE, b"", None).await?;
            let at = now();
            if at - sent > SLOW {
                write("servers", at, What::Stalled { since: sent });
            }
        }
    };
    let listed = async {
        let mut since = now();
        let mut beat = interval(LOOK);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let began = now();
            for object in objects() {
                let living: Vec<_> = peers.iter().map(|peer| peer.session.id().0).collect();
                if has_dead(&client, &path(object), &living).await? {
                    write("operator", now(), What::Dead { object: path(object), since });
                }
            }
            since = began;
        }
    };
    let never: std::result::Result<
        (std::convert::Infallible, std::convert::Infallible),
        zookeeper_recipes::zookeeper_client::Error,
    > = futures_util::future::try_join(probed, listed).await;
    drop(beats);
    never.map(|_| ()).map_err(Into::into)
}

/// Whether a node in the queue belongs to none of these sessions.
async fn has_dead(
    client: &Client,
    path: &str,
    living: &[i64],
) -> std::result::Result<bool, zookeeper_recipes::zookeeper_client::Error> {
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
