//! What a holder wrote before its release is read by the next one, also on a server that lags behind.

use testbed::Ensemble;
use testbed::next_look;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{LockGuard, Mutex, RwLock};

use crate::support::{admin_client, connect, soon};

const DATA: &str = "/data";

async fn read(client: &Client) -> Vec<u8> {
    client.get_data(DATA).await.expect("read").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_holder_on_a_server_that_lags_reads_what_the_last_one_wrote() {
    // So that they do not give up the one that lags.
    let ensemble = Ensemble::builder().sync_limit(300).start().await.expect("an ensemble");
    let leader = ensemble.leader().await.expect("a leader");
    let follower = ensemble.followers().await.expect("followers")[0];
    let ahead = connect(&ensemble.server(leader).hosts()).await;
    let behind = connect(&ensemble.server(follower).hosts()).await;
    let (writer, reader) = (ahead.client().expect("a client"), behind.client().expect("a client"));
    // Reads of a session wait for its writes, so the server is asked by another one, too.
    let stale = admin_client(&ensemble.server(follower).hosts()).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    writer.create(DATA, b"old", &open).await.expect("created");
    // One waits before the server lags, one comes meanwhile, and one reads where the other wrote.
    for (round, case) in ["waits", "comes", "shares"].into_iter().enumerate() {
        let path = format!("/locks-{round}");
        let (locks, next) =
            (Mutex::new(&ahead, &path).expect("a lock"), Mutex::new(&behind, &path).expect("a lock"));
        let (writes, reads) =
            (RwLock::new(&ahead, &path).expect("a lock"), RwLock::new(&behind, &path).expect("a lock"));
        let shares = case == "shares";
        let held: Box<dyn LockGuard> = match shares {
            true => Box::new(writes.write().await.expect("held")),
            false => Box::new(locks.lock().await.expect("held")),
        };
        reader.sync(&path).await.expect("in sync");
        reader.get_data(&path).await.expect("it is there");
        let before = read(&stale).await;
        let next = async move {
            match shares {
                true => reads.read().await.map(|guard| Box::new(guard) as Box<dyn LockGuard>),
                false => next.lock().await.map(|guard| Box::new(guard) as Box<dyn LockGuard>),
            }
        };
        let mut next = Box::pin(next);
        if case != "comes" {
            let queued = async {
                while writer.list_children(&path).await.expect("listed").len() < 2 {
                    next_look().await;
                }
            };
            tokio::select! {
                _ = &mut next => panic!("somebody else holds"),
                () = queued => {}
            }
        }
        ensemble.link(follower, leader).black_hole();
        writer.set_data(DATA, case.as_bytes(), None).await.expect("written");
        held.release().await.expect("released");
        assert!(futures_util::poll!(&mut next).is_pending(), "{case}: its server knows of no release");
        assert_eq!(read(&stale).await, before, "{case}: the server does not lag");
        ensemble.link(follower, leader).heal();
        let guard = soon("a turn", next).await.expect("held");
        assert_eq!(read(&reader).await, case.as_bytes(), "{case}");
        guard.release().await.expect("released");
    }
}
