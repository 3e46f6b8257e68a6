//! Owns the properties: what is checked of every state, and in the steps that grant and release.

use arrayvec::ArrayVec;
use stateright::Property;

use crate::log::{End, NOBODY, Node, Zxid};
use crate::model::Queue;
use crate::order::Kind;
use crate::server::World;
use crate::state::{Phase, State, Task};

/// Two holds exclude each other, and both nodes stand or went with their owners' will. A hold whose node was deleted by hand is
/// left out from that transaction on: it learns of it by its own watch or at its release, and till then two may hold.
pub(crate) const EXCLUSION: &str = "exclusion";
/// Nobody is granted while an older waiter that excludes it stands.
pub(crate) const ORDER: &str = "order";
/// At a grant, the node is there on the server that sent the deciding answer or event.
pub(crate) const STANDING: &str = "a grant has its node";
/// A release that returns Ok: our delete was executed; or it was sent before, the node is gone and the session lives.
pub(crate) const HONEST: &str = "honest release";
/// When nothing is under way, nobody waits whom nobody excludes.
pub(crate) const AWAKE: &str = "no waiter sleeps";
/// When nothing is under way and nobody waits or holds, no node is left.
pub(crate) const NOTHING_LEFT: &str = "nothing left";

pub(crate) fn all() -> Vec<Property<Queue>> {
    vec![
        Property::always(EXCLUSION, |_, state: &State| !state.holds_twice()),
        Property::always(ORDER, |_, state: &State| !state.broken.order),
        Property::always(STANDING, |_, state: &State| !state.broken.standing),
        Property::always(HONEST, |_, state: &State| !state.broken.honest),
        Property::always(AWAKE, |model: &Queue, state: &State| !model.scenario.waits_end || !state.sleeps()),
        Property::always(NOTHING_LEFT, |model: &Queue, state: &State| {
            !model.scenario.waits_end || !state.has_left()
        }),
    ]
}

impl State {
    fn holds_twice(&self) -> bool {
        let holds = self.tasks().filter(|(_, task)| task.phase == Phase::Holding);
        let counts = |task: &Task| self.log.node(task.own).is_some_and(|node| node.end != End::Hand);
        let kinds: ArrayVec<Kind, 9> = holds.filter(|(_, task)| counts(task)).map(|(_, task)| task.kind).collect();
        kinds.iter().enumerate().any(|(index, one)| kinds[index + 1..].iter().any(|other| one.waits_for(*other)))
    }

    /// Whether nothing happens any more unless a user or a fault begins it.
    fn is_quiet(&self) -> bool {
        self.sessions.iter().all(|session| {
            session.connected
                && session.flight.is_empty()
                && session.ghosts.is_empty()
                && session.late.is_empty()
                && session.seen == self.log.end
                && !session.orphan
                && session.tasks.iter().all(|task| task.phase != Phase::Deciding)
        })
    }

    fn sleeps(&self) -> bool {
        if !self.is_quiet() || !self.tasks().any(|(_, task)| task.phase.waits()) {
            return false;
        }
        let foreign = |node: &Node| node.owner == NOBODY && node.stands();
        let held =
            self.tasks().any(|(_, task)| task.phase == Phase::Holding) || self.log.nodes.iter().any(foreign);
        let free = |task: &Task| {
            let own = self.log.node(task.own).filter(|own| own.stands());
            own.is_some_and(|own| !self.log.nodes.iter().any(|node| node.stands() && node.excludes(own)))
        };
        !held || self.tasks().any(|(_, task)| task.phase.waits() && free(task))
    }

    fn has_left(&self) -> bool {
        self.is_quiet()
            && self.tasks().all(|(_, task)| task.phase == Phase::Idle)
            && self.log.nodes.iter().any(|node| node.stands() && node.owner != NOBODY)
    }
}

impl Node {
    /// Whether it is ahead of another node, which waits for it.
    fn excludes(&self, other: &Self) -> bool {
        let ahead = (self.path, self.number) < (other.path, other.number);
        ahead && other.kind.waits_for(self.kind)
    }
}

impl World<'_> {
    /// Checks the answer or the event on which a grant rests.
    pub(crate) fn check_standing(&mut self, s: usize, t: usize) {
        let session = &self.state.sessions[s];
        let own = self.state.log.node(session.tasks[t].own);
        self.state.broken.standing |= !own.is_some_and(|own| own.stands_at(session.seen));
    }

    /// Checks a grant, when the task holds already.
    pub(crate) fn check_grant(&mut self, s: usize, t: usize) {
        let session = &self.state.sessions[s];
        let Some(own) = self.state.log.node(session.tasks[t].own) else {
            return;
        };
        let waits = |node: &Node| {
            if node.owner == NOBODY {
                // One that was put in after what the server shows is nobody's turn.
                return node.created <= session.seen;
            }
            let owner = &self.state.sessions[usize::from(node.owner)];
            let task = owner.tasks[usize::from(node.task)];
            let current = owner.life == node.life && task.acquisition == node.acquisition;
            current && task.phase.waits() && [0, node.created].contains(&task.own)
        };
        let mut nodes = self.state.log.nodes.iter().filter(|node| node.stands() && node.excludes(own));
        if own.stands() && nodes.any(waits) {
            self.state.broken.order = true;
        }
    }

    /// Checks a release that returns Ok.
    pub(crate) fn check_release(&mut self, node: Zxid, again: bool) {
        let end = self.state.log.node(node).map(|node| node.end);
        self.state.broken.honest |= match end {
            Some(End::Stands | End::Session) => true,
            Some(End::Hand) => !again,
            Some(End::Owner) | None => false,
        };
    }
}
