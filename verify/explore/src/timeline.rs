//! A history as SVG: what each server and each user did, and when.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use testbed::timeline::{self, Bar, Row, Shade};

use crate::client::User;
use crate::machine::{HoldState, Kind, Ledger, Life, Moment, Phase};
use crate::world::{Act, World};

type Lane = (Row, Option<Arc<str>>);

/// The intervals of a history that goes on.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    open: BTreeMap<Lane, (Shade, u64)>,
    bars: Vec<Bar>,
}

/// What a page shows at most, in nanoseconds.
const PAGE: u64 = 60_000_000_000;

fn nanos(at: Moment) -> u64 {
    at.0 * 1_000
}

impl Timeline {
    /// Looks at the world after a step.
    pub(crate) fn look(&mut self, world: &World<Ledger>, act: Act) {
        let at = nanos(world.now);
        if let Act::Hand(_) = act {
            self.add((Row::Operator, None), at, at, Shade::Deleted);
        }
        for (c, client) in world.clients.iter().enumerate() {
            let server = client.is_cut_off.then_some(Shade::CutOff);
            self.show((Row::Server(c), None), server, at);
            let whole = match () {
                () if client.machine.life == Life::Over => Some(Shade::Killed),
                () if client.alive.is_stalled() => Some(Shade::Paused),
                () => (!client.is_up).then_some(Shade::CutOff),
            };
            self.show((Row::Client(c), None), whole, at);
            for (u, user) in client.users.iter().enumerate() {
                let lane = (Row::Client(c), Some(format!("{u} {}", program(user)).into()));
                let shade = shade(world, c, user);
                let before = self.open.get(&lane).map(|(shade, _)| *shade);
                let held = matches!(before, Some(Shade::Held | Shade::Shared | Shade::Suspended));
                let is_ended = matches!(act, Act::Release(..) | Act::Drop(..));
                if held && shade.is_none() && !is_ended && world.clients[c].users[u].op.is_none() {
                    self.add(lane.clone(), at, at, Shade::Lost);
                }
                self.show(lane, shade, at);
            }
        }
    }

    /// Draws it in a folder of its own, and prints which. A history is shown without it where that cannot be written.
    pub(crate) fn draw(&mut self, world: &World<Ledger>, seed: u64) {
        let end = nanos(world.now);
        for (lane, (shade, begin)) in std::mem::take(&mut self.open) {
            self.add(lane, begin, end, shade);
        }
        let out = PathBuf::from(format!("target/explore/{seed}"));
        let bars = std::mem::take(&mut self.bars);
        let length = PAGE.min(end.next_multiple_of(1_000_000_000));
        let title = format!("history {seed}");
        let drawn = fs::create_dir_all(&out).and_then(|()| timeline::draw(bars, (0, end), length, &title, &out));
        match drawn {
            Ok(pages) => println!("{pages} pages in {}", out.display()),
            Err(error) => println!("{} cannot be written: {error}", out.display()),
        }
    }

    /// From now on a lane is like this.
    fn show(&mut self, lane: Lane, shade: Option<Shade>, at: u64) {
        let open = self.open.get(&lane).copied();
        if open.map(|(shade, _)| shade) == shade {
            return;
        }
        if let Some((before, begin)) = open {
            self.open.remove(&lane);
            self.add(lane.clone(), begin, at, before);
        }
        if let Some(shade) = shade {
            self.open.insert(lane, (shade, at));
        }
    }

    fn add(&mut self, (row, lane): Lane, begin: u64, end: u64, shade: Shade) {
        self.bars.push(Bar::new(row, lane, (begin, end), shade));
    }
}

/// What a user does, in short: `W0 R2` is a writer of path 0 that reads path 2.
fn program(user: &User) -> String {
    let paths = user.spec.queues.iter().map(|(path, kind)| format!("{:.1}{path}", format!("{kind:?}")));
    paths.collect::<Vec<_>>().join(" ")
}

fn shade(world: &World<Ledger>, c: usize, user: &User) -> Option<Shade> {
    let machine = &world.clients[c].machine;
    let one = user.op.and_then(|op| machine.op(op))?;
    match (one.phase, user.op.and_then(|op| machine.state(world.now, op))) {
        (Phase::Held, Some(HoldState::Suspended)) => Some(Shade::Suspended),
        (Phase::Held, Some(HoldState::Held)) => {
            let is_alone = one.queues.iter().any(|queue| matches!(queue.kind, Kind::Lock | Kind::Write));
            Some(if is_alone { Shade::Held } else { Shade::Shared })
        }
        (phase, _) if phase.is_queuing() => Some(Shade::Waiting),
        _ => None,
    }
}
