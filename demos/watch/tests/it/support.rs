//! Helpers of all tests: the server, the binary, and conditions to wait for.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Mutex, Options, Servers, Session};

/// Far longer than anything takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The header of the page's own requests.
pub(crate) const FROM_HERE: &str = "x-status-page: 1\r\n";

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    let met = async {
        let mut ticks = interval(Duration::from_millis(50));
        while !is_met().await {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, met).await.unwrap_or_else(|_| panic!("timed out: {what}"));
}

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// A path of its own on the server given to the suite.
pub(crate) struct World {
    /// One server.
    pub(crate) server: String,
    pub(crate) chroot: String,
    pub(crate) session: Session,
}

impl World {
    pub(crate) async fn new() -> Self {
        let servers = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
        Self::on(servers.split(',').next().expect("a server")).await
    }

    /// The same on another server.
    pub(crate) async fn on(server: &str) -> Self {
        let server = server.to_owned();
        let chroot = format!("/watch-{}", Uuid::new_v4().simple());
        let admin = Client::connect(&server).await.expect("connects");
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        admin.create(&chroot, b"", &open).await.expect("created");
        let servers = Servers::new(&format!("{server}{chroot}")).with_session_timeout(Duration::from_secs(20));
        let session = Session::connect(servers).await.expect("connects");
        Self { server, chroot, session }
    }

    pub(crate) fn hosts(&self) -> String {
        format!("{}{}", self.server, self.chroot)
    }

    /// The lock that the tests watch, for somebody of this name.
    pub(crate) fn lock_of(&self, identifier: &str) -> Mutex {
        self.lock_at(LOCK, identifier)
    }

    pub(crate) fn lock_at(&self, path: &str, identifier: &str) -> Mutex {
        let options = Options::new().with_identifier(identifier);
        Mutex::with_options(&self.session, path, options).expect("a lock")
    }
}

pub(crate) const LOCK: &str = "/orders/7";

/// A process of the binary, which watches all locks.
pub(crate) struct Watch {
    process: Child,
    pub(crate) address: String,
}

/// The binary with a session that outlasts a busy machine. It has no settings for the connection but these.
pub(crate) fn binary(hosts: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watch"));
    for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ZK_")) {
        command.env_remove(variable);
    }
    command.args(["--listen", "127.0.0.1:0", "--every", "0.05", "--work", LOCK]);
    command.env("ZK_HOSTS", hosts).env("ZK_SESSION_TIMEOUT_MS", "20000").env("NO_COLOR", "1");
    command.stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Watch {
    pub(crate) async fn start(hosts: &str) -> Self {
        Self::run(&mut binary(hosts)).await
    }

    /// The shorter the session timeout, the sooner it reports an outage.
    pub(crate) async fn impatient(hosts: &str) -> Self {
        Self::run(binary(hosts).env("ZK_SESSION_TIMEOUT_MS", "6000")).await
    }

    pub(crate) async fn run(command: &mut Command) -> Self {
        let mut process = command.spawn().expect("it can be run");
        let mut lines = BufReader::new(process.stderr.take().expect("stderr is piped")).lines();
        let address = async {
            while let Some(line) = lines.next_line().await.expect("readable") {
                eprintln!("{line}");
                if let Some((_, address)) = line.split_once("listening address=") {
                    return address.to_owned();
                }
            }
            panic!("it has ended");
        };
        let address = soon("it listens", address).await;
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{line}");
            }
        });
        Self { process, address }
    }

    /// The page of all locks.
    pub(crate) fn list(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The page of [`LOCK`].
    pub(crate) fn page(&self) -> String {
        format!("http://{}/?lock={LOCK}", self.address)
    }

    /// The first event of a stream that meets a condition.
    pub(crate) async fn event(&self, stream: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let mut connection = TcpStream::connect(&self.address).await.expect("connected");
        let request = format!("GET {stream} HTTP/1.1\r\nhost: watch\r\n\r\n");
        connection.write_all(request.as_bytes()).await.expect("sent");
        let mut lines = BufReader::new(connection).lines();
        let event = async {
            while let Some(line) = lines.next_line().await.expect("readable") {
                let Some(data) = line.strip_prefix("data: ") else { continue };
                let event = serde_json::from_str(data).expect("JSON");
                if is_met(&event) {
                    return event;
                }
                eprintln!("{event}");
            }
            panic!("{stream} has ended");
        };
        soon(stream, event).await
    }

    /// Ends it as an operator would, and returns whether it succeeded.
    pub(crate) async fn terminate(mut self) -> bool {
        let pid = Pid::from_raw(self.process.id().expect("running").cast_signed()).expect("not 0");
        kill_process(pid, Signal::TERM).expect("running");
        soon("it ends", self.process.wait()).await.expect("a child").success()
    }

    /// Sends one request, and returns the status and the body of the answer.
    pub(crate) async fn ask(&self, method: &str, page: &str, headers: &str) -> (u16, String) {
        ask(&self.address, method, page, headers).await
    }
}

pub(crate) async fn ask(address: &str, method: &str, page: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = format!("{method} {page} HTTP/1.1\r\nhost: watch\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.expect("received");
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, body.to_owned())
}
