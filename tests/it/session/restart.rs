//! Restarts after a crash, with a session file: the next process ends the session that the file names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testbed::next_look;
use testbed::proxy::Proxy;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::{Config, Error, HoldState, Mutex, MutexGuard, Servers, Session, SessionState};

use crate::support::{BRIEF, TIMEOUT, World, at_most, full_name, hosts, soon, until};
use crate::warnings::Warnings;

/// A session timeout that nothing but the end of a crashed session takes.
const CRASHED: Duration = Duration::from_secs(16);

/// What the file begins with.
const FORM: &str = "zookeeper-recipes-session-1 ";

/// The environment variable for the child process: hosts, lock path, session file.
const CHILD: &str = "ZK_RECIPES_RESTARTED";

#[test]
fn restarted_child() {
    let Ok(role) = std::env::var(CHILD) else {
        return;
    };
    let [hosts, path, file] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("a role: {role}") };
    let mut servers = Servers::new(hosts).with_session_timeout(CRASHED);
    if !file.is_empty() {
        servers = servers.with_session_file(file);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let session = Session::connect(servers).await.expect("connects");
        let guard = Mutex::new(&session, path).expect("a mutex").lock().await.expect("held");
        println!("\ngranted");
        // The session has threads of its own.
        std::io::read_to_string(std::io::stdin()).expect("it ends");
        guard.release().await.expect("released");
        session.close().await.expect("closed");
    });
}

/// A process that holds the lock. Dropping it kills it.
struct Holder {
    child: Child,
    input: ChildStdin,
    _lines: Lines<BufReader<ChildStdout>>,
    /// From the start of the process to the grant.
    took: Duration,
}

/// Starts a process that is to hold the lock.
fn start(path: &str, file: &str) -> Child {
    Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", &full_name(module_path!(), "restarted_child"), "--nocapture"])
        .env(CHILD, format!("{} {path} {file}", hosts()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("starts")
}

impl Holder {
    async fn start(path: &str, file: &str) -> Self {
        let began = Instant::now();
        let mut child = start(path, file);
        let input = child.stdin.take().expect("piped");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        soon("the grant", async {
            while lines.next_line().await.expect("text").expect("it has the lock before it ends") != "granted" {}
        })
        .await;
        Self { child, input, _lines: lines, took: began.elapsed() }
    }

    /// Sends SIGKILL, and waits for the end.
    async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Lets it release the lock and close its session.
    async fn end(mut self) {
        drop(self.input);
        assert!(soon("the end", self.child.wait()).await.expect("it ends").success());
    }
}

/// A folder for the session file, and the path of the file.
fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("session");
    (folder, file)
}

fn servers(file: &Path) -> Servers {
    Servers::new(&hosts()).with_session_timeout(TIMEOUT).with_session_file(file)
}

/// The id of the session that a file names.
fn named(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a file");
    let id = text.strip_prefix(FORM).and_then(|rest| rest.split(' ').next());
    format!("0x{}", id.expect("an id"))
}

/// Leaves a held lock behind, as a crash does: the session ends by its timeout alone, which is long.
fn crash(path: &str, file: &Path) {
    crash_at(&hosts(), path, file);
}

/// The same at these servers.
fn crash_at(hosts: &str, path: &str, file: &Path) {
    let servers = Servers::new(hosts).with_session_timeout(TIMEOUT).with_session_file(file);
    let path = path.to_owned();
    let crashed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let session = Session::connect(servers).await.expect("connects");
            std::mem::forget(Mutex::new(&session, &path).expect("a mutex").lock().await.expect("held"));
        });
    });
    crashed.join().expect("no panic");
}

/// The lock, which only a session that has ended may have held.
async fn is_free(session: &Session, path: &str) -> MutexGuard {
    let mutex = Mutex::new(session, path).expect("a mutex");
    soon("an answer", mutex.try_lock()).await.expect("answered").expect("nobody holds it any more")
}

