//! The models that histories are judged by, and which rules make up each.

use super::case::Case;
use super::hold::{Hold, Reading};
use super::order::{Turn, falling, late};
use super::{Event, Mode, Report, attempt, exclusion, hold};

/// What a correct lock does. Each model holds for every object of a history by itself.
///
/// By all of them only what is held is released, once, and not after its holder was told that it lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Model {
    /// At most one holds at a time. Modes and tokens mean nothing.
    Mutex,
    /// At most one holds at a time, and its token is above those of all holds before. Modes mean nothing.
    FencedMutex,
    /// A fenced mutex whose owner may acquire again what it holds, with the same token; it is free after as many
    /// releases, and when the hold is lost. A hold without an owner is entered once.
    ReentrantMutex,
    /// Either one holds exclusively, or any number share. An exclusive token is above those of all holds before, a
    /// shared one above those of exclusive holds before. An exclusive hold may become shared, with its token.
    ReadWrite,
    /// At most this many permits are held at a time. An exclusive hold takes all of them, a shared one takes one;
    /// tokens mean nothing.
    Permits(u32),
    /// A queue: as [`Self::ReadWrite`], with re-entry as in [`Self::ReentrantMutex`]; and tokens are numbers of places
    /// in line. Of two that exclude each other and were both granted, the one whose place was known to be taken before
    /// the other's acquire was invoked has the smaller token, and so holds first. Who gives up may be overtaken.
    Fifo,
}

/// More than there can be readers.
const SHARED_ROOM: u64 = 1 << 40;

/// Judges events that are in the order of their time.
pub(super) fn judge(events: &[Event], model: Model) -> Report {
    let mut violations = Vec::new();
    for mut case in attempt::read(events) {
        judge_case(&mut case, model);
        violations.extend(case.into_violations());
    }
    violations.sort();
    Report { model, violations: violations.into_iter().map(|(_, violation)| violation).collect() }
}

fn judge_case(case: &mut Case, model: Model) {
    let shares = matches!(model, Model::ReadWrite | Model::Permits(_) | Model::Fifo);
    let downgrades = matches!(model, Model::ReadWrite | Model::Fifo);
    let reenters = matches!(model, Model::ReentrantMutex | Model::Fifo);
    let holds = hold::read(case, Reading { shares, downgrades, reenters });
    let room = match model {
        Model::Permits(limit) => limit.into(),
        _ => SHARED_ROOM,
    };
    exclusion::check(case, &holds, room, |case, hold| match case.attempts[hold.attempt].mode {
        Mode::Permits(permits) if matches!(model, Model::Permits(_)) => permits.into(),
        _ => 1,
    });
    if matches!(model, Model::Mutex | Model::Permits(_)) {
        return;
    }
    let turns: Vec<_> = (0..).zip(&holds).map(|(index, hold)| turn(index, hold)).collect();
    for (turn, before) in falling(&turns) {
        let [this, other] = [turn, before].map(|turn| case.tell(&holds[turn.hold]));
        case.violation(turn.by, format!("{this} was granted after {other}, with a token that is not above"));
    }
    if model == Model::Fifo {
        check_places(case, &holds);
    }
    // What is wrong by itself would make all that follows look late.
    if case.is_clean() {
        for (turn, other) in late(&turns) {
            let [this, other] = [turn, other].map(|turn| case.tell(&holds[turn.hold]));
            let why = "whose token is not above, nor those of others in between, can have ended";
            case.violation(turn.by, format!("{this} was granted before {other}, {why}"));
        }
    }
}

/// Places in line are taken in the order of their tokens.
fn check_places(case: &mut Case, holds: &[Hold]) {
    let place = |(index, hold): (usize, &Hold)| {
        // To take a place takes no time.
        let at = hold.invoked;
        Turn { by: hold.placed, until: at, exclusive_until: at, ..turn(index, hold) }
    };
    let places: Vec<_> = (0..).zip(holds).map(place).collect();
    let found = falling(&places);
    for (turn, before) in &found {
        let [this, other] = [turn, before].map(|turn| case.tell(&holds[turn.hold]));
        let (asked, placed) = (case.time(turn.from), case.time(before.by));
        let why = format!("it asked at {asked}, when the other had been in line since {placed} at the latest");
        case.violation(turn.by, format!("{this} overtook {other}: {why}"));
    }
    if !found.is_empty() {
        return;
    }
    for (turn, other) in late(&places) {
        let [this, other] = [turn, other].map(|turn| case.tell(&holds[turn.hold]));
        let why = "whose token is not above, can have been there behind others";
        case.violation(turn.by, format!("{this} was in line by {}, before {other}, {why}", case.time(turn.by)));
    }
}

fn turn(index: usize, hold: &Hold) -> Turn {
    let Hold { token, exclusive, invoked, granted, until, exclusive_until, .. } = *hold;
    Turn { hold: index, token, exclusive, from: invoked, by: granted, until, exclusive_until }
}
