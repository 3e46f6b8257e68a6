//! A member in a process of its own, which the other tests start.

use std::env::var;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;
use zookeeper_groups::Shards;
use zookeeper_groups::shards::Shard;
use zookeeper_recipes::{Servers, Session};

use crate::COUNT;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);
pub(crate) const THREADS: usize = 2;

/// The ledger of the test that has started this process.
#[derive(Clone)]
struct Reports(Arc<Mutex<(TcpStream, BufReader<TcpStream>)>>);

impl Reports {
    fn new(name: &str) -> Self {
        let stream = TcpStream::connect(var("SHARDS_LEDGER").expect("a ledger")).expect("connects");
        stream.set_nodelay(true).expect("an option");
        let reports = Self(Arc::new(Mutex::new((stream.try_clone().expect("a stream"), BufReader::new(stream)))));
        reports.report(&format!("name {name}"));
        reports
    }

    /// Reports, and waits for the answer.
    fn report(&self, line: &str) {
        let (stream, answers) = &mut *self.0.lock().expect("no panic");
        stream.write_all(format!("{line}\n").as_bytes()).expect("written");
        answers.read_line(&mut String::new()).expect("an answer");
    }
}

/// Reports the end of a shard, before its lock is released.
struct Serving {
    reports: Reports,
    of: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.reports.report(&format!("end {}", self.of));
    }
}

async fn serve(reports: Reports, shard: Shard) {
    let serving = Serving { of: format!("{} {}", shard.number(), shard.fencing_token()), reports };
    serving.reports.report(&format!("begin {}", serving.of));
    let mut turns = tokio::time::interval(Duration::from_millis(50));
    // After a pause it would be ready again and again, all in one step of this future, which nothing interrupts.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = std::pin::pin!(shard.revoke_requested());
    loop {
        tokio::select! {
            () = &mut asked => return,
            _ = turns.tick() => serving.reports.report(&format!("step {}", serving.of)),
        }
    }
}

/// Does nothing unless another test has started it as a process.
#[test]
fn member_of_another_test() {
    let Ok(name) = var("SHARDS_MEMBER") else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let servers = Servers::new(&var("ZK_HOSTS").expect("hosts")).with_session_timeout(TIMEOUT);
        let session = Session::connect(servers).await.expect("connects");
        let grace = var("SHARDS_GRACE_MS").ok().and_then(|grace| grace.parse().ok()).expect("a grace");
        let shards = Shards::builder(&var("SHARDS_PATH").expect("a path"), COUNT)
            .name(&name)
            .grace(Duration::from_millis(grace))
            .settling_time(Duration::from_millis(500));
        let shards = shards.build(&session).expect("valid settings");
        let reports = Reports::new(&name);
        let running = tokio::spawn(shards.run(move |shard| serve(reports.clone(), shard)));
        signal(SignalKind::terminate()).expect("a signal").recv().await;
        shards.stop();
        running.await.expect("no panic").expect("no error");
        session.close().await.expect("closed");
    });
}
