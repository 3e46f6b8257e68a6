//! Owns [`View`]: the plan that a member follows, and the plan that it will follow when the set of members has settled. No IO and
//! no clock: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::tools::Plan;

/// After this many settling times, a member follows the newest plan even if the set of members still changes.
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
    /// When to follow this plan.
    due: Instant,
    /// The latest time to follow this plan, or one that replaces it.
    latest: Instant,
}

impl View {
    pub(crate) fn new(settling_time: Duration) -> Self {
        Self { settling_time, followed: None, newest: None }
    }

    /// The plan to follow.
    pub(crate) fn followed(&self) -> Option<&Arc<Plan>> {
        self.followed.as_ref()
    }

    /// Notes the plan of the newest set of members and rules.
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

    /// When to follow the newest plan; `None` if there is no other than the followed one.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.newest.as_ref().map(|newest| newest.due)
    }

    /// Follows the newest plan if it is due. Returns whether the followed plan has changed.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        let Some(newest) = self.newest.take_if(|newest| newest.due <= now) else { return false };
        self.followed = Some(newest.plan);
        true
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
}
