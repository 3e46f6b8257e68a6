//! Owns [`Queue`]: the model that the checker explores, a scenario under rules.

use stateright::{Model, Property};

use crate::log::Zxid;
use crate::order::Kind;
use crate::properties;
use crate::rules::Rules;
use crate::scenario::Scenario;
use crate::server::World;
use crate::state::{Phase, Request, State};

/// A step. Numbers are of sessions and their tasks, or of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Start(usize, usize),
    Release(usize, usize),
    Cancel(usize, usize),
    Downgrade(usize, usize),
    EnterMemory(usize, usize),
    Arm(usize, usize),
    Commit(usize),
    Refuse(usize),
    Advance { session: usize, backwards: bool },
    Answer(usize),
    Cut(usize),
    Reconnect { session: usize, to: Zxid, backwards: bool },
    LateWrite { session: usize, applied: bool },
    SecondSearch(usize),
    EndTrust(usize),
    Expire(usize),
    CloseByOther(usize),
    Replace(usize),
    ExpireOrphan(usize),
    DeleteByHand { node: Zxid, unseen: bool },
    Remake { unseen: bool },
    CreateByHand { number: u8 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) scenario: Scenario,
    pub(crate) rules: Rules,
    /// Keeps numbers as they are, so that a path can be read; at the price of more states.
    pub(crate) readable: bool,
}

impl Queue {
    fn connection_actions(&self, state: &State, s: usize, actions: &mut Vec<Action>) {
        let (session, budget, end) = (&state.sessions[s], state.budget, state.log.end);
        if !session.connected {
            let last = if session.closed == 0 { end } else { session.seen };
            for to in session.seen..=last {
                actions.push(Action::Reconnect { session: s, to, backwards: false });
                if to > session.seen + 1 {
                    actions.push(Action::Reconnect { session: s, to, backwards: true });
                }
            }
            let searching = session.tasks.iter().any(|task| task.phase == Phase::Searching);
            if budget.replaced > 0 && searching && session.closed == 0 {
                actions.push(Action::Replace(s));
            }
            return;
        }
        if session.closed == 0
            && let Some(next) = session.flight.iter().find(|one| one.committed.is_none())
            && next.request.is_write()
        {
            actions.push(Action::Commit(s));
            if budget.refusals > 0 && matches!(next.request, Request::Delete { .. }) {
                actions.push(Action::Refuse(s));
            }
        }
        if session.flight.first().is_some_and(|one| !one.request.is_write()) {
            actions.push(Action::Answer(s));
        }
        if session.seen < end {
            actions.push(Action::Advance { session: s, backwards: false });
            if state.events(s, session.seen + 1).len() > 1 {
                actions.push(Action::Advance { session: s, backwards: true });
            }
        }
        if !session.late.is_empty() && (session.ghosts.is_empty() || !self.rules.second_search) {
            actions.push(Action::SecondSearch(s));
        }
        // A connection that carries nothing may break, too, but nobody would notice.
        let busy = session.tasks.iter().any(|task| task.phase != Phase::Idle) || session.arm.is_some();
        if budget.cuts > 0 && (busy || !session.flight.is_empty()) {
            actions.push(Action::Cut(s));
        }
    }

    fn session_actions(&self, state: &State, s: usize, actions: &mut Vec<Action>) {
        let (session, budget) = (&state.sessions[s], state.budget);
        if !session.ghosts.is_empty() {
            actions.push(Action::LateWrite { session: s, applied: true });
            actions.push(Action::LateWrite { session: s, applied: false });
        }
        let busy = session.tasks.iter().any(|task| task.phase != Phase::Idle);
        if session.closed == 0 {
            if budget.expiries > 0 && session.trusted && busy {
                actions.push(Action::EndTrust(s));
            }
            if session.doubted {
                actions.push(Action::Expire(s));
            }
            if budget.closes > 0 && busy {
                actions.push(Action::CloseByOther(s));
            }
        }
        if session.orphan {
            actions.push(Action::ExpireOrphan(s));
        }
    }

