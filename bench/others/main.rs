//! This crate beside locks on other servers, in one run:
//!
//! ```console
//! $ cargo bench -p bench --bench others
//! ```
//!
//! It takes two minutes. It starts the servers that are installed (Debian's `redis-server`, `etcd-server`, `postgresql`
//! and `libzookeeper-java`) in temporary folders, and stops them afterwards. They keep their packages' defaults of when
//! data is written to the disk.
//!
//! All do the same cycle, an uncontended lock and its release, in turns on the same machine; and what is reported are
//! *ratios* to this crate in the same round. A server that promises less may be faster; so the output lists what each
//! lock does not promise. [`contender`] has the locks.

#[path = "../peers/circumstances.rs"]
mod circumstances;
mod contender;
mod etcd;
mod postgresql;
mod redis;
mod report;
mod rounds;
#[path = "../peers/summary.rs"]
mod summary;
mod zookeeper;

use crate::circumstances::Circumstances;
use crate::contender::Contender;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let circumstances = Circumstances::now()?;
    let mut contenders = vec![zookeeper::start().await?];
    for (name, started) in
        [("Redis", redis::start().await), ("etcd", etcd::start().await), ("PostgreSQL", postgresql::start().await)]
    {
        match started {
            Ok(contender) => contenders.push(contender),
            Err(error) => println!("not measured: {name}: {error}"),
        }
    }
    println!("{circumstances}");
    for Contender { name, version, .. } in &contenders {
        println!("{name}: {version}");
    }
    let mut rows = Vec::new();
    for clients in [1, 8] {
        eprintln!("{clients} at a time …");
        rows.push(rounds::measure(&mut contenders, clients).await?);
    }
    println!("\n{}", report::table(&contenders, &rows));
    Ok(())
}
