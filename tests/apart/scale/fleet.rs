//! What large fleets run: an observer beside three servers that vote, sessions that are local until they lock something, and
//! a configuration that moves votes from one server to another while locks are in use.
//!
//! `FLEET_MOVES=20` makes it longer. `FLEET_SEED=7` repeats the workload, as far as the machine lets it be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::history::{History, Model};
use testbed::{Ensemble, Server};
use tokio::time::{Instant, interval};
use zookeeper_recipes::zookeeper_client::{Client as ZkClient, EnsembleUpdate};
use zookeeper_recipes::{HoldState, Mutex};

use crate::alone::{LONG, turn, unstuck};
use crate::support::{connect_for, soon};
use crate::workload::{Client, PERMITS, Round, lock, read_or_write, take_permits};

const SESSIONS: usize = 6;

/// Long enough for an election, and for the moves of a session that they cost.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many holds each workload has between two moves.
const HOLDS: usize = 100;

async fn fleet() -> Ensemble {
    let builder = Ensemble::builder().servers(3).observers(1).reconfigurable();
    let builder = builder.config("localSessionsEnabled", "true").config("localSessionsUpgradingEnabled", "true");
    builder.start().await.expect("an ensemble")
}

/// The number of the only server with this mode.
async fn only(ensemble: &Ensemble, mode: &str) -> usize {
    let mut beat = interval(Duration::from_millis(20));
    loop {
        beat.tick().await;
        for i in 0..ensemble.len() {
            if ensemble.server(i).mode().await.as_deref() == Some(mode) {
                return i;
            }
        }
    }
}

/// Gives the vote of one server to the observer, which it then is itself.
async fn move_vote(ensemble: &Ensemble, from: usize, to: usize) {
    let members = [ensemble.member(to, "participant"), ensemble.member(from, "observer")];
    let mut beat = interval(Duration::from_millis(200));
    loop {
        beat.tick().await;
        let connector = ZkClient::connector().with_session_timeout(LONG);
        let admin = connector.connect(&ensemble.hosts()).await.expect("connects");
        let (joinings, leavings) = (members.each_ref().map(String::as_str), [""; 0]);
        let update =
            EnsembleUpdate::Incremental { joinings: joinings.iter().copied(), leavings: leavings.iter().copied() };
        match admin.update_ensemble(update, None).await {
            Ok(_) => break,
            // The leader may be the server that is moved. Others may not be in step yet.
            Err(error) => println!("not moved yet: {error}"),
        }
        // Its session may have ended with its server, because it is local.
        let config = admin.get_config().await.map(|(config, _)| config).unwrap_or_default();
        if members.iter().all(|member| String::from_utf8_lossy(&config).contains(member.as_str())) {
            break;
        }
    }
    let mut beat = interval(Duration::from_millis(20));
    let modes = async || (ensemble.server(from).mode().await, ensemble.server(to).mode().await);
    while !matches!(modes().await, (Some(from), Some(to)) if from == "observer" && to != "observer") {
        beat.tick().await;
    }
    ensemble.settled().await.expect("settled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_keep_their_promises_while_votes_are_moved_to_an_observer_and_back() {
    let _turn = turn().await;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let moves = number("FLEET_MOVES").unwrap_or(4);
    let seed = number("FLEET_SEED").unwrap_or(1);
    println!("FLEET_MOVES={moves} FLEET_SEED={seed}");
    let ensemble = fleet().await;
    let mut random = Rng::with_seed(seed);
    let workloads: [(&str, Round, Model); 3] = [
        ("/fleet/mutex", |client| Box::pin(lock(client)), Model::FencedMutex),
        ("/fleet/rwlock", |client| Box::pin(read_or_write(client)), Model::ReadWrite),
        ("/fleet/semaphore", |client| Box::pin(take_permits(client)), Model::Permits(PERMITS)),
    ];
    let (is_over, mut tasks) = (Arc::new(AtomicBool::new(false)), Vec::new());
    let held: [Arc<AtomicUsize>; 3] = Default::default();
    let histories = [History::new(), History::new(), History::new()];
    let sessions = join_all((0..SESSIONS).map(async |_| connect_for(&ensemble.hosts(), TIMEOUT).await)).await;
    for (number, session) in sessions.iter().enumerate() {
        for (index, (path, round, _)) in workloads.iter().copied().enumerate() {
            let name = format!("session {number}");
            let mut client = Client::new(session, path, &histories[index], name, random.fork());
            let (is_over, held) = (is_over.clone(), held[index].clone());
            tasks.push(tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let before = client.held;
                    round(&mut client).await;
                    held.fetch_add(client.held - before, Ordering::SeqCst);
                }
            }));
        }
    }
    for made in 0..=moves {
        let before = held.each_ref().map(|held| held.load(Ordering::SeqCst));
        let grows = async {
            let mut beat = interval(Duration::from_millis(20));
            while held.iter().zip(before).any(|(held, before)| held.load(Ordering::SeqCst) < before + HOLDS) {
                beat.tick().await;
            }
        };
        unstuck("holds", grows).await;
        if made < moves {
            let observer = unstuck("an observer", only(&ensemble, "observer")).await;
            // A follower and the leader in turn.
            let from = match made % 2 {
                0 => ensemble.followers().await.expect("followers")[0],
                _ => ensemble.leader().await.expect("a leader"),
            };
            let began = Instant::now();
            unstuck("the vote", move_vote(&ensemble, from, observer)).await;
            println!("server {from} observes, and server {observer} votes, after {:.1?}", began.elapsed());
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for ended in unstuck("the last rounds", join_all(tasks)).await {
        ended.expect("no panic");
    }
    for ((path, _, model), history) in workloads.iter().zip(&histories) {
        println!("{path}: {}", history.summary());
        history.judge(*model).assert_clean();
    }
    for session in sessions {
        session.close().await.expect("closed");
    }
}

/// How many of the sessions of a server are local.
async fn local_sessions(server: &Server) -> usize {
    let counts = server.four_letter_word("mntr").await.expect("answered");
    let count = counts.lines().find_map(|line| line.strip_prefix("zk_local_sessions\t"));
    count.expect("it counts them").trim().parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_of_a_local_session_survives_a_restart_of_its_observer() {
    let _turn = turn().await;
    let mut ensemble = fleet().await;
    let observer = unstuck("an observer", only(&ensemble, "observer")).await;
    let before = local_sessions(ensemble.server(observer)).await;
    let session = connect_for(&ensemble.server(observer).hosts(), LONG).await;
    assert_eq!(local_sessions(ensemble.server(observer)).await, before + 1, "it is local at first");
    let mutex = Mutex::new(&session, "/fleet/observer").expect("a mutex");
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    assert_eq!(local_sessions(ensemble.server(observer)).await, before, "it is local no more");
    let id = session.id();
    ensemble.server_mut(observer).restart().await.expect("restarted");
    let mut beat = interval(Duration::from_millis(20));
    // The loss of the connection may be noticed later than the restart.
    let held_again = async {
        while ensemble.server(observer).mode().await.is_none() || guard.state() != HoldState::Held {
            assert!(!matches!(guard.state(), HoldState::Lost(_)), "{:?}", guard.state());
            beat.tick().await;
        }
    };
    unstuck("the hold", held_again).await;
    soon("its release", guard.release()).await.expect("it was held all the time");
    assert_eq!(session.id(), id);
    session.close().await.expect("closed");
}
