//! Owns [`View`]: the plan that a member follows, and the plan that it will follow when the set of members has settled. No IO and
//! no clock: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::tools::Plan;

/// A set that changes all the time is followed after this many settling times.
const LONGEST: u32 = 10;

/// The plan that a member follows, and the next one.
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
    /// When to follow this plan, and when at the latest to follow it or its replacement.
    due: Instant,
    latest: Instant,
}

/// What to do with a granted lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Serve,
    Release,
    /// Decide once the set of members has been read.
    Wait,
}

/// The circumstances of a granted lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// The shard is another member's by plan, and had no owner.
    pub(crate) is_claim: bool,
    /// The lock is held, and this member is in the group under its name.
    pub(crate) is_member: bool,
    /// The set of members may be out of date, or its plan is not computed yet.
    pub(crate) is_stale: bool,
    /// The grant was long ago, so the known plan decides, even if the set cannot be read.
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

    /// Notes the plan of the newest set of members.
    pub(crate) fn see(&mut self, plan: Plan, now: Instant) {
        if self.followed.as_deref() == Some(&plan) {
            // The set has changed back to that of the followed plan.
            self.newest = None;
            return;
        }
        let latest = self.newest.as_ref().map_or(now + self.settling_time * LONGEST, |newest| newest.latest);
        let due = (now + self.settling_time).min(latest);
        self.newest = Some(Newest { plan: Arc::new(plan), due, latest });
    }

    /// When [`settle`](Self::settle) has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.newest.as_ref().map(|newest| newest.due)
    }

    /// Follows the newest plan if it is due. Returns whether the followed plan has changed.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        let Some(newest) = self.newest.take_if(|newest| newest.due <= now) else { return false };
        self.followed = Some(newest.plan);
        true
    }

    /// Decides about a shard whose lock this member was granted. The plan may have changed since the member queued.
    pub(crate) fn verdict(&self, shard: u32, name: &str, grant: Grant) -> Verdict {
        if !grant.is_member {
            return Verdict::Release;
        }
        let Some(followed) = self.followed.as_ref().filter(|_| !grant.is_stale || grant.is_late) else {
            return Verdict::Wait;
        };
        let is_its = |plan: &Arc<Plan>| plan.owner(shard) == Some(name);
        // If only the newest plan gives the shard to another member, keep it: that member queues once the set has settled.
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
        assert!(!view.settle(now) && view.settle(now + SECOND));
        view
    }

    /// A shard that moves from `a` to `b` when `b` joins.
    fn moving() -> u32 {
        (0..64).find(|&shard| plan(&["a", "b"]).owner(shard) == Some("b")).unwrap()
    }

    #[test]
    fn plan_is_followed_when_the_set_was_the_same_for_the_settling_time() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        view.see(plan(&["a", "b"]), now + SECOND * 5);
        assert_eq!(view.due(), Some(now + SECOND * 6));
        view.see(plan(&["a", "b", "c"]), now + SECOND * 5 + SECOND / 2);
        assert!(!view.settle(now + SECOND * 6));
        assert!(view.settle(now + SECOND * 6 + SECOND / 2));
        assert_eq!(view.followed().unwrap().members(), ["a", "b", "c"]);
        assert_eq!(view.due(), None);
    }

    #[test]
    fn member_that_comes_and_goes_within_the_settling_time_changes_nothing() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        for flap in 0..50 {
            let now = now + SECOND * 5 * flap;
            view.see(plan(&["a", "b"]), now);
            view.see(plan(&["a"]), now + SECOND / 2);
            assert!(view.due().is_none() && !view.settle(now + SECOND * 4));
        }
    }

    #[test]
    fn set_that_changes_all_the_time_is_followed_after_ten_settling_times() {
        let now = Instant::now();
        let mut view = following(&["a"], now);
        let changes = (1..100).find(|&change| {
            let (names, now) = (["a", "b", ["c", "d"][change as usize % 2]], now + SECOND / 2 * change);
            view.see(plan(&names), now);
            view.settle(now)
        });
        assert_eq!(changes, Some(21));
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
        // The shard is `a`'s until the set has settled, and `b` has queued early.
        assert_eq!(verdicts(&view), [Verdict::Serve, Verdict::Serve]);
        assert!(view.settle(now + SECOND));
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
        // The planned owner does not take the shard.
        assert_eq!(view.verdict(shard, "a", Grant { is_claim: true, ..GRANT }), Verdict::Serve);
    }
}
