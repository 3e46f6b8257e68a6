//! The course of a run: everything is started, attacked, healed, left in peace, asked to end, and judged.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use testbed::Ensemble;
use testbed::history::{Journal, now};
use testbed::nemesis::{Client, Kind, Nemesis, Plan, Struck};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::arguments::Settings;
use crate::client::Orders;
use crate::leftover;
use crate::operator::Operator;
use crate::progress::Progress;
use crate::register::{Register, Tokens};
use crate::verdict::{self, Course};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The clients' session timeout.
pub(crate) const SESSION: Duration = Duration::from_millis(2_500);
const TICK: Duration = Duration::from_millis(200);
/// In ticks: longer than a session, so that one that is cut off still serves when a lock is given away behind its back.
const SYNC_LIMIT: u32 = 20;
/// How long nothing is done to anybody in the end.
const QUIET: Duration = Duration::from_secs(8);
/// How long the clients may take to give back what they hold.
const FAREWELL: Duration = Duration::from_secs(30);
const REPORT: Duration = Duration::from_secs(10);

/// Plays, and says whether all promises were kept. Who is interrupted leaves nothing running, and nothing behind.
pub(crate) async fn play(settings: Settings) -> Result<bool> {
    let out = settings.out();
    let folder = out.join("processes");
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        played = play_to_the_end(&settings, &out, &folder) => return played,
        interrupted = ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    // What was played is dropped by now: processes are killed, even those that stand still, and their folders removed.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    Err("interrupted, so nothing is judged".into())
}

async fn play_to_the_end(settings: &Settings, out: &Path, folder: &Path) -> Result<bool> {
    let Settings { duration, seed, workloads, clients, trust, .. } = settings;
    println!(
        "chaos: seed {seed}, {:.1} minutes, {clients} clients, out {}",
        duration.as_secs_f64() / 60.0,
        out.display()
    );
    // Of more kinds than clients, some are not played.
    let workloads: Vec<_> = workloads.iter().copied().take(*clients).collect();
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let sockets = tempfile::tempdir()?;
    let register = Arc::new(Register::start(sockets.path())?);
    let mut ensemble = Ensemble::builder().tick(TICK).sync_limit(SYNC_LIMIT).start().await?;
    ensemble.settled().await?;
    let hosts = ensemble.hosts();
    let servers: Vec<_> = (0..ensemble.len()).map(|i| ensemble.server(i).hosts()).collect();
    let mut random = Rng::with_seed(*seed);
    let plan = Plan::random(random.u64(..), &Kind::ALL, *duration, SESSION);
    let mut players = Vec::new();
    for number in 0..*clients {
        let orders = Orders {
            name: String::new(),
            hosts: String::new(),
            workload: workloads[number % workloads.len()],
            session: SESSION,
            trust: *trust,
            seed: random.u64(..),
            journal: PathBuf::new(),
            register: register.socket().to_owned(),
        };
        players.push(Client::start(&format!("c{number}"), &servers, recipe(orders, folder)).await?);
    }
    println!("chaos: all have begun");

    let faults = Arc::<Mutex<Vec<Struck>>>::default();
    let journal = Journal::create(folder.join("parent.jsonl"))?;
    let mut operator = Operator {
        hosts: hosts.clone(),
        journal,
        register: Arc::clone(&register),
        workloads: workloads.clone(),
        faults: Arc::clone(&faults),
    };
    let attack = async { Nemesis::new(&mut ensemble, &mut players, &mut operator).carry_out(&plan).await };
    tokio::select! {
        attacked = attack => attacked?,
        never = report(folder, &faults) => never?,
    }
    let calm = now();
    ensemble.settled().await?;
    let settled = now();
    println!("chaos: all is healed, the servers are together after {:.1} s", (settled - calm) as f64 / 1e9);
    for player in &mut players {
        // One that has ended is found below.
        let _ = player.tell("calm");
    }
    sleep(QUIET).await;

    let asked = now();
    players.iter_mut().for_each(Client::ask_to_end);
    let mut wrong = Vec::new();
    let deadline = Instant::now() + FAREWELL;
    for player in &mut players {
        match player.ended(deadline.saturating_duration_since(Instant::now())).await {
            Some(status) if status.success() => {}
            Some(status) => wrong.push(format!("{} ended with {status}", player.name())),
            None => wrong.push(format!("{} was not done {FAREWELL:?} after it was asked to end", player.name())),
        }
        wrong.extend(player.crashes().iter().cloned());
    }
    let left = leftover::of_all(&hosts).await?;
    drop(players);
    let course = Course {
        seed: *seed,
        session: SESSION,
        workloads,
        clients: *clients,
        duration: *duration,
        calm,
        settled,
        asked,
        left,
        wrong,
        checked: register.updates(Tokens::Checked),
        ignored: register.updates(Tokens::Ignored),
    };
    let kept = verdict::of_run(&course, folder, out)?;
    fs::remove_dir_all(folder)?;
    Ok(kept)
}

/// Makes the command of a client process, whose journal goes into this folder.
fn recipe(orders: Orders, folder: &Path) -> impl Fn(&str, &str) -> Command + Send + 'static {
    let folder = folder.to_owned();
    move |name, hosts| {
        let (name, hosts) = (name.to_owned(), hosts.to_owned());
        let journal = folder.join(format!("{name}.jsonl"));
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args(Orders { name, hosts, journal, ..orders.clone() }.to_arguments());
        command
    }
}

/// Says every now and then how it goes.
async fn report(folder: &Path, faults: &Mutex<Vec<Struck>>) -> std::io::Result<()> {
    let began = Instant::now();
    let mut progress = Progress::of(folder);
    let mut beat = interval(REPORT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat.tick().await;
    loop {
        beat.tick().await;
        progress.look()?;
        let faults = faults.lock().unwrap_or_else(PoisonError::into_inner).len();
        println!(
            "chaos: +{:.0} s: {} grants, {} losses told, {faults} faults over",
            began.elapsed().as_secs_f64(),
            progress.grants,
            progress.losses
        );
    }
}
