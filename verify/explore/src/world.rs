//! Servers, clients and faults as one state that steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{Client, Flight, Mail, User, watch_of};
use crate::machine::{
    Acquisition, Action, Admission, Ask, Change, Connection, End, Event, HoldState, Kind, Ledger, Life, Loss,
    Moment, Name, Node, Op, Outcome, Path, Phase, Queue, Timer, Trust, Untracked, Watch, caller_of, named_nonce,
};
use crate::server::{By, Log, Znode, Zxid};
use crate::trust::Bit;

/// How the world takes trust away.
pub(crate) trait Doubt: Trust {
    fn doubt(&mut self, is_doubted: bool);
    fn is_doubted(&self) -> bool;
}

impl Doubt for Bit {
    fn doubt(&mut self, is_doubted: bool) {
        self.is_doubted = is_doubted;
        self.is_trusted &= !is_doubted;
    }

    fn is_doubted(&self) -> bool {
        self.is_doubted
    }
}

impl Doubt for Ledger {
    fn doubt(&mut self, _: bool) {}

    fn is_doubted(&self) -> bool {
        false
    }
}

/// How many faults of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) cuts: u16,
    /// Sessions that expire.
    pub(crate) expiries: u16,
    /// Sessions that the client gives up before the servers do.
    pub(crate) early: u16,
    /// Nodes that are deleted by hand.
    pub(crate) hand: u16,
    /// Handles that are dropped.
    pub(crate) drops: u16,
    /// Looks of the clock at holds, after which they are watched.
    pub(crate) ticks: u16,
    /// fallback polls.
    pub(crate) looks: u16,
    /// Reconnects that another session answers.
    pub(crate) foreign_sessions: u16,
    /// Sessions that are drained or closed.
    pub(crate) closes: u16,
    /// Holds that last as long as they may.
    pub(crate) limits: u16,
    /// Sessions that learn that their semaphores have one permit more.
    pub(crate) raises: u16,
    /// Clients that stand still.
    pub(crate) stalls: u16,
    /// Whether all sessions have one unique name.
    pub(crate) is_named: bool,
}

