//! The play: what happens to the service, and what has to be so at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use demos::{Result, SESSION_TIMEOUT};
use rustix::process::Signal;
use testbed::Server;
use zookeeper_groups::tools::{Plan, Rules};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Servers, Session};

use crate::fleet::{Fleet, Step};
use crate::judge::judge;
use crate::picture::{Event, picture};
use crate::store::Store;
use crate::{GRACE, GROUP, SHARDS};

const NAMES: [&str; 4] = ["kv-0", "kv-1", "kv-2", "kv-3"];

/// Between two events, so that the picture shows each.
const REST: Duration = Duration::from_millis(800);

/// What has happened so far.
struct Play {
    fleet: Fleet,
    /// The processes that run, and the rules of the plan node.
    running: Vec<&'static str>,
    rules: Rules,
    events: Vec<Event>,
}

/// Plays it on a server of its own, which is restarted; judges it, and draws the picture.
pub(crate) async fn play(file: &Path) -> Result<()> {
    let mut server = Server::start().await?;
    let folder = tempfile::tempdir()?;
    Store::create(folder.path())?;
    let session = Session::connect(Servers::new(&server.hosts())).await?;
    println!("{SHARDS} shards; a session ends {SESSION_TIMEOUT:?} after its process, and the grace is {GRACE:?}");
    println!(
        "{:>6}  {:<36}{:>8}{:>9}{:>7}{:>10}{:>10}",
        "at", "event", "owned", "written", "moved", "unserved", "waited"
    );
    let fleet = Fleet::new(folder.path(), server.hosts(), &NAMES);
    let mut play = Play { fleet, running: Vec::new(), rules: Rules::default(), events: Vec::new() };

    let step = play.fleet.step();
    for name in &NAMES[..3] {
        play.start(name)?;
    }
    play.over(step, "three processes start").await?;

    let step = play.fleet.step();
    play.start("kv-3")?;
    play.over(step, "kv-3 joins").await?;

    let step = play.fleet.step();
    play.ends("kv-1", Signal::KILL).await?;
    play.over(step, "kill -9 kv-1").await?;

    let step = play.fleet.step();
    play.start("kv-1")?;
    play.over(step, "kv-1 starts again").await?;

    let step = play.fleet.step();
    play.fleet.freeze("kv-2").await?;
    play.running.retain(|name| *name != "kv-2");
    play.over(step, "kv-2 is stopped within a write").await?;

    let step = play.fleet.step();
    play.fleet.unfreeze("kv-2")?;
    play.fleet.late_write().await?;
    play.running.push("kv-2");
    play.over(step, "kv-2 goes on").await?;

    let client = session.client().ok_or("the session has ended")?;
    let step = play.fleet.step();
    play.rules.drain("kv-0")?;
    play.direct(&client).await?;
    play.over(step, "an operator drains kv-0").await?;

    let step = play.fleet.step();
    play.rules.undrain("kv-0");
    play.direct(&client).await?;
    play.over(step, "and undrains it").await?;

    let step = play.fleet.step();
    play.ends("kv-0", Signal::TERM).await?;
    play.start("kv-0")?;
    play.over(step, "kv-0 restarts within the grace").await?;

    let step = play.fleet.step();
    play.ends("kv-3", Signal::USR1).await?;
    play.over(step, "kv-3 leaves for good").await?;

    let step = play.fleet.step();
    server.restart().await?;
    play.over(step, "ZooKeeper is killed and restarted").await?;

    println!(
        "owned, written: until each shard had its planned owner, and then a write. unserved, waited: the longest of a shard, of a write"
    );
    let at = play.fleet.now();
    let acknowledged = play.fleet.end_clients().await?;
    write_picture(file, &picture(&play.fleet.history, &play.events, &NAMES, SHARDS, at))?;
    play.judge(&Store::open(folder.path())?, acknowledged).await?;
    drop(client);
    session.close().await?;
    println!("the owners over time are in {}", file.display());
    Ok(())
}

impl Play {
    fn start(&mut self, name: &'static str) -> Result<()> {
        self.running.push(name);
        self.fleet.start(name)
    }

    /// Sends a signal by which a process ends, and waits for its end.
    async fn ends(&mut self, name: &str, signal: Signal) -> Result<()> {
        self.fleet.signal(name, signal)?;
        let status = self.fleet.ended(name).await?;
        self.running.retain(|running| *running != name);
        if !status.success() && signal != Signal::KILL {
            return Err(format!("{name} has ended with {status}").into());
        }
        Ok(())
    }

    /// Writes the plan node.
    async fn direct(&self, client: &Client) -> Result<()> {
        let (path, text) = (format!("{GROUP}/plan"), self.rules.to_string());
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        if client.check_stat(&path).await?.is_none() {
            _ = client.create(&path, b"", &options).await?;
        }
        _ = client.set_data(&path, text.as_bytes(), None).await?;
        Ok(())
    }

    /// Waits until all shards are owned as planned, prints how long that took, and lets the clients write for a while.
    async fn over(&mut self, step: Step, what: &str) -> Result<()> {
        let plan = Plan::with_rules(SHARDS, self.running.iter().copied(), &self.rules);
        let since = self.fleet.now();
        let settled = self.fleet.settled(&plan, &step, since).await.map_err(|error| format!("{what}: {error}"))?;
        let seconds = |duration: Duration| format!("{:.2} s", duration.as_secs_f64());
        println!(
            "{:>4.1} s  {what:<36}{:>8}{:>9}{:>7}{:>10}{:>10}",
            step.at.as_secs_f64(),
            seconds(settled.owned),
            seconds(settled.written),
            settled.moved,
            seconds(settled.gap),
            seconds(settled.wait)
        );
        self.events.push(Event { at: step.at, what: what.to_owned() });
        self.fleet.rest(REST).await;
        Ok(())
    }

    async fn judge(mut self, store: &Store, acknowledged: BTreeMap<String, u64>) -> Result<()> {
        let late = std::mem::take(&mut self.fleet.late);
        let mut broken = judge(&acknowledged, &store.log()?, &store.pairs()?.into_iter().collect());
        for (write, is_accepted) in &late {
            println!("the late write of {write} was {}", if *is_accepted { "accepted" } else { "refused" });
            if *is_accepted {
                broken.push(format!("the store has accepted the late write of {write}"));
            }
        }
        broken.extend(self.fleet.end().await?);
        let writes: u64 = acknowledged.values().sum();
        println!(
            "{writes} writes of {} keys were acknowledged; {} promises broken",
            acknowledged.len(),
            broken.len()
        );
        if broken.is_empty() { Ok(()) } else { Err(broken.join("\n").into()) }
    }
}

fn write_picture(file: &Path, picture: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(file, picture)?)
}
