//! Random faults: planned from a seed, and carried out on servers, on the links between them, and on client processes.

mod client;
mod demand;
mod fault;
mod plan;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::io;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};

use self::demand::{Demand, Life, Target, World};
use crate::Ensemble;
use crate::history::now;
use crate::proxy::Closing;

pub use self::client::Client;
pub use self::fault::{Fault, Kind, Struck};
pub use self::plan::Plan;

/// How long a server may take to report that it leads; a paused one does not answer.
const PATIENCE: Duration = Duration::from_millis(250);
const KEEPING: Duration = Duration::from_millis(250);

/// The part of the nemesis that knows about locks.
pub trait Accomplice {
    /// The number of a client that is in a critical section, where a pause does the most harm.
    fn aim(&mut self) -> Option<usize>;

    /// Deletes a node, or a path with its descendants, as an operator does. `dice` selects which one. It may return
    /// before the deletion is done.
    fn delete(&mut self, kind: Kind, dice: u64);

    /// Called with each fault that is over.
    fn over(&mut self, struck: Struck);
}

/// Carries out plans on an ensemble and its clients.
pub struct Nemesis<'a> {
    ensemble: &'a mut Ensemble,
    clients: &'a mut [Client],
    accomplice: &'a mut dyn Accomplice,
    world: World,
    active: BTreeMap<usize, Active>,
    agenda: BinaryHeap<Reverse<(Instant, Due)>>,
}

/// The next step of a fault, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    End(usize),
    Begin(usize),
    Beat(usize),
    Keep,
}

struct Active {
    demand: Demand,
    clients: BTreeSet<String>,
    begin: u64,
    random: Rng,
}

impl<'a> Nemesis<'a> {
    /// Sets a nemesis on an ensemble and its clients.
    pub fn new(ensemble: &'a mut Ensemble, clients: &'a mut [Client], accomplice: &'a mut dyn Accomplice) -> Self {
        let world = World::healthy(ensemble.len(), clients.len());
        Self { ensemble, clients, accomplice, world, active: BTreeMap::new(), agenda: BinaryHeap::new() }
    }

    /// Carries out a plan. When it returns, all faults are over: no link is broken, and all processes run, though
    /// servers may still be starting.
    ///
    /// # Errors
    ///
    /// If a server or a client cannot be started.
    pub async fn carry_out(&mut self, plan: &Plan) -> io::Result<()> {
        let start = Instant::now();
        self.agenda =
            (0..).zip(plan.faults()).map(|(i, fault)| Reverse((start + fault.begin, Due::Begin(i)))).collect();
        self.agenda.push(Reverse((start, Due::Keep)));
        let mut left = plan.faults().len();
        while left > 0 {
            let Some(Reverse((at, due))) = self.agenda.pop() else { break };
            sleep_until(at).await;
            match due {
                Due::Begin(i) => {
                    let fault = plan.faults()[i];
                    self.begin(i, fault).await?;
                    self.agenda.push(Reverse((start + fault.end, Due::End(i))));
                }
                Due::End(i) => {
                    self.end(i)?;
                    left -= 1;
                }
                Due::Beat(i) => self.beat(i)?,
                Due::Keep => {
                    self.keep()?;
                    self.agenda.push(Reverse((Instant::now() + KEEPING, Due::Keep)));
                }
            }
        }
        Ok(())
    }

    async fn begin(&mut self, i: usize, fault: Fault) -> io::Result<()> {
        let Fault { kind, dice, .. } = fault;
        let random = Rng::with_seed(dice);
        let target = self.target(kind, dice).await;
        let mut clients = BTreeSet::new();
        if let Target::Client(client) = target {
            clients.insert(self.clients[client].name());
        }
        let demand = Demand { kind, target, beat: 0, dice };
        self.active.insert(i, Active { demand, clients, begin: now(), random });
        if target == Target::Nodes {
            self.accomplice.delete(kind, dice);
        }
        self.apply()?;
        self.schedule_beat(i);
        self.keep()
    }

    fn end(&mut self, i: usize) -> io::Result<()> {
        self.keep()?;
        let Some(Active { demand, clients, begin, .. }) = self.active.remove(&i) else { return Ok(()) };
        self.apply()?;
        let target = match demand.target {
            Target::Server(server) => format!("server {server}"),
            Target::Follower { follower, leader } => format!("server {follower} (leader {leader})"),
            Target::Client(_) => clients.iter().next().cloned().unwrap_or_default(),
            Target::Nodes => "nodes".to_owned(),
        };
        let clients = clients.into_iter().collect();
        self.accomplice.over(Struck { fault: demand.kind, target, clients, begin, end: now() });
        Ok(())
    }

