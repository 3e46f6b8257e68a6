//! A correct lock, and clients that record their operations.

use super::super::{Event, History, Mode, Model, Step};
use super::script::LOCK;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Runs a few clients of one lock for a while.
pub(super) fn run(random: &mut fastrand::Rng, model: Model) -> Vec<Event> {
    let server = Server { model, last_token: 0, queue: Vec::new(), inside: Vec::new(), ghosts: Vec::new() };
    let mut world =
        World { random, model, now: 0, server, attempts: Vec::new(), paused: [None; 4], events: Vec::new() };
    for _ in 0..world.random.usize(20..160) {
        world.now += world.random.u64(0..3);
        match world.random.u8(0..8) {
            0 if world.attempts.len() < 7 => world.invoke(),
            1 => world.server.give_up(world.random),
            2..4 => world.server.admit(world.random),
            4 => world.pause(),
            _ if world.attempts.is_empty() => {}
            _ => {
                let index = world.random.usize(..world.attempts.len());
                if world.paused[world.attempts[index].client].is_none() {
                    world.go_on(index);
                }
            }
        }
    }
    // A client that is still paused at the end never learns of its losses.
    let history = History::from_events(world.events);
    for (name, since) in NAMES.into_iter().zip(world.paused) {
        since.into_iter().for_each(|since| history.killed(name, since));
    }
    history.events()
}

/// The true state: waiters and holders, by token.
struct Server {
    model: Model,
    last_token: i64,
    queue: Vec<(i64, Mode)>,
    /// With the number of pending releases.
    inside: Vec<(i64, Mode, usize)>,
    /// Tokens of waiters and holders that their clients have abandoned.
    ghosts: Vec<i64>,
}

impl Server {
    fn enqueue(&mut self, mode: Mode) -> i64 {
        self.last_token += 1;
        self.queue.push((self.last_token, mode));
        self.last_token
    }

    fn holds(&self, token: i64) -> bool {
        self.inside.iter().any(|inside| inside.0 == token)
    }

    fn enter_again(&mut self, token: i64) {
        self.inside.iter_mut().filter(|inside| inside.0 == token).for_each(|inside| inside.2 += 1);
    }

    fn leave(&mut self, token: i64) {
        self.inside.iter_mut().filter(|inside| inside.0 == token).for_each(|inside| inside.2 -= 1);
        self.inside.retain(|inside| inside.2 > 0);
    }

    /// Removes the waiter and the holder with a token, as the end of a session does.
    fn remove(&mut self, token: i64) {
        self.queue.retain(|place| place.0 != token);
        self.inside.retain(|inside| inside.0 != token);
    }

    fn give_up(&mut self, random: &mut fastrand::Rng) {
        if !self.ghosts.is_empty() {
            let ghost = self.ghosts.swap_remove(random.usize(..self.ghosts.len()));
            self.remove(ghost);
        }
    }

    /// Admits one of the waiters that may enter. It is fair, except for a semaphore, which need not be.
    fn admit(&mut self, random: &mut fastrand::Rng) {
        let may: Vec<_> = (0..self.queue.len()).filter(|position| self.is_admitted(*position)).collect();
        if !may.is_empty() {
            let (token, mode) = self.queue.remove(may[random.usize(..may.len())]);
            self.inside.push((token, mode, 1));
        }
    }

    fn is_admitted(&self, position: usize) -> bool {
        let mode = self.queue[position].1;
        if let Model::Permits(limit) = self.model {
            let permits = |mode| if let Mode::Permits(permits) = mode { permits } else { limit };
            return self.inside.iter().map(|inside| permits(inside.1)).sum::<u32>() + permits(mode) <= limit;
        }
        let ahead = self.queue[..position].iter().map(|place| place.1);
        let conflicts = |other| mode == Mode::Exclusive || other == Mode::Exclusive;
        !ahead.chain(self.inside.iter().map(|inside| inside.1)).any(conflicts)
    }
}

/// An attempt as its client sees it.
struct Attempt {
    client: usize,
    mode: Mode,
    /// Its token; 0 while it is unknown.
    token: i64,
    /// Whether its owner held the lock when it began.
    again: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Invoked,
    Queued,
    Held,
    /// It has learned of its loss.
    Lost,
    Releasing,
    Released(bool),
    Over,
}

struct World<'a> {
    random: &'a mut fastrand::Rng,
    model: Model,
    now: u64,
    server: Server,
    attempts: Vec<Attempt>,
    /// Since when each client is paused.
    paused: [Option<u64>; 4],
    events: Vec<Event>,
}

