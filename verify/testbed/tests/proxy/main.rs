//! The proxy between a real client and a real server.

mod cuts;
mod endings;
mod outages;
mod record;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::proxy::{Closing, Op, Proxy, Request};
use tokio::time;
use zookeeper_client::{Acls, Client, CreateMode, Error};

const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const CLOSINGS: [Closing; 2] = [Closing::Fin, Closing::Reset];

/// The first of the servers, without a chroot, because a proxy has one upstream.
fn server() -> String {
    let Ok(hosts) = std::env::var("ZK_HOSTS") else {
        panic!(
            "these tests need a ZooKeeper, and ZK_HOSTS does not name one; \
             run it as: zk-docker/run cargo test -p testbed"
        );
    };
    let first = hosts.split([',', '/']).next();
    first.unwrap_or_default().trim().to_owned()
}

/// A path that no other test or run uses.
fn fresh_path() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.expect("a clock after 1970").as_nanos();
    format!("/proxy-{}-{nanos}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn connect(hosts: &str) -> Client {
    let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
    connector.connect(hosts).await.expect("a session")
}

fn ephemeral() -> zookeeper_client::CreateOptions<'static> {
    CreateMode::Ephemeral.with_acls(Acls::anyone_all())
}

fn persistent() -> zookeeper_client::CreateOptions<'static> {
    CreateMode::Persistent.with_acls(Acls::anyone_all())
}

/// A proxy, a client through it, and a direct client.
struct Bench {
    proxy: Proxy,
    client: Client,
    direct: Client,
    path: String,
}

impl Bench {
    async fn new() -> Self {
        let server = server();
        let proxy = Proxy::start(&server).await.expect("a proxy");
        let client = connect(&proxy.hosts()).await;
        let direct = connect(&server).await;
        proxy.reset();
        Self { proxy, client, direct, path: fresh_path() }
    }

    async fn create(&self) -> Result<(), Error> {
        self.client.create(&self.path, b"", &ephemeral()).await.map(|_| ())
    }

    /// Waits until the client has reconnected and gets answers.
    async fn reconnected(&self) {
        self.client.check_stat("/").await.unwrap_or_default();
        while self.client.check_stat("/").await.is_err() {}
    }

    /// Whether the node exists, as of the leader.
    async fn exists(&self) -> bool {
        self.direct.sync("/").await.expect("a direct answer");
        self.direct.check_stat(&self.path).await.expect("a direct answer").is_some()
    }
}

/// Every test has a time limit, so that a fault of the proxy fails it instead of blocking it.
async fn limited(test: impl Future<Output = ()>) {
    time::timeout(Duration::from_secs(30), test).await.expect("the test ends in 30 s");
}

fn ops(requests: &[Request]) -> Vec<Op> {
    requests.iter().map(|request| request.op).collect()
}
