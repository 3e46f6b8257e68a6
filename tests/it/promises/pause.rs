//! The first look after a pause of the process reports the loss, and a jump of the wall clock changes nothing.
//!
//! The holder is a process of its own: this binary again, with `PAUSE_CHILD` set.

use std::ffi::OsString;
use std::io::stdin;
use std::process::Stdio;
use std::thread::park_timeout;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use testbed::proxy::Proxy;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Runtime;
use tokio::time::interval;
use uuid::Uuid;
use zookeeper_recipes::{HoldState, Mutex, MutexGuard};

use crate::clock::FakeClock;
use crate::support::{admin_client, at_most, connect, connect_for, full_name, hosts, soon, wait_children};

/// The environment variable that makes this binary the child. Its value is a role (`pause`, `sleep` or
/// `clock`), a space and a lock path.
const CHILD: &str = "PAUSE_CHILD";

/// Marks the child's own lines among those of its test harness.
const REPORT: &str = "child reports ";

/// The session timeout of a holder that is paused.
const PAUSED: Duration = Duration::from_secs(12);

/// The process was paused if its clock has advanced by this much at once. A machine that stalls for less changes nothing.
const GAP: Duration = Duration::from_secs(7);

/// The session timeout of the sleeping holder: long compared to the start-up time of a busy machine.
const SLEEPER: Duration = Duration::from_secs(20);

const HOUR: f64 = 3600.0;

#[tokio::test]
async fn first_look_after_a_pause_returns_lost() {
    let path = some_path();
    let mut holder = Holder::start("pause", &path, []).await;
    let session = connect(&hosts()).await;
    let mutex = Mutex::new(&session, &path).expect("a mutex");
    let next = tokio::spawn(async move { mutex.lock().await });
    wait_children(&session.client().expect("a client"), &path, 2).await;

    holder.signal(Signal::STOP);
    let next = soon("the next grant", next).await.expect("does not panic");
    holder.signal(Signal::CONT);

    assert_eq!(holder.next_report().await, "Lost(TrustEnded), valid for 0ns");
    assert_eq!(holder.next_report().await, "Err(Lost(TrustEnded)) when released");
    holder.ended().await;
    let next = next.expect("granted");
    next.release().await.expect("still held");
    wait_children(&session.client().expect("a client"), &path, 0).await;
}

#[tokio::test]
async fn guard_that_is_dropped_after_a_pause_was_lost_and_not_released() {
    let path = some_path();
    let mut holder = Holder::start("drop", &path, []).await;
    let admin = admin_client(&hosts()).await;
    holder.signal(Signal::STOP);
    wait_children(&admin, &path, 0).await;
    holder.signal(Signal::CONT);
    assert_eq!(holder.next_report().await, "Lost(TrustEnded) for its monitor");
    holder.ended().await;
}

#[tokio::test]
async fn jump_of_the_wall_clock_is_not_noticed() {
    let path = some_path();
    let clock = FakeClock::new();
    let mut holder = Holder::start("clock", &path, clock.environment()).await;
    let mut beat = interval(SLEEPER / 250);

    for hours in [0, 1, 0, -1] {
        clock.set(hours);
        let jumped = Instant::now();
        while jumped.elapsed() < SLEEPER * 3 / 20 {
            beat.tick().await;
            holder.send("look").await;
            let (off, state) = (holder.next_report().await, holder.next_report().await);
            let off: f64 = off.parse::<f64>().expect("seconds") - wall_clock();
            assert!(
                (off - f64::from(hours) * HOUR).abs() < 60.0,
                "set off by {hours} h, the clock is off by {off} s"
            );
            // It is suspended where the process was stopped meanwhile.
            assert!(matches!(&*state, "Held" | "Suspended"), "{state} with a clock that is off by {off} s");
        }
    }

    holder.send("release").await;
    assert_eq!(holder.next_report().await, "Ok(()) when released");
    holder.ended().await;
}

