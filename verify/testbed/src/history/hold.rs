//! The minimal duration of a hold, computed from the attempts that share it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Mode;
use super::attempt::{Attempt, Outcome};
use super::case::Case;

/// The end of a hold that did not end within the history.
pub(super) const NEVER: u64 = u64::MAX;

/// The time from a grant to its end: one attempt, or all attempts by which an owner re-entered before it left.
///
/// It began at an instant from `invoked` to `granted`, and ended at `until` or later. If `until` is before `granted`,
/// it may have begun and ended at a single instant of that range.
#[derive(Debug)]
pub(super) struct Hold {
    /// The index of the first of its attempts.
    pub(super) attempt: usize,
    pub(super) token: i64,
    pub(super) exclusive: bool,
    pub(super) invoked: u64,
    pub(super) granted: u64,
    pub(super) until: u64,
    /// Until when it was exclusive at least; without meaning for a shared hold.
    pub(super) exclusive_until: u64,
    /// When it was certainly in the queue.
    pub(super) placed: u64,
}

/// How a model interprets attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Whether shared holds may overlap.
    pub(super) shares: bool,
    /// Whether an exclusive hold may become shared.
    pub(super) downgrades: bool,
    /// Whether an owner may re-enter.
    pub(super) reenters: bool,
}

/// Reads the holds from the granted attempts. Adds a violation for each hold that contradicts itself.
pub(super) fn read(case: &mut Case, reading: Reading) -> Vec<Hold> {
    let groups = group(&case.attempts, reading);
    groups
        .into_iter()
        .filter_map(|mut group| {
            // The first attempt joined the queue; later ones need an existing hold.
            group.sort_by_key(|&member| case.attempts[member].invoked);
            check_reentry(case, &group);
            check_loss(case, &group);
            let members: Vec<_> = group.iter().map(|&member| &case.attempts[member]).collect();
            merge(group[0], &members, reading)
        })
        .collect()
}

/// The indices of granted attempts that share a hold: those of one owner with one token. A new hold has a new token.
fn group(attempts: &[Attempt], reading: Reading) -> Vec<Vec<usize>> {
    let mut groups = Vec::<Vec<usize>>::new();
    let mut numbers = HashMap::<(&Arc<str>, &Arc<str>, i64), usize>::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let Some(grant) = attempt.granted else { continue };
        let owner = attempt.owner.as_ref().filter(|_| reading.reenters && attempt.mode == Mode::Exclusive);
        let next = groups.len();
        let number = match owner {
            Some(owner) => *numbers.entry((&attempt.process, owner, grant.token)).or_insert(next),
            None => next,
        };
        match groups.get_mut(number) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

fn merge(attempt: usize, members: &[&Attempt], reading: Reading) -> Option<Hold> {
    let grants = || members.iter().filter_map(|member| member.granted);
    let (granted, token) = grants().map(|grant| (grant.at, grant.token)).min()?;
    let until = lasted_until(members);
    // Only a hold of one attempt is known to become shared as a whole.
    let downgraded = members[0].downgraded.filter(|_| members.len() == 1);
    Some(Hold {
        attempt,
        token,
        exclusive: !reading.shares || members.iter().any(|member| member.mode == Mode::Exclusive),
        invoked: members.iter().map(|member| member.invoked).min()?,
        granted,
        until,
        exclusive_until: downgraded.filter(|_| reading.downgrades).map_or(until, |at| at.min(until)),
        placed: members.iter().filter_map(|member| placed(member)).min()?,
    })
}

/// When the place that led to the grant was certainly taken. A place with another number was lost.
fn placed(member: &Attempt) -> Option<u64> {
    let grant = member.granted?;
    let place = match member.places.iter().find(|(_, place)| *place == Some(grant.token)) {
        Some(numbered) => Some(numbered),
        None => member.places.last().filter(|(_, place)| place.is_none()),
    };
    Some(place.map_or(grant.at, |(at, _)| grant.at.min(*at)))
}

/// When the holder first learned of a loss, from the lock or from a release.
fn learned_loss(members: &[&Attempt]) -> Option<u64> {
    let answers = members.iter().filter_map(|member| member.release.filter(|it| it.is(Outcome::Lost))?.end);
    let reports = members.iter().filter_map(|member| member.lost);
    reports.map(|loss| loss.at).chain(answers.map(|(at, _)| at)).min()
}

/// An instant before which the hold cannot have ended, unless it had not begun.
fn lasted_until(members: &[&Attempt]) -> u64 {
    let learned = learned_loss(members);
    let proofs = members.iter().flat_map(|member| [Some(member.invoked), member.confirmed, member.released()]);
    let proven = proofs.flatten().filter(|at| learned.is_none_or(|learned| *at <= learned)).max();
    // Until when its owner relied on it, if it learned of no loss.
    let claimed = members.iter().map(|member| member.release.map_or(NEVER, |it| it.invoked)).max();
    let since = members.iter().filter_map(|member| member.lost).map(|loss| loss.since).min();
    let kept = match (since, learned) {
        (Some(since), _) => claimed.min(Some(since)),
        // A release with an unknown outcome may have been too late.
        (None, None) => claimed.filter(|until| *until == NEVER),
        (None, Some(_)) => None,
    };
    proven.max(kept).unwrap_or_default()
}

/// Only a holder may re-enter without a new token.
fn check_reentry(case: &mut Case, group: &[usize]) {
    let mut latest = 0;
    for (position, &member) in group.iter().enumerate() {
        let attempt = &case.attempts[member];
        if position > 0 && attempt.invoked > latest {
            let token = attempt.granted.map_or(0, |grant| grant.token);
            let (at, before) = (case.time(attempt.invoked), case.time(latest));
            let breach = format!("entered again at {at} with token {token}, whose hold it had left by {before}");
            case.violation(attempt.invoked, format!("{} {breach}", case.who(member)));
        }
        let release = case.attempts[member].release.filter(|release| release.is(Outcome::Ok));
        latest = latest.max(release.and_then(|release| release.end).map_or(NEVER, |(at, _)| at));
    }
}

/// A holder that has learned of a loss no longer holds the lock.
fn check_loss(case: &mut Case, group: &[usize]) {
    let members: Vec<_> = group.iter().map(|&member| &case.attempts[member]).collect();
    let Some(learned) = learned_loss(&members) else { return };
    let mut late = Vec::new();
    for (&member, attempt) in group.iter().zip(members) {
        let steps = [
            (Some(attempt.invoked), "entered again"),
            (attempt.confirmed, "still held"),
            (attempt.released(), "released in time"),
        ];
        late.extend(
            steps.into_iter().filter_map(|(at, what)| Some((member, at.filter(|at| *at > learned)?, what))),
        );
    }
    for (member, at, what) in late {
        let (who, when, learned) = (case.who(member), case.time(at), case.time(learned));
        let token = case.attempts[member].granted.map_or(0, |grant| grant.token);
        case.violation(
            at,
            format!("{who} {what} at {when} (token {token}), after it learned of its loss at {learned}"),
        );
    }
}