    fn task_actions(&self, state: &State, s: usize, t: usize, actions: &mut Vec<Action>) {
        let (session, budget) = (&state.sessions[s], state.budget);
        let task = session.tasks[t];
        let changing = session.flight.iter().any(|one| matches!(one.request, Request::Downgrade { .. }));
        match task.phase {
            Phase::Idle if task.left > 0 && session.connected => actions.push(Action::Start(s, t)),
            Phase::Holding if !changing => {
                actions.push(Action::Release(s, t));
                let arming = session.flight.iter().any(|one| matches!(one.request, Request::WatchPath { .. }));
                let unarmed = self.rules.undisturbed && session.arm.is_none() && !arming;
                if unarmed && session.connected && task.kind == Kind::Lock && task.left > 0 {
                    actions.push(Action::Arm(s, t));
                }
                if budget.downgrades > 0 && session.connected && task.kind == Kind::Write {
                    actions.push(Action::Downgrade(s, t));
                }
            }
            phase if phase.waits() && budget.cancels > 0 => actions.push(Action::Cancel(s, t)),
            _ => {}
        }
        if task.phase == Phase::Deciding {
            actions.push(Action::EnterMemory(s, t));
        }
    }

    fn operator_actions(state: &State, actions: &mut Vec<Action>) {
        let budget = state.budget;
        let both = |budget: u8| if budget > 0 { &[false, true][..] } else { &[false][..] };
        if budget.hand > 0 {
            for node in state.log.nodes.iter().filter(|node| node.stands()) {
                let delete = |&unseen: &bool| Action::DeleteByHand { node: node.created, unseen };
                actions.extend(both(budget.unseen).iter().map(delete));
            }
        }
        if budget.remakes > 0 && state.log.is_empty() && state.log.counter > 0 {
            actions.extend(both(budget.unseen).iter().map(|&unseen| Action::Remake { unseen }));
        }
        if budget.creates > 0 {
            let taken = |number| state.log.nodes.iter().any(|node| node.stands() && node.number == number);
            let free = (0..=state.log.counter).filter(|number| !taken(*number));
            actions.extend(free.map(|number| Action::CreateByHand { number }));
        }
    }
}

impl Model for Queue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.scenario)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (s, session) in state.sessions.iter().enumerate() {
            self.connection_actions(state, s, actions);
            self.session_actions(state, s, actions);
            (0..session.tasks.len()).for_each(|t| self.task_actions(state, s, t, actions));
        }
        Self::operator_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let mut world = World { rules: self.rules, state: &mut next };
        match action {
            Action::Start(s, t) => world.start(s, t),
            Action::Release(s, t) => world.release(s, t),
            Action::Cancel(s, t) => {
                world.state.budget.cancels -= 1;
                world.leave(s, t);
            }
            Action::Downgrade(s, t) => world.downgrade(s, t),
            Action::EnterMemory(s, t) => world.enter_memory(s, t),
            Action::Arm(s, t) => world.arm(s, t),
            Action::Commit(s) => world.commit(s, false),
            Action::Refuse(s) => {
                world.state.budget.refusals -= 1;
                world.commit(s, true);
            }
            Action::Advance { session, backwards } => world.advance(session, backwards),
            Action::Answer(s) => world.answer(s),
            Action::Cut(s) => world.cut(s),
            Action::Reconnect { session, to, backwards } => world.reconnect(session, to, backwards),
            Action::LateWrite { session, applied } => world.late_write(session, applied),
            Action::SecondSearch(s) => world.second_search(s),
            Action::EndTrust(s) => world.end_trust(s),
            Action::Expire(s) => world.expire(s),
            Action::CloseByOther(s) => {
                world.state.budget.closes -= 1;
                world.close_by_other(s);
            }
            Action::Replace(s) => world.replace(s),
            Action::ExpireOrphan(s) => world.expire_orphan(s),
            Action::DeleteByHand { node, unseen } => world.delete_by_hand(node, unseen),
            Action::Remake { unseen } => world.remake(unseen),
            Action::CreateByHand { number } => world.create_by_hand(number),
        }
        next.skip_what_concerns_nobody();
        if !self.readable {
            next.normalise(self.rules.undisturbed, self.scenario.budget.creates > 0);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
