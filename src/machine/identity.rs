//! Whose connection it is. A server may answer a reconnect with another session, and the client takes that for its own without a
//! word (ClickHouse Keeper does so). The nodes then belong to a session that nobody keeps alive, while every request is answered.

use crate::machine::{Acquisition, Action, Ask, Machine, Moment, Node, Nodes, Outcome, Trust};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The connection belongs to our session.
    Known,
    /// There is no node to ask by, and nothing to lose. Answers are no proof for a node that is known later.
    Free,
    /// `nodes`: how many of ours are looked for at once. `lost`: how many questions in a row had no answer.
    Unknown { nodes: usize, is_asked: bool, lost: u8 },
}

/// This number of questions in a row that are lost counts as the answer: a server before 3.6 closes the connection on them.
const LOST_QUESTIONS: u8 = 11;

const NOT_ASKED: Identity = Identity::Unknown { nodes: 1, is_asked: false, lost: 0 };

impl<T: Trust> Machine<T> {
    /// A connection was made again. Nothing counts as trust before it is known to be ours.
    pub(crate) fn doubt_identity(&mut self) {
        self.identity = match self.identity {
            Identity::Known | Identity::Free => NOT_ASKED,
            // A question of the last connection has its answer first, so that none is asked beyond the last.
            Identity::Unknown { is_asked, lost, .. } => Identity::Unknown { nodes: 1, is_asked, lost },
        };
        self.ops.values_mut().for_each(|one| one.is_missed = false);
        self.ask_identity();
    }

    /// It asks by nodes that no question has missed yet. If there are none, a quorum is being asked for the others.
    pub(crate) fn ask_identity(&mut self) {
        let (is_up, has_nodes) = (self.is_up, self.ops.values().any(|one| one.node == Node::There));
        if self.identity == Identity::Free && has_nodes {
            self.identity = NOT_ASKED;
        }
        if let Identity::Unknown { nodes, is_asked: is_asked @ false, .. } = &mut self.identity
            && is_up
        {
            let others = self.ops.values().filter(|one| one.node == Node::There && !one.is_missed);
            let looked_for: Nodes = others.flat_map(|one| one.nodes().to_vec()).take(*nodes).collect();
            if !looked_for.is_empty() || !has_nodes {
                *is_asked = true;
                self.send(Ask::Identify { nodes: looked_for });
            }
        }
    }

    /// What an answer shows of the connection; false if it is one of another session.
    pub(crate) fn is_of_session(&mut self, now: Moment, ask: &Ask, is_stale: bool, outcome: &Outcome) -> bool {
        match (ask, outcome) {
            (_, Outcome::Created { owner: Some(owner), .. }) if *owner != self.id => self.replace(now),
            (_, Outcome::Created { owner: Some(_), .. }) if !is_stale => self.identity = Identity::Known,
            (Ask::Identify { nodes }, _) => self.identified(now, nodes, is_stale, outcome),
            _ => {}
        }
        !matches!(self.out.last(), Some(Action::Replace))
    }

    fn identified(&mut self, now: Moment, nodes: &Nodes, is_stale: bool, outcome: &Outcome) {
        let Identity::Unknown { nodes: count, is_asked, lost } = &mut self.identity else { return };
        match outcome {
            Outcome::Unknown => {
                (*is_asked, *lost) = (false, *lost + 1);
                if *lost >= LOST_QUESTIONS { self.replace(now) } else { self.pause(now) }
            }
            _ if is_stale => {
                *is_asked = false;
                self.ask_identity();
            }
            Outcome::Done => {
                self.identity = if nodes.is_empty() { Identity::Free } else { Identity::Known };
                self.ask_identity();
            }
            // Perhaps they were deleted by hand: a quorum knows. Others are asked for, twice as many each time.
            Outcome::NoNode => {
                (*count, *is_asked, *lost) = (count.saturating_mul(2), false, 0);
                self.missed(nodes);
                self.ask_identity();
            }
            _ => self.replace(now),
        }
    }

    /// These nodes were not found.
    fn missed(&mut self, nodes: &Nodes) {
        let is_one =
            |one: &Acquisition| one.node == Node::There && one.nodes().iter().any(|node| nodes.contains(node));
        for (op, one) in self.ops.iter_mut().filter(|(_, one)| is_one(one)) {
            one.is_missed = true;
            self.out.push(Action::Send(Ask::Prove { op: *op, nodes: one.nodes() }));
        }
    }

    fn replace(&mut self, now: Moment) {
        self.expired(now);
        self.out.push(Action::Replace);
    }
}