async fn refusal(servers: Servers) -> String {
    let error = Session::connect(servers).await.expect_err("refused");
    assert!(matches!(error, Error::InvalidInput { what: "session file", .. }), "{error:?}");
    error.to_string()
}

/// Full promise: by processes that are killed.
#[tokio::test]
async fn process_that_was_killed_has_its_lock_back_at_once_with_a_session_file() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let file = file.to_str().expect("text");
    Holder::start(&world.path, file).await.kill().await;
    let with_file = Holder::start(&world.path, file).await;
    let took = with_file.took;
    with_file.end().await;
    assert!(!Path::new(file).exists(), "the session was closed");

    Holder::start(&world.path, "").await.kill().await;
    let without = Holder::start(&world.path, "").await;
    println!(
        "from the start of the process to the grant, with a session timeout of {CRASHED:?}: {took:.1?} with a session file, \
         {:.1?} without",
        without.took
    );
    assert!(took < at_most(CRASHED / 4), "it has waited for {took:?}");
    assert!(without.took > CRASHED / 2, "it has waited for {:?} only", without.took);
    without.end().await;
}

/// Each has a little more time than the last, so some have a session without a file, or a file and no lock yet.
#[tokio::test]
async fn process_that_is_killed_at_any_moment_leaves_no_lock_that_the_next_cannot_end() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let name = file.to_str().expect("text");
    let (mut left, mut limit) = (0, Duration::ZERO);
    while left < 3 {
        let mut child = start(&world.path, name);
        // A wait would close it, and with it the session.
        let _input = child.stdin.take();
        assert!(tokio::time::timeout(limit, child.wait()).await.is_err(), "it does not end by itself");
        child.kill().await.expect("killed");
        left += usize::from(!world.children().await.is_empty());
        let session = Session::connect(servers(&file)).await.expect("connects");
        drop(is_free(&session, &world.path).await);
        session.close().await.expect("closed");
        limit = limit * 9 / 8 + Duration::from_millis(3);
    }
    println!("three of the processes had the lock, the last after {limit:?}");
}

#[tokio::test]
async fn second_living_process_is_refused_and_ends_nothing() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let holder = Holder::start(&world.path, file.to_str().expect("text")).await;
    let (lazy, reason) = (Session::lazy(servers(&file)), refusal(servers(&file)).await);
    let expected = "belongs to a session that is alive, of this process or another; each needs a file of its own";
    assert_eq!(reason, format!("invalid session file: {} {expected}", file.display()));
    assert_eq!(lazy.expect_err("refused").to_string(), reason);
    assert_eq!(world.children().await.len(), 1, "its lock is held");
    holder.end().await;
}

#[tokio::test]
async fn of_two_starts_at_once_one_is_refused() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let (one, other) = tokio::join!(Session::connect(servers(&file)), Session::connect(servers(&file)));
    let (session, error) = match (one, other) {
        (Ok(session), Err(error)) | (Err(error), Ok(session)) => (session, error),
        both => panic!("{both:?}"),
    };
    assert!(error.to_string().contains("belongs to a session that is alive"), "{error}");
    drop(is_free(&session, &world.path).await);
}

#[tokio::test]
async fn file_names_the_session_of_the_moment_and_is_removed_at_the_close() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let servers = Servers::new(&world.proxy.hosts()).with_session_timeout(TIMEOUT).with_session_file(&file);
    let session = Session::connect(servers).await.expect("connects");
    let before = session.id();
    assert_eq!(named(&file), before.to_string());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        for file in [file.clone(), file.with_extension("lock")] {
            assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
    }
    let mut states = session.states();
    world.expire_that_of(&session).await;
    let renewed = |state: SessionState| state.is_connected() && state != SessionState::Connected(before);
    soon("the renewal", states.wait_for(renewed)).await.expect("renewed");
    assert_ne!(session.id(), before);
    until("the file names the session", || named(&file) == session.id().to_string()).await;

    session.close().await.expect("closed");
    assert!(!file.exists());
    let names: Vec<_> = fs::read_dir(file.parent().expect("a folder")).expect("read").collect();
    assert_eq!(names.len(), 1, "the lock file stays: {names:?}");
    // Although the closed session is still there.
    Session::connect(self::servers(&file)).await.expect("connects").close().await.expect("closed");
}