impl Budget {
    /// The session with this number, which is also its nonce.
    pub(crate) fn session(&self, number: u64) -> u64 {
        if self.is_named { named_nonce(0, number) } else { number }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World<T> {
    pub(crate) log: Log,
    pub(crate) clients: Vec<Client<T>>,
    pub(crate) budget: Budget,
    was_cut: bool,
    pub(crate) now: Moment,
    /// Time passes: a simulation, and no exploration.
    is_timed: bool,
    timeout: u64,
    pub(crate) broken: Option<&'static str>,
    /// The most permits that a semaphore has had.
    most_permits: u32,
    pub(crate) grants: Untracked<u32>,
    /// The transactions of the newest grants in each path, where time passes: of readers, and of those that exclude readers.
    pub(crate) tokens: Untracked<BTreeMap<(Path, bool), Zxid>>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Start(usize, usize),
    Release(usize, usize),
    Downgrade(usize, usize),
    Drop(usize, usize),
    Limit(usize, usize),
    /// Somebody wants to know when a hold is lost.
    Attend(usize, usize),
    /// A user learns that its semaphore has one permit more.
    Raise(usize, usize),
    Drain(usize),
    Close(usize),
    /// The quorum commits the client's next write.
    Commit(usize),
    /// Its server answers its next read.
    Answer(usize),
    /// Somebody reads what has come.
    Read(usize, Option<Op>),
    /// The driver looks at the connection.
    Look(usize),
    /// Its server applies the next transaction.
    Advance(usize),
    /// `answered`: what the server could answer had come, and was not read.
    Cut {
        client: usize,
        answered: bool,
    },
    Up {
        client: usize,
        to: Zxid,
        backwards: bool,
        foreign_session: bool,
    },
    /// A request of a lost connection is applied, or is not.
    Ghost(usize, bool),
    Timer(usize, Timer),
    EndTrust(usize),
    /// The leader takes the session to end it.
    Take(usize),
    Expire(usize),
    Early(usize),
    /// The session that was given up ends.
    Orphan(usize, u64),
    Hand(usize),
    CutOff(usize),
    Heal(usize),
    /// A client stands still, perhaps with its machine.
    Stall {
        client: usize,
        sleeps: bool,
    },
    Wake(usize),
}

impl<T: Doubt> World<T> {
    pub(crate) fn new(
        users: &[Vec<User>],
        budget: Budget,
        is_timed: bool,
        timeout: u64,
        trust: impl Fn() -> T,
    ) -> Self {
        let client = |(index, users): (usize, &Vec<User>)| {
            Client::new(budget.session(index as u64 + 1), timeout, trust(), users.clone())
        };
        Self {
            log: Log::default(),
            clients: users.iter().enumerate().map(client).collect(),
            budget,
            was_cut: false,
            now: Moment(1),
            is_timed,
            timeout,
            broken: None,
            most_permits: users.iter().flatten().filter_map(|user| user.spec.permits()).max().unwrap_or_default(),
            grants: Untracked(0),
            tokens: Untracked::default(),
        }
    }

    /// What can happen next.
    pub(crate) fn acts(&self, acts: &mut Vec<Act>) {
        for c in 0..self.clients.len() {
            let client = &self.clients[c];
            acts.extend(client.orphans.iter().map(|session| Act::Orphan(c, *session)));
            if !client.ghosts.is_empty() {
                acts.extend([Act::Ghost(c, true), Act::Ghost(c, false)]);
            }
            if client.machine.life == Life::Over {
                continue;
            }
            self.acts_of_servers(c, acts);
            match client.alive.wakes_at() {
                None => {
                    self.acts_of_users(c, acts);
                    self.acts_of_connection(c, acts);
                    self.acts_of_session(c, acts);
                }
                Some(at) if at <= self.now => acts.push(Act::Wake(c)),
                Some(_) => {}
            }
        }
        if self.budget.hand > 0 {
            let stands = self.log.nodes.iter().enumerate().filter(|(_, node)| node.stands());
            acts.extend(stands.map(|(n, _)| Act::Hand(n)));
        }
    }

    fn acts_of_users(&self, c: usize, acts: &mut Vec<Act>) {
        let client = &self.clients[c];
        for (u, user) in client.users.iter().enumerate() {
            let one = user.op.and_then(|op| client.machine.op(op));
            if user.op.is_none() && user.left > 0 {
                acts.push(Act::Start(c, u));
            }
            if one.is_some_and(|one| one.phase == Phase::Held) {
                if user.done_at <= self.now {
                    acts.push(Act::Release(c, u));
                }
                if self.budget.limits > 0 {
                    acts.extend([Act::Limit(c, u), Act::Attend(c, u)]);
                }
            }
            let is_writer = |one: &Acquisition| {
                one.phase == Phase::Held
                    && one.change == Change::None
                    && one.queues.first().is_some_and(|queue| queue.kind == Kind::Write)
            };
            if user.downgrades && one.is_some_and(is_writer) {
                acts.push(Act::Downgrade(c, u));
            }
            if self.budget.drops > 0 && user.op.is_some() {
                acts.push(Act::Drop(c, u));
            }
            if self.budget.raises > 0 && user.spec.permits().is_some() {
                acts.push(Act::Raise(c, u));
            }
        }
    }

    fn acts_of_servers(&self, c: usize, acts: &mut Vec<Act>) {
        let client = &self.clients[c];
        if client.is_up {
            let next = client.flight.iter().find(|one| one.committed.is_none());
            if client.is_served() && !client.is_cut_off && next.is_some_and(|next| next.ask.is_write()) {
                acts.push(Act::Commit(c));
            }
            let is_read = client.flight.front().is_some_and(|one| !one.ask.is_write());
            if is_read && !self.is_behind(c) {
                acts.push(Act::Answer(c));
            }
            // Only a client that runs learns that its session is over.
            let is_last = client.closed == client.seen + 1 && client.alive.is_stalled();
            if client.seen < self.log.end && !client.is_cut_off && !is_last {
                acts.push(Act::Advance(c));
            }
            if self.budget.cuts > 0 && client.is_busy() {
                acts.push(Act::Cut { client: c, answered: false });
                if self.answered(c).next().is_some() {
                    acts.push(Act::Cut { client: c, answered: true });
                }
                if self.is_timed && !client.is_cut_off {
                    acts.push(Act::CutOff(c));
                }
            }
            if client.is_cut_off && client.alive.lasts_until <= self.now {
                acts.push(Act::Heal(c));
            }
        }
        if client.closed == 0 {
            if self.is_timed {
                if client.alive.may_expire(self.now) {
                    acts.push(Act::Expire(c));
                }
                if client.alive.may_be_taken(self.now) {
                    acts.push(Act::Take(c));
                }
            } else if self.budget.expiries > 0 {
                if client.machine.trust.is_doubted() && client.machine.trust.until() == Moment(0) {
                    acts.push(Act::Expire(c));
                } else if client.is_busy() {
                    acts.push(Act::EndTrust(c));
                }
            }
        }
    }

    fn acts_of_connection(&self, c: usize, acts: &mut Vec<Act>) {
        let client = &self.clients[c];
        if !client.is_up && client.alive.lasts_until <= self.now {
            let last = if client.closed == 0 { self.log.end } else { client.seen };
            for to in client.seen..=last {
                let up = |backwards, foreign_session| Act::Up { client: c, to, backwards, foreign_session };
                acts.push(up(false, false));
                if self.fired(c, client.seen, to).len() > 1 {
                    acts.push(up(true, false));
                }
                if self.budget.foreign_sessions > 0 && client.closed == 0 {
                    acts.push(up(false, true));
                }
            }
            if self.budget.early > 0 && client.closed == 0 && client.is_busy() {
                acts.push(Act::Early(c));
            }
        }
        acts.extend(client.readers(self.is_timed).into_iter().map(|op| Act::Read(c, op)));
        if client.is_news {
            acts.push(Act::Look(c));
        }
    }

    fn acts_of_session(&self, c: usize, acts: &mut Vec<Act>) {
        let client = &self.clients[c];
        if !self.is_timed {
            let is_young = |one: &Acquisition| one.phase == Phase::Held && one.age < 2;
            if self.budget.ticks > 0 && client.machine.ops().any(|(_, one)| is_young(one)) {
                acts.push(Act::Timer(c, Timer::Tick));
            }
            if self.budget.looks > 0 && client.is_busy() {
                acts.push(Act::Timer(c, Timer::FallbackPoll));
            }
        }
        for (timer, at) in &client.machine.timers.set {
            let may = match timer {
                // A server that takes longer to apply a request of a lost connection is assumed away.
                Timer::SearchAgain(_) => client.ghosts.is_empty(),
                Timer::TrustEnds | Timer::Resume | Timer::Confirm | Timer::CloseBy => true,
                Timer::Stall(_) | Timer::Turn(_) => true,
                Timer::Tick | Timer::Renew | Timer::ListOwn | Timer::FallbackPoll => self.is_timed,
            };
            if may && (!self.is_timed || *at <= self.now) {
                acts.push(Act::Timer(c, *timer));
            }
        }
        if self.budget.stalls > 0 && client.is_busy() {
            acts.extend([false, true].map(|sleeps| Act::Stall { client: c, sleeps }));
        }
        if self.budget.closes > 0 && client.is_busy() {
            match client.machine.life {
                Life::Open | Life::Renewing => acts.extend([Act::Drain(c), Act::Close(c)]),
                Life::Draining => acts.push(Act::Close(c)),
                Life::Closing | Life::Over => {}
            }
        }
    }

    pub(crate) fn step(&mut self, act: Act) {
        match act {
            Act::Start(c, u) => {
                self.clients[c].users[u].left -= 1;
                let spec = Arc::clone(&self.clients[c].users[u].spec);
                let op = self.number(c, u);
                self.clients[c].users[u].op = Some(op);
                self.handle(c, Event::Acquire { op, spec });
            }
            Act::Release(c, u) => {
                let op = self.clients[c].users[u].op.expect("it holds");
                self.handle(c, Event::Release(op));
            }
            Act::Downgrade(c, u) => {
                let op = self.clients[c].users[u].op.expect("it holds");
                self.handle(c, Event::Downgrade(op));
            }
            Act::Limit(c, u) | Act::Attend(c, u) => {
                self.budget.limits -= 1;
                let op = self.clients[c].users[u].op.expect("it holds");
                let event = if let Act::Limit(..) = act {
                    Event::Timer(Timer::Stall(op))
                } else {
                    Event::WatchForLoss(op)
                };
                self.handle(c, event);
            }
            Act::Raise(c, u) => {
                self.budget.raises -= 1;
                let user = &mut self.clients[c].users[u];
                let limit = user.spec.permits().expect("it is of a semaphore") + 1;
                Arc::make_mut(&mut user.spec).set_permits(limit);
                self.most_permits = self.most_permits.max(limit);
                if let Some(op) = user.op {
                    self.handle(c, Event::Permits { op, limit });
                }
            }
            Act::Drain(c) => {
                self.budget.closes -= 1;
                self.handle(c, Event::Drain);
            }
            Act::Close(c) => {
                self.budget.closes -= 1;
                self.clients[c].is_closed = true;
                self.handle(c, Event::Close);
            }
            Act::Drop(c, u) => {
                self.budget.drops -= 1;
                let user = &mut self.clients[c].users[u];
                let op = user.op.take();
                op.into_iter().for_each(|op| self.handle(c, Event::Abandon(op)));
            }
            Act::Commit(c) => self.commit(c),
            Act::Answer(c) => self.read(c),
            Act::Read(c, op) => {
                self.read_mail(c, op);
                self.answer_writes(c);
            }
            Act::Look(c) => self.look(c),
            Act::Advance(c) => self.advance(c),
            Act::Cut { client, answered } => {
                self.budget.cuts -= 1;
                self.was_cut = true;
                self.cut(client, answered);
            }
            Act::Up { client, to, backwards, foreign_session } => {
                if foreign_session {
                    self.budget.foreign_sessions -= 1;
                    // No session has this number.
                    self.clients[client].foreign_session = Some(1_000 + client as u64);
                    self.clients[client].met_foreign_session = true;
                }
                self.reconnect(client, to, backwards);
            }
            Act::Ghost(c, is_applied) => {
                if let Some((ask, owner)) = self.clients[c].ghosts.pop_front().filter(|_| is_applied) {
                    self.log.commit(&ask, owner);
                }
            }
            Act::Timer(c, timer) => {
                match timer {
                    Timer::Tick if !self.is_timed => self.budget.ticks -= 1,
                    Timer::FallbackPoll if !self.is_timed => self.budget.looks -= 1,
                    _ => {}
                }
                self.handle(c, Event::Timer(timer));
            }
            Act::EndTrust(c) => {
                self.clients[c].machine.trust.doubt(true);
                let now = self.now;
                self.clients[c].machine.timers.set(Timer::TrustEnds, now);
            }
            Act::Take(c) => self.clients[c].alive.take(self.now),
            Act::Expire(c) => self.expire(c),
            Act::Early(c) => {
                self.budget.early -= 1;
                self.give_up(c);
            }
            Act::Orphan(c, session) => {
                self.clients[c].orphans.retain(|one| *one != session);
                self.end(c, session);
            }
            Act::Hand(n) => {
                self.budget.hand -= 1;
                let (path, name) = (self.log.nodes[n].path, self.log.nodes[n].name);
                self.log.delete(|node| (node.path, node.name) == (path, name), By::Hand);
            }
            Act::CutOff(c) => {
                self.budget.cuts -= 1;
                self.clients[c].is_cut_off = true;
                self.clients[c].alive.lasts_until = self.lasts_until();
            }
            Act::Heal(c) => {
                if self.clients[c].alive.is_deposed {
                    // Its server follows the next leader, and closes all connections before.
                    self.cut(c, false);
                } else {
                    self.clients[c].is_cut_off = false;
                    self.run(c);
                }
            }
            Act::Stall { client: c, sleeps } => {
                self.budget.stalls -= 1;
                let until = self.lasts_until();
                self.clients[c].alive.stall(self.now, until, sleeps);
            }
            Act::Wake(c) => {
                let now = self.now;
                let slept = self.clients[c].alive.wake(now);
                self.run(c);
                self.look(c);
                self.handle(c, Event::Beat { slept });
            }
        }
        self.check();
    }

    /// How long a fault lasts, where time passes. The moment decides, which is as good as random.
    fn lasts_until(&self) -> Moment {
        let eighths = [0, 0, 0, 1, 2, 5, 9, 14][(self.now.0 % 8) as usize];
        self.now.plus(self.timeout / 8 * eighths)
    }

    /// The driver looks at the connection, as it does before it handles anything else. Of several changes it sees the last.
    fn look(&mut self, c: usize) {
        let client = &mut self.clients[c];
        if std::mem::take(&mut client.is_news) {
            // Before the look that comes with the disconnect, which finds the next connection.
            let since = client.last_seen_up;
            let (is_up, was_up) = (client.is_up, client.machine.is_up);
            if was_up {
                client.epoch += 1;
                self.handle(c, Event::Connection(Connection::Down));
            }
            if is_up {
                assert!(since <= self.clients[c].alive.cut_at, "it was not seen up after the cut");
                self.handle(c, Event::Connection(Connection::Up { since }));
            }
        }
        self.clients[c].look(self.now);
    }

    /// An answer or an event comes. Where time passes, it is read later.
    fn deliver(&mut self, c: usize, mail: Mail) {
        if self.is_timed { self.clients[c].mail.push(mail) } else { self.take(c, mail, false) }
    }

    /// Reads everything that has come for an acquisition.
    fn read_mail(&mut self, c: usize, op: Option<Op>) {
        self.look(c);
        while let Some(mail) = self.clients[c].next_mail(op) {
            let is_stale = !self.is_timed || mail.epoch() != Some(self.clients[c].epoch);
            self.take(c, mail, is_stale);
        }
    }

    fn take(&mut self, c: usize, mail: Mail, is_stale: bool) {
        let event = match mail {
            Mail::Answer { ask, sent, outcome, .. } => Event::Answer { ask, sent, is_stale, outcome },
            Mail::Fired(watch) => Event::Fired { watch, is_deleted: true },
        };
        self.handle(c, event);
    }

    fn handle(&mut self, c: usize, event: Event) {
        self.look(c);
        let held = self.in_stage(c, |stage| stage == Phase::Held);
        let proving = self.in_stage(c, |stage| matches!(stage, Phase::Confirming { .. }));
        self.clients[c].machine.handle(self.now, event);
        self.check_grants(c, &held, &proving);
        let actions: Vec<Action> = self.clients[c].machine.out.drain(..).collect();
        let (now, is_timed) = (self.now, self.is_timed);
        if !is_timed {
            self.clients[c].forget_times();
        }
        let mut is_replaced = false;
        let mut ended = None;
        let client = &mut self.clients[c];
        for action in actions {
            match action {
                // The driver may not know yet that the connection has ended.
                Action::Send(ask) if client.is_up || client.is_news => {
                    client.flight.push_back(Flight { ask, sent: now, epoch: client.epoch, committed: None });
                }
                Action::Send(_) => self.broken = Some("sends without a connection"),
                Action::Unwatch(watch) => {
                    client.watches.retain(|(one, _)| *one != watch);
                    client.mail.retain(|one| *one != Mail::Fired(watch));
                }
                Action::Replace => is_replaced = true,
                // It closes the session.
                Action::Yield if self.budget.is_named => client.is_closed = true,
                Action::Yield => self.broken = Some("yields a name that no other process has"),
                Action::End { is_clean } => ended = Some(is_clean),
                Action::Wake(_) | Action::Placed(_) | Action::Forget => {}
            }
        }
        if let Some(is_clean) = ended {
            self.end_client(c, is_clean);
        }
        if is_replaced {
            return self.give_up(c);
        }
        (0..self.clients[c].users.len()).for_each(|u| self.attend(c, u));
    }

    /// A user reads that its acquisition is over.
    fn attend(&mut self, c: usize, u: usize) {
        let user = &self.clients[c].users[u];
        let Some(op) = user.op else { return };
        let Some(one) = self.clients[c].machine.op(op) else { return };
        let Phase::Over(end) = one.phase else { return };
        self.clients[c].users[u].op = None;
        match end {
            End::Released => self.check_release(c, op),
            End::Evicted => self.check_eviction(c, op),
            End::Lost(Loss::Closed) if !self.clients[c].is_closed => {
                self.broken = Some("a drain ends no hold");
            }
            _ => {}
        }
        self.handle(c, Event::Abandon(op));
    }

    fn number(&mut self, c: usize, u: usize) -> Op {
        let client = &mut self.clients[c];
        let count = &mut client.users[u].count;
        *count += 1;
        // Those of two lives of a process differ.
        let life = if self.budget.is_named { Op::try_from(c).expect("they are few") * 1_024 } else { 0 };
        life + Op::try_from(u).expect("they are few") * 64 + Op::from(*count)
    }

    fn commit(&mut self, c: usize) {
        let client = &mut self.clients[c];
        if !client.is_served() {
            // The leader has ended the session meanwhile.
            return;
        }
        let owner = client.owner();
        let next = client.flight.iter_mut().find(|one| one.committed.is_none()).expect("offered");
        let outcome = self.log.commit(&next.ask, owner);
        next.committed = Some((self.log.end, outcome));
        if client.foreign_session.is_none() {
            client.alive.heard();
            client.machine.trust.doubt(false);
        }
        self.answer_writes(c);
    }

    fn answer_writes(&mut self, c: usize) {
        loop {
            let client = &self.clients[c];
            let seen = client.seen;
            let is_answered =
                |one: &&Flight| one.committed.as_ref().is_some_and(|(committed, _)| *committed <= seen);
            if client.flight.front().filter(is_answered).is_none() || self.is_behind(c) {
                return;
            }
            if let Some(mut flight) = self.clients[c].flight.pop_front()
                && let Some((_, outcome)) = flight.committed.take()
            {
                self.deliver(c, flight.answered(outcome));
            }
        }
    }

    /// Whether an answer from before a cut has to be read first. Where time passes, those that read keep the order.
    fn is_behind(&self, c: usize) -> bool {
        !self.is_timed && self.clients[c].is_behind_a_late_answer()
    }

    fn read(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let Some(flight) = client.flight.pop_front() else { return };
        if client.foreign_session.is_none() {
            client.alive.heard();
        }
        let outcome = self.log.read(&flight.ask, client.seen, client.owner());
        self.reads(c, &flight.ask, &outcome);
        self.deliver(c, flight.answered(outcome));
        self.answer_writes(c);
    }

    /// A request is answered. Sets its watch.
    fn reads(&mut self, c: usize, ask: &Ask, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Names { .. } | Outcome::Stat { .. }) {
            return;
        }
        let Some(watch) = watch_of(ask) else { return };
        let at = match watch {
            Watch::Path(_) => self.clients[c].seen,
            Watch::Predecessor(_, path, name) | Watch::Own(_, path, name) => self.log.created(path, name),
        };
        self.clients[c].watches.push((watch, at));
    }

    /// The watches that fire when a client's server applies the log from one position to another.
    pub(crate) fn fired(&self, c: usize, from: Zxid, to: Zxid) -> Vec<Watch> {
        let fires = |(watch, at): &&(Watch, Zxid)| {
            self.log.nodes.iter().any(|node| match watch {
                Watch::Path(path) => node.path == *path && node.changes_between(from.max(*at), to),
                Watch::Predecessor(..) | Watch::Own(..) => {
                    node.created == *at && node.is_of(watch) && node.goes_between(from, to)
                }
            })
        };
        let mut fired: Vec<Watch> =
            self.clients[c].watches.iter().filter(fires).map(|(watch, _)| *watch).collect();
        fired.sort_unstable();
        fired
    }

    fn fire(&mut self, c: usize, from: Zxid, to: Zxid, backwards: bool) {
        let mut fired = self.fired(c, from, to);
        self.clients[c].watches.retain(|(watch, _)| !fired.contains(watch));
        if backwards {
            fired.reverse();
        }
        for watch in fired {
            self.deliver(c, Mail::Fired(watch));
        }
    }

    fn advance(&mut self, c: usize) {
        let client = &mut self.clients[c];
        client.seen += 1;
        // A connection of another session goes on.
        let (seen, is_over) = (client.seen, client.closed == client.seen && client.foreign_session.is_none());
        self.fire(c, seen - 1, seen, false);
        if is_over {
            return self.renew(c);
        }
        self.answer_writes(c);
    }

    /// The answers that may have come before a cut.
    fn answered(&self, c: usize) -> impl Iterator<Item = (&Flight, Outcome)> {
        let client = &self.clients[c];
        let mut seen = client.seen;
        client.flight.iter().map_while(move |one| {
            let outcome = match &one.committed {
                _ if !client.is_served() => return None,
                None if one.ask.is_write() => return None,
                None => self.log.read(&one.ask, seen, client.owner()),
                Some((at, _)) if !self.fired(c, seen, seen.max(*at)).is_empty() => return None,
                Some((at, outcome)) => {
                    seen = seen.max(*at);
                    outcome.clone()
                }
            };
            Some((one, outcome))
        })
    }

    fn cut(&mut self, c: usize, answered: bool) {
        let (now, until) = (self.now, self.lasts_until());
        let unread = self.answered(c).filter(|_| answered);
        let late: Vec<_> = unread.map(|(flight, outcome)| (flight.clone(), outcome)).collect();
        for (flight, outcome) in &late {
            self.reads(c, &flight.ask, outcome);
        }
        let client = &mut self.clients[c];
        (client.is_up, client.is_cut_off) = (false, false);
        client.alive.cut(now, until);
        let lost = client.flight.split_off(late.len());
        client.flight.clear();
        client.mail.extend(late.into_iter().map(|(flight, outcome)| flight.answered(outcome)));
        client.lose(&lost);
        // What is behind an answer of the same acquisition that nobody has read is read after it.
        let unread: Vec<_> = client.mail.iter().map(Mail::op).collect();
        let is_behind = |one: &Flight| self.is_timed || unread.contains(&one.ask.op());
        let (behind, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(is_behind);
        client.mail.extend(behind.into_iter().map(|one| one.answered(Outcome::Unknown)));
        client.is_news = self.is_timed;
        self.end_foreign_session(c);
        if !self.is_timed {
            self.handle(c, Event::Connection(Connection::Down));
        }
        for Flight { ask, sent, .. } in lost {
            self.handle(c, Event::Answer { ask, sent, is_stale: true, outcome: Outcome::Unknown });
        }
    }

    fn reconnect(&mut self, c: usize, to: Zxid, backwards: bool) {
        if self.clients[c].closed != 0 {
            return self.renew(c);
        }
        let until = self.lasts_until();
        let client = &mut self.clients[c];
        let from = std::mem::replace(&mut client.seen, to);
        client.is_up = true;
        if self.is_timed
            && client.foreign_session.is_none()
            && self.budget.cuts > 0
            && self.now.0.is_multiple_of(5)
        {
            self.budget.cuts -= 1;
            client.is_cut_off = true;
            client.alive.connected_to_deposed(self.now, until);
        } else if client.foreign_session.is_none() {
            client.alive.connected(self.now);
        }
        // Watches are set again before anything else is asked.
        self.fire(c, from, to, backwards);
        if self.is_timed {
            self.clients[c].is_news = true;
        } else {
            self.handle(c, Event::Connection(Connection::Up { since: Moment(0) }));
        }
    }

    /// The session of a connection that another one answered ends with it.
    fn end_foreign_session(&mut self, c: usize) {
        if let Some(session) = self.clients[c].foreign_session.take() {
            self.end(c, session);
        }
    }

    fn end(&mut self, c: usize, session: u64) {
        self.log.delete(|node| node.owner == session, By::Session);
        self.clients[c].ghosts.retain(|(_, owner)| *owner != session);
    }

    fn expire(&mut self, c: usize) {
        self.budget.expiries = self.budget.expiries.saturating_sub(1);
        let session = self.clients[c].session;
        self.end(c, session);
        self.clients[c].closed = self.log.end;
    }

    /// The client gives its session up before the servers do.
    fn give_up(&mut self, c: usize) {
        self.end_foreign_session(c);
        if self.clients[c].closed == 0 {
            let session = self.clients[c].session;
            self.clients[c].orphans.push(session);
        }
        self.renew(c);
    }

    /// The session is over for the client. A quorum makes the next one, unless it was closed.
    fn renew(&mut self, c: usize) {
        self.clients[c].forget_session();
        self.handle(c, Event::Connection(Connection::Expired));
        if self.clients[c].machine.life == Life::Over {
            return;
        }
        let (end, clients, now) = (self.log.end, self.clients.len() as u64, self.now);
        let client = &mut self.clients[c];
        (client.seen, client.closed, client.is_up) = (end, 0, true);
        client.session += clients;
        client.met_foreign_session = false;
        let created = client.alive.connected(now);
        let orphans = client.orphans.clone();
        client.ghosts.retain(|(_, owner)| orphans.contains(owner));
        let session = client.session;
        let timeout = self.timeout;
        self.handle(c, Event::Renewed { session, nonce: session, created, timeout });
    }

    /// The driver drops the client, so the servers end the session, at once or when it expires.
    fn end_client(&mut self, c: usize, is_clean: bool) {
        self.end_foreign_session(c);
        let client = &mut self.clients[c];
        let (session, is_over) = (client.session, client.closed != 0);
        if is_clean && self.log.nodes.iter().any(|node| node.stands() && node.owner == session) {
            self.broken = Some("a session that ends clean has no node");
        }
        let lost = std::mem::take(&mut client.flight);
        client.lose(&lost);
        client.forget_session();
        if !is_over && !client.orphans.contains(&session) {
            client.orphans.push(session);
        }
        client.users.iter_mut().for_each(|user| user.left = 0);
    }

    /// What is due for a client's session happens.
    fn run(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let is_ours = client.is_up && client.closed == 0 && client.foreign_session.is_none();
        client.alive.run(self.now, is_ours, !client.is_cut_off);
    }

    /// Time passes. A client looks that it runs each sixteenth of the session timeout.
    pub(crate) fn pass(&mut self, until: Moment) {
        while self.now < until {
            let due = self.clients.iter().map(|client| client.alive.next()).filter(|at| *at > self.now).min();
            self.now = until.min(self.now.plus(self.timeout / 16)).min(due.unwrap_or(until));
            for c in 0..self.clients.len() {
                self.run(c);
                let client = &self.clients[c];
                if client.closed == 0 && client.alive.ends_by().is_some_and(|by| by <= self.now) {
                    self.expire(c);
                }
                let client = &self.clients[c];
                if !client.is_news && !client.alive.is_stalled() {
                    self.handle(c, Event::Beat { slept: 0 });
                }
            }
        }
    }

    /// Prints where everybody stands.
    pub(crate) fn show(&self) {
        self.log.nodes.iter().for_each(|node| println!("{node:?}"));
        for client in &self.clients {
            println!(
                "session {}, up {}, {:?}, timers {:?}, flight {:?}, mail {:?}",
                client.session,
                client.is_up,
                client.machine.trust,
                client.machine.timers,
                client.flight,
                client.mail
            );
            client.machine.ops().for_each(|(op, one)| println!("  {op}: {one:?}"));
            println!("  {:?} {:?}", client.machine.paths, client.machine.deletes);
        }
    }

    // What is checked.

    /// The nodes of an acquisition that were created; none for one that is not in the log any more.
    fn nodes_of(&self, c: usize, op: Op) -> Vec<Option<&Znode>> {
        let one = self.clients[c].machine.op(op).filter(|one| one.node == Node::There);
        let queues = one.into_iter().flat_map(|one| &one.queues);
        queues.map(|queue| self.log.find(queue.path, queue.name?)).collect()
    }

    fn in_stage(&self, c: usize, is: impl Fn(Phase) -> bool) -> Vec<Op> {
        self.clients[c].machine.ops().filter(|(_, one)| is(one.phase)).map(|(op, _)| op).collect()
    }

    fn check(&mut self) {
        let mut held: Vec<(Path, Kind)> = Vec::new();
        let mut leases: Vec<Path> = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            for (op, one) in client.machine.ops() {
                // A hold whose node was deleted by hand learns of it by its watch. It may be that of a downgrade under way.
                let reader = one
                    .change
                    .guid()
                    .zip(one.single())
                    .and_then(|(guid, queue)| self.log.find(queue.path, queue.name?.reader(guid)));
                let own = self.nodes_of(c, op);
                let is_by_hand = own.iter().flatten().copied().chain(reader).any(|node| node.by == By::Hand);
                let state = client.machine.state(self.now, op);
                if !matches!(state, Some(HoldState::Held | HoldState::Suspended)) || is_by_hand {
                    continue;
                }
                for queue in &one.queues {
                    if one.spec.permits().is_some() {
                        leases.push(queue.path);
                    } else {
                        // While the answer to a downgrade is under way, it may be a reader already.
                        held.push((queue.path, if one.change.is_open() { Kind::Read } else { queue.kind }));
                    }
                }
            }
        }
        let excludes = |(at, (path, kind)): (usize, &(Path, Kind))| {
            held[..at].iter().any(|(other, older)| other == path && kind.waits_for(*older))
        };
        if held.iter().enumerate().any(excludes) {
            self.broken = Some("exclusion");
        }
        let is_full =
            |path: &Path| leases.iter().filter(|other| *other == path).count() > self.most_permits as usize;
        if leases.iter().any(is_full) {
            self.broken = Some("more permits than there are");
        }
    }

    fn check_grants(&mut self, c: usize, held: &[Op], proving: &[Op]) {
        for op in self.in_stage(c, |stage| stage == Phase::Held) {
            if held.contains(&op) {
                continue;
            }
            self.grants.0 += 1;
            if let Some(user) = self.clients[c].users.iter_mut().find(|user| user.op == Some(op) && user.keeps > 0)
            {
                user.done_at = self.now.plus(user.keeps);
            }
            if !self.clients[c].machine.is_trusted(self.now) {
                self.broken = Some("a grant is trusted");
            }
            let nodes = self.nodes_of(c, op);
            // A proof shows that they stood when it was committed. That one is deleted by hand may not have been read.
            let (seen, is_timed) = (self.clients[c].seen, self.is_timed);
            let is_unread = |node: &Znode| is_timed && node.by == By::Hand;
            let stands = |node: &Option<&Znode>| node.is_some_and(|node| node.stands_at(seen) || is_unread(node));
            // A hold whose node was deleted by hand learns of it by its watch.
            let counts = nodes.iter().flatten().filter(|node| node.by != By::Hand);
            let tokens: Vec<_> = counts.map(|node| (node.path, node.name.kind, node.created)).collect();
            let is_overtaken = |own: &&Znode| {
                own.stands() && self.log.standing(own.path).any(|older| self.is_overtaken(older, own))
            };
            if nodes.is_empty() || (!nodes.iter().all(stands) && !proving.contains(&op)) {
                self.broken = Some("a grant has its node");
            } else if nodes.iter().flatten().any(is_overtaken) {
                self.broken = Some("order");
            }
            tokens.into_iter().for_each(|(path, kind, created)| self.check_token(path, kind, created));
        }
    }

    /// A grant has a larger token than those before that exclude it. Permits exclude nobody.
    fn check_token(&mut self, path: Path, kind: Kind, created: Zxid) {
        if kind == Kind::Lease || !self.is_timed {
            return;
        }
        let is_reader = kind == Kind::Read;
        let newest = |of_readers| self.tokens.0.get(&(path, of_readers)).copied().unwrap_or_default();
        let before = if is_reader { newest(false) } else { newest(false).max(newest(true)) };
        // A turn may be confirmed, and granted again.
        if created < before {
            self.broken = Some("tokens go up");
        }
        let own = self.tokens.0.entry((path, is_reader)).or_default();
        *own = created.max(*own);
    }

    /// Whether a live waiter was there before, and is excluded.
    fn is_overtaken(&self, older: &Znode, own: &Znode) -> bool {
        let waits = self.clients.iter().filter(|client| client.session == older.owner).any(|client| {
            client.machine.ops().any(|(_, one)| {
                let is_its = |queue: &Queue| queue.path == older.path && queue.name == Some(older.name);
                one.phase.is_queuing() && one.node == Node::There && one.queues.iter().any(is_its)
            })
        });
        let is_before = older.name.number < own.name.number;
        waits && is_before && own.name.kind != Kind::Lease && own.name.kind.waits_for(older.name.kind)
    }

    /// Only a waiter whose node was deleted by hand is evicted. Over a connection of another session, nobody can distinguish that
    /// from the end of its own.
    fn check_eviction(&mut self, c: usize, op: Op) {
        let is_ours = !self.clients[c].met_foreign_session;
        let session = self.clients[c].session;
        let is_its =
            |node: &&Znode| node.name.guid >> 64 == u128::from(session) && caller_of(node.name.guid_op()) == op;
        let mut nodes = self.log.nodes.iter().filter(is_its).peekable();
        if is_ours && nodes.peek().is_some() && !nodes.any(|node| node.by == By::Hand) {
            self.broken = Some("eviction without a deletion by hand");
        }
    }

    fn check_release(&mut self, c: usize, op: Op) {
        let session = self.clients[c].session;
        let is_its = |node: &&Znode| node.name.guid >> 32 == u128::from(session) << 32 | u128::from(op);
        let mut nodes = self.log.nodes.iter().filter(is_its).peekable();
        let is_honest = nodes.peek().is_none()
            || nodes.any(|node| node.by == By::Owner || (node.by == By::Hand && self.was_cut));
        if !is_honest {
            self.broken = Some("honest release");
        }
    }

    /// Nothing happens any more unless a user or a fault begins something.
    pub(crate) fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| {
            let waits = client
                .machine
                .timers
                .set
                .keys()
                .any(|timer| matches!(timer, Timer::SearchAgain(_) | Timer::Resume | Timer::Confirm));
            let is_over = client.machine.life == Life::Over;
            let is_open = client.is_up && client.is_served() && !client.is_cut_off && client.seen == self.log.end;
            let is_read = client.mail.is_empty() && !client.is_news;
            let is_still = client.flight.is_empty() && is_read && client.ghosts.is_empty();
            let runs = is_open && !waits && !client.alive.is_stalled();
            (is_over || runs) && is_still && client.orphans.is_empty()
        })
    }

    /// Whether a waiter waits for nobody, for ever.
    pub(crate) fn sleeps(&self) -> bool {
        let is_behind = |one: &Acquisition, path: Path, kind: Kind, name: Name| {
            let mut standing = self.log.standing(path);
            match one.spec.admission {
                Admission::First => standing.any(|node| node.name < name && kind.waits_for(node.name.kind)),
                Admission::Permits { limit, .. } => standing.count() > limit as usize,
            }
        };
        let sleeps = |one: &Acquisition| match (one.phase, one.node) {
            (phase, Node::There) if phase.is_queuing() => {
                let mut queues = one.queues.iter();
                !queues.any(|queue| queue.name.is_some_and(|name| is_behind(one, queue.path, queue.kind, name)))
            }
            // Its turn is looked at for itself.
            (Phase::Turning, _) => false,
            (phase, _) => phase.is_queuing() || phase == Phase::Releasing,
        };
        self.is_quiet() && self.clients.iter().any(|client| client.machine.ops().any(|(_, one)| sleeps(one)))
    }

    /// Whether a node is left that belongs to nobody.
    pub(crate) fn has_left(&self) -> bool {
        let is_owned = |node: &Znode| {
            let is_it = |queue: &Queue| queue.path == node.path && queue.name == Some(node.name);
            self.clients.iter().any(|client| {
                let mut ops = client.machine.ops();
                client.session == node.owner
                    && ops.any(|(_, one)| one.node == Node::There && one.queues.iter().any(is_it))
            })
        };
        let stands = || self.log.nodes.iter().filter(|node| node.stands());
        let is_clean = |client: &Client<T>| client.machine.life == Life::Over || client.machine.is_clean();
        let is_clean = self.clients.iter().all(is_clean);
        self.is_quiet() && (!is_clean || stands().any(|node| !is_owned(node)))
    }
}