    /// Carries out the next step of a fault with several steps.
    fn beat(&mut self, i: usize) -> io::Result<()> {
        let Some(active) = self.active.get_mut(&i) else { return Ok(()) };
        active.demand.beat += 1;
        if let (Kind::Flapping, Target::Client(client)) = (active.demand.kind, active.demand.target) {
            let closing = if active.random.bool() { Closing::Fin } else { Closing::Reset };
            self.clients[client].cut(closing);
        }
        self.apply()?;
        self.schedule_beat(i);
        Ok(())
    }

    fn schedule_beat(&mut self, i: usize) {
        let Some(Active { demand, random, .. }) = self.active.get_mut(&i) else { return };
        let millis = match (demand.kind, demand.beat % 2) {
            (Kind::Flapping, _) => 100..500,
            (Kind::SlowDisk, 0) => 30..300,
            (Kind::SlowDisk, _) => 50..400,
            (Kind::RollingRestart, 0) => 50..300,
            (Kind::RollingRestart, _) => 2_500..3_000,
            _ => return,
        };
        let at = Instant::now() + Duration::from_millis(random.u64(millis));
        self.agenda.push(Reverse((at, Due::Beat(i))));
    }

    async fn target(&mut self, kind: Kind, dice: u64) -> Target {
        let servers = self.ensemble.len();
        // A range of clients is chosen by other digits of the dice.
        let any = (dice / 1_000) as usize;
        match kind {
            Kind::NodeDeletion | Kind::PathDeletion => Target::Nodes,
            Kind::LongClientPause => Target::Client(self.accomplice.aim().unwrap_or(any % self.clients.len())),
            Kind::ClientPartition | Kind::Flapping | Kind::ClientPause | Kind::ClientKill => {
                Target::Client(any % self.clients.len())
            }
            Kind::ServerPause | Kind::SlowDisk | Kind::RollingRestart | Kind::Partition => {
                Target::Server(any % servers)
            }
            Kind::LeaderKill | Kind::LeaderIsolation => Target::Server(self.leader(any).await),
            Kind::FollowerKill | Kind::FollowerCutOff | Kind::PingsHeld => {
                let leader = self.leader(any).await;
                let follower = (leader + 1 + any / 10 % (servers - 1)) % servers;
                match kind {
                    Kind::FollowerKill => Target::Server(follower),
                    _ => Target::Follower { follower, leader },
                }
            }
        }
    }

    /// The leader, or during an election any server.
    async fn leader(&self, any: usize) -> usize {
        let leaders = self.ensemble.leaders_within(PATIENCE).await;
        leaders.first().copied().unwrap_or(any % self.ensemble.len())
    }

    /// Puts servers, links and clients into the state that the current faults demand.
    fn apply(&mut self) -> io::Result<()> {
        let mut wanted = World::healthy(self.ensemble.len(), self.clients.len());
        self.active.values().for_each(|active| wanted.add(active.demand));
        for (from, flows) in wanted.links.iter().enumerate() {
            for (to, flow) in flows.iter().enumerate().filter(|(to, _)| *to != from) {
                if self.world.links[from][to] != *flow {
                    self.ensemble.link(from, to).set(*flow);
                }
            }
        }
        for i in 0..self.ensemble.len() {
            turn_server(self.ensemble, i, self.world.servers[i], wanted.servers[i])?;
        }
        for (i, client) in self.clients.iter_mut().enumerate() {
            if self.world.networks[i] != wanted.networks[i] {
                client.switch(wanted.networks[i], Closing::Fin);
            }
            client.turn(self.world.clients[i], wanted.clients[i])?;
        }
        self.world = wanted;
        Ok(())
    }

    /// Restarts processes that ended by themselves, and notes the clients at a follower whose pings are held back.
    fn keep(&mut self) -> io::Result<()> {
        for (i, client) in self.clients.iter_mut().enumerate() {
            if self.world.clients[i] != Life::Dead {
                client.keep()?;
            }
        }
        for active in self.active.values_mut().filter(|active| active.demand.kind == Kind::PingsHeld) {
            if let Target::Follower { follower, .. } = active.demand.target {
                let there = self.clients.iter().filter(|client| client.is_at(follower));
                active.clients.extend(there.map(Client::name));
            }
        }
        for i in 0..self.ensemble.len() {
            if self.world.servers[i] != Life::Dead && self.ensemble.server_mut(i).has_exited() {
                self.ensemble.server_mut(i).launch().map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

fn turn_server(ensemble: &mut Ensemble, i: usize, from: Life, to: Life) -> io::Result<()> {
    let server = ensemble.server_mut(i);
    match (from, to) {
        (Life::Running, Life::Paused) => server.pause(),
        (Life::Paused, Life::Running) => server.resume(),
        (Life::Running | Life::Paused, Life::Dead) => server.kill(),
        (Life::Dead, Life::Running | Life::Paused) => {
            server.launch().map_err(io::Error::other)?;
            if to == Life::Paused {
                server.pause();
            }
        }
        _ => {}
    }
    Ok(())
}

impl fmt::Debug for Nemesis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nemesis").field("world", &self.world).finish_non_exhaustive()
    }
}
