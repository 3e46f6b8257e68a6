//! What a group of shards costs, and what it moves: `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench shards`.
//!
//! All members are in this process, each with a session and a proxy of its own, at a server of its own. The proxies count requests, and
//! the server counts watches. Writes are what goes through the quorum, such as creates, deletes and checks; reads are all other requests.
//! Times depend on the machine, and on the settling time of 1 s. `SHARDS_GROUPS=256x3` chooses groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testbed::Server;
use testbed::proxy::Proxy;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use zookeeper_groups::Shards;
use zookeeper_groups::shards::Shard;
use zookeeper_groups::tools::{Plan, Rules};
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, Servers, Session};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// *T*, the session timeout of members.
const TIMEOUT: Duration = Duration::from_secs(10);
/// At least three fallback polls, and six renewals.
const REST: Duration = Duration::from_secs(65);
/// Until holds watch their nodes, and members have looked once.
const SETTLED: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(300);
const PATH: &str = "/bench/shards";

/// Who serves what.
#[derive(Default)]
struct Book {
    owners: BTreeMap<u32, String>,
    last: BTreeMap<u32, (String, Instant)>,
    moves: usize,
    longest_gap: Duration,
}

struct Member {
    session: Session,
    proxy: Proxy,
    shards: Shards,
    running: JoinHandle<Result<(), Error>>,
}

struct Fleet {
    server: Server,
    root: Session,
    book: Arc<watch::Sender<Book>>,
    count: u32,
    grace: Duration,
    members: BTreeMap<String, Member>,
}

/// What was counted while something changed.
struct Cost {
    moves: usize,
    writes: usize,
    reads: usize,
    longest_gap: Duration,
    took: Duration,
}

async fn serve(book: Arc<watch::Sender<Book>>, name: String, shard: Shard) {
    let number = shard.number();
    book.send_modify(|book| {
        if let Some((last, ended)) = book.last.get(&number) {
            book.moves += usize::from(*last != name);
            book.longest_gap = book.longest_gap.max(ended.elapsed());
        }
        book.owners.insert(number, name.clone());
    });
    // It also ends when the function is dropped.
    let _served = Served { book, number, name };
    shard.revoke_requested().await;
}

struct Served {
    book: Arc<watch::Sender<Book>>,
    number: u32,
    name: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.book.send_modify(|book| {
            book.owners.remove(&self.number);
            book.last.insert(self.number, (std::mem::take(&mut self.name), Instant::now()));
        });
    }
}

impl Fleet {
    async fn new(count: u32) -> Outcome<Self> {
        let server = Server::builder().config("maxClientCnxns", "0").config("4lw.commands.whitelist", "*");
        let server = server.start().await?;
        let root = Session::connect(&server.hosts()).await?;
        let book = Arc::new(watch::Sender::default());
        Ok(Self { server, root, book, count, grace: Duration::ZERO, members: BTreeMap::new() })
    }

    async fn start(&mut self, name: &str) -> Outcome {
        let proxy = Proxy::start(&self.server.hosts()).await?;
        let session = Session::connect(Servers::new(&proxy.hosts()).with_session_timeout(TIMEOUT)).await?;
        let shards = Shards::builder(PATH, self.count).name(name).grace(self.grace).build(&session)?;
        let (book, of) = (self.book.clone(), name.to_owned());
        let running = tokio::spawn(shards.run(move |shard| serve(book.clone(), of.clone(), shard)));
        self.members.insert(name.to_owned(), Member { session, proxy, shards, running });
        Ok(())
    }

    fn plan(&self) -> Plan {
        Plan::new(self.count, self.members.keys().cloned())
    }

    /// Waits until all shards are owned by this plan.
    async fn settled(&self, plan: &Plan) -> Outcome {
        let is_so = |book: &Book| {
            (0..self.count).all(|shard| book.owners.get(&shard).map(String::as_str) == plan.owner(shard))
        };
        let mut book = self.book.subscribe();
        let met = timeout(PATIENCE, book.wait_for(is_so)).await;
        _ =
            met.map_err(|_| format!("not as planned: {} shards have an owner", self.book.borrow().owners.len()))??;
        Ok(())
    }

    fn reset(&self) {
        self.book.send_modify(|book| (book.moves, book.longest_gap) = Default::default());
        self.members.values().for_each(|member| member.proxy.reset());
    }

    fn cost(&self, began: Instant) -> Cost {
        let requests = self.members.values().flat_map(|member| member.proxy.requests());
        let (writes, reads): (Vec<_>, Vec<_>) = requests.partition(|request| request.is_write());
        let book = self.book.borrow();
        let (moves, longest_gap) = (book.moves, book.longest_gap);
        Cost { moves, writes: writes.len(), reads: reads.len(), longest_gap, took: began.elapsed() }
    }

    /// Counts until all shards are owned by the plan of the present members and these rules.
    async fn counted(&self, began: Instant, rules: &Rules) -> Outcome<Cost> {
        self.settled(&Plan::with_rules(self.count, self.members.keys().cloned(), rules)).await?;
        Ok(self.cost(began))
    }

    async fn watches(&self) -> Outcome<String> {
        let report = self.server.four_letter_word("mntr").await?;
        let line = report.lines().find_map(|line| line.strip_prefix("zk_watch_count"));
        Ok(line.ok_or("mntr has no zk_watch_count")?.trim().to_owned())
    }