/// For timers and for the clock of trust the machine sleeps. The process is stopped. When it continues, its timers
/// resume where they were, but the boot time has advanced.
#[tokio::test]
async fn loss_is_reported_soon_after_the_machine_slept() {
    let (path, clock) = (some_path(), FakeClock::new());
    let proxy = Proxy::start(&hosts()).await.expect("a proxy");
    let environment = [("ZK_HOSTS", proxy.hosts().into()), ("LD_PRELOAD", clock.library.clone().into())];
    let timers = [("FAKETIME_TIMESTAMP_FILE", clock.offset().into()), ("FAKETIME_NO_CACHE", "1".into())];
    let mut holder = Holder::start("sleep", &path, environment.into_iter().chain(timers)).await;

    proxy.black_hole();
    holder.signal(Signal::STOP);
    let slept = Instant::now();
    let admin = admin_client(&hosts()).await;
    wait_children(&admin, &path, 0).await;
    clock.put_back(slept.elapsed());
    holder.signal(Signal::CONT);
    let awake = Instant::now();

    assert_eq!(holder.next_report().await, "lost: TrustEnded");
    let late = awake.elapsed();
    // The first timer that could notice, one of the client's own, is a fifth of the timeout away.
    assert!(late < at_most(SLEEPER / 8), "{late:?} after the machine was awake again");
}

/// Not a test but the child of one. Does nothing if the variable is not set.
#[test]
fn child_holds_the_lock() {
    let Ok(role) = std::env::var(CHILD) else {
        return;
    };
    let (role, path) = role.split_once(' ').expect("a role and a path");
    let runtime = Runtime::new().expect("a runtime");
    let timeout = if matches!(role, "sleep" | "clock") { SLEEPER } else { PAUSED };
    let guard = runtime.block_on(async {
        let session = connect_for(&hosts(), timeout).await;
        let mutex = Mutex::new(&session, path).expect("a mutex");
        mutex.lock().await.expect("free")
    });
    assert_eq!(guard.state(), HoldState::Held);
    report("holds");
    match role {
        "clock" => look_on_request(&guard),
        "sleep" => report(&format!("lost: {:?}", runtime.block_on(guard.lost()))),
        "drop" => {
            wait_for_a_gap();
            let monitor = guard.monitor();
            drop(guard);
            return report(&format!("{:?} for its monitor", monitor.state()));
        }
        _ => look_after_a_gap(&guard),
    }
    let released = runtime.block_on(guard.release());
    report(&format!("{released:?} when released"));
}

fn wait_for_a_gap() {
    let (mut before, mut now) = (Instant::now(), Instant::now());
    while now - before < GAP {
        park_timeout(Duration::from_millis(1));
        (before, now) = (now, Instant::now());
    }
}

fn look_after_a_gap(guard: &MutexGuard) {
    wait_for_a_gap();
    let state = guard.state();
    report(&format!("{state:?}, valid for {:?}", guard.valid_for()));
}

fn look_on_request(guard: &MutexGuard) {
    for command in stdin().lines() {
        if command.expect("text") == "release" {
            return;
        }
        report(&wall_clock().to_string());
        let (state, valid_for) = (guard.state(), guard.valid_for());
        match valid_for {
            Duration::ZERO => report(&format!("{state:?}, but not valid any more")),
            _ => report(&format!("{state:?}")),
        }
    }
}

fn report(what: &str) {
    println!("\n{REPORT}{what}");
}

/// Seconds since 1970, by the wall clock.
fn wall_clock() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("it is later than 1970").as_secs_f64()
}

fn some_path() -> String {
    format!("/it-{}/lock", Uuid::new_v4().simple())
}

/// The child that holds the lock, seen by its parent. Dropping it kills it.
struct Holder {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Starts the child and waits until it holds the lock.
    async fn start(
        role: &str,
        path: &str,
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of this binary"))
            .args(["--exact", &full_name(module_path!(), "child_holds_the_lock"), "--nocapture"])
            .env(CHILD, format!("{role} {path}"))
            .env("ZK_HOSTS", hosts())
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this binary runs again");
        let input = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut holder = Self { child, input, lines };
        assert_eq!(holder.next_report().await, "holds");
        holder
    }

    async fn send(&mut self, what: &str) {
        let line = format!("{what}\n");
        self.input.write_all(line.as_bytes()).await.expect("the child reads");
    }

    /// The next report of the child.
    async fn next_report(&mut self) -> String {
        let report = async {
            loop {
                let line = self.lines.next_line().await.expect("text");
                let line = line.expect("the child ended before its report");
                if let Some(report) = line.strip_prefix(REPORT) {
                    return report.to_owned();
                }
            }
        };
        soon("a report of the child", report).await
    }

    /// Waits until the child has ended by itself, so that the library that fakes its clock cleans up.
    async fn ended(mut self) {
        let status = soon("the end of the child", self.child.wait()).await;
        assert!(status.expect("it can be waited for").success());
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).expect("the child still runs");
        kill_process(pid, signal).expect("the child can be signalled");
    }
}
