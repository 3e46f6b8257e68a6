//! Go's client: its driver, and the peculiarities of its lock.

use std::path::{Path, PathBuf};

use testbed::proxy::{Op, Verdict};
use tokio::process::Command;
use tokio::sync::{OnceCell, mpsc};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Mutex, Options, RwLock};

use crate::peer::{Handle, Language, Peer, SOURCES, variable};
use crate::support::{connect, fresh_path, hosts, soon, wait_nodes};
use crate::watched::Watched;

/// The driver, built once per test process.
pub(crate) async fn driver() -> &'static Path {
    static DRIVER: OnceCell<PathBuf> = OnceCell::const_new();
    DRIVER.get_or_init(build).await
}

async fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // A running binary cannot be overwritten, but it can be replaced.
    let (built, driver) = (folder.join(format!("peer-go.{}", std::process::id())), folder.join("peer-go"));
    let status = Command::new(variable("PEER_GO"))
        .args(["build", "-o"])
        .args([&built, &Path::new(SOURCES).join("go/peer.go")])
        // Debian's source packages form a GOPATH; the caller's module settings do not apply to them.
        .envs([("GO111MODULE", "off"), ("GOFLAGS", ""), ("GOENV", "off")])
        .env("GOPATH", variable("PEER_GOPATH"))
        .env("GOCACHE", folder.join("go-cache"))
        .status()
        .await
        .expect("go runs");
    assert!(status.success(), "go build ended with {status}");
    std::fs::rename(&built, &driver).expect("renamed");
    driver
}

/// Expects an acquire by Go to fail, because of a name that it cannot parse.
pub(crate) async fn fails_to_acquire(theirs: &mut Handle) {
    theirs.send("acquire").await;
    let answer = theirs.answer().await;
    assert_eq!(answer.word, "error", "{}", answer.rest);
    assert!(answer.rest.contains("strconv.Atoi") && answer.rest.contains("invalid syntax"), "{}", answer.rest);
}

/// Go creates plain nodes where we create containers, and we remove them like ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_is_removed_and_made_again_by_either() {
    let (hosts, path) = (hosts(), fresh_path());
    let session = connect(&hosts).await;
    let admin = Client::connect(&hosts).await.expect("connects");
    let options = Options::new().with_path_removal(true);
    let ours = Mutex::with_options(&session, &path, options).expect("a mutex");
    let peer = Peer::start(Language::Go, &hosts).await;
    let mut theirs = peer.lock("lock", &path).await;
    for _ in 0..10 {
        theirs.acquire().await;
        let waiting = ours.enqueue().await.expect("enqueued");
        theirs.release().await;
        let guard = soon("our turn", waiting).await.expect("held");
        theirs.send("acquire").await;
        wait_nodes(&admin, std::slice::from_ref(&path), 2).await;
        guard.release().await.expect("released");
        theirs.held().await;
        theirs.release().await;
        assert!(admin.check_stat(&path).await.expect("answered").is_some(), "they do not remove it");
        ours.lock().await.expect("held").release().await.expect("released");
        soon("the removal of the path", gone(&admin, &path)).await;
    }
    peer.close().await;
    session.close().await.expect("closed");
}

/// It creates a deleted path again, but fails at the third deletion between two of its requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gives_up_when_the_path_is_gone_for_the_third_time() {
    let admin = Client::connect(&hosts()).await.expect("connects");
    let client = Watched::start(Language::Go).await;
    for (removals, held) in [(2, true), (3, false)] {
        let path = fresh_path();
        let mut theirs = client.peer.lock("lock", &path).await;
        admin.mkdir(&path, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("created");
        client.proxy.reset();
        let (held_up, mut creates) = mpsc::unbounded_channel();
        let prefix = format!("{path}/");
        client.proxy.on_request(move |request| {
            if request.op != Op::Create || !request.path.starts_with(&prefix) {
                return Verdict::Forward;
            }
            held_up.send(()).expect("received");
            Verdict::Hold
        });
        theirs.send("acquire").await;
        for _ in 0..removals {
            soon("the creation of a node", creates.recv()).await;
            admin.delete(&path, None).await.expect("deleted");
            client.proxy.heal();
        }
        if held {
            soon("one more", creates.recv()).await;
            client.proxy.heal();
            theirs.held().await;
            theirs.release().await;
        } else {
            let answer = theirs.answer().await;
            assert_eq!(answer.word, "error", "{}", answer.rest);
        }
    }
    client.peer.close().await;
}

async fn gone(admin: &Client, path: &str) {
    loop {
        let (stat, watcher) = admin.check_and_watch_stat(path).await.expect("answered");
        if stat.is_none() {
            return;
        }
        watcher.changed().await;
    }
}

/// We wait for a lock of Go. It fails beside readers and writers, whose names it cannot parse, and leaves its node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fails_beside_readers_and_writers() {
    let hosts = hosts();
    let session = connect(&hosts).await;
    let admin = Client::connect(&hosts).await.expect("connects");
    for is_writer in [false, true] {
        let path = fresh_path();
        let dirs = std::slice::from_ref(&path);
        let lock = RwLock::new(&session, &path).expect("a lock");
        let peer = Peer::start(Language::Go, &hosts).await;
        let mut theirs = peer.lock("lock", &path).await;
        theirs.acquire().await;
        let ours = tokio::spawn(async move {
            if is_writer {
                lock.write().await.expect("held").release().await.expect("released");
            } else {
                lock.read().await.expect("held").release().await.expect("released");
            }
        });
        wait_nodes(&admin, dirs, 2).await;
        let mut other = peer.lock("lock", &path).await;
        fails_to_acquire(&mut other).await;
        wait_nodes(&admin, dirs, 3).await;
        assert!(!ours.is_finished());
        theirs.release().await;
        soon("our turn", ours).await.expect("held");
        // Nobody deletes the node that they left; it goes with their session.
        wait_nodes(&admin, dirs, 1).await;
        peer.close().await;
        wait_nodes(&admin, dirs, 0).await;
    }
    session.close().await.expect("closed");
}
