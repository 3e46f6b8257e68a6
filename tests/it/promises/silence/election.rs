//! How soon a lock is granted after an election.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::{Ensemble, next_look};
use uuid::Uuid;
use zookeeper_recipes::Mutex;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};

use super::{T, wanted};
use crate::support::{admin_client, at_most, connect_for, pass, soon};

/// How long too few servers run for an election.
const OUTAGE: Duration = Duration::from_secs(2);

/// A session that has waited or done nothing has let its trust lapse. Its first lock after the outage waits for a pair of answers.
#[tokio::test(flavor = "multi_thread")]
async fn free_lock_is_granted_a_third_of_the_timeout_after_an_election_at_the_latest() {
    for round in 0..wanted().map_or(1, |cuts| cuts / 20) {
        let mut ensemble = Ensemble::builder().start().await.unwrap_or_else(|error| panic!("{error}"));
        ensemble.settled().await.expect("settles");
        let leader = ensemble.leader().await.expect("a leader");
        // A busy machine may be a second late, just after the start of a server.
        let timeouts = if wanted().is_some() { vec![T, 2 * T] } else { vec![2 * T] };
        let rows = timeouts.into_iter().map(|timeout| {
            let hosts = ensemble.hosts();
            async move { (timeout, connect_for(&hosts, timeout).await) }
        });
        let sessions = join_all(rows).await;
        let admin = admin_client(&ensemble.hosts()).await;
        pass(2 * T + T / 4).await;
        // The others elect, but only when one of them is back.
        let back = (leader + 1) % 3;
        [leader, back].into_iter().for_each(|server| ensemble.server_mut(server).kill());
        let killed = Instant::now();
        let restarted = async {
            pass(OUTAGE).await;
            ensemble.server_mut(back).restart().await.unwrap_or_else(|error| panic!("{error}"));
        };
        let served = async {
            let path = format!("/it-{}", Uuid::new_v4().simple());
            while admin.create(&path, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.is_err() {
                next_look().await;
            }
            Instant::now()
        };
        let grants = sessions.iter().map(|(timeout, session)| async move {
            let mutex = Mutex::new(session, &format!("/it-{}/lock", Uuid::new_v4().simple())).expect("a mutex");
            let connected = async {
                while session.state().is_connected() {
                    next_look().await;
                }
                while !session.state().is_connected() {
                    next_look().await;
                }
                Instant::now()
            };
            let granted = async {
                let guard = mutex.lock().await.expect("free");
                (Instant::now(), guard)
            };
            let (connected, (granted, _guard)) =
                tokio::time::timeout(at_most(4 * *timeout), async { tokio::join!(connected, granted) })
                    .await
                    .expect("in time");
            (*timeout, connected, granted)
        });
        let all = async { tokio::join!(restarted, served, join_all(grants)) };
        let ((), served, grants) = soon("grants", all).await;
        for (timeout, connected, granted) in grants {
            let late = granted.saturating_duration_since(connected.max(served));
            println!(
                "round {round}, T = {timeout:?}: a write after {:.2?}, connected after {:.2?}, granted {late:.2?} later",
                served - killed,
                connected - killed
            );
            assert!(late < at_most(timeout.mul_f64(0.5)), "{late:?} of {timeout:?}");
        }
    }
}
