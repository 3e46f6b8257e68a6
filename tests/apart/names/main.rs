//! Names with several addresses, and with others from one moment to the next, by a hosts file of its own: the test runs itself
//! again in a mount namespace, for which it needs `unshare` and the right to make one.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_recipes::{Mutex, Servers, Session, SessionState};

const FILE: &str = "NAMES_HOSTS_FILE";

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client waits a fifth of it for a session from a silent address, when the session begins and when its server moves. Trust
/// in the lock has to outlast that on a busy machine.
const SESSION_TIMEOUT: Duration = Duration::from_secs(12);

fn main() -> ExitCode {
    if std::env::var_os(FILE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(within());
        return ExitCode::SUCCESS;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    let this = std::env::current_exe().expect("a program");
    let script = r#"mount --bind "$NAMES_HOSTS_FILE" /etc/hosts && exec "$0""#;
    let status = Command::new("unshare")
        .args(if rustix::process::geteuid().is_root() {
            &["--mount"][..]
        } else {
            &["--map-root-user", "--mount"]
        })
        .args(["sh", "-c", script])
        .arg(this)
        .env(FILE, file.path())
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!(
                "{status}; if unshare or mount has failed: this test needs the right to make a mount namespace"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot run unshare (package util-linux): {error}");
            ExitCode::FAILURE
        }
    }
}

fn addresses(of: &[&str]) {
    let lines: String = of.iter().map(|address| format!("{address} zookeeper.test\n")).collect();
    fs::write(std::env::var_os(FILE).expect("set"), lines).expect("written");
}

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// A server at another address: everything is forwarded to the real one.
async fn forwarder(address: SocketAddr, to: String) -> JoinHandle<()> {
    let listener = TcpListener::bind(address).await.expect("an address");
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let to = to.clone();
            connections.spawn(async move {
                let mut server = TcpStream::connect(&to).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    })
}

async fn within() {
    let server = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run it by zk-docker/run");
    let silent = TcpListener::bind("127.0.0.2:0").await.expect("an address");
    let port = silent.local_addr().expect("bound").port();
    let at = |host: &str| SocketAddr::new(host.parse().expect("an address"), port);
    let second = forwarder(at("127.0.0.3"), server.clone()).await;

    // The first address accepts connections, and gives no session.
    addresses(&["127.0.0.2", "127.0.0.3"]);
    let hosts = format!("zookeeper.test:{port}");
    let servers = Servers::new(&hosts).with_session_timeout(SESSION_TIMEOUT);
    let connected = Session::connect(servers);
    let session = soon("a session by the second address", connected).await.expect("connects");
    let mutex = Mutex::new(&session, "/names/lock").expect("a mutex");
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    println!("a name with a silent address and another: connected");

    // The server moves, and the session goes on: the name is looked up again.
    let (id, mut states) = (session.id(), session.states());
    assert_eq!(soon("a state", states.changed()).await, Some(SessionState::Connected(id)));
    let third = forwarder(at("127.0.0.4"), server.clone()).await;
    addresses(&["127.0.0.4"]);
    second.abort();
    assert_eq!(soon("a state", states.changed()).await, Some(SessionState::Suspended));
    assert_eq!(soon("a state", states.changed()).await, Some(SessionState::Connected(id)));
    guard.release().await.expect("still held");
    println!("the server has moved while the session lives: same session, still held");

    // It moves for longer than the session lasts.
    addresses(&["127.0.0.2"]);
    third.abort();
    let expired = states.wait_for(|state| state == SessionState::Renewing);
    soon("the end of the session", expired).await.expect("expired");
    let _fourth = forwarder(at("127.0.0.5"), server).await;
    addresses(&["127.0.0.2", "127.0.0.5"]);
    soon("the lock", mutex.lock()).await.expect("held").release().await.expect("released");
    assert_ne!(session.id(), id);
    println!("the server has moved, and the session had expired: another session");
}
