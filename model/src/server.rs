//! Owns the steps of the servers: requests are committed, applied and answered; connections come back.

use arrayvec::ArrayVec;

use crate::log::{End, Node, Zxid};
use crate::order::Kind;
use crate::rules::Rules;
use crate::state::{InFlight, Outcome, OwnWatch, Phase, Request, State};

/// A state that is being changed by a step.
pub(crate) struct World<'a> {
    pub(crate) rules: Rules,
    pub(crate) state: &'a mut State,
}

/// What an event is about: the task, and whether it is its own node.
type Event = (usize, bool);

impl World<'_> {
    /// Sends a request, if there is a connection. What is not sent is sent again when the connection is back.
    pub(crate) fn send(&mut self, s: usize, request: Request) {
        let session = &mut self.state.sessions[s];
        if session.connected {
            session.flight.push(InFlight { request, committed: None });
        }
    }

    /// The next write of a session reaches the end of the log.
    pub(crate) fn commit(&mut self, s: usize, refused: bool) {
        let next = self.state.sessions[s].flight.iter().position(|one| one.committed.is_none());
        let next = next.expect("only offered with a write to commit");
        let request = self.state.sessions[s].flight[next].request;
        let outcome = if refused { self.refuse(request) } else { self.execute(s, request) };
        let end = self.state.log.end;
        self.state.sessions[s].flight[next].committed = Some((end, outcome));
        // The leader has heard of the session.
        self.state.sessions[s].doubted = false;
        self.answer_writes(s);
    }

    fn refuse(&mut self, request: Request) -> Outcome {
        if let Request::Delete { node } = request
            && let Some(node) = self.state.log.node_mut(node)
        {
            node.undeletable = true;
        }
        Outcome::Refused
    }

    /// Applies a write to the end of the log.
    pub(crate) fn execute(&mut self, s: usize, request: Request) -> Outcome {
        let session = &self.state.sessions[s];
        let life = session.life;
        let new = |kind, number, task: u8, acquisition| Node {
            created: 0,
            deleted: 0,
            end: End::Stands,
            unseen: false,
            owner: s as u8,
            life,
            task,
            acquisition,
            kind,
            number,
            count: 0,
            path: 0,
            given_up: false,
            undeletable: false,
        };
        match request {
            Request::Create { task, acquisition } => {
                let kind = session.tasks[usize::from(task)].kind;
                let number = self.state.log.counter;
                self.state.log.create(new(kind, number, task, acquisition));
                Outcome::Done
            }
            Request::Delete { node } => match self.state.log.delete(node, End::Owner, false) {
                true => Outcome::Done,
                false => Outcome::NoNode,
            },
            Request::Downgrade { task, node } => {
                let Some(before) = self.state.log.node(node).filter(|node| node.stands()).copied() else {
                    return Outcome::NoNode;
                };
                let acquisition = session.tasks[usize::from(task)].acquisition;
                // One transaction: the writer goes with the number under which the reader comes.
                let created = self.state.log.create(new(Kind::Read, before.number, task, acquisition));
                let writer = self.state.log.node_mut(node).expect("it stands");
                (writer.deleted, writer.end) = (created, End::Owner);
                Outcome::Done
            }
            _ => Outcome::Done,
        }
    }

    /// The server applies the next transaction: its events come first, then the answers to our own writes.
    pub(crate) fn advance(&mut self, s: usize, backwards: bool) {
        let session = &mut self.state.sessions[s];
        session.seen += 1;
        let at = session.seen;
        let over = session.closed == at;
        // The end of a session is reported behind the deletion of its nodes.
        self.apply_events(s, at, backwards);
        if over {
            self.session_over(s);
        }
        self.answer_writes(s);
    }

    fn apply_events(&mut self, s: usize, at: Zxid, backwards: bool) {
        if self.state.log.remakes.iter().any(|remake| remake.at == at && !remake.unseen) {
            self.path_changed(s);
        }
        let mut events = self.state.events(s, at);
        if backwards {
            events.reverse();
        }
        events.into_iter().for_each(|event| self.deliver(s, event));
    }

    fn deliver(&mut self, s: usize, (t, own): Event) {
        if own {
            self.own_node_gone(s, t);
        } else if self.state.sessions[s].tasks[t].phase == Phase::Waiting {
            self.predecessor_gone(s, t);
        }
    }

    /// Answers the writes at the head of the connection that the server has applied.
    fn answer_writes(&mut self, s: usize) {
        while let Some(one) = self.state.sessions[s].flight.first().copied()
            && let Some((at, outcome)) = one.committed
            && at <= self.state.sessions[s].seen
        {
            self.state.sessions[s].flight.remove(0);
            // A committed write proves the session, unless its trust has ended since.
            let session = &mut self.state.sessions[s];
            session.trusted |= !session.doubted;
            self.written(s, one.request, at, outcome);
        }
    }

    /// Answers the read at the head of the connection.
    pub(crate) fn answer(&mut self, s: usize) {
        let one = self.state.sessions[s].flight.remove(0);
        self.read(s, one.request);
        self.answer_writes(s);
    }

    /// The connection comes back, to a server that has applied the log up to `to`. The client sets its watches again first;
    /// their events come at once, in no order.
    pub(crate) fn reconnect(&mut self, s: usize, to: Zxid, backwards: bool) {
        let session = &mut self.state.sessions[s];
        session.connected = true;
        if session.closed != 0 {
            self.session_over(s);
            return;
        }
        let from = session.seen;
        session.seen = to;
        let phases: ArrayVec<Phase, 3> = session.tasks.iter().map(|task| task.phase).collect();
        let mut steps: ArrayVec<Zxid, 16> = (from + 1..=to).collect();
        if backwards {
            steps.reverse();
        }
        // A client that sends its requests first hears of the past when they are answered: too late for the watch on the path.
        let session = &self.state.sessions[s];
        let (arm, last) = (session.arm, session.last);
        steps.iter().for_each(|at| self.apply_events(s, *at, backwards));
        if !self.rules.watches_first {
            let session = &mut self.state.sessions[s];
            (session.arm, session.last) = (arm, last);
        }
        for (t, before) in phases.into_iter().enumerate() {
            if self.state.sessions[s].tasks[t].phase == before {
                self.resume(s, t);
            }
            let task = self.state.sessions[s].tasks[t];
            let asked = Request::WatchOwn { task: t as u8, acquisition: task.acquisition, node: task.own };
            let asks = self.state.sessions[s].flight.iter().any(|one| one.request == asked);
            if task.own_watch == OwnWatch::UnderWay && !asks {
                self.watch_own(s, t);
            }
        }
        self.resend_deletes(s);
    }
}

impl State {
    /// The events that a transaction has for a session.
    pub(crate) fn events(&self, s: usize, at: Zxid) -> ArrayVec<Event, 6> {
        let session = &self.sessions[s];
        let mut events = ArrayVec::new();
        for node in self.log.nodes.iter().filter(|node| node.deleted == at && !node.unseen) {
            for (index, task) in session.tasks.iter().enumerate() {
                if task.own == node.created && task.own_watch == OwnWatch::Armed {
                    events.push((index, true));
                }
                if task.predecessor == node.created && task.phase == Phase::Waiting {
                    events.push((index, false));
                }
            }
        }
        events
    }
}
