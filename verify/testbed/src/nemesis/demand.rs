//! The state of servers, links and clients that all current faults together demand.
//!
//! When a fault ends, others may still demand the same. So no fault undoes its own effects: the whole state is computed
//! again whenever a fault begins or ends.

use super::fault::Kind;
use crate::link::Flow;

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Server(usize),
    Follower { follower: usize, leader: usize },
    Client(usize),
    Nodes,
}

/// The state of a process; the greater demand prevails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    Running,
    Paused,
    Dead,
}

/// The state of a client's connections; the greater demand prevails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Network {
    Open,
    Refused,
    BlackHole,
}

/// The demand of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) kind: Kind,
    pub(super) target: Target,
    /// The step of a fault with several steps.
    pub(super) beat: usize,
    pub(super) dice: u64,
}

/// The demanded state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub(super) servers: Vec<Life>,
    /// By `from`, then `to`.
    pub(super) links: Vec<Vec<Flow>>,
    pub(super) clients: Vec<Life>,
    pub(super) networks: Vec<Network>,
}

impl World {
    /// The state without faults.
    pub(super) fn healthy(servers: usize, clients: usize) -> Self {
        Self {
            servers: vec![Life::Running; servers],
            links: vec![vec![Flow::Forward; servers]; servers],
            clients: vec![Life::Running; clients],
            networks: vec![Network::Open; clients],
        }
    }

    pub(super) fn add(&mut self, demand: Demand) {
        let servers = self.servers.len();
        match (demand.kind, demand.target) {
            (Kind::LeaderKill | Kind::FollowerKill, Target::Server(i)) => raise(&mut self.servers[i], Life::Dead),
            (Kind::ServerPause, Target::Server(i)) => raise(&mut self.servers[i], Life::Paused),
            (Kind::SlowDisk, Target::Server(i)) if demand.beat.is_multiple_of(2) => {
                raise(&mut self.servers[i], Life::Paused);
            }
            (Kind::RollingRestart, Target::Server(first))
                if demand.beat.is_multiple_of(2) && demand.beat < 2 * servers =>
            {
                raise(&mut self.servers[(first + demand.beat / 2) % servers], Life::Dead);
            }
            (Kind::Partition, Target::Server(i)) => self.separate(i, Flow::Cut),
            (Kind::LeaderIsolation, Target::Server(i)) => self.separate(i, Flow::BlackHole),
            (Kind::FollowerCutOff, Target::Follower { follower, leader }) => {
                raise(&mut self.links[follower][leader], Flow::BlackHole);
                raise(&mut self.links[leader][follower], Flow::BlackHole);
            }
            (Kind::PingsHeld, Target::Follower { follower, leader }) => {
                raise(&mut self.links[follower][leader], Flow::HoldPings);
            }
            (Kind::ClientPartition, Target::Client(i)) => {
                let how = if demand.dice.is_multiple_of(3) { Network::Refused } else { Network::BlackHole };
                raise(&mut self.networks[i], how);
            }
            (Kind::ClientPause | Kind::LongClientPause, Target::Client(i)) => {
                raise(&mut self.clients[i], Life::Paused);
            }
            (Kind::ClientKill, Target::Client(i)) => raise(&mut self.clients[i], Life::Dead),
            _ => {}
        }
    }

    fn separate(&mut self, server: usize, flow: Flow) {
        for other in 0..self.links.len() {
            raise(&mut self.links[server][other], flow);
            raise(&mut self.links[other][server], flow);
        }
    }
}

fn raise<T: Ord>(now: &mut T, to: T) {
    if *now < to {
        *now = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(demands: &[(Kind, Target)]) -> World {
        let mut world = World::healthy(3, 2);
        for &(kind, target) in demands {
            world.add(Demand { kind, target, beat: 0, dice: 1 });
        }
        world
    }

    #[test]
    fn worse_of_two_faults_prevails_and_the_other_stays() {
        let pause = (Kind::ServerPause, Target::Server(1));
        let kill = (Kind::LeaderKill, Target::Server(1));
        assert_eq!(world(&[kill, pause]).servers, [Life::Running, Life::Dead, Life::Running]);
        assert_eq!(world(&[pause]).servers[1], Life::Paused);
    }

    #[test]
    fn end_of_one_cut_leaves_the_links_that_another_cuts() {
        let follower = (Kind::FollowerCutOff, Target::Follower { follower: 0, leader: 2 });
        let leader = (Kind::LeaderIsolation, Target::Server(2));
        assert_eq!(world(&[follower, leader]).links[2][1], Flow::BlackHole);
        let alone = world(&[follower]);
        assert_eq!((alone.links[0][2], alone.links[2][0]), (Flow::BlackHole, Flow::BlackHole));
        assert_eq!(alone.links[2][1], Flow::Forward);
    }

    #[test]
    fn rolling_restart_takes_one_server_after_the_other() {
        let mut down = Vec::new();
        for beat in 0..8 {
            let mut world = World::healthy(3, 0);
            world.add(Demand { kind: Kind::RollingRestart, target: Target::Server(2), beat, dice: 0 });
            down.push(world.servers.iter().position(|life| *life == Life::Dead));
        }
        assert_eq!(down, [Some(2), None, Some(0), None, Some(1), None, None, None]);
    }
}