    /// Removes a member that has ended, and what it still counts.
    async fn end(&mut self, name: &str, how: impl AsyncFnOnce(&Member) -> Outcome) -> Outcome<Member> {
        how(&self.members[name]).await?;
        Ok(self.members.remove(name).ok_or("no such member")?)
    }

    async fn close(self) -> Outcome {
        for member in self.members.values() {
            member.shards.stop();
        }
        for member in self.members.into_values() {
            member.running.await??;
            member.session.close().await?;
        }
        Ok(self.root.close().await?)
    }
}

fn row(what: &str, ideal: impl std::fmt::Display, cost: &Cost) {
    let Cost { moves, writes, reads, longest_gap, took } = cost;
    println!("{what:<34} {moves:>6} {ideal:>6} {writes:>7} {reads:>7} {longest_gap:>10.1?} {took:>8.1?}");
}

async fn group(count: u32, members: u32) -> Outcome {
    let mut fleet = Fleet::new(count).await?;
    let names: Vec<_> = (0..=members).map(|number| format!("orders-{number:02}")).collect();
    let (new, first) = names.split_last().ok_or("no names")?;
    println!("\n{count} shards over {members} members, T = {TIMEOUT:?}");
    println!(
        "{:<34} {:>6} {:>6} {:>7} {:>7} {:>10} {:>8}",
        "", "moves", "ideal", "writes", "reads", "no owner", "took"
    );
    let (began, none) = (Instant::now(), Rules::default());
    for name in first {
        fleet.start(name).await?;
    }
    row("start of the fleet", "-", &fleet.counted(began, &none).await?);

    sleep(SETTLED).await;
    let watches = fleet.watches().await?;
    fleet.reset();
    sleep(REST).await;
    let cost = fleet.cost(Instant::now());
    let rate = |requests: usize| requests as f64 / REST.as_secs_f64();
    let rest = format!(
        "at rest, the whole fleet: {:.1} writes and {:.1} reads a second, {watches} watches",
        rate(cost.writes),
        rate(cost.reads)
    );

    fleet.reset();
    let began = Instant::now();
    fleet.start(new).await?;
    row("one joins", count / (members + 1), &fleet.counted(began, &none).await?);

    fleet.reset();
    let (began, before) = (Instant::now(), fleet.plan());
    fleet.members[new].shards.leave();
    // Its requests count, so it is still there.
    let others = Plan::new(count, first.iter().cloned());
    fleet.settled(&others).await?;
    row("one leaves for good", before.shards_of(new).count(), &fleet.cost(began));
    let left = fleet.end(new, async |_| Ok(())).await?;
    left.running.await??;
    left.session.close().await?;

    fleet.reset();
    let (began, options) = (Instant::now(), CreateMode::Persistent.with_acls(Acls::anyone_all()));
    let (node, ideal) = (format!("{PATH}/plan"), fleet.plan().shards_of(&first[0]).count());
    let rules = Rules::parse(format!("version 1\ndrain {}\n", first[0]).as_bytes())?;
    let client = fleet.root.client().ok_or("no client")?;
    _ = client.create(&node, rules.to_string().as_bytes(), &options).await?;
    row("one is drained by an operator", ideal, &fleet.counted(began, &rules).await?);
    fleet.reset();
    let began = Instant::now();
    client.delete(&node, None).await?;
    drop(client);
    row("it is undrained", ideal, &fleet.counted(began, &none).await?);

    fleet.reset();
    let (began, ideal) = (Instant::now(), fleet.plan().shards_of(&first[0]).count());
    let killed = fleet.end(&first[0], async |member| {
        member.proxy.refuse();
        member.running.abort();
        Ok(())
    });
    let killed = killed.await?;
    let cost = fleet.counted(began, &none).await?;
    row("one is killed", ideal, &cost);
    println!("    all owned {:.2} T after the kill", cost.took.as_secs_f64() / TIMEOUT.as_secs_f64());
    drop(killed);
    fleet.start(&first[0]).await?;
    fleet.settled(&fleet.plan()).await?;
    fleet.close().await?;

    let mut fleet = Fleet::new(count).await?;
    fleet.grace = Duration::from_secs(60);
    for name in first {
        fleet.start(name).await?;
    }
    fleet.settled(&fleet.plan()).await?;
    fleet.reset();
    let began = Instant::now();
    for name in first {
        let stopped = fleet
            .end(name, async |member| {
                member.shards.stop();
                Ok(())
            })
            .await?;
        stopped.running.await??;
        stopped.session.close().await?;
        fleet.start(name).await?;
        fleet.settled(&fleet.plan()).await?;
    }
    // Those of the members that were stopped are not counted.
    let cost = Cost { writes: 0, reads: 0, ..fleet.cost(began) };
    println!(
        "a rolling restart of all moves {} shards; one was without an owner for {:.1?} at most; it took {:.0?}",
        cost.moves, cost.longest_gap, cost.took
    );
    println!("{rest}");
    fleet.close().await
}

#[tokio::main]
async fn main() -> Outcome {
    let groups = std::env::var("SHARDS_GROUPS").unwrap_or_else(|_| "256x3,4096x64".to_owned());
    for given in groups.split(',') {
        let sizes =
            given.split_once('x').and_then(|(count, members)| Some((count.parse().ok()?, members.parse().ok()?)));
        let (count, members) = sizes.ok_or_else(|| format!("SHARDS_GROUPS has {given:?}; write 256x3,4096x64"))?;
        group(count, members).await?;
    }
    Ok(())
}
