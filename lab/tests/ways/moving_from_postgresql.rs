//! Two processes move from PostgreSQL's advisory lock to a mutex, and back, while they work.

use std::process::Stdio;
use std::time::Duration;

use lab::servers::postgresql::PostgreSql;
use lab::servers::{Server, Setup};
use testbed::Server as ZooKeeper;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// How long a process works before the next is replaced.
const WORK: Duration = Duration::from_millis(1_500);

fn start(name: &str, moved: &str, store: &PostgreSql, hosts: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moving"));
    command.args([name, &store.address().port().to_string()]).env("MOVED", moved).env("ZK_HOSTS", hosts);
    command.stdin(Stdio::piped()).kill_on_drop(true).spawn().expect("it can be run")
}

async fn stop(mut process: Child) {
    drop(process.stdin.take());
    assert!(process.wait().await.expect("it ends").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn service_moves_while_it_works() {
    let store = PostgreSql::start(&Setup::default()).await.expect("PostgreSQL");
    let locks = ZooKeeper::start().await.expect("ZooKeeper");
    let client = store.connect().await.expect("a client");
    let table = "CREATE TABLE work (at bigserial, time timestamptz DEFAULT clock_timestamp(), worker text, step text, token bigint)";
    client.batch_execute(table).await.expect("a table");
    let names = ["a", "b"];
    let mut running: Vec<_> = names.iter().map(|name| start(name, "no", &store, &locks.hosts())).collect();
    for moved in ["half", "yes", "half", "yes"] {
        for at in 0..running.len() {
            sleep(WORK).await;
            let name = format!("{}-{moved}", names[at]);
            stop(std::mem::replace(&mut running[at], start(&name, moved, &store, &locks.hosts()))).await;
        }
    }
    sleep(WORK).await;
    for process in running {
        stop(process).await;
    }
    let rows =
        client.query("SELECT worker, step, token, extract(epoch FROM time)::float8 FROM work ORDER BY at", &[]);
    let rows = rows.await.expect("rows");
    let mut inside = None::<String>;
    let (mut last_token, mut last_time, mut gap) = (0, f64::MAX, 0.0_f64);
    for row in &rows {
        let (worker, step, token, time): (String, String, i64, f64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        match (&*step, inside.take()) {
            ("begin", None) => inside = Some(worker),
            ("end", Some(before)) => assert_eq!(before, worker),
            (step, before) => panic!("{worker}: {step}, while {before:?} is inside"),
        }
        assert!(token >= last_token, "{token} after {last_token}");
        gap = gap.max(time - last_time);
        (last_token, last_time) = (token, time);
    }
    println!("{} rows; the longest time without one: {:.0} ms", rows.len(), gap * 1e3);
    assert!(rows.len() > 100, "{} rows", rows.len());
}
