//! Past the end of the counter, servers give the same number twice, or negative ones. Only our locks know the order
//! then.

use testbed::Server;
use zookeeper_recipes::{HoldState, Mutex, Session};

use crate::peer::{Handle, Language, Peer};
use crate::support::{connect, soon, wait_nodes};

const PATH: &str = "/interop/lock";

/// The last number, which servers give again, and one that may follow it.
const NUMBERS: [i32; 2] = [i32::MAX, i32::MIN + 5];

/// A fleet with other clients is not safe there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_and_kazoo_let_two_in() {
    for (language, kind) in [(Language::Go, "lock"), (Language::Python, "lock"), (Language::Python, "renamed")] {
        for number in NUMBERS {
            let end = End::new(language, number).await;
            let [mut first, mut second] = end.both_hold(kind).await;
            let waiting = end.mutex.enqueue().await.expect("enqueued");
            assert_eq!(waiting.position(), 2, "we wait for both");
            first.release().await;
            second.release().await;
            let ours = soon("our turn", waiting).await.expect("held");
            first.acquire().await;
            assert_eq!(ours.state(), HoldState::Held, "{language:?} {kind} at {number} waits for ours");
            first.release().await;
            ours.release().await.expect("released");
            end.close().await;
        }
    }
}

/// It sorts nodes with the same number by name, so the older session comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeepers_recipe_lets_two_in() {
    let end = End::new(Language::Java, i32::MAX).await;
    let [mut first, mut second] = end.both_hold("recipe").await;
    first.release().await;
    second.release().await;
    end.close().await;
}

/// Its lock has the same name each time that a session locks again, now for a younger node. Our waiters that saw the
/// older one are not misled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeepers_recipe_queues_again_behind_ours() {
    let end = End::new(Language::Java, i32::MAX).await;
    let mut theirs = end.peer.lock("recipe", PATH).await;
    theirs.acquire().await;
    let client = end.session.client().expect("a client");
    let before = client.list_children(PATH).await.expect("listed");
    let other = connect(&end.server.hosts()).await;
    let first = end.mutex.enqueue().await.expect("enqueued");
    let second = Mutex::new(&other, PATH).expect("a mutex").enqueue().await.expect("enqueued");
    theirs.release().await;
    let first = soon("our first turn", first).await.expect("held");
    theirs.send("acquire").await;
    let nodes = wait_nodes(&client, &[PATH.to_owned()], 3).await;
    assert!(nodes.contains(&format!("{PATH}/{}", before[0])), "{before:?} {nodes:?}");
    first.release().await.expect("released");
    soon("our second turn", second).await.expect("held").release().await.expect("released");
    theirs.held().await;
    theirs.release().await;
    other.close().await.expect("closed");
    drop(client);
    end.close().await;
}

/// It compares numbers as text, so of two negative ones the later is admitted first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_lets_two_in() {
    let end = End::new(Language::Java, i32::MIN + 5).await;
    let [mut first, mut second] = end.both_hold("mutex").await;
    first.release().await;
    second.release().await;
    end.close().await;
}

struct End {
    server: Server,
    session: Session,
    mutex: Mutex,
    peer: Peer,
    number: i32,
}

impl End {
    async fn new(language: Language, number: i32) -> Self {
        let server = Server::builder().counter(PATH, number).start().await.expect("a server");
        let session = connect(&server.hosts()).await;
        Self {
            mutex: Mutex::new(&session, PATH).expect("a mutex"),
            session,
            peer: Peer::start(language, &server.hosts()).await,
            server,
            number,
        }
    }

    /// Two locks of theirs that are held at once, while we would wait.
    async fn both_hold(&self, kind: &str) -> [Handle; 2] {
        let (mut second, mut first) = (self.peer.lock(kind, PATH).await, self.peer.lock(kind, PATH).await);
        first.acquire().await;
        // Not every driver returns its node.
        let nodes = self.session.client().expect("a client").list_children(PATH).await.expect("listed");
        assert!(nodes.iter().any(|node| node.ends_with(&self.number.to_string())), "{nodes:?}");
        second.acquire().await;
        assert!(self.mutex.try_lock().await.expect("answered").is_none(), "we see them");
        [first, second]
    }

    async fn close(self) {
        self.peer.close().await;
        self.session.close().await.expect("closed");
    }
}
