//! Servers with TLS and with SASL, clients of them, and a count of the connections that are tried.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use testbed::{Server, free_port};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use zookeeper_recipes::zookeeper_client::{SaslOptions, TlsOptions};
use zookeeper_recipes::{Error, Servers, Session};

use crate::certificates::{Authority, Certificate};

/// The session timeout: the first handshake of a Java server takes more than a second on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(6);

/// Far longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// Connects, in several tries if it has to: on a busy machine a handshake may take longer than the session timeout.
pub(crate) async fn connect<S: Into<Servers>>(servers: impl Fn() -> S) -> Session {
    let connected = async {
        loop {
            match Session::connect(servers()).await {
                Err(Error::Unavailable { .. }) => {}
                connected => return connected.expect("connects"),
            }
        }
    };
    soon("a session", connected).await
}

/// A server with a port for TLS, which wants certificates from its clients, and another port without TLS.
pub(crate) struct TlsServer {
    pub(crate) server: Server,
    pub(crate) port: u16,
    files: TempDir,
}

impl TlsServer {
    pub(crate) async fn start(own: &Certificate, trusted: &Authority) -> Self {
        let (files, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let file = |name| files.path().join(name).to_str().expect("text").to_owned();
        write(files.path(), own, trusted);
        let server = Server::builder()
            .property("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
            .config("secureClientPort", port.to_string())
            .config("secureClientPortAddress", "127.0.0.1")
            .config("ssl.keyStore.location", file("own.pem"))
            .config("ssl.trustStore.location", file("trusted.pem"))
            .config("authProvider.x509", "org.apache.zookeeper.server.auth.X509AuthenticationProvider")
            .start();
        Self { server: server.await.expect("a server"), port, files }
    }

    pub(crate) fn hosts(&self) -> String {
        format!("tcp+tls://127.0.0.1:{}", self.port)
    }

    /// Restarts it with another certificate and another authority for its clients.
    pub(crate) async fn rotate(&mut self, own: &Certificate, trusted: &Authority) {
        write(self.files.path(), own, trusted);
        self.server.restart().await.expect("restarted");
    }
}

fn write(files: &Path, own: &Certificate, trusted: &Authority) {
    fs::write(files.join("own.pem"), own.both()).expect("written");
    fs::copy(trusted.trust(), files.join("trusted.pem")).expect("written");
}

/// A server with two users, `alice:wonder` and `bob:builder`.
pub(crate) async fn sasl_server() -> (Server, TempDir) {
    let files = tempfile::tempdir().expect("a folder");
    let users = files.path().join("users");
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let text = format!("Server {{ {module} required user_alice=\"wonder\" user_bob=\"builder\"; }};");
    fs::write(&users, text).expect("written");
    let server = Server::builder()
        .property("java.security.auth.login.config", users.to_str().expect("text"))
        .config("authProvider.sasl", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        .start();
    (server.await.expect("a server"), files)
}

/// Servers for a client that trusts an authority, perhaps with a certificate of its own.
pub(crate) fn over_tls(hosts: &str, trusted: &Authority, own: Option<&Certificate>) -> Servers {
    let read = |file: &Path| fs::read_to_string(file).expect("written");
    let mut options = TlsOptions::new().with_pem_ca(&read(trusted.trust())).expect("an authority");
    if let Some(own) = own {
        options = options.with_pem_identity(&read(&own.cert), &read(&own.key)).expect("an identity");
    }
    Servers::new(hosts).with_session_timeout(TIMEOUT).with_tls(options)
}

pub(crate) fn user(hosts: &str, name: &'static str, password: &'static str) -> Servers {
    Servers::new(hosts).with_session_timeout(TIMEOUT).with_sasl(SaslOptions::digest_md5(name, password))
}

/// Forwards connections to a server and counts them.
pub(crate) struct Counter {
    pub(crate) port: u16,
    count: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Counter {
    pub(crate) async fn of(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (port, count) = (listener.local_addr().expect("bound").port(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { port, count, task }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}