/// The second connection, over which the close ends the session, is given another one, whose end shows nothing.
#[tokio::test]
async fn close_on_a_server_that_forgets_sessions_leaves_the_file() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let servers = Servers::new(&world.proxy.hosts()).with_session_timeout(3 * BRIEF).with_session_file(&file);
    let session = Session::connect(servers).await.expect("connects");
    let guard = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    drop(guard.check_writer().expect("held"));
    world.proxy.forget_sessions();
    // The locks are released, and nothing keeps the session alive.
    assert_eq!(soon("the close", session.close()).await, Ok(()));
    world.wait_empty().await;
    assert_eq!(named(&file), session.id().to_string());
}

#[tokio::test]
async fn session_of_a_configuration_has_its_session_file() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let config = serde_json::json!({ "hosts": hosts(), "session_file": file });
    let config: Config = serde_json::from_value(config).expect("a configuration");
    let session = Session::connect(&config).await.expect("connects");
    drop(is_free(&session, &world.path).await);
    assert_eq!(named(&file), session.id().to_string());
}

#[tokio::test]
async fn lazy_session_ends_the_one_that_was_left() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let session = Session::lazy(servers(&file)).expect("a session");
    soon("a server", session.states().wait_for(SessionState::is_connected)).await.expect("connected");
    drop(is_free(&session, &world.path).await);
    until("the file names the session", || named(&file) == session.id().to_string()).await;
}

#[tokio::test]
async fn session_in_the_same_process_can_follow_one_that_was_dropped() {
    let (world, (_folder, file)) = (World::new().await, folder());
    drop(Session::connect(servers(&file)).await.expect("connects"));
    // It is closed in the background.
    let session = soon("the file", async {
        loop {
            match Session::connect(servers(&file)).await {
                Err(Error::InvalidInput { .. }) => next_look().await,
                connected => return connected.expect("connects"),
            }
        }
    })
    .await;
    drop(is_free(&session, &world.path).await);
}

/// The removal of a kept node does not wait for servers that never come.
#[tokio::test]
async fn session_that_was_dropped_with_its_kept_node_in_an_outage_frees_the_file() {
    for is_created in [false, true] {
        let (_folder, file) = folder();
        let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
        let servers = || Servers::new(&proxy.hosts()).with_session_timeout(BRIEF).with_session_file(&file);
        if !is_created {
            proxy.refuse();
        }
        let session = Session::lazy(servers()).expect("valid");
        let path = format!("/it-{}/host-7", uuid::Uuid::new_v4().simple());
        let node = session.keep_node(&path, b"").expect("a valid path");
        if is_created {
            soon("the node", node.created()).await.expect("created");
            proxy.refuse();
        }
        drop((node, session));
        until("the file is free", || Session::lazy(servers()).is_ok()).await;
    }
}

/// The client ends the session by its own clock, while the close waits. The servers have heard nothing of it.
#[tokio::test]
async fn file_stays_if_no_server_has_confirmed_the_end_of_the_session() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let servers = Servers::new(&world.proxy.hosts()).with_session_timeout(3 * BRIEF).with_session_file(&file);
    let session = Session::connect(servers).await.expect("connects");
    let guard = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    let left = named(&file);
    world.proxy.refuse();
    soon("its loss", guard.lost()).await;
    let closed = soon("the close", session.close()).await;
    assert!(matches!(closed, Err(Error::Unavailable { .. })), "{closed:?}");
    assert_eq!(named(&file), left);
}

