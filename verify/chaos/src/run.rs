//! A run: starts servers and clients, injects faults, heals them, waits, stops the clients, and judges.

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
use zookeeper_recipes::zookeeper_client;

use crate::arguments::Settings;
use crate::client::{Orders, described};
use crate::director::Director;
use crate::judgement::{self, Course};
use crate::leftover;
use crate::line::{Mark, What};
use crate::lost;
use crate::operator::Operator;
use crate::progress::Progress;
use crate::register::{Register, Tokens};
use crate::workload::{MEMBERS, Workload, path};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The clients' session timeout.
pub(crate) const SESSION: Duration = Duration::from_millis(2_500);
const TICK: Duration = Duration::from_millis(200);
/// In ticks. Longer than a session, so that a server which is cut off still answers when a lock of its clients is
/// granted to others.
const SYNC_LIMIT: u32 = 20;
/// How long there are no faults at the end. All is granted again meanwhile, members agree, and shards come to rest.
const QUIET: Duration = Duration::from_secs(8);
/// How long the clients may take to release what they hold.
const STOP_LIMIT: Duration = Duration::from_secs(30);
const REPORT: Duration = Duration::from_secs(10);
/// How often the members of the group are read from the servers when all faults are over.
const LOOK: Duration = Duration::from_millis(100);
/// Under which name these sets are recorded.
pub(crate) const SERVERS: &str = "servers";

/// Runs, and returns whether all promises were kept. An interrupt leaves no processes and no files behind.
pub(crate) async fn run(settings: Settings) -> Result<bool> {
    let out = settings.out();
    let folder = out.join("processes");
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = run_to_the_end(&settings, &out, &folder) => return ended,
        interrupted = ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    // The other branch is dropped by now: its processes are killed, even stopped ones, and their directories removed.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    Err("interrupted, so nothing is judged".into())
}

async fn run_to_the_end(settings: &Settings, out: &Path, folder: &Path) -> Result<bool> {
    let Settings { duration, seed, workloads, clients: count, .. } = settings;
    println!(
        "chaos: seed {seed}, {:.1} minutes, {count} clients, out {}",
        duration.as_secs_f64() / 60.0,
        out.display()
    );
    // With fewer clients than workloads, the last workloads are left out.
    let workloads: Vec<_> = workloads.iter().copied().take(*count).collect();
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
    let mut clients = Vec::new();
    for number in 0..*count {
        let orders = Orders {
            name: String::new(),
            hosts: String::new(),
            workload: workloads[number % workloads.len()],
            session: SESSION,
            seed: random.u64(..),
            journal: PathBuf::new(),
            register: register.socket().to_owned(),
        };
        clients.push(Client::start(&format!("c{number}"), &servers, recipe(orders, folder)).await?);
    }
    println!("chaos: all clients have started");
    let of_clients: Vec<_> = (0..*count).map(|number| workloads[number % workloads.len()]).collect();
    let mut director = Director::new(&hosts, &of_clients, random.u64(..));

    let faults = Arc::<Mutex<Vec<Struck>>>::default();
    let journal = Journal::create(folder.join("parent.jsonl"))?;
    let mut operator = Operator {
        hosts: hosts.clone(),
        journal: journal.clone(),
        register: Arc::clone(&register),
        workloads: workloads.clone(),
        faults: Arc::clone(&faults),
    };
    let attack = async { Nemesis::new(&mut ensemble, &mut clients, &mut operator).carry_out(&plan).await };
    tokio::select! {
        attacked = attack => attacked?,
        never = report(folder, &faults) => never?,
        never = director.direct() => match never {},
    }
    let calm = now();
    ensemble.settled().await?;
    // The shards move by it once more, and must have come to rest when the clients are stopped.
    director.end().await?;
    let settled = now();
    println!(
        "chaos: all faults are healed, the ensemble is complete after {:.1} s",
        (settled - calm) as f64 / 1e9
    );
    for client in &mut clients {
        // If the process has ended, that is reported below.
        let _ = client.send_line("calm");
    }
    tokio::select! {
        () = sleep(QUIET) => {}
        never = follow_members(&hosts, &journal), if workloads.contains(&Workload::Members) => never?,
    }

    let asked = now();
    clients.iter_mut().for_each(Client::ask_to_end);
    let mut wrong = Vec::new();
    let deadline = Instant::now() + STOP_LIMIT;
    for client in &mut clients {
        match client.ended(deadline.saturating_duration_since(Instant::now())).await {
            Some(status) if status.success() => {}
            Some(status) => wrong.push(format!("{} ended with {status}", client.name())),
            None => wrong.push(format!("{} was not done {STOP_LIMIT:?} after it was asked to end", client.name())),
        }
        wrong.extend(client.crashes().iter().cloned());
    }
    let left = leftover::of_all(&hosts).await?;
    drop(clients);
    let course = Course {
        seed: *seed,
        session: SESSION,
        workloads,
        clients: *count,
        duration: *duration,
        calm,
        settled,
        asked,
        left,
        wrong,
        checked: register.updates(Tokens::Checked),
        ignored: register.updates(Tokens::Ignored),
    };
    let kept = judgement::of_run(&course, folder, out)?;
    let logs: Vec<_> = (0..ensemble.len()).map(|number| ensemble.server(number).data()).collect();
    if let (false, Some((zxid, server))) = (kept, lost::transaction(logs.iter().map(AsRef::as_ref))?) {
        println!("chaos: server {server} has lost transaction {zxid:x} and gone on");
    }
    fs::remove_dir_all(folder)?;
    Ok(kept)
}

/// Returns the command of a client process which writes its journal into this directory.
fn recipe(orders: Orders, folder: &Path) -> impl Fn(&str, &str) -> Command + Send + 'static + use<> {
    let folder = folder.to_owned();
    move |name, hosts| {
        let (name, hosts) = (name.to_owned(), hosts.to_owned());
        let journal = folder.join(format!("{name}.jsonl"));
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args(Orders { name, hosts, journal, ..orders.clone() }.to_arguments());
        command
    }
}

/// Records each set of members that the servers have.
async fn follow_members(hosts: &str, journal: &Journal) -> Result<()> {
    let client = zookeeper_client::Client::connect(hosts).await?;
    let (group, mut last) = (path(MEMBERS), None);
    let mut beat = interval(LOOK);
    loop {
        beat.tick().await;
        client.sync(&group).await?;
        let mut members = Vec::new();
        for name in found(client.list_children(&group).await)?.unwrap_or_default() {
            if let Some((data, stat)) = found(client.get_data(&format!("{group}/{name}")).await)? {
                members.push(described(&name, stat.czxid.cast_unsigned(), &data));
            }
        }
        members.sort();
        if last.as_ref() != Some(&members) {
            last = Some(members.clone());
            journal.write(&Mark::new(&SERVERS.into(), What::Seen { members }))?;
        }
    }
}

/// `None` if there is no node.
fn found<T>(read: std::result::Result<T, zookeeper_client::Error>) -> Result<Option<T>> {
    match read {
        Err(zookeeper_client::Error::NoNode) => Ok(None),
        read => Ok(Some(read?)),
    }
}

/// Prints the progress from time to time.
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
            "chaos: +{:.0} s: {} grants, {} losses reported, {faults} faults over",
            began.elapsed().as_secs_f64(),
            progress.grants,
            progress.losses
        );
    }
}
