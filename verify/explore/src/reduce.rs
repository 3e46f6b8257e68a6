//! Brings states with the same future together: numbers and transactions are renumbered by rank, and servers apply at once what
//! concerns no request or watch of their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::client::{Client, Mail};
use crate::machine::{
    Ask, Change, Life, Name, Node, Op, Outcome, Position, Trust, Watch, is_turn, op_node, turn_of,
};
use crate::server::{Znode, Zxid};
use crate::world::{Doubt, World};

impl<T: Doubt> World<T> {
    pub(crate) fn normalise(&mut self) {
        let mut named = Vec::new();
        for client in &mut self.clients {
            client.watches.sort_unstable();
            client.each_name(&mut |name| named.push(*name));
        }
        let living = self.clients.iter().filter(|client| client.machine.life != Life::Over);
        let oldest = living.map(|client| client.seen).min().unwrap_or(self.log.end);
        let watched: Vec<Zxid> =
            self.clients.iter().flat_map(|client| client.watches.iter().map(|(_, created)| *created)).collect();
        self.log.nodes.retain(|node| {
            node.stands() || node.deleted > oldest || named.contains(&node.name) || watched.contains(&node.created)
        });
        let mut used: Vec<Zxid> = vec![0, self.log.end];
        self.each_zxid(&mut |at| used.push(*at));
        used.sort_unstable();
        used.dedup();
        let rank = |at: Zxid| Zxid::try_from(used.partition_point(|one| *one < at)).expect("they are few");
        self.log.end = rank(self.log.end);
        self.each_zxid(&mut |at| *at = rank(*at));
        let nodes = self.log.nodes.iter().map(|node| node.name.number);
        let mut numbers: Vec<i32> = nodes.chain(named.iter().map(|name| name.number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let rank =
            |number: i32| i32::try_from(numbers.partition_point(|one| *one < number)).expect("they are few");
        self.log.counter = rank(i32::MAX);
        self.log.nodes.iter_mut().for_each(|node| node.name.number = rank(node.name.number));
        self.clients.iter_mut().for_each(|client| client.each_name(&mut |name| name.number = rank(name.number)));
    }

    /// As [`normalise`](Self::normalise), and more of what the explorer has to bring together: sessions and attempts are renumbered,
    /// and of worlds that differ only in which of two equal clients is which, one stands for both.
    pub(crate) fn canonical(mut self) -> Self {
        self.normalise();
        let programs: Vec<_> = self.clients.iter().map(Client::program).collect();
        self.renumber();
        let [one, other] = programs.as_slice() else { return self };
        if one != other {
            return self;
        }
        let mut exchanged = self.clone();
        exchanged.clients.reverse();
        exchanged.renumber();
        if hash(&exchanged) < hash(&self) { exchanged } else { self }
    }

    /// Sessions and attempts are numbered by what is left of them.
    fn renumber(&mut self) {
        let mut sessions = BTreeMap::new();
        for (c, client) in self.clients.iter().enumerate() {
            sessions.insert(client.session, self.budget.session(c as u64 + 1));
            client.foreign_session.map(|foreign_session| sessions.insert(foreign_session, 1_001 + c as u64));
        }
        let mut attempts: BTreeMap<(u128, u128), BTreeSet<u128>> = BTreeMap::new();
        let mut owners = Vec::new();
        self.each_guid(&mut |guid| {
            owners.push((*guid >> 64) as u64);
            attempts.entry((*guid >> 64, *guid >> 32 & 0xffff_ffff)).or_default().insert(*guid >> 16 & 0xffff);
        });
        self.each_session(&mut |session| owners.push(*session));
        for owner in owners {
            let next = self.budget.session(101 + sessions.len() as u64);
            sessions.entry(owner).or_insert(next);
        }
        self.each_session(&mut |session| *session = sessions[session]);
        let rank = |guid: u128| {
            let used = &attempts[&(guid >> 64, guid >> 32 & 0xffff_ffff)];
            let rank = used.range(..guid >> 16 & 0xffff).count() as u128;
            u128::from(sessions[&((guid >> 64) as u64)]) << 64
                | (guid & 0xffff_ffff_ffff_ffff & !0xffff_0000)
                | rank << 16
        };
        self.each_guid(&mut |guid| *guid = rank(*guid));
        for client in &mut self.clients {
            let nonce = u128::from(client.machine.nonce);
            for (op, one) in &mut client.machine.ops {
                // Those of a turn count with its caller.
                let used = |op: Op| attempts.get(&(nonce, u128::from(op))).map_or(0, BTreeSet::len);
                one.attempt = if is_turn(*op) {
                    0
                } else {
                    u16::try_from(used(*op).max(used(turn_of(*op)))).expect("they are few")
                };
            }
            client.machine.nonce = sessions[&client.machine.nonce];
            client.watches.sort_unstable();
            client.orphans.sort_unstable();
        }
    }

    fn each_session(&mut self, visit: &mut impl FnMut(&mut u64)) {
        for client in &mut self.clients {
            visit(&mut client.session);
            visit(&mut client.machine.id);
            client.orphans.iter_mut().chain(&mut client.foreign_session).for_each(&mut *visit);
            client.ghosts.iter_mut().for_each(|(_, owner)| visit(owner));
            let committed =
                client.flight.iter_mut().filter_map(|one| one.committed.as_mut()).map(|(_, outcome)| outcome);
            for outcome in committed.chain(client.mail.iter_mut().filter_map(Mail::outcome)) {
                if let Outcome::Created { owner: Some(owner), .. } | Outcome::Stat { owner } = outcome {
                    visit(owner);
                }
            }
        }
        self.log.nodes.iter_mut().for_each(|node| visit(&mut node.owner));
    }

    fn each_guid(&mut self, visit: &mut impl FnMut(&mut u128)) {
        self.log.nodes.iter_mut().for_each(|node| visit(&mut node.name.guid));
        for client in &mut self.clients {
            client.each_name(&mut |name| visit(&mut name.guid));
            for one in client.machine.ops.values_mut() {
                if let Node::Sending { guid } = &mut one.node {
                    visit(guid);
                }
                if let Change::Wanted { guid, .. } | Change::Sending { guid, .. } = &mut one.change {
                    visit(guid);
                }
            }
            client.machine.deletes.values_mut().filter_map(|one| one.replaced_by.as_mut()).for_each(&mut *visit);
            let asks = client.flight.iter_mut().map(|one| &mut one.ask);
            let asks = asks.chain(client.ghosts.iter_mut().map(|(ask, _)| ask));
            for ask in asks.chain(client.mail.iter_mut().filter_map(Mail::ask)) {
                if let Ask::Create { guid, .. } | Ask::Replace { guid, .. } = ask {
                    visit(guid);
                }
            }
        }
    }

    fn each_zxid(&mut self, visit: &mut impl FnMut(&mut Zxid)) {
        self.tokens.0.values_mut().for_each(&mut *visit);
        for Znode { created, deleted, .. } in &mut self.log.nodes {
            visit(created);
            visit(deleted);
        }
        for client in &mut self.clients {
            visit(&mut client.seen);
            visit(&mut client.closed);
            for (at, outcome) in client.flight.iter_mut().filter_map(|one| one.committed.as_mut()) {
                visit(at);
                forget_czxid(outcome);
            }
            client.mail.iter_mut().filter_map(Mail::outcome).for_each(forget_czxid);
            client.watches.iter_mut().for_each(|(_, at)| visit(at));
        }
    }

    /// A server with no read to answer applies at once what does not concern its client.
    pub(crate) fn skip(&mut self) {
        for c in 0..self.clients.len() {
            loop {
                let client = &self.clients[c];
                let at = client.seen + 1;
                let has_reads = client.flight.iter().any(|one| !one.ask.is_write());
                if !client.is_up || client.is_cut_off || client.seen >= self.log.end || has_reads {
                    break;
                }
                let is_answer = |(committed, _): &(Zxid, Outcome)| *committed == at;
                let concerns = client.closed == at
                    || client.flight.iter().any(|one| one.committed.as_ref().is_some_and(is_answer))
                    || !self.fired(c, client.seen, at).is_empty();
                if concerns {
                    break;
                }
                self.clients[c].seen = at;
            }
        }
    }
}

fn hash(world: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Nothing that is explored depends on the number of a transaction.
fn forget_czxid(outcome: &mut Outcome) {
    if let Outcome::Created { czxid, .. } = outcome {
        *czxid = 0;
    }
}

impl<T: Trust> Client<T> {
    fn each_name(&mut self, visit: &mut impl FnMut(&mut Name)) {
        for queue in self.machine.ops.values_mut().flat_map(|one| &mut one.queues) {
            queue.name.iter_mut().chain(&mut queue.was).for_each(&mut *visit);
            if let Position::Watching { predecessor, .. } = &mut queue.position {
                visit(predecessor);
            }
        }
        let leaving = std::mem::take(&mut self.machine.deletes);
        let visited = leaving.into_iter().map(|((_, path, mut name), one)| {
            visit(&mut name);
            (op_node((path, name)), one)
        });
        self.machine.deletes = visited.collect::<BTreeMap<_, _>>();
        let refused = std::mem::take(&mut self.machine.refused);
        self.machine.refused = refused
            .into_iter()
            .map(|(_, path, mut name)| {
                visit(&mut name);
                op_node((path, name))
            })
            .collect();
        let asks =
            self.flight.iter_mut().map(|one| &mut one.ask).chain(self.ghosts.iter_mut().map(|(ask, _)| ask));
        for ask in asks.chain(self.mail.iter_mut().filter_map(Mail::ask)) {
            match ask {
                Ask::Watch { name, .. } | Ask::WatchOwn { name, .. } | Ask::Replace { name, .. } => visit(name),
                Ask::Confirm { nodes, .. } | Ask::Delete { nodes, .. } => {
                    let mut visited = nodes.to_vec();
                    visited.iter_mut().for_each(|(_, name)| visit(name));
                    *nodes = visited.into();
                }
                _ => {}
            }
        }
        let committed =
            self.flight.iter_mut().filter_map(|one| one.committed.as_mut()).map(|(_, outcome)| outcome);
        for outcome in committed.chain(self.mail.iter_mut().filter_map(Mail::outcome)) {
            if let Outcome::Created { names, .. } | Outcome::Names { names, .. } = outcome {
                let mut visited = names.to_vec();
                visited.iter_mut().for_each(&mut *visit);
                *names = visited.into();
            }
        }
        let fired = self.mail.iter_mut().filter_map(|one| match one {
            Mail::Fired(watch) => Some(watch),
            Mail::Answer { .. } => None,
        });
        for watch in fired.chain(self.watches.iter_mut().map(|(watch, _)| watch)) {
            if let Watch::Predecessor(_, _, name) | Watch::Own(_, _, name) = watch {
                visit(name);
            }
        }
    }
}
