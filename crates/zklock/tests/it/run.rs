//! What a command finds, and how long the lock is kept for it.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use zookeeper_recipes::Contender;

use crate::support::{
    LEAVE_A_ZOMBIE, PATIENCE, World, binary, binary_without_an_init, code, stderr, stdout, written, zklock,
};

#[tokio::test(flavor = "multi_thread")]
async fn command_finds_the_path_and_the_token_in_its_environment() {
    let world = World::new().await;
    let done = world.run(&[], &["sh", "-c", "echo $ZK_LOCK_PATH $ZK_LOCK_TOKEN"]);
    let stdout = stdout(&done);
    let (path, token) = stdout.trim().split_once(' ').expect("two words");
    let guard = world.mutex().lock().await.expect("held");
    assert_eq!(path, world.path);
    assert!(token.parse::<i64>().expect("a number") < guard.fencing_token().get(), "tokens grow");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_reach_the_command_as_they_are() {
    let world = World::new().await;
    let odd = OsStr::from_bytes(b"\xff * $HOME '\"");
    let arguments = world.arguments(&[], &["printf", "%s"]);
    let done = zklock(arguments.into_iter().map(OsStr::new).chain([odd]));
    assert_eq!(done.get_output().stdout, odd.as_bytes(), "no shell has seen them");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_reads_standard_input() {
    let world = World::new().await;
    let mut command = assert_cmd::Command::new(binary());
    let done = command.args(world.arguments(&[], &["cat"])).write_stdin("from a pipe").timeout(PATIENCE).assert();
    assert_eq!(stdout(&done), "from a pipe");
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_kept_for_the_least_time() {
    let world = World::new().await;
    let began = Instant::now();
    let done = world.run(&["--min-hold", "1.5"], &["sh", "-c", "exit 4"]);
    assert_eq!(code(&done), Some(4));
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    assert!(world.mutex().contenders().await.expect("listed").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_released_when_the_command_has_ended() {
    let world = World::new().await;
    let done = world.run(&["--session", "60"], &["true"]);
    assert_eq!(code(&done), Some(0));
    assert!(world.mutex().try_lock().await.expect("tried").is_some(), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_run_in_their_order() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let log = world.file("log");
    let name = log.display().to_string();
    let mut waiters = Vec::new();
    for number in ["1", "2", "3"] {
        waiters.push(world.start(&[], &["sh", "-c", "echo $1 >>$0", &name, number]));
        let count = 1 + waiters.len();
        world.contenders("one more waiter", |all| all.len() == count).await;
    }
    guard.release().await.expect("released");
    for waiter in &mut waiters {
        assert_eq!(waiter.end().await.code(), Some(0));
    }
    assert_eq!(std::fs::read_to_string(&log).expect("read"), "1\n2\n3\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn report_names_the_holder_the_token_and_the_end() {
    let world = World::new().await;
    let _holder = world.holder(&["--identifier", "billing-7"]).await;
    let log = std::fs::File::create(world.file("log")).expect("created");
    let mut command = std::process::Command::new(binary());
    command.args(world.arguments(&["-v"], &["true"])).stderr(log);
    let mut waiter = crate::support::Running::start(&mut command);
    let read = || std::fs::read_to_string(world.file("log")).expect("read");
    let expected = format!("zklock: {} is held by billing-7; position 1 in the queue\n", world.path);
    crate::support::until("it reports the holder", || (read() == expected).then_some(())).await;
    drop(_holder);
    assert_eq!(waiter.end().await.code(), Some(0));
    let log = read();
    for part in ["is ours after", "with token", "the command is process", "the command has ended: exit status: 0"]
    {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_left_behind_are_reported() {
    let world = World::new().await;
    let done = world.run(&[], &["sh", "-c", "sleep 5 >/dev/null 2>&1 &"]);
    assert_eq!(code(&done), Some(0));
    assert!(stderr(&done).contains("has left processes behind"), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_that_have_ended_are_not_left_behind() {
    let world = World::new().await;
    // As process 1 of a container, it gets the orphans. That outlives an exec.
    let adopt = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1); os.execv(sys.argv[1], sys.argv[1:])";
    let ended = world.file("ended");
    let inner = "sh -c '(echo >$0) & exit' $0; while ! test -e $0; do sleep 0.02; done; sleep 0.2";
    let ended_name = ended.display().to_string();
    let mut command = assert_cmd::Command::new("python3");
    command.args(["-c", adopt, binary()]).args(world.arguments(&[], &["sh", "-c", inner, &ended_name]));
    let done = command.timeout(PATIENCE).assert();
    assert_eq!((code(&done), stderr(&done)), (Some(0), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn zombies_are_not_left_behind() {
    let world = World::new().await;
    let file = world.file("id").display().to_string();
    let mut command = assert_cmd::Command::from_std(binary_without_an_init());
    let done = command.args(world.arguments(&[], &["sh", "-c", LEAVE_A_ZOMBIE, &file])).timeout(PATIENCE).assert();
    assert_eq!((code(&done), stderr(&done)), (Some(0), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_needs_no_dashes_before_it() {
    let world = World::new().await;
    for command in [&["printf", "%s", "-n"][..], &["--", "printf", "%s", "-n"], &["printf", "--", "%s", "-n"]] {
        let done = zklock([&["run", "-w", "60", &world.path], command].concat());
        assert_eq!((code(&done), stdout(&done).as_str()), (Some(0), "-n"), "{}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn script_without_an_interpreter_is_run_by_the_shell() {
    let world = World::new().await;
    let script = world.file("a script");
    std::fs::write(&script, "echo \"$0 $1\"\nexit 5\n").expect("written");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("executable");
    let name = script.display().to_string();
    let path = format!("{}:{}", world.folder.path().display(), std::env::var("PATH").expect("a path"));
    for options in [
        &[][..],
        #[cfg(target_os = "linux")]
        &["--die-with-parent"],
    ] {
        for command in [name.as_str(), "a script"] {
            let mut zklock = assert_cmd::Command::new(binary());
            let done = zklock.env("PATH", &path).args(world.arguments(options, &[command, "x"])).assert();
            assert_eq!(code(&done), Some(5), "{command}: {}", stderr(&done));
            assert_eq!(stdout(&done), format!("{name} x\n"), "{command}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_ends_the_time_for_which_a_revocable_lock_is_kept() {
    let world = World::new().await;
    let options = ["--min-hold", "1000", "--revocable", "--session", "2"];
    let mut running = world.start(&options, &["sh", "-c", "exit 4"]);
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert_eq!(code(&zklock(["revoke", &world.path, &all[0].token().to_string()])), Some(0));
    assert_eq!(running.end().await.code(), Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_ends_only_a_command_that_is_revocable() {
    for (options, expected) in [(&["--revocable"][..], 11), (&[], 12)] {
        let world = World::new().await;
        let (started, go_on) = (world.file("started"), world.file("go-on"));
        let script = "trap 'exit 11' TERM; echo >$0; while ! test -e $1; do sleep 0.05; done; exit 12";
        let log = std::fs::File::create(world.file("log")).expect("created");
        let names = [started.display().to_string(), go_on.display().to_string()];
        let mut command = std::process::Command::new(binary());
        // A hold looks at its node after an eighth of the session timeout.
        let options = [options, &["--session", "2"]].concat();
        command.args(world.arguments(&options, &["sh", "-c", script, &names[0], &names[1]])).stderr(log);
        let mut running = crate::support::Running::start(&mut command);
        written(&started).await;
        let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
        let done = zklock(["revoke", &world.path, &all[0].token().to_string()]);
        assert_eq!(code(&done), Some(0), "{}", stderr(&done));
        assert!(stdout(&done).ends_with(" to release\n"), "{}", stdout(&done));
        let read = || std::fs::read_to_string(world.file("log")).expect("read");
        crate::support::until("the request is reported", || read().contains("a release of ").then_some(())).await;
        if expected == 12 {
            std::fs::write(&go_on, "").expect("written");
        }
        assert_eq!(running.end().await.code(), Some(expected), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jitter_waits_before_it_joins_the_queue() {
    let world = World::new().await;
    let mut running = world.start(&["--jitter", "1000h"], &["true"]);
    let (began, mut pause) =
        (std::time::Instant::now(), tokio::time::interval(std::time::Duration::from_millis(50)));
    // It has had the time to be in the queue. Less than a second of 1000 h comes once in a million runs.
    while began.elapsed() < std::time::Duration::from_secs(1) {
        pause.tick().await;
        assert!(world.mutex().contenders().await.expect("listed").is_empty());
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.end().await.code(), Some(143));
    let done = world.run(&["--jitter", "10ms"], &["sh", "-c", "exit 3"]);
    assert_eq!(code(&done), Some(3), "{}", stderr(&done));
}
