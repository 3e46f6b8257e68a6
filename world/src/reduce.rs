//! Brings states with the same future together: numbers and transactions are renumbered by rank, and servers apply at once what
//! concerns no request or watch of their clients.

use std::collections::BTreeMap;

use machine::{Ask, Name, Outcome, Place, Stage, Trust, Watch};

use crate::client::Client;
use crate::server::{Znode, Zxid};
use crate::world::World;

impl<T: Trust> World<T> {
    pub(crate) fn normalise(&mut self) {
        let mut named = Vec::new();
        for client in &mut self.clients {
            client.watches.sort_unstable();
            client.each_name(&mut |name| named.push(*name));
        }
        let oldest = self.clients.iter().map(|client| client.seen).min().unwrap_or_default();
        let watched: Vec<Zxid> =
            self.clients.iter().flat_map(|client| client.watches.iter().map(|(_, created)| *created)).collect();
        self.log.nodes.retain(|node| {
            node.stands() || node.deleted > oldest || named.contains(&node.name) || watched.contains(&node.created)
        });
        let mut used: u128 = 1 | 1 << self.log.end;
        self.each_zxid(&mut |at| used |= 1 << *at);
        let rank = |at: Zxid| Zxid::try_from((used & ((1u128 << at) - 1)).count_ones()).expect("they are few");
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

    fn each_zxid(&mut self, visit: &mut impl FnMut(&mut Zxid)) {
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
            client.late.iter_mut().for_each(|(_, _, outcome)| forget_czxid(outcome));
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
                let is_watched = |node: &Znode| {
                    node.deleted == at && client.watches.iter().any(|(_, created)| *created == node.created)
                };
                let concerns = client.closed == at
                    || client.flight.iter().any(|one| one.committed.as_ref().is_some_and(is_answer))
                    || self.log.nodes.iter().any(is_watched);
                if concerns {
                    break;
                }
                self.clients[c].seen = at;
            }
        }
    }
}

/// Nothing that is explored depends on the number of a transaction.
fn forget_czxid(outcome: &mut Outcome) {
    if let Outcome::Created { czxid, .. } = outcome {
        *czxid = 0;
    }
}

impl<T: Trust> Client<T> {
    fn each_name(&mut self, visit: &mut impl FnMut(&mut Name)) {
        for one in self.machine.ops.values_mut() {
            if let machine::Node::There { name, .. } = &mut one.node {
                visit(name);
            }
            if let Stage::Queuing(Place::Following { predecessor, .. } | Place::Watching { predecessor, .. }) =
                &mut one.stage
            {
                visit(predecessor);
            }
        }
        let leaving = std::mem::take(&mut self.machine.leaving);
        let visited = leaving.into_iter().map(|((path, mut name), one)| {
            visit(&mut name);
            ((path, name), one)
        });
        self.machine.leaving = visited.collect::<BTreeMap<_, _>>();
        let asks =
            self.flight.iter_mut().map(|one| &mut one.ask).chain(self.ghosts.iter_mut().map(|(ask, _)| ask));
        for ask in asks.chain(self.late.iter_mut().map(|(ask, ..)| ask)) {
            if let Ask::Owner { name, .. }
            | Ask::Prove { name, .. }
            | Ask::Watch { name, .. }
            | Ask::WatchOwn { name, .. }
            | Ask::Delete { name, .. }
            | Ask::Replace { name, .. } = ask
            {
                visit(name);
            }
        }
        let committed =
            self.flight.iter_mut().filter_map(|one| one.committed.as_mut()).map(|(_, outcome)| outcome);
        for outcome in committed.chain(self.late.iter_mut().map(|(.., outcome)| outcome)) {
            match outcome {
                Outcome::Created { name, .. } => visit(name),
                Outcome::Names { names, .. } => {
                    let mut visited = names.to_vec();
                    visited.iter_mut().for_each(&mut *visit);
                    *names = visited.into();
                }
                _ => {}
            }
        }
        for (Watch::Predecessor(_, name) | Watch::Own(_, name), _) in &mut self.watches {
            visit(name);
        }
    }
}
