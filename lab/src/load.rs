//! The work without faults: how long a lock takes, in which order it is granted, and what it costs.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::Outcome;
use crate::event::{Event, What};
use crate::site::Site;
use crate::stage::{SOON, Stage};
use crate::ways::Way;
use crate::work::Gate;

/// Virtual machines at most. More contenders are threads of these.
const MACHINES: usize = 8;
/// Requests this close together have no order: they may overtake each other on their way.
const TOGETHER: u64 = 5_000_000;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Size {
    /// Grants of all contenders together, at most.
    pub grants: usize,
    /// The time after which no contender begins a round.
    pub limit: Duration,
}

/// What a way did with some contenders.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Load {
    /// The way.
    pub way: &'static str,
    /// The run.
    pub run: String,
    /// Contenders at the same time.
    pub contenders: usize,
    /// The processes that they are tasks or threads of.
    pub processes: usize,
    /// Grants of all.
    pub grants: usize,
    /// Increments that were acknowledged and are not in the counter.
    pub lost: i64,
    /// From request to grant, in milliseconds.
    pub p50_ms: f64,
    /// The same of the slowest hundredth.
    pub p99_ms: f64,
    /// From one contender, or from itself, to the next.
    pub hand_overs_per_second: f64,
    /// Requests of the servers, from their own counters.
    pub requests_per_hand_over: f64,
    /// Waiters that were woken, or looked again.
    pub wake_ups_per_hand_over: f64,
    /// The percentage of grants that overtook an earlier request.
    pub overtaking_percent: f64,
    /// CPU time of the servers.
    pub server_cpu_ms_per_hand_over: f64,
}

/// Lets contenders work.
///
/// # Errors
///
/// If one cannot be started, or does not end.
pub async fn measure(
    way: &'static Way,
    site: &Site,
    contenders: usize,
    size: Size,
    run: &str,
    java: &[String],
) -> Outcome<Load> {
    let stage = Stage::new(way, run, site.addresses(), java).await?;
    let processes = if way.java { contenders.min(MACHINES) } else { contenders };
    let mut order = stage.order((size.grants / contenders).max(1), Gate::None);
    order.tasks = contenders / processes;
    order.think = Duration::from_millis(1);
    order.limit = Some(size.limit);
    let mut actors = Vec::new();
    for number in 0..processes {
        actors.push(stage.enter(&format!("c{number}"), &order, None).await?);
    }
    let (requests, woken, cpu) = (site.requests().await?, site.notifications().await?, site.cpu_time()?);
    for actor in &mut actors {
        actor.go()?;
    }
    for actor in &actors {
        actor.wait(What::Done, size.limit + SOON).await?;
    }
    let cpu = site.cpu_time()?.saturating_sub(cpu);
    let requests = site.requests().await? - requests;
    let notified = site.notifications().await?.zip(woken).map(|(after, before)| after - before);
    let outcomes = stage.count(0).await?;
    let events = &outcomes.events;
    let done = events.iter().filter(|event| event.what == What::Done);
    let waits = waits(events, if way.optimistic { What::Released } else { What::Granted });
    let woken = match notified {
        Some(notified) => notified,
        None if way.blocking => waits.iter().filter(|wait| wait.meets(&waits)).count() as u64,
        None => done.filter_map(|event| event.number).sum::<i64>().unsigned_abs(),
    };
    let grants = waits.len();
    let mut times: Vec<_> = waits.iter().map(|wait| (wait.granted - wait.requested) as f64 / 1e6).collect();
    times.sort_by(f64::total_cmp);
    let per_hand_over = |number: f64| number / grants.max(1) as f64;
    let first = waits.iter().map(|wait| wait.requested).min().unwrap_or(0);
    let last = events.iter().filter(|event| event.what == What::Released).map(|event| event.at).max().unwrap_or(0);
    let overtaking = waits.iter().filter(|wait| wait.overtakes(&waits)).count();
    Ok(Load {
        way: way.id,
        run: run.to_owned(),
        contenders,
        processes,
        grants,
        lost: outcomes.lost,
        p50_ms: quantile(&times, 0.5),
        p99_ms: quantile(&times, 0.99),
        hand_overs_per_second: grants as f64 / (last.saturating_sub(first) as f64 / 1e9),
        requests_per_hand_over: per_hand_over(requests as f64),
        wake_ups_per_hand_over: per_hand_over(woken as f64),
        overtaking_percent: 100.0 * per_hand_over(overtaking as f64),
        server_cpu_ms_per_hand_over: per_hand_over(cpu.as_secs_f64() * 1e3),
    })
}

struct Wait {
    requested: u64,
    granted: u64,
    released: u64,
}

impl Wait {
    /// Whether another contender had the lock while this one waited.
    fn meets(&self, all: &[Self]) -> bool {
        all.iter().any(|other| other.granted < self.granted && self.requested < other.released)
    }

    /// Whether an earlier request was granted later.
    fn overtakes(&self, all: &[Self]) -> bool {
        all.iter().any(|other| other.requested + TOGETHER < self.requested && self.granted < other.granted)
    }
}

/// What counts as the grant where there is no lock is the end of the update.
fn waits(events: &[Event], grant: What) -> Vec<Wait> {
    let mut requested = HashMap::new();
    let mut held = HashMap::new();
    let mut waits: Vec<Wait> = Vec::new();
    for event in events {
        let task = (event.contender.as_str(), event.task);
        if event.what == What::Requested {
            requested.insert(task, event.at);
        } else if event.what == grant
            && let Some(requested) = requested.remove(&task)
        {
            waits.push(Wait { requested, granted: event.at, released: event.at });
            held.insert(task, waits.len() - 1);
        } else if event.what == What::Released
            && let Some(wait) = held.remove(&task).and_then(|wait: usize| waits.get_mut(wait))
        {
            wait.released = event.at;
        }
    }
    waits
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((part * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_overtakes_only_clearly_earlier_requests() {
        let wait = |requested, granted| Wait { requested, granted, released: granted };
        let all = [wait(0, 90_000_000), wait(10_000_000, 20_000_000), wait(1_000_000, 30_000_000)];
        let overtakes: Vec<_> = all.iter().map(|wait| wait.overtakes(&all)).collect();
        assert_eq!(overtakes, [false, true, false]);
    }
}
