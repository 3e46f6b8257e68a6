//! A fleet of members, each with a session of its own, and conditions to wait for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use zookeeper_groups::Shards;
use zookeeper_groups::shards::{Shard, ShardsBuilder};
use zookeeper_groups::tools::{Plan, Rules};
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode, Error as ZkError};
use zookeeper_recipes::{Result, Session};

use crate::ledger::{Ledger, Service};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);
pub(crate) const PATH: &str = "/shards/orders";

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Makes what the libraries make once a process, before the first scene in virtual time.
#[cfg(virtual_time)]
pub(crate) async fn warm_up() {
    let fleet = Fleet::new(2).await;
    fleet.started(&["orders-0"]).await.remove(0).stop().await;
}

/// Fails the test when `future` takes longer than anything should.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    within(what, Duration::from_secs(60), future).await
}

pub(crate) async fn within<F: Future>(what: &str, limit: Duration, future: F) -> F::Output {
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

type Work = Arc<dyn Fn(Service, Shard) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;
type Set = Arc<dyn Fn(ShardsBuilder) -> ShardsBuilder + Send + Sync>;

/// Servers, a ledger, and the settings of all members.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub(crate) root: LocalSession,
    pub(crate) ledger: Ledger,
    pub(crate) count: u32,
    pub(crate) path: String,
    timeout: Duration,
    /// Whether the clock of a hold decides until when a shard was owned: for tests that keep the machine busy.
    is_judged_by_clock: bool,
    set: Set,
    work: Work,
}

pub(crate) struct Member {
    pub(crate) session: LocalSession,
    pub(crate) shards: Shards,
    pub(crate) running: JoinHandle<Result<()>>,
}

impl Fleet {
    /// Members take shards at once, and do not wait long for anything.
    pub(crate) async fn new(count: u32) -> Self {
        let fleet = Self::on(Session::local().await.expect("servers"), PATH, TIMEOUT, count);
        Self { is_judged_by_clock: false, ..fleet }
    }

    /// A fleet at a path of servers that other fleets use as well.
    pub(crate) fn on(root: LocalSession, path: &str, timeout: Duration, count: u32) -> Self {
        let work = |service: Service, shard: Shard| async move {
            shard.revoke_requested().await;
            service.step();
        };
        let set = |builder: ShardsBuilder| {
            builder
                .grace(Duration::ZERO)
                .settling_time(Duration::from_millis(300))
                .patience(Duration::from_secs(20))
        };
        let fleet = Self {
            root,
            ledger: Ledger::new(count),
            count,
            path: path.to_owned(),
            timeout,
            is_judged_by_clock: true,
            set: Arc::new(set),
            work: Arc::new(|_, _| unreachable!()),
        };
        fleet.working(work)
    }

    pub(crate) fn set(mut self, set: impl Fn(ShardsBuilder) -> ShardsBuilder + Send + Sync + 'static) -> Self {
        let before = self.set;
        self.set = Arc::new(move |builder| set(before(builder)));
        self
    }

    pub(crate) fn working<R>(mut self, work: impl Fn(Service, Shard) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        self.work = Arc::new(move |service, shard| Box::pin(work(service, shard)));
        self
    }

    pub(crate) async fn session(&self) -> LocalSession {
        self.root.another_with(|servers| servers.with_session_timeout(self.timeout)).await.expect("connects")
    }

    pub(crate) fn builder(&self, name: &str) -> ShardsBuilder {
        (self.set)(Shards::builder(&self.path, self.count).name(name))
    }

    pub(crate) async fn start(&self, name: &str) -> Member {
        self.start_in(self.session().await, name)
    }

    pub(crate) fn start_in(&self, session: LocalSession, name: &str) -> Member {
        let shards = self.builder(name).build(&session).expect("valid settings");
        Member { running: tokio::spawn(self.serve(&shards)), session, shards }
    }