impl World<'_> {
    fn write(&mut self, index: usize, step: Step) {
        let process = NAMES[self.attempts[index].client];
        self.events.push(Event::new(self.now, process, LOCK, index as u64, step));
    }

    fn invoke(&mut self) {
        let client = self.random.usize(..4);
        if self.paused[client].is_some() {
            return;
        }
        let mode = match self.model {
            Model::Permits(limit) => Mode::Permits(self.random.u32(1..=limit)),
            Model::ReadWrite | Model::Fifo if self.random.bool() => Mode::Shared,
            _ => Mode::Exclusive,
        };
        // Only an owner of the lock re-enters it; other clients queue behind themselves.
        let owned = matches!(self.model, Model::ReentrantMutex | Model::Fifo) && mode == Mode::Exclusive;
        let holds = |other: &&Attempt| {
            other.client == client && other.stage == Stage::Held && other.mode == Mode::Exclusive
        };
        let again = self.attempts.iter().find(holds).filter(|_| owned).map(|held| held.token);
        let (token, again) = (again.unwrap_or_default(), again.is_some());
        self.attempts.push(Attempt { client, mode, token, again, stage: Stage::Invoked });
        let owner = owned.then(|| "x".into());
        self.write(self.attempts.len() - 1, Step::Acquire { mode, owner });
    }

    fn go_on(&mut self, index: usize) {
        let Attempt { mode, token, again, stage, .. } = self.attempts[index];
        let chance = self.random.u8(0..8);
        let next = match stage {
            Stage::Invoked if chance == 0 => {
                self.write(index, Step::AcquireFailed);
                Stage::Over
            }
            Stage::Invoked if again && self.server.holds(token) => {
                self.server.enter_again(token);
                Stage::Queued
            }
            Stage::Invoked if again => stage,
            Stage::Invoked => {
                self.attempts[index].token = self.server.enqueue(mode);
                Stage::Queued
            }
            Stage::Queued => self.wait(index, chance),
            Stage::Held => self.hold(index, chance),
            Stage::Lost => {
                self.write(index, Step::Release);
                Stage::Released(false)
            }
            // The session ends before the release arrives.
            Stage::Releasing if chance == 0 => {
                self.lose(token, self.now);
                self.server.remove(token);
                Stage::Released(false)
            }
            Stage::Releasing => {
                let held = self.server.holds(token);
                self.server.leave(token);
                Stage::Released(held)
            }
            Stage::Released(held) => {
                let known = if held { Step::Released } else { Step::ReleaseLost };
                self.write(index, if chance == 0 { Step::ReleaseUnknown } else { known });
                Stage::Over
            }
            Stage::Over => stage,
        };
        self.attempts[index].stage = next;
    }

    fn wait(&mut self, index: usize, chance: u8) -> Stage {
        let Attempt { token, again, .. } = self.attempts[index];
        match chance {
            0 if !again && !self.server.holds(token) => {
                self.server.remove(token);
                self.write(index, Step::AcquireFailed);
                Stage::Over
            }
            1 if !again => {
                self.server.ghosts.push(token);
                self.write(index, Step::AcquireUnknown);
                Stage::Over
            }
            2 if !again => {
                let place = self.random.bool().then_some(token);
                self.write(index, Step::Enqueued { place });
                Stage::Queued
            }
            _ if self.server.holds(token) => {
                self.write(index, Step::Acquired { token });
                if self.server.ghosts.contains(&token) { Stage::Lost } else { Stage::Held }
            }
            _ => Stage::Queued,
        }
    }

    fn hold(&mut self, index: usize, chance: u8) -> Stage {
        let Attempt { mode, token, .. } = self.attempts[index];
        match chance {
            0 => {
                self.lose(token, self.now);
                self.server.ghosts.push(token);
                return Stage::Lost;
            }
            1 => self.write(index, Step::Confirmed),
            2 if matches!(self.model, Model::ReadWrite | Model::Fifo) && mode == Mode::Exclusive => {
                if self.attempts.iter().filter(|other| other.token == token).count() == 1 {
                    self.write(index, Step::Downgrade);
                    self.now += self.random.u64(0..2);
                    self.attempts[index].mode = Mode::Shared;
                    self.server.inside.iter_mut().filter(|it| it.0 == token).for_each(|it| it.1 = Mode::Shared);
                }
            }
            2..4 => {}
            _ => {
                self.write(index, Step::Release);
                return Stage::Releasing;
            }
        }
        Stage::Held
    }

    /// Reports the loss of a token to its client.
    fn lose(&mut self, token: i64, since: u64) {
        for index in 0..self.attempts.len() {
            if self.attempts[index].token == token && self.attempts[index].stage == Stage::Held {
                self.attempts[index].stage = Stage::Lost;
                self.write(index, Step::Lost { since });
            }
        }
    }

    /// Pauses a client, ends the session of a paused client, or resumes it and lets it notice.
    fn pause(&mut self) {
        let client = self.random.usize(..4);
        let Some(since) = self.paused[client] else {
            self.paused[client] = Some(self.now).filter(|_| self.random.u8(0..8) == 0);
            return;
        };
        let mut tokens: Vec<_> =
            self.attempts.iter().filter(|it| it.client == client && it.token > 0).map(|it| it.token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        if self.random.bool() {
            tokens.into_iter().for_each(|token| self.server.remove(token));
            return;
        }
        self.paused[client] = None;
        for token in tokens {
            if !self.server.holds(token) {
                self.lose(token, since);
            }
        }
    }
}
