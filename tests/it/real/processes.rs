//! Programs that end with and without `close`, that are configured by their environment, and that fire a job: this binary
//! again, with a variable set.

use std::future::ready;
use std::io::stdin;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use tempfile::NamedTempFile;
use testbed::Server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::spawn_blocking;
use tokio::time::interval;
use uuid::Uuid;
use zookeeper_recipes::job::JobOutcome;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Config, Error, HoldState, Job, Loss, Mutex, MutexGuard, Options, Servers, Session};

use super::runtime;
use crate::clock::FakeClock;
use crate::support::{
    BRIEF, PATIENCE, TIMEOUT, World, admin_client, at_most, children, connect, connect_for, full_name, hosts, soon,
};
use crate::warnings::Warnings;

/// This binary as a process that runs the named function alone.
fn child(name: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("the path of this binary"));
    child.args(["--exact", &full_name(module_path!(), name), "--nocapture"]).stdout(Stdio::null());
    child
}

/// Waits until the child has ended well.
async fn ends(mut child: Command) {
    let status = spawn_blocking(move || child.status()).await.expect("no panic").expect("it runs");
    assert!(status.success(), "{status}");
}

/// The environment variable for the child process below: how it ends, hosts, and path.
const ENDING: &str = "ZK_RECIPES_ENDING";

#[test]
fn ending_child() {
    let Ok(role) = std::env::var(ENDING) else {
        return;
    };
    let (ending, rest) = role.split_once(' ').expect("an ending");
    let (hosts, path) = rest.split_once(' ').expect("hosts and a path");
    runtime().block_on(async {
        let session = connect_for(hosts, 3 * BRIEF).await;
        let guard = Mutex::new(&session, path).expect("a mutex").lock().await.expect("held");
        if ending == "close" {
            session.close().await.expect("closed");
        }
        std::mem::forget(guard);
    });
    std::process::exit(0);
}

async fn run_child(ending: &str, world: &World) {
    let mut child = child("ending_child");
    child.env(ENDING, format!("{ending} {} {}", world.hosts, world.path));
    ends(child).await;
}

#[tokio::test]
async fn main_that_closes_leaves_nothing() {
    let world = World::new().await;
    run_child("close", &world).await;
    assert!(world.children().await.is_empty());
}

#[tokio::test]
async fn main_that_does_not_close_leaves_its_node_until_the_session_ends() {
    let world = World::new().await;
    run_child("exit", &world).await;
    assert_eq!(world.children().await.len(), 1);
    world.wait_empty().await;
}

/// The environment variable for the child process below: hosts, path and unique name.
const NAMED: &str = "ZK_RECIPES_NAMED";

/// Holds the lock and another one, under a unique name. At the end of its input it is gone, and at a line it locks again.
#[test]
fn named_child() {
    let Ok(role) = std::env::var(NAMED) else {
        return;
    };
    let [hosts, path, name] = role.split(' ').collect::<Vec<_>>().try_into().expect("hosts, a path and a name");
    runtime().block_on(async {
        let servers = Servers::new(hosts).with_session_timeout(TIMEOUT).with_unique_name(name);
        let session = Session::connect(servers).await.expect("connects");
        let mutex = Mutex::new(&session, path).expect("a mutex");
        let guard = mutex.lock().await.expect("held");
        let other = Mutex::new(&session, &format!("{path}-other")).expect("a mutex").lock().await.expect("held");
        println!("\n{CONNECTED}");
        let line = spawn_blocking(|| stdin().lines().next()).await.expect("no panic");
        if line.is_some() {
            assert_eq!(guard.lost().await, Loss::Deleted);
            let again = mutex.lock().await.expect_err("it yields");
            assert!(matches!(&again, Error::SessionEnded { reason } if reason.contains("unique name")), "{again}");
        }
        std::mem::forget((guard, other));
    });
    std::process::exit(0);
}

/// A process with the name, once it holds its locks.
async fn named(world: &World, name: &str) -> (Child, ChildStdin) {
    let mut child = tokio::process::Command::from(child("named_child"))
        .env(NAMED, format!("{} {} {name}", world.hosts, world.path))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("this binary runs again");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let held = async { while lines.next_line().await.expect("text").expect("a line") != CONNECTED {} };
    soon("the locks of the child", held).await;
    let orders = child.stdin.take().expect("it is piped");
    (child, orders)
}

async fn lock_as(world: &World, name: &str) -> (Session, MutexGuard) {
    let session = Session::connect(Servers::new(&world.hosts).with_unique_name(name)).await.expect("connects");
    let guard = soon("the lock", Mutex::new(&session, &world.path).expect("a mutex").lock()).await.expect("held");
    (session, guard)
}

