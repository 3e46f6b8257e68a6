//! What many lock paths cost a server: memory, disk, sessions, and how fast it deletes paths that are idle. The numbers of
//! `docs/million-keys.md` are those of
//!
//! ```console
//! $ KEYS=1000000 cargo bench --manifest-path bench/Cargo.toml --bench keys
//! ```
//!
//! It starts a server of its own with a larger heap, and asks `jcmd`, of the JDK, what is left there after a collection.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use testbed::Server;
use tokio::time::sleep;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Mutex, Options, Session};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Where the keys are.
const PARENT: &str = "/keys";
/// Paths that are made in one transaction.
const PER_TRANSACTION: usize = 1_000;
/// Transactions under way at the same time.
const UNDER_WAY: usize = 4;
/// Locks whose time is measured.
const LOCKS: usize = 500;
/// For how long the deletion of idle paths is watched.
const WATCHED: Duration = Duration::from_secs(60);

fn number(name: &str, default: usize) -> Outcome<usize> {
    Ok(std::env::var(name).map_or(Ok(default), |text| text.parse())?)
}

fn key(number: usize) -> String {
    format!("{PARENT}/order-{number:010}")
}

/// The bytes in use in the heap of the server, after a full collection.
fn heap(server: &Server) -> Outcome<u64> {
    let process = server.process_id().ok_or("the server has ended")?.to_string();
    let ask = |command: &str| -> Outcome<String> {
        let output = Command::new("jcmd").args([&process, command]).output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    ask("GC.run")?;
    let info = ask("GC.heap_info")?;
    let used = info.lines().filter(|line| line.contains("generation")).filter_map(|line| {
        let (_, used) = line.split_once("used ")?;
        used.split('K').next()?.trim().parse::<u64>().ok()
    });
    let used = used.sum::<u64>() * 1024;
    if used > 0 { Ok(used) } else { Err(format!("jcmd has no heap:\n{info}").into()) }
}

fn size(folder: &Path) -> Outcome<u64> {
    let mut all = 0;
    for entry in fs::read_dir(folder)? {
        all += entry?.metadata()?.len();
    }
    Ok(all)
}

/// The number of nodes, as the server counts them.
async fn nodes(server: &Server) -> Outcome<i64> {
    let counts = server.four_letter_word("mntr").await?;
    let count = counts.lines().find_map(|line| line.strip_prefix("zk_znode_count"));
    Ok(count.ok_or("no zk_znode_count")?.trim().parse()?)
}

/// Creates paths as locks leave them: a container that has had a child.
async fn create(client: &Client, keys: std::ops::Range<usize>) -> Outcome {
    let container = CreateMode::Container.with_acls(Acls::anyone_all());
    let child = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut writer = client.new_multi_writer();
    for number in keys {
        let (path, node) = (key(number), format!("{}/lock", key(number)));
        writer.add_create(&path, b"", &container)?;
        writer.add_create(&node, b"", &child)?;
        writer.add_delete(&node, None)?;
    }
    writer.commit().await?;
    Ok(())
}

/// The median time of a lock and its release, each at another key from the middle of them.
async fn lock_time(session: &Session, keys: usize, options: Options) -> Outcome<Duration> {
    let mut times = Vec::new();
    for number in (0..LOCKS).map(|number| (keys / 2 + number) % keys) {
        let mutex = Mutex::with_options(session, &key(number), options.clone())?;
        let began = Instant::now();
        mutex.lock().await?.release().await?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[LOCKS / 2])
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn per(bytes: u64, count: usize) -> u64 {
    bytes / count.max(1) as u64
}

#[tokio::main]
async fn main() -> Outcome {
    let (keys, sessions) = (number("KEYS", 20_000)?, number("SESSIONS", 1_000)?);
    if keys < LOCKS || !keys.is_multiple_of(PER_TRANSACTION) {
        return Err(format!("KEYS must be a multiple of {PER_TRANSACTION}").into());
    }
    // This variable is stronger than an option.
    let mut server = Server::builder().environment("_JAVA_OPTIONS", "-Xmx4g").start().await?;
    let session = Session::connect(&server.hosts()).await?;
    let client = session.client().ok_or("no client")?;
    let about = server.four_letter_word("srvr").await?;
    println!("{}", about.lines().next().unwrap_or_default());
    let (hosts, before) = (server.hosts(), heap(&server)?);
    let idle = try_join_all((0..sessions).map(|_| Client::connector().connect(&hosts))).await?;
    println!(
        "{sessions} idle sessions: {} bytes of heap for each",
        per(heap(&server)?.saturating_sub(before), sessions)
    );
    drop(idle);
    client.create(PARENT, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
    create(&client, 0..PER_TRANSACTION).await?;
    let few = lock_time(&session, PER_TRANSACTION, Options::new()).await?;
    let empty = heap(&server)?;

    let began = Instant::now();
    let starts: Vec<_> = (PER_TRANSACTION..keys).step_by(PER_TRANSACTION).collect();
    for starts in starts.chunks(UNDER_WAY) {
        try_join_all(starts.iter().map(|start| create(&client, *start..start + PER_TRANSACTION))).await?;
    }
    println!("{keys} paths of {} bytes, created in {:.0?}", key(0).len(), began.elapsed());
    let many = lock_time(&session, keys, Options::new()).await?;
    let removing = lock_time(&session, keys, Options::new().with_path_removal(true)).await?;
    // The server keeps its last 500 transactions in memory: those of the locks, and not the large ones before.
    let full = heap(&server)?;
    let of_paths = full.saturating_sub(empty);
    println!(
        "heap: {:.0} MiB with {PER_TRANSACTION} of them, {:.0} MiB with all: {} bytes for each",
        mib(empty),
        mib(full),
        per(of_paths, keys - PER_TRANSACTION)
    );

    println!(
        "lock and release, median of {LOCKS}: {few:.1?} with {PER_TRANSACTION} paths, {many:.1?} with all, \
         {removing:.1?} with path removal"
    );
    let began = Instant::now();
    match session.children_of(PARENT).await {
        Ok(paths) => println!("children_of: {} paths in {:.1?}", paths.len(), began.elapsed()),
        Err(error) => println!("children_of: {error}"),
    }

    drop(client);
    session.close().await?;
    let began = Instant::now();
    server.restart().await?;
    println!("restart: {:.1?}", began.elapsed());
    println!("disk: {:.0} MiB of log and snapshots", mib(size(&server.folder().join("data/version-2"))?));

    let all = nodes(&server).await?;
    while nodes(&server).await? > all - 10 {
        sleep(Duration::from_millis(500)).await;
    }
    let (began, first) = (Instant::now(), nodes(&server).await?);
    while began.elapsed() < WATCHED && nodes(&server).await? > 10 {
        sleep(Duration::from_secs(1)).await;
    }
    let deleted = first - nodes(&server).await?;
    println!(
        "idle paths: {deleted} deleted in {:.0?}, {:.0} a minute",
        began.elapsed(),
        deleted as f64 / began.elapsed().as_secs_f64() * 60.0
    );
    Ok(())
}
