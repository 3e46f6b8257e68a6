//! Helpers of all tests: the binary, a path of its own, files by which commands report, and conditions to wait for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::assert::Assert;
use tempfile::TempDir;
use tokio::time::interval;
use uuid::Uuid;
use zookeeper_recipes::{Contender, Mutex, Servers, Session};

/// Far longer than anything takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The server given to the suite.
pub(crate) fn hosts() -> String {
    std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test -p zklock`")
}

/// The binary, as a shell would find it.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_zklock")
}

/// The binary in a container whose process 1 is no init: what orphans leave stays.
pub(crate) fn binary_without_an_init() -> Command {
    let mut command = Command::new("python3");
    let adopt =
        "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(36, 1); sys.exit(subprocess.call(sys.argv[1:]))";
    command.args(["-c", adopt, binary()]);
    command
}

/// A script that leaves an orphan in its group, which has ended. It writes the file `$0`.
pub(crate) const LEAVE_A_ZOMBIE: &str = "(sh -c 'echo $$ >$0' $0 &); until read id 2>/dev/null <$0; do sleep 0.02; done; \
    until grep -q ') Z' /proc/$id/stat; do sleep 0.02; done";

/// Runs zklock to its end.
pub(crate) fn zklock<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Assert {
    assert_cmd::Command::new(binary()).args(arguments).timeout(PATIENCE).assert()
}

pub(crate) fn code(done: &Assert) -> Option<i32> {
    done.get_output().status.code()
}

pub(crate) fn stdout(done: &Assert) -> String {
    String::from_utf8_lossy(&done.get_output().stdout).into_owned()
}

pub(crate) fn stderr(done: &Assert) -> String {
    String::from_utf8_lossy(&done.get_output().stderr).into_owned()
}

/// A lock path, a session beside zklock, and a folder for the files of commands.
pub(crate) struct World {
    pub(crate) path: String,
    pub(crate) session: Session,
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::at(&hosts()).await
    }

    pub(crate) async fn at(hosts: &str) -> Self {
        let servers = Servers::new(hosts).with_session_timeout(Duration::from_secs(20));
        let session = Session::connect(servers).await.expect("connects");
        let path = format!("/zklock-{}/lock", Uuid::new_v4().simple());
        Self { path, session, folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn mutex(&self) -> Mutex {
        Mutex::new(&self.session, &self.path).expect("a mutex")
    }

    /// A file that a command writes.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `zklock run`, with these options before the path and this command after it.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Assert {
        zklock(self.arguments(options, command))
    }

    /// As [`run`](Self::run), in the background.
    pub(crate) fn start(&self, options: &[&str], command: &[&str]) -> Running {
        Running::start(Command::new(binary()).args(self.arguments(options, command)))
    }

    /// A run in the background that holds the lock until it is ended.
    pub(crate) async fn holder(&self, options: &[&str]) -> Running {
        let running = self.start(options, &["sleep", "1000"]);
        self.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
        running
    }

    pub(crate) fn arguments<'a>(&'a self, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
        [&["run"], options, &[&self.path, "--"], command].concat()
    }

    /// The contenders, once they are as they should be.
    pub(crate) async fn contenders(&self, what: &str, are: impl Fn(&[Contender]) -> bool) -> Vec<Contender> {
        let mutex = self.mutex();
        let looks = async {
            let mut pause = interval(Duration::from_millis(10));
            loop {
                pause.tick().await;
                let all = mutex.contenders().await.expect("listed");
                if are(&all) {
                    return all;
                }
            }
        };
        tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("timed out: {what}"))
    }
}

/// Waits until a command has written a file, and returns what is in it.
pub(crate) async fn written(file: &Path) -> String {
    until(&format!("{} is written", file.display()), || {
        std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'))
    })
    .await
}

/// Waits for a condition that has no event.
pub(crate) async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let (began, mut pause) = (Instant::now(), interval(Duration::from_millis(10)));
    loop {
        pause.tick().await;
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "timed out: {what}");
    }
}

/// A process in the background, which ends with the test.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_with_input(command, Stdio::null())
    }

    pub(crate) fn start_with_input(command: &mut Command, input: Stdio) -> Self {
        Self(command.stdin(input).spawn().expect("starts"))
    }

    pub(crate) fn id(&self) -> i32 {
        self.0.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(self.id()).expect("a process");
        rustix::process::kill_process(id, signal).expect("signalled");
    }

    /// Waits for its end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        until("a process ends", || self.0.try_wait().expect("waited")).await
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("waited").is_none()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            // It passes it on to its command.
            self.signal(rustix::process::Signal::TERM);
            _ = self.0.wait();
        }
    }
}