#[tokio::test]
async fn file_is_free_when_a_close_returns_that_has_nothing_to_end() {
    let (_folder, file) = folder();
    let servers = || Servers::new("127.0.0.1:1").with_session_timeout(BRIEF).with_session_file(&file);
    let session = Session::lazy(servers()).expect("valid");
    session.close().await.expect("closed");
    Session::lazy(servers()).expect("the file is free");
}

/// As between the start of servers and that of a service.
#[tokio::test]
async fn session_that_was_left_is_ended_for_as_long_as_connecting_is_tried() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let proxy = Proxy::start(&hosts()).await.expect("a proxy");
    proxy.refuse();
    let through_proxy = || Servers::new(&proxy.hosts()).with_session_timeout(BRIEF).with_session_file(&file);
    let warnings = Warnings::new();
    let listening = warnings.listen();
    let left = named(&file);
    let error = soon("an error", Session::connect(through_proxy())).await.expect_err("there are no servers");
    let Error::Unavailable { why: Unanswered::Servers, after, failures, .. } = &error else { panic!("{error:?}") };
    assert!(*after >= BRIEF && *after < at_most(2 * BRIEF) && failures.len() == 1, "{error}");
    let warned = warnings.with("cannot end the session of the session file yet");
    assert!(matches!(&warned[..], [text] if text.contains(&left)), "once, with its id: {warned:?}");
    assert_eq!(named(&file), left, "it is still to be ended");

    let session = Session::lazy(through_proxy()).expect("a session");
    until("another warning", || warnings.count("cannot end the session of the session file yet") == 2).await;
    drop(listening);
    proxy.heal();
    soon("a server", session.states().wait_for(SessionState::is_connected)).await.expect("connected");
    drop(is_free(&session, &world.path).await);
}

/// A file that was copied, with its folder or without, names a session of a living process.
#[tokio::test]
async fn copied_file_ends_nothing() {
    let (world, (_folder, file)) = (World::new().await, folder());
    let session = Session::connect(servers(&file)).await.expect("connects");
    let guard = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    for with_lock in [false, true] {
        let (_another_folder, copy) = folder();
        fs::copy(&file, &copy).expect("copied");
        if with_lock {
            fs::copy(file.with_extension("lock"), copy.with_extension("lock")).expect("copied");
        }
        ends_nothing(&world, &copy, &guard).await;
    }
    // The same by a name of its own.
    let (_another_folder, link) = folder();
    fs::hard_link(&file, &link).expect("linked");
    ends_nothing(&world, &link, &guard).await;
    // The lock of the living process is gone.
    fs::remove_file(file.with_extension("lock")).expect("deleted");
    ends_nothing(&world, &file, &guard).await;
}

async fn ends_nothing(world: &World, file: &Path, guard: &MutexGuard) {
    let warnings = Warnings::new();
    let listening = warnings.listen();
    let other = Session::connect(servers(file)).await.expect("connects");
    drop(listening);
    assert_eq!(warnings.count("was copied, or its lock was deleted"), 1);
    let mutex = Mutex::new(&other, &world.path).expect("a mutex");
    assert!(mutex.try_lock().await.expect("answered").is_none(), "it is held");
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(named(file), other.id().to_string());
}

#[tokio::test]
async fn session_that_the_servers_do_not_know_is_nothing_to_end() {
    let (_folder, file) = folder();
    let local = Session::local().await.expect("servers");
    let elsewhere = local.another_with(|servers| servers.with_session_file(&file)).await.expect("connects");
    let (session, text) = (elsewhere.id(), fs::read(&file).expect("a file"));
    elsewhere.close().await.expect("closed");
    // As if it had crashed; the session has ended there, and was never here.
    fs::write(&file, text).expect("written");
    assert_eq!(named(&file), session.to_string());
    let session = Session::connect(servers(&file)).await.expect("connects");
    assert_eq!(named(&file), session.id().to_string());
    session.close().await.expect("closed");
}

