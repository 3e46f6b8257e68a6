//! A process of a service that moves from PostgreSQL's advisory lock to a mutex on ZooKeeper: `docs/moving.md`. It works under
//! the lock until its standard input ends. Each piece of work is two rows of a table, a begin and an end, so that the table
//! shows who has worked beside whom.
//!
//! usage: moving NAME POSTGRESQL-PORT, with MOVED and ZK_HOSTS

mod advisory_lock;

use std::sync::Arc;
use std::time::Duration;

use lab::Outcome;
use tokio::io::{AsyncReadExt, stdin};
use tokio::time::sleep;
use tokio_postgres::{Client, Config, NoTls};
use zookeeper_recipes::{Both, DistributedLock, LockGuard, Mutex, Options, Servers, Session};

use crate::advisory_lock::AdvisoryLock;

#[tokio::main]
async fn main() -> Outcome {
    let [name, port] = [1, 2].map(|at| std::env::args().nth(at).expect("NAME and PORT"));
    let mut server = Config::new();
    server.host("127.0.0.1").port(port.parse()?).user("lab").dbname("postgres");
    let session =
        Session::lazy(Servers::new(&std::env::var("ZK_HOSTS")?).with_session_timeout(Duration::from_secs(4)))?;
    let (store, connection) = server.connect(NoTls).await?;
    tokio::spawn(connection);
    let lock = lock(&session, Arc::new(AdvisoryLock { server, key: 7 }))?;
    let (mut input, mut line) = (stdin(), Vec::new());
    let stopped = input.read_to_end(&mut line);
    tokio::pin!(stopped);
    loop {
        let guard = tokio::select! {
            stopped = &mut stopped => { stopped?; break }
            guard = lock.lock() => guard?,
        };
        // A loss ends the work, and the next round begins.
        if let Ok(worked) = guard.run_until_lost(work(&store, &name, &*guard)).await {
            worked?;
        }
        _ = guard.release().await;
    }
    Ok(session.close().await?)
}

/// As in `docs/moving.md`.
fn lock(session: &Session, old: Arc<dyn DistributedLock>) -> Outcome<Arc<dyn DistributedLock>> {
    let new = Arc::new(Mutex::with_options(session, "/locks/billing", Options::new().with_token_epoch(1))?);
    Ok(match std::env::var("MOVED").as_deref() {
        Ok("half") => Arc::new(Both::new(old, new)),
        Ok("yes") => new,
        _ => old,
    })
}

async fn work(store: &Client, name: &str, guard: &dyn LockGuard) -> Outcome {
    let write = "INSERT INTO work (worker, step, token) SELECT $1::text, $2::text, $3::bigint WHERE NOT EXISTS (SELECT FROM work WHERE token > $3)";
    let token = guard.fencing_token().get();
    for step in ["begin", "end"] {
        store.execute(write, &[&name, &step, &token]).await?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
