//! Plays random histories, with the real account of trust and virtual time.

use std::sync::Arc;

use crate::client::{Client, User};
use crate::explore::{mixed, permits, together, user};
use crate::machine::{Kind, Ledger, Moment};
use crate::world::{Act, Budget, World};

/// The session timeout, in microseconds.
const T: u64 = 1_000_000;
/// A history that takes more steps does not end.
const STEPS: u32 = 20_000;

/// How a history went.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) steps: u32,
    pub(crate) grants: u32,
    pub(crate) broken: Option<String>,
}

/// Plays the history of a seed.
pub(crate) fn history(seed: u64, shows: bool) -> History {
    let mut play = Play::new(seed, shows);
    let broken = play.play_on();
    if shows {
        play.world.show();
    }
    History { steps: play.steps, grants: play.world.grants.0, broken }
}

/// Leaves out steps of a history that breaks, as long as it breaks. Shows what remains, and returns what broke.
pub(crate) fn shrink(seed: u64) -> Option<String> {
    let mut play = Play::new(seed, false);
    let mut broken = play.play_on()?;
    let (all, mut steps) = (play.played.len(), play.played);
    // Something sleeps, or is left, only when nothing happens any more.
    let breaks_at_the_end = Play::new(seed, false).replay(&steps).is_none();
    let replay = |steps: &[(Moment, Act)], shows: bool| {
        let mut play = Play::new(seed, shows);
        play.replay(steps).or_else(|| breaks_at_the_end.then(|| play.end_calmly()).flatten())
    };
    let mut size = all.next_power_of_two();
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..steps.len().min(at + size));
            match replay(&fewer, false) {
                Some(why) => (steps, broken) = (fewer, why),
                None => at += size,
            }
        }
        size /= 2;
    }
    replay(&steps, true);
    println!(
        "{} of {all} steps, {}",
        steps.len(),
        if breaks_at_the_end { "and what follows" } else { "the last of which breaks it" }
    );
    Some(broken)
}

/// The users of a history, and the faults that they meet.
fn world(seed: u64, random: &mut fastrand::Rng) -> World<Ledger> {
    let (mixes, limit) = (random.u8(..5), random.u32(1..4));
    let mut user = || {
        let kinds = [Kind::Lock, Kind::Read, Kind::Read, Kind::Write];
        let mut user = match mixes {
            0 => user(Kind::Lock, 4),
            1 => user(kinds[random.usize(..kinds.len())], 4),
            2 => permits(random.usize(1..=limit as usize), limit),
            3 => {
                let from = random.usize(..3);
                let paths = &[0, 2, 3][from..=random.usize(from..3)];
                mixed(paths.iter().map(|path| (*path, kinds[random.usize(..kinds.len())])))
            }
            _ if random.bool() => together(&[0, 2, 3][..random.usize(2..4)]),
            _ => together(&[[0, 2, 3][random.usize(..3)]]),
        };
        user.left = 4;
        user.downgrades &= random.bool();
        if random.u8(..8) == 0 {
            Arc::make_mut(&mut user.spec).waits = false;
        }
        user
    };
    let mut users: Vec<Vec<User>> = Vec::new();
    let mut sizes = fastrand::Rng::with_seed(seed ^ 1);
    let keeps = [0, 0, T / 4, 3 * T][sizes.usize(..4)];
    for _ in 0..sizes.usize(2..5) {
        users.push((0..sizes.usize(1..5)).map(|_| User { keeps, ..user() }).collect());
    }
    let budget = Budget {
        cuts: random.u16(0..12),
        early: random.u16(0..3),
        hand: random.u16(0..4),
        drops: random.u16(0..8),
        foreign_sessions: random.u16(0..2),
        closes: if random.u8(..4) == 0 { random.u16(1..4) } else { 0 },
        limits: random.u16(0..4),
        stalls: sizes.u16(0..4),
        raises: sizes.u16(0..3),
        ..Budget::default()
    };
    World::new(&users, budget, true, T, || Ledger::new(T, Some(Moment(0)), Moment(0)))
}

