//! Owns [`View`]: the plan that a member follows, and the one that it will follow when the set of members has settled. It has no IO
//! and no clock: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::tools::Plan;

/// A set that changes all the time is followed after this many settling times.
const LONGEST: u32 = 10;

/// What a member knows of the plan.
#[derive(Debug)]
pub(crate) struct View {
    settling_time: Duration,
    followed: Option<Arc<Plan>>,
    newest: Option<Newest>,
}

/// A plan that is not followed yet.
#[derive(Debug)]
struct Newest {
    plan: Arc<Plan>,
    /// When it is followed, and when at the latest one that replaces it is.
    due: Instant,
    latest: Instant,
}

impl Newest {
    fn due(&self, is_planning: bool) -> Instant {
        if is_planning { self.latest } else { self.due }
    }
}

/// What to do with a lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Serve,
    Release,
    /// It is known when the set has been read.
    Wait,
}

/// A lock that was granted, and the member that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// It is a shard of another member, and had no owner.
    pub(crate) is_claim: bool,
    /// The lock is held, and the member is in the group under its name.
    pub(crate) is_member: bool,
    /// The set of members was not read in the present session, or there is news.
    pub(crate) is_stale: bool,
    /// It was granted long ago. The set cannot be read, so the plan that is known has to do.
    pub(crate) is_late: bool,
}

impl View {
    pub(crate) fn new(settling_time: Duration) -> Self {
        Self { settling_time, followed: None, newest: None }
    }

    /// The plan to follow.
    pub(crate) fn followed(&self) -> Option<&Arc<Plan>> {
        self.followed.as_ref()
    }

    /// Notes the plan of the set that was seen last.
    pub(crate) fn see(&mut self, plan: Plan, now: Instant) {
        if self.followed.as_deref() == Some(&plan) {
            // The set has changed back.
            self.newest = None;
            return;
        }
        let latest = self.newest.as_ref().map_or(now + self.settling_time * LONGEST, |newest| newest.latest);
        let due = (now + self.settling_time).min(latest);
        self.newest = Some(Newest { plan: Arc::new(plan), due, latest });
    }

    /// When [`settle`](Self::settle) has something to do.
    pub(crate) fn due(&self, is_planning: bool) -> Option<Instant> {
        self.newest.as_ref().map(|newest| newest.due(is_planning))
    }

    /// Follows the newest plan if it is time. Returns whether it does so from now on. While the next plan is being computed, the set may
    /// have changed back, so the newest is followed at the latest time alone.
    pub(crate) fn settle(&mut self, now: Instant, is_planning: bool) -> bool {
        let Some(newest) = self.newest.take_if(|newest| newest.due(is_planning) <= now) else { return false };
        self.followed = Some(newest.plan);
        true
    }

    /// Decides about a shard whose lock this member was granted. The plan that it had when it queued may be old.
    pub(crate) fn verdict(&self, shard: u32, name: &str, grant: Grant) -> Verdict {
        if !grant.is_member {
            return Verdict::Release;
        }
        let Some(followed) = self.followed.as_ref().filter(|_| !grant.is_stale || grant.is_late) else {
            return Verdict::Wait;
        };
        let is_its = |plan: &Arc<Plan>| plan.owner(shard) == Some(name);
        // If the newest plan gives it to another member, that one queues when the set has settled, and gets it then.
        let is_served =
            grant.is_claim || is_its(followed) || self.newest.as_ref().is_some_and(|newest| is_its(&newest.plan));
        if is_served { Verdict::Serve } else { Verdict::Release }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(names: &[&str]) -> Plan {
        Plan::new(64, names.iter().copied())
    }

    /// A view that follows the plan of these names.
    fn following(names: &[&str], now: Instant) -> View {
        let mut view = View::new(SECOND);
        view.see(plan(names), now);
        assert!(!view.settle(now, false) && view.settle(now + SECOND, false));
        view
    }

    /// A shard of the second member that is the first one's without it.
    fn moving() -> u32 {
        (0..64).find(|&shard| plan(&["a", "b"]).owner(shard) == Some("b")).unwrap()
    }

    #[test]
    fn plan_is_followed_when_the_set_was_the_same_for_the_settling_time() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        view.see(plan(&["a", "b"]), now + SECOND * 5);
        assert_eq!(view.due(false), Some(now + SECOND * 6));
        view.see(plan(&["a", "b", "c"]), now + SECOND * 5 + SECOND / 2);
        assert!(!view.settle(now + SECOND * 6, false));
        assert!(view.settle(now + SECOND * 6 + SECOND / 2, false));
        assert_eq!(view.followed().unwrap().members(), ["a", "b", "c"]);
        assert_eq!(view.due(false), None);
    }