#[tokio::test]
async fn local_session_can_be_restarted() {
    let (_folder, file) = folder();
    let local = Session::local().await.expect("servers");
    crash_at(&local.hosts(), "/orders/17", &file);
    assert!(Mutex::new(&local, "/orders/17").expect("a mutex").try_lock().await.expect("answered").is_none());
    let next = local.another_with(|servers| servers.with_session_file(&file)).await.expect("connects");
    drop(is_free(&next, "/orders/17").await);
}

#[tokio::test]
async fn file_that_cannot_be_used_is_refused_and_left_as_it_is() {
    let (folder, file) = folder();
    let path = |name: &str| folder.path().join(name);
    let line = |id: &str, password: &str| format!("{FORM}{id} {password} 1-1\n");
    fs::write(path("plain"), "").expect("written");
    for text in [
        "hunter2",
        "\0\u{1}\u{2}\n",
        "zookeeper-recipes-session-2 1 00 1-1\n",
        line("0", "00").as_str(),
        line("1", "").as_str(),
        line("1", "0g").as_str(),
        line("1", "001").as_str(),
        line("1", "+1").as_str(),
        line("-1", "00").as_str(),
        line("11111111111111111", "00").as_str(),
        line("1", "00").trim_end(),
        &"x".repeat(100_000),
    ] {
        fs::write(&file, text).expect("written");
        let reason = refusal(servers(&file)).await;
        let advice = "is no session file; give another path, or delete it if nobody needs it";
        assert_eq!(reason, format!("invalid session file: {} {advice}", file.display()), "{text:?}");
        assert_eq!(fs::read_to_string(&file).expect("a file"), text);
    }
    for (path, reason) in [
        (folder.path().to_owned(), "is a directory; give the path of a file in it"),
        ("/dev/null".into(), "is no regular file; give another path"),
        ("".into(), "is no path of a file"),
        (path("missing/file"), "cannot be locked, by a file beside it with .lock at the end: No such file"),
        (path("plain/file"), "cannot be read: Not a directory"),
        // Nobody may write there, not even root.
        ("/proc/session".into(), "cannot be locked, by a file beside it with .lock at the end: "),
    ] {
        let error = refusal(servers(&path)).await;
        assert!(error.starts_with(&format!("invalid session file: {} {reason}", path.display())), "{error}");
    }
    // An empty file names no session.
    Session::connect(servers(&path("plain"))).await.expect("connects").close().await.expect("closed");
}

/// What a process has left that was killed before it replaced the file.
#[tokio::test]
async fn half_written_file_beside_it_is_replaced() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let new = file.with_extension("new");
    fs::write(&new, "zookeeper-recipes-ses").expect("written");
    let session = Session::connect(servers(&file)).await.expect("connects");
    drop(is_free(&session, &world.path).await);
    assert_eq!((named(&file), new.exists()), (session.id().to_string(), false));
}

#[tokio::test]
async fn file_that_cannot_be_written_any_more_does_not_stop_a_renewal() {
    let (world, (folder, file)) = (World::new().await, folder());
    let servers = Servers::new(&world.proxy.hosts()).with_session_timeout(TIMEOUT).with_session_file(&file);
    let session = Session::connect(servers).await.expect("connects");
    let before = session.id();
    drop(folder);
    let warnings = Warnings::new();
    let listening = warnings.listen();
    let mut states = session.states();
    world.expire_that_of(&session).await;
    let renewed = |state: SessionState| state.is_connected() && state != SessionState::Connected(before);
    soon("the renewal", states.wait_for(renewed)).await.expect("renewed");
    drop(listening);
    assert_eq!(warnings.count("no session file for this session: after a crash it has to expire"), 1);
    is_free(&session, &world.path).await.release().await.expect("released");
    session.close().await.expect("closed");
}

