//! The models of locks, and the rules of each.

use super::case::Case;
use super::hold::{Hold, Reading};
use super::order::{Turn, falling, late};
use super::{Event, Mode, Report, attempt, exclusion, hold};

/// The rules of a correct lock. A model applies to each object of a history separately.
///
/// In all models a lock is released only by its holder, once, and not after the holder learned of its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Model {
    /// At most one hold at a time. Modes and tokens are ignored.
    Mutex,
    /// At most one hold at a time, with a token above those of all earlier holds. Modes are ignored.
    FencedMutex,
    /// A fenced mutex that its owner may acquire again, with the same token. It is free after as many releases, or when
    /// the hold is lost. A hold without an owner is not re-entrant.
    ReentrantMutex,
    /// Either one exclusive hold, or any number of shared ones. An exclusive token is above those of all earlier holds,
    /// a shared one above those of earlier exclusive holds. An exclusive hold may become shared, and keeps its token.
    ReadWrite,
    /// At most this many permits are held at a time. An exclusive hold takes all of them, a shared one takes one. Tokens
    /// are ignored.
    Permits(u32),
    /// A queue: as [`Self::ReadWrite`], with re-entry as in [`Self::ReentrantMutex`], and tokens are numbers of places
    /// in the queue. Take two granted attempts that exclude each other. If one was known to be in the queue before the
    /// other's acquire was invoked, it has the smaller token, and so holds first. An attempt that gives up may be
    /// overtaken.
    Fifo,
}

/// More than any number of readers.
const SHARED_ROOM: u64 = 1 << 40;

/// Judges events, which are ordered by time.
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
        let [this, other] = [turn, before].map(|turn| case.describe(&holds[turn.hold]));
        case.violation(turn.by, format!("{this} was granted after {other}, with a token that is not above"));
    }
    if model == Model::Fifo {
        check_places(case, &holds);
    }
    // After an earlier violation, all later turns would look late.
    if case.is_clean() {
        for (turn, other) in late(&turns) {
            let [this, other] = [turn, other].map(|turn| case.describe(&holds[turn.hold]));
            let why = "whose token is not above, nor those of others in between, can have ended";
            case.violation(turn.by, format!("{this} was granted before {other}, {why}"));
        }
    }
}

/// Places in the queue are taken in the order of their tokens.
fn check_places(case: &mut Case, holds: &[Hold]) {
    let place = |(index, hold): (usize, &Hold)| {
        // Taking a place takes no time.
        let at = hold.invoked;
        Turn { by: hold.placed, until: at, exclusive_until: at, ..turn(index, hold) }
    };
    let places: Vec<_> = (0..).zip(holds).map(place).collect();
    let found = falling(&places);
    for (turn, before) in &found {
        let [this, other] = [turn, before].map(|turn| case.describe(&holds[turn.hold]));
        let (asked, placed) = (case.time(turn.from), case.time(before.by));
        let why =
            format!("it asked at {asked}, when the other had been in the queue since {placed} at the latest");
        case.violation(turn.by, format!("{this} overtook {other}: {why}"));
    }
    if !found.is_empty() {
        return;
    }
    for (turn, other) in late(&places) {
        let [this, other] = [turn, other].map(|turn| case.describe(&holds[turn.hold]));
        let why = "whose token is not above, can have been there behind others";
        case.violation(
            turn.by,
            format!("{this} was in the queue by {}, before {other}, {why}", case.time(turn.by)),
        );
    }
}

fn turn(index: usize, hold: &Hold) -> Turn {
    let Hold { token, exclusive, invoked, granted, until, exclusive_until, .. } = *hold;
    Turn { hold: index, token, exclusive, from: invoked, by: granted, until, exclusive_until }
}
