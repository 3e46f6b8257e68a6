//! An operator who directs the shards: drains and pins in the plan node, and rubbish for a moment.

use std::convert::Infallible;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{sleep, timeout};
use zookeeper_groups::tools::Rules;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode, Error};

use crate::operator::connect;
use crate::workload::{SHARDS, Workload, path};

/// The longest pause between two changes, and for which rubbish stands.
const PAUSE: f64 = 3.0;
const RUBBISH: f64 = 1.0;

/// How long a change may take while there are faults.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often the last rules are written until that is confirmed, when there are no faults any more.
const TRIES: usize = 5;

#[derive(Debug)]
pub(crate) struct Director {
    hosts: String,
    /// The clients that serve shards.
    members: Vec<String>,
    random: Rng,
    rules: Rules,
    /// How often the node was changed, how often to rubbish, and how many changes were not confirmed.
    changes: [usize; 3],
}

impl Director {
    /// `workloads` has that of each client.
    pub(crate) fn new(hosts: &str, workloads: &[Workload], seed: u64) -> Self {
        let serves = |number: &usize| workloads[*number] == Workload::Shards;
        let members = (0..workloads.len()).filter(serves).map(|number| format!("c{number}")).collect();
        let (random, rules) = (Rng::with_seed(seed), Rules::default());
        Self { hosts: hosts.to_owned(), members, random, rules, changes: [0; 3] }
    }

    /// Changes the node until it is dropped. Without shards it does nothing.
    pub(crate) async fn direct(&mut self) -> Infallible {
        if self.members.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep(Duration::from_secs_f64(self.random.f64() * PAUSE)).await;
            if self.random.u8(..6) == 0 {
                let rubbish = self.rubbish();
                self.changes[1] += 1;
                self.write(Some(rubbish)).await;
                sleep(Duration::from_secs_f64(self.random.f64() * RUBBISH)).await;
            }
            let text = self.next();
            self.write(text).await;
        }
    }

    /// Leaves the last rules in the node.
    pub(crate) async fn end(&mut self) -> Result<(), String> {
        if self.members.is_empty() {
            return Ok(());
        }
        for _ in 0..TRIES {
            if self.write(Some(self.rules.to_string())).await {
                let [all, rubbish, failed] = self.changes;
                println!(
                    "chaos: the plan node was changed {all} times, to rubbish {rubbish}, not confirmed {failed}"
                );
                return Ok(());
            }
        }
        Err("the plan node cannot be written".to_owned())
    }

    /// The next text of the node; `None` is to delete it.
    fn next(&mut self) -> Option<String> {
        let member = self.random.choice(&self.members).cloned().unwrap_or_default();
        let shard = self.random.u32(..SHARDS);
        let changed = match self.random.u8(..8) {
            0..=1 => self.rules.drain(&member),
            2..=3 => Ok(self.rules.undrain(&member)),
            4..=5 => self.rules.pin(shard, &member),
            6 => Ok(self.rules.unpin(shard)),
            _ => {
                self.rules = Rules::default();
                return None;
            }
        };
        changed.expect("names of clients can stand in a line");
        Some(self.rules.to_string())
    }

    /// A text that members do not follow.
    fn rubbish(&mut self) -> String {
        let rules = self.rules.to_string();
        match self.random.u8(..4) {
            0 => "rubbish".to_owned(),
            1 => format!("{rules}drian c0\n"),
            2 => format!("{rules}pin {SHARDS} c0\n"),
            _ => rules.replace("version 1", "version 2"),
        }
    }

    /// Returns whether the change is confirmed. Another one follows in any case.
    async fn write(&mut self, text: Option<String>) -> bool {
        self.changes[0] += 1;
        let is_confirmed = matches!(timeout(PATIENCE, write(&self.hosts, text)).await, Ok(Ok(())));
        self.changes[2] += usize::from(!is_confirmed);
        is_confirmed
    }
}

async fn write(hosts: &str, text: Option<String>) -> Result<(), Error> {
    let (client, node) = (connect(hosts).await?, format!("{}/plan", path("shards")));
    let Some(text) = text else {
        return match client.delete(&node, None).await {
            Err(Error::NoNode) => Ok(()),
            deleted => deleted,
        };
    };
    match client.set_data(&node, text.as_bytes(), None).await {
        Err(Error::NoNode) => {
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            client.create(&node, text.as_bytes(), &options).await.map(drop)
        }
        written => written.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_can_follow_all_texts_but_rubbish() {
        let mut director = Director::new("", &[Workload::Lock, Workload::Shards, Workload::Shards], 7);
        assert_eq!(director.members, ["c1", "c2"]);
        let usable =
            |text: &str| Rules::parse(text.as_bytes()).and_then(|rules| rules.check(SHARDS).map(|()| rules));
        let mut kinds = [0; 4];
        for _ in 0..1000 {
            let Some(text) = director.next() else {
                kinds[0] += 1;
                continue;
            };
            let rules = usable(&text).expect("rules");
            kinds[1] += usize::from(director.members.iter().any(|name| rules.is_drained(name)));
            kinds[2] += usize::from(director.members.iter().all(|name| rules.is_drained(name)));
            kinds[3] += usize::from(rules.pins().next().is_some());
            let rubbish = director.rubbish();
            assert!(usable(&rubbish).is_err(), "{rubbish}");
        }
        assert!(kinds.iter().all(|times| *times > 20), "{kinds:?}");
    }
}