    /// The future of `run`, whose shards are in the ledger.
    pub(crate) fn serve(&self, shards: &Shards) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let (ledger, work, name) = (self.ledger.clone(), self.work.clone(), shards.name().to_owned());
        let is_judged_by_clock = self.is_judged_by_clock;
        shards.run(move |shard| {
            let token = shard.fencing_token().get().cast_unsigned();
            let hold = is_judged_by_clock.then(|| shard.monitor().clone());
            work(ledger.begin(&name, shard.number(), token, hold), shard)
        })
    }

    /// Starts members, and waits until they own what the plan gives them.
    pub(crate) async fn started(&self, names: &[&str]) -> Vec<Member> {
        self.started_by(names, &self.plan(names)).await
    }

    pub(crate) async fn started_by(&self, names: &[&str], plan: &Plan) -> Vec<Member> {
        let mut members = Vec::new();
        for name in names {
            members.push(self.start(name).await);
        }
        self.settled_by(plan).await;
        self.ledger.count_again();
        members
    }

    /// Waits until each of these members owns what the plan of them gives it.
    pub(crate) async fn settled(&self, names: &[&str]) {
        self.settled_by(&self.plan(names)).await;
    }

    /// Waits until each shard is owned as planned.
    pub(crate) async fn settled_by(&self, plan: &Plan) {
        let is_so =
            |book: &crate::ledger::Book| (0..self.count).all(|shard| book.owner(shard) == plan.owner(shard));
        self.ledger.until(&format!("{:?} own their shards", plan.members()), is_so).await;
    }

    /// Writes the plan node, or deletes it if there is no text.
    pub(crate) async fn write_rules(&self, text: &str) {
        let (client, path) = (self.root.client().expect("a client"), format!("{PATH}/plan"));
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        if text.is_empty() {
            return client.delete(&path, None).await.expect("deleted");
        }
        match client.set_data(&path, text.as_bytes(), None).await {
            Err(ZkError::NoNode) => {
                client.mkdir(PATH, &options).await.expect("a path");
                _ = client.create(&path, text.as_bytes(), &options).await.expect("created");
            }
            written => _ = written.expect("written"),
        }
    }

    /// The plan of these members with these rules.
    pub(crate) fn plan_by(&self, names: &[&str], rules: &str) -> Plan {
        let rules = Rules::parse(rules.as_bytes()).expect("rules");
        Plan::with_rules(self.count, names.iter().copied(), &rules)
    }

    pub(crate) fn plan(&self, names: &[&str]) -> Plan {
        Plan::new(self.count, names.iter().copied())
    }

    /// How many shards have another owner in the second plan.
    pub(crate) fn difference(&self, before: &[&str], after: &[&str]) -> usize {
        let (before, after) = (self.plan(before), self.plan(after));
        (0..self.count).filter(|&shard| before.owner(shard) != after.owner(shard)).count()
    }
}

/// Owners that are asked for a shard keep it until the test opens the gate.
pub(crate) fn behind_a_gate(fleet: Fleet) -> (Arc<Semaphore>, Fleet) {
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let fleet = fleet.working(move |service, shard| {
        let gate = opened.clone();
        async move {
            shard.revoke_requested().await;
            drop(gate.acquire().await.expect("open"));
            drop(service);
        }
    });
    (gate, fleet)
}

impl Member {
    /// Stops it, and waits for its end.
    pub(crate) async fn stop(self) {
        self.shards.stop();
        self.ended().await;
    }

    pub(crate) async fn leave(self) {
        self.shards.leave();
        self.ended().await;
    }

    async fn ended(self) {
        soon("its end", self.running).await.expect("no panic").expect("no error");
        soon("its close", self.session.close()).await.expect("closed");
    }

    /// Ends it as the end of its process would. Its session lives on.
    pub(crate) async fn kill(self) -> LocalSession {
        self.session.disconnect();
        self.running.abort();
        assert!(soon("its end", self.running).await.is_err());
        self.session
    }
}