#[tokio::test]
async fn process_that_starts_again_under_its_name_holds_the_lock_of_its_last_life_at_once() {
    let (world, name) = (World::new().await, Uuid::new_v4().to_string());
    let (mut child, orders) = named(&world, &name).await;
    drop(orders);
    assert!(soon("its end", child.wait()).await.expect("it can be waited for").success());
    let (session, guard) = lock_as(&world, &name).await;
    assert_eq!(world.children().await.len(), 1, "the node of the last life is gone");
    // And the servers have not ended its session.
    let other = format!("{}-other", world.path);
    assert_eq!(children(&world.admin, &other).await.len(), 1, "another node of the last life stands");
    guard.release().await.expect("released");
    session.close().await.expect("closed");
}

#[tokio::test]
async fn second_process_of_a_name_takes_the_lock_and_the_first_yields_for_good() {
    let (world, name) = (World::new().await, Uuid::new_v4().to_string());
    let (mut child, mut orders) = named(&world, &name).await;
    let (session, guard) = lock_as(&world, &name).await;
    orders.write_all(b"again\n").await.expect("it reads");
    assert!(soon("its end", child.wait()).await.expect("it can be waited for").success());
    assert_eq!(guard.state(), HoldState::Held, "nothing was taken from the second");
    guard.release().await.expect("released");
    session.close().await.expect("closed");
}

/// The environment variable for the child process below, whose other variables begin with `IT_CONFIG`.
const CONFIGURED: &str = "ZK_RECIPES_CONFIGURED";

#[test]
fn configured_child() {
    if std::env::var_os(CONFIGURED).is_none() {
        return;
    }
    let warnings = Warnings::new();
    let config = {
        let _listening = warnings.listen();
        Config::from_env("IT_CONFIG").expect("a configuration")
    };
    assert_eq!(warnings.with("no settings").len(), 1);
    assert_eq!(warnings.count("IT_CONFIG_CHROTT, IT_CONFIG_SESSION_TIMEOUT"), 1, "in order, and no others");
    assert_eq!(warnings.count("IT_CONFIG_HOME") + warnings.count("IT_CONFIG_PORT_2181_TCP"), 0);
    runtime().block_on(async {
        let session = Session::connect(&config).await.expect("connects");
        Mutex::new(&session, "/lock")
            .expect("a mutex")
            .lock()
            .await
            .expect("held")
            .release()
            .await
            .expect("released");
        session.close().await.expect("closed");
    });
}

#[tokio::test]
async fn process_is_configured_by_its_environment() {
    let (auth, chroot) =
        (NamedTempFile::new().expect("a file"), format!("/config-{}/deep", Uuid::new_v4().simple()));
    std::fs::write(auth.path(), "billing:secret\n").expect("written");
    let admin = admin_client(&hosts()).await;
    admin.auth("digest", b"billing:secret").await.expect("known");
    admin.mkdir(&chroot, &CreateMode::Persistent.with_acls(Acls::creator_all())).await.expect("created");
    let mut child = child("configured_child");
    child.env(CONFIGURED, "");
    child.env("IT_CONFIG_HOSTS", hosts()).env("IT_CONFIG_CHROOT", &chroot);
    child.env("IT_CONFIG_SESSION_TIMEOUT_MS", "6000").env("IT_CONFIG_AUTH_FILE", auth.path());
    for other in ["CHROTT", "SESSION_TIMEOUT", "HOME", "PORT_2181_TCP"] {
        child.env(format!("IT_CONFIG_{other}"), "of others");
    }
    ends(child).await;
}

fn late_job(session: &Session, name: &str) -> Job {
    Job::with_options(session, "/late/job", Options::new().with_identifier(name)).expect("a job")
}

async fn run(job: &Job, slot: u64) -> JobOutcome<()> {
    soon("a run", job.run(slot, |_| ready(Ok::<_, Error>(())))).await.expect("an outcome")
}

/// Leaders may have clocks that differ. Here it is one server that starts again with another clock.
#[tokio::test]
async fn pause_is_bounded_where_the_next_leader_has_a_late_clock() {
    let clock = FakeClock::new();
    let mut server = Server::builder();
    for (name, value) in clock.environment() {
        server = server.environment(name, value);
    }
    // A virtual machine looks at its clock far too often to read the file each time.
    let mut server = server
        .environment("FAKETIME_NO_CACHE", "0")
        .environment("FAKETIME_CACHE_DURATION", "1")
        .environment("FAKETIME_FORCE_MONOTONIC_FIX", "0")
        .start()
        .await
        .expect("a server");
    let session = connect(&server.hosts()).await;
    let pause = Duration::from_secs(2);
    let job = late_job(&session, "one").with_least_pause(pause);
    // The record is written, and seen, during the run.
    let recorded = Instant::now();
    assert_eq!(run(&job, 1).await, JobOutcome::Ran(()));
    clock.set(-1);
    server.restart().await.expect("a server");
    let mut ticks = interval(Duration::from_millis(100));
    let mut outcome = run(&job, 2).await;
    while !matches!(outcome, JobOutcome::Ran(_)) {
        let JobOutcome::TooEarly { until } = outcome else { panic!("{outcome:?}") };
        assert!(recorded.elapsed() < at_most(10 * pause), "still too early, until {until:?}");
        ticks.tick().await;
        outcome = run(&job, 2).await;
    }
    assert!(recorded.elapsed() >= pause, "{:?}", recorded.elapsed());
    // Another machine has seen the record just now.
    let session = connect(&server.hosts()).await;
    let other = late_job(&session, "other").with_least_pause(PATIENCE);
    assert!(matches!(run(&other, 3).await, JobOutcome::TooEarly { .. }));
}

