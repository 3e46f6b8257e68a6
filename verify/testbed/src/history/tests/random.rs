//! Judges and twin agree on random histories.

use super::super::{Event, History, Mode, Model, Step};
use super::script::LOCK;
use super::{simulation, twin};

const MODELS: [Model; 7] = [
    Model::Mutex,
    Model::FencedMutex,
    Model::ReentrantMutex,
    Model::ReadWrite,
    Model::Permits(1),
    Model::Permits(3),
    Model::Fifo,
];

/// Compares judge and twin; returns whether they accepted the history.
fn agree(seed: u64, model: Model, events: &[Event]) -> bool {
    let report = History::from_events(events.to_vec()).judge(model);
    let explained = twin::explains(events, model);
    assert_eq!(report.is_clean(), explained, "seed {seed}: the twin disagrees with: {report}\n{}", spell(events));
    explained
}

fn spell(events: &[Event]) -> String {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by_key(|event| event.at);
    let line = |event: &&Event| format!("{} {}#{} {:?}\n", event.at, event.process, event.attempt, event.step);
    events.iter().map(line).collect()
}

/// An attempt with steps in an order that is possible for a client.
fn attempt(random: &mut fastrand::Rng, number: u64) -> Vec<Event> {
    let owner = (random.u8(0..3) > 0).then(|| ["x", "y"][random.usize(..2)].into());
    let mode = match random.u8(0..6) {
        0..3 => Mode::Exclusive,
        3..5 => Mode::Shared,
        _ => Mode::Permits(random.u32(1..4)),
    };
    let token = random.i64(0..6);
    let mut steps = vec![Step::Acquire { mode, owner }];
    if random.bool() {
        let places = [None, Some(token), Some(token + 1)];
        steps.push(Step::Enqueued { place: places[random.usize(..3)] });
    }
    match random.u8(0..12) {
        0 => steps.push(Step::AcquireFailed),
        1 => steps.push(Step::AcquireUnknown),
        2 => {}
        _ => {
            steps.push(Step::Acquired { token });
            let mut rest = Vec::new();
            if random.u8(0..8) > 0 {
                rest.push(Step::Release);
            }
            if random.u8(0..3) == 0 {
                rest.insert(random.usize(..=rest.len()), Step::Lost { since: random.u64(0..60) });
            }
            if rest.contains(&Step::Release) {
                let ends = [Some(Step::Released), Some(Step::ReleaseLost), Some(Step::ReleaseUnknown), None];
                rest.extend(ends[random.usize(..4).saturating_sub(random.usize(..3))].clone());
            }
            for (chance, step) in [(3, Step::Confirmed), (4, Step::Downgrade)] {
                if random.u8(0..chance) == 0 && (step == Step::Confirmed || mode == Mode::Exclusive) {
                    let release = rest.iter().position(|step| *step == Step::Release).unwrap_or(rest.len());
                    rest.insert(random.usize(..=release), step);
                }
            }
            steps.extend(rest);
        }
    }
    let end = random.u64(2..30);
    let start = random.u64(0..30);
    let mut times: Vec<_> = steps.iter().map(|_| start + random.u64(0..end)).collect();
    times.sort_unstable();
    let process = ["a", "b"][random.usize(..2)];
    times.into_iter().zip(steps).map(|(at, step)| Event::new(at, process, LOCK, number, step)).collect()
}

#[test]
fn random_history_is_judged_as_by_the_twin() {
    let mut accepted = [0; MODELS.len()];
    let rounds = 2_500;
    for seed in 0..rounds {
        let mut random = fastrand::Rng::with_seed(seed);
        let attempts = random.u64(1..6);
        let events: Vec<_> = (0..attempts).flat_map(|number| attempt(&mut random, number)).collect();
        for (accepted, model) in accepted.iter_mut().zip(MODELS) {
            *accepted += u64::from(agree(seed, model, &events));
        }
    }
    let both = |accepted: &u64| (rounds / 20..rounds * 19 / 20).contains(accepted);
    assert!(accepted.iter().all(both), "too few correct or wrong histories: {accepted:?} of {rounds}");
}

#[test]
fn history_of_a_correct_lock_is_accepted_and_a_changed_one_judged_as_by_the_twin() {
    let mut refused = [0; MODELS.len()];
    let rounds = 2_000;
    for seed in 0..rounds {
        for (refused, model) in refused.iter_mut().zip(MODELS) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut events = simulation::run(&mut random, model);
            let right = agree(seed, model, &events);
            assert!(right, "seed {seed}: {model:?} refuses a correct lock\n{}", spell(&events));
            for _ in 0..random.u8(1..16) {
                change(&mut random, &mut events);
            }
            *refused += u64::from(!agree(seed, model, &events));
        }
    }
    assert!(
        refused.iter().all(|refused| *refused > rounds / 20),
        "too few wrong histories: {refused:?} of {rounds}"
    );
}

/// Changes a step or its time, or all times of an attempt. The steps of the attempt keep their order.
fn change(random: &mut fastrand::Rng, events: &mut Vec<Event>) {
    if events.is_empty() {
        return;
    }
    let index = random.usize(..events.len());
    let Event { at, attempt, .. } = events[index];
    if random.u8(0..3) == 0 {
        let by = random.u64(0..30);
        for event in events.iter_mut().filter(|event| event.attempt == attempt) {
            event.at += by;
            if let Step::Lost { since } = &mut event.step {
                *since += by;
            }
        }
        return events.sort_by_key(|event| event.at);
    }
    let same = |event: &&Event| event.attempt == attempt;
    let after = events[index + 1..].iter().find(same).map_or(at + 9, |event| event.at);
    let before = events[..index].iter().rev().find(same).map_or(at.saturating_sub(9), |event| event.at);
    match &mut events[index].step {
        Step::Acquired { token } if random.bool() => *token += random.i64(-3..4),
        Step::Lost { .. } if random.bool() => drop(events.remove(index)),
        Step::Lost { since } if random.bool() => *since = at,
        step @ (Step::ReleaseLost | Step::ReleaseUnknown) if random.bool() => *step = Step::Released,
        _ => events[index].at = random.u64(before..=after),
    }
    events.sort_by_key(|event| event.at);
}
