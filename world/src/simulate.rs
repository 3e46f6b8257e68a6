//! Plays random histories, with the real account of trust and virtual time.

use std::sync::Arc;

use crate::client::User;
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
    let mut random = fastrand::Rng::with_seed(seed);
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
    for _ in 0..sizes.usize(2..5) {
        users.push((0..sizes.usize(1..5)).map(|_| user()).collect());
    }
    let budget = Budget {
        cuts: random.u16(0..12),
        early: random.u16(0..3),
        hand: random.u16(0..4),
        drops: random.u16(0..8),
        strangers: random.u16(0..2),
        ..Budget::default()
    };
    let mut world = World::new(&users, budget, true, T, || Ledger::new(T, Some(Moment(0)), Moment(0)));
    let mut acts = Vec::new();
    let mut steps = 0;
    let ended =
        |steps, world: &World<Ledger>, broken: Option<String>| History { steps, grants: world.grants.0, broken };
    while steps < STEPS {
        steps += 1;
        acts.clear();
        world.acts(&mut acts);
        let total: u32 = acts.iter().map(weight).sum();
        if acts.iter().all(|act| weight(act) == 1) {
            let timers = world.clients.iter().flat_map(|client| client.timers.values());
            let next = timers.filter(|at| **at > world.now).min().copied();
            let is_done = world.clients.iter().all(|client| {
                client.users.iter().all(|user| user.op.is_none() && user.turn.is_none() && user.left == 0)
            });
            match next {
                // Nothing but time makes progress.
                // A slow look would wake it, and find what is left.
                Some(_) if world.sleeps() || world.has_left() => {
                    if shows {
                        world.show();
                    }
                    return ended(steps, &world, Some("nothing but time helps".to_owned()));
                }
                Some(next) if !is_done || !world.is_quiet() => {
                    world.now = next;
                    world.ping();
                    continue;
                }
                _ if is_done || acts.is_empty() => break,
                _ => {}
            }
        }
        let mut at = random.u32(0..total);
        let chosen = acts.iter().find(|act| {
            let is_it = at < weight(act);
            at = at.wrapping_sub(weight(act));
            is_it
        });
        let act = *chosen.expect("the weights add up");
        world.now = world.now.plus(random.u64(0..4_000));
        world.ping();
        if shows {
            println!("{:>9} {act:?}", world.now.0);
        }
        world.step(act);
        if world.log.nodes.len() > 40 || world.log.end > 90 {
            world.normalise();
        }
        if let Some(broken) = world.broken {
            return ended(steps, &world, Some(format!("{broken}, by {act:?}")));
        }
    }
    if shows {
        world.show();
    }
    let waits = world
        .clients
        .iter()
        .any(|client| client.users.iter().any(|user| user.op.is_some() || user.turn.is_some()));
    let broken = match () {
        () if steps == STEPS => Some("does not end"),
        () if waits || world.sleeps() => Some("a waiter sleeps"),
        () if world.has_left() => Some("something is left"),
        () => None,
    };
    ended(steps, &world, broken.map(str::to_owned))
}

/// Faults are rarer than what makes progress.
fn weight(act: &Act) -> u32 {
    match act {
        Act::Cut { .. } | Act::CutOff(_) | Act::Hand(_) | Act::Early(_) => 1,
        Act::Drop(..) | Act::Heal(_) => 2,
        Act::Claim(..) => 4,
        _ => 40,
    }
}