    #[test]
    fn member_that_comes_and_goes_within_the_settling_time_changes_nothing() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        for flap in 0..50 {
            let now = now + SECOND * 5 * flap;
            view.see(plan(&["a", "b"]), now);
            view.see(plan(&["a"]), now + SECOND / 2);
            assert!(view.due(false).is_none() && !view.settle(now + SECOND * 4, false));
        }
    }

    #[test]
    fn set_that_changes_all_the_time_is_followed_after_ten_settling_times() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        let changes = (1..100).find(|&change| {
            let (names, now) = (["a", "b", ["c", "d"][change as usize % 2]], now + SECOND / 2 * change);
            view.see(plan(&names), now);
            view.settle(now, false)
        });
        assert_eq!(changes, Some(21));
    }

    /// Each plan takes longer than the time until the next change.
    #[test]
    fn plan_is_followed_at_the_latest_time_while_others_are_computed() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        view.see(plan(&["a", "b"]), now);
        assert_eq!(view.due(true), Some(now + SECOND * LONGEST));
        assert!(!view.settle(now + SECOND * LONGEST - SECOND / 2, true));
        assert!(view.settle(now + SECOND * LONGEST, true));
        assert_eq!(view.followed().unwrap().members(), ["a", "b"]);
    }

    const GRANT: Grant = Grant { is_claim: false, is_member: true, is_stale: false, is_late: false };

    #[test]
    fn grant_is_served_by_both_plans_and_refused_when_neither_gives_the_shard() {
        let (now, shard) = (Instant::now(), moving());
        assert_eq!(View::new(SECOND).verdict(shard, "a", GRANT), Verdict::Wait);
        let mut view = following(&["a"], now);
        let verdicts = |view: &View| ["a", "b"].map(|name| view.verdict(shard, name, GRANT));
        assert_eq!(verdicts(&view), [Verdict::Serve, Verdict::Release]);
        view.see(plan(&["a", "b"]), now);
        // The shard is the first one's until the set has settled, and the second one has queued early.
        assert_eq!(verdicts(&view), [Verdict::Serve, Verdict::Serve]);
        assert!(view.settle(now + SECOND, false));
        assert_eq!(verdicts(&view), [Verdict::Release, Verdict::Serve]);
    }

    #[test]
    fn grant_that_has_waited_for_long_is_judged_by_the_plan_that_is_known() {
        let (now, shard) = (Instant::now(), moving());
        let view = following(&["a", "b"], now);
        let late = Grant { is_stale: true, is_late: true, ..GRANT };
        let verdicts = ["a", "b"].map(|name| view.verdict(shard, name, late));
        assert_eq!(verdicts, [Verdict::Release, Verdict::Serve]);
        assert_eq!(view.verdict(shard, "a", Grant { is_claim: true, ..late }), Verdict::Serve);
    }

    #[test]
    fn grant_waits_for_a_set_of_the_present_session_and_is_refused_without_a_membership() {
        let (now, shard) = (Instant::now(), moving());
        let view = following(&["a", "b"], now);
        for is_claim in [false, true] {
            let stale = Grant { is_claim, is_stale: true, ..GRANT };
            assert_eq!(view.verdict(shard, "b", stale), Verdict::Wait);
            assert_eq!(view.verdict(shard, "b", Grant { is_member: false, ..stale }), Verdict::Release);
        }
        // Its planned owner does not take it.
        assert_eq!(view.verdict(shard, "a", Grant { is_claim: true, ..GRANT }), Verdict::Serve);
    }
}