/// A history as it goes on.
struct Play {
    world: World<Ledger>,
    random: fastrand::Rng,
    steps: u32,
    played: Vec<(Moment, Act)>,
    /// No fault happens any more.
    is_calm: bool,
    shows: bool,
}

impl Play {
    fn new(seed: u64, shows: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = world(seed, &mut random);
        Self { world, random, steps: 0, played: Vec::new(), is_calm: false, shows }
    }

    /// Plays the steps that can be played.
    fn replay(&mut self, steps: &[(Moment, Act)]) -> Option<String> {
        let mut acts = Vec::new();
        steps.iter().find_map(|(at, act)| {
            self.world.pass(*at);
            self.acts(&mut acts);
            if acts.contains(act) { self.step(*act) } else { None }
        })
    }

    /// Goes on without faults.
    fn end_calmly(&mut self) -> Option<String> {
        self.is_calm = true;
        self.play_on()
    }

    /// What can happen next.
    fn acts(&self, acts: &mut Vec<Act>) {
        acts.clear();
        self.world.acts(acts);
        let is_fault = |act: &Act| weight(act) <= 2 && !matches!(act, Act::Heal(_));
        acts.retain(|act| !(self.is_calm && is_fault(act)));
    }

    /// Returns what broke, if something did.
    fn play_on(&mut self) -> Option<String> {
        let mut acts = Vec::new();
        while self.steps < STEPS {
            self.steps += 1;
            self.acts(&mut acts);
            if acts.iter().all(|act| weight(act) == 1) {
                // Nothing but time makes progress.
                let next = self.world.clients.iter().flat_map(Client::due).filter(|at| *at > self.world.now).min();
                match next {
                    // A fallback poll would wake it, and find what is left.
                    Some(_) if self.world.sleeps() || self.world.has_left() => {
                        return Some("nothing but time helps".to_owned());
                    }
                    Some(next) if !self.is_done() || !self.world.is_quiet() => {
                        self.world.pass(next);
                        continue;
                    }
                    _ if self.is_done() || acts.is_empty() => return self.left().map(str::to_owned),
                    _ => {}
                }
            }
            let act = self.choose(&acts);
            self.world.pass(self.world.now.plus(self.random.u64(0..4_000)));
            if let Some(broken) = self.step(act) {
                return Some(format!("{broken}, by {act:?}"));
            }
        }
        Some("does not end".to_owned())
    }

    fn choose(&mut self, acts: &[Act]) -> Act {
        let mut at = self.random.u32(0..acts.iter().map(weight).sum());
        let chosen = acts.iter().find(|act| {
            let is_it = at < weight(act);
            at = at.wrapping_sub(weight(act));
            is_it
        });
        *chosen.expect("the weights add up")
    }

    fn step(&mut self, act: Act) -> Option<String> {
        self.played.push((self.world.now, act));
        if self.shows {
            println!("{:>9} {act:?}", self.world.now.0);
        }
        self.world.step(act);
        if self.world.log.nodes.len() > 40 || self.world.log.end > 90 {
            self.world.normalise();
        }
        self.world.broken.map(str::to_owned)
    }

    fn is_done(&self) -> bool {
        let mut users = self.world.clients.iter().flat_map(|client| &client.users);
        users.all(|user| user.op.is_none() && user.left == 0)
    }

    /// What should not be when nothing happens any more.
    fn left(&self) -> Option<&'static str> {
        let mut users = self.world.clients.iter().flat_map(|client| &client.users);
        match () {
            () if users.any(|user| user.op.is_some()) || self.world.sleeps() => Some("a waiter sleeps"),
            () if self.world.has_left() => Some("something is left"),
            () => None,
        }
    }
}

/// Faults are rarer than what makes progress.
fn weight(act: &Act) -> u32 {
    match act {
        Act::Cut { .. }
        | Act::CutOff(_)
        | Act::Hand(_)
        | Act::Early(_)
        | Act::Drain(_)
        | Act::Close(_)
        | Act::Stall { .. } => 1,
        Act::Drop(..) | Act::Heal(_) | Act::Limit(..) | Act::Attend(..) | Act::Raise(..) => 2,
        _ => 40,
    }
}