/// The environment variable that makes this binary a machine: the path of the job.
const FIRING: &str = "JOB_CHILD";

/// Marks the child's own lines among those of its test harness.
const REPORT: &str = "child reports ";

/// The child's line when it has a session. Then it waits for a line with the number of the first slot.
const CONNECTED: &str = "child is connected";

const FIRES: u64 = 200;

/// Slots are numbers of periods since 1970, in milliseconds.
const PERIOD: u64 = 40;

/// How far the clock of each machine is off, in seconds.
const OFF: [f64; 5] = [-2.5, 2.5, 0.0, -1.0, 2.5];

/// The number of the present period, by the clock of this process.
fn period() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(now.as_millis()).expect("not that late") / PERIOD
}

/// The machine with the fastest clock comes first to every slot, so the clocks change places.
#[tokio::test]
async fn two_hundred_fires_in_processes_with_different_clocks_are_run_once_each() {
    let path = format!("/it-{}/job", Uuid::new_v4().simple());
    let clocks = OFF.map(|_| FakeClock::new());
    let mut machines: Vec<_> = clocks.iter().map(|clock| Machine::start(&path, clock)).collect();
    join_all(machines.iter_mut().map(Machine::connected)).await;
    // The fastest clock is ahead by 2.5 s.
    let first = period() + 4_000 / PERIOD;
    join_all(machines.iter_mut().map(|machine| machine.begin(first))).await;
    let mut ticks = interval(Duration::from_millis(700));
    let change_places = async {
        for turn in 0.. {
            for (number, clock) in clocks.iter().enumerate() {
                clock.set_seconds(OFF[(number + turn) % OFF.len()]);
            }
            ticks.tick().await;
        }
    };
    let reports = tokio::select! {
        reports = join_all(machines.into_iter().map(Machine::reports)) => reports,
        () = change_places => unreachable!("it has no end"),
    };

    let by_machine: Vec<_> = reports.iter().map(Vec::len).collect();
    eprintln!("fires run by each machine: {by_machine:?}");
    let mut runs = reports.concat();
    runs.sort_unstable();
    assert_eq!(runs, (first..first + FIRES).collect::<Vec<_>>(), "each once, and none missed");
}

/// Not a test but the child of one. Does nothing if the variable is not set.
#[test]
fn child_runs_the_job() {
    let Ok(path) = std::env::var(FIRING) else {
        return;
    };
    runtime().block_on(async {
        let session = connect(&hosts()).await;
        let job = Job::new(&session, &path).expect("a job").with_wait_limit(PATIENCE);
        println!("\n{CONNECTED}");
        let line = spawn_blocking(|| stdin().lines().next()).await.expect("no panic");
        let first: u64 = line.expect("a line").expect("text").parse().expect("a number");
        let mut ticks = interval(Duration::from_millis(2));
        for slot in first..first + FIRES {
            while period() < slot {
                ticks.tick().await;
            }
            let work = |_| async {
                println!("\n{REPORT}{slot}");
                Ok::<_, Error>(())
            };
            let _ = job.run(slot, work).await.expect("an outcome");
        }
        session.close().await.expect("closed");
    });
}

/// A process whose clock is off, which fires the job.
struct Machine {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Machine {
    fn start(path: &str, clock: &FakeClock) -> Self {
        let mut child = tokio::process::Command::from(child("child_runs_the_job"))
            .env(FIRING, path)
            .env("ZK_HOSTS", hosts())
            .envs(clock.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this binary runs again");
        let orders = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, orders, lines }
    }

    async fn connected(&mut self) {
        let connected =
            async { while self.lines.next_line().await.expect("text").expect("a line") != CONNECTED {} };
        soon("a session of the machine", connected).await;
    }

    /// Lets it fire from this slot on.
    async fn begin(&mut self, first: u64) {
        self.orders.write_all(format!("{first}\n").as_bytes()).await.expect("it reads");
    }

    /// The slots that it has run, once it has fired them all.
    async fn reports(mut self) -> Vec<u64> {
        let mut slots = Vec::new();
        while let Some(line) = soon("a report", self.lines.next_line()).await.expect("text") {
            slots.extend(line.strip_prefix(REPORT).map(|slot| slot.parse::<u64>().expect("a number")));
        }
        assert!(soon("its end", self.child.wait()).await.expect("it can be waited for").success());
        slots
    }
}