/// The one thread on which code may block is taken, so the write of the file does not even begin.
#[test]
fn disk_that_hangs_does_not_hold_up_a_renewal() {
    let runtime = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (world, (_folder, file)) = (World::new().await, folder());
        let servers = Servers::new(&world.proxy.hosts()).with_session_timeout(TIMEOUT).with_session_file(&file);
        let session = Session::connect(servers).await.expect("connects");
        let (before, named_before) = (session.id(), named(&file));
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        let hangs = tokio::task::spawn_blocking(move || ended.recv());
        let mut states = session.states();
        world.expire_that_of(&session).await;
        let renewed = |state: SessionState| state.is_connected() && state != SessionState::Connected(before);
        soon("the renewal", states.wait_for(renewed)).await.expect("renewed");
        is_free(&session, &world.path).await.release().await.expect("released");
        assert_eq!(named(&file), named_before, "it still hangs");
        drop(ends);
        _ = soon("the disk", hangs).await.expect("no panic");
        // The write goes on.
        until("the file names the session", || named(&file) == session.id().to_string()).await;
        session.close().await.expect("closed");
    });
}

/// The link is part of an image, and its target on a volume.
#[tokio::test]
async fn file_behind_a_link_is_replaced_and_the_link_stays() {
    let ((image, link), (volume, file)) = (folder(), folder());
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let session = Session::connect(servers(&link)).await.expect("connects");
    assert_eq!(named(&file), session.id().to_string());
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    let refused = refusal(servers(&file)).await;
    assert!(refused.contains("belongs to a session that is alive"), "{refused}");
    let names = |folder: &TempDir| fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!((names(&image), names(&volume)), (1, 2), "the lock is beside the target");
    session.close().await.expect("closed");
}

/// At every point of the way: each attempt has a little more time than the last.
#[tokio::test]
async fn connect_that_is_dropped_leaves_a_file_for_the_next() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let (mut dropped, mut limit) = (0, Duration::ZERO);
    let session = soon("a session", async {
        loop {
            match tokio::time::timeout(limit, Session::connect(servers(&file))).await {
                // On a slow disk, small steps would take a minute.
                Err(_) => (dropped, limit) = (dropped + 1, limit * 17 / 16 + Duration::from_micros(200)),
                // It was written when the last attempt was dropped.
                Ok(Err(Error::InvalidInput { .. })) => next_look().await,
                Ok(connected) => return connected.expect("connects"),
            }
        }
    })
    .await;
    println!("dropped {dropped} times");
    assert!(dropped > 1);
    drop(is_free(&session, &world.path).await);
    assert_eq!(named(&file), session.id().to_string());
}

#[tokio::test]
async fn password_is_in_no_text() {
    let (world, (_folder, file)) = (World::new().await, folder());
    crash(&world.path, &file);
    let password = |text: &str| text.split(' ').nth(2).expect("a password").to_owned();
    let logged = Warnings::of_everything();
    let listening = logged.listen();
    let left = password(&fs::read_to_string(&file).expect("a file"));
    let servers = servers(&file);
    let text = format!("{servers:?}");
    let session = Session::connect(servers).await.expect("connects");
    let present = password(&fs::read_to_string(&file).expect("a file"));
    let texts = [text, format!("{session:?}"), refusal(self::servers(&file)).await];
    session.close().await.expect("closed");
    drop(listening);
    assert!(logged.count("sending connect request") > 0, "also to the client");
    for secret in [&left, &present] {
        assert_eq!(secret.len(), 32);
        let bytes: Vec<_> = (0..16).map(|at| u8::from_str_radix(&secret[2 * at..2 * at + 2], 16)).collect();
        let bytes = bytes.into_iter().collect::<Result<Vec<_>, _>>().expect("digits");
        for shown in [secret.clone(), format!("{bytes:?}"), format!("{bytes:x?}")] {
            assert_eq!(logged.count(&shown), 0);
            assert!(texts.iter().all(|text| !text.contains(&shown)));
        }
    }
}
