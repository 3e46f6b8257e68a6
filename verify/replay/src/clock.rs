//! The time in which a process ran.

/// A process that writes nothing for longer than this, in microseconds, does not run: its driver looks at its timers each
/// sixteenth of a session timeout.
const LONGEST_GAP: u64 = 160_000;

/// When a process was seen to run, and for how long it had run by then.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    seen: Vec<(u64, u64)>,
}

impl Clock {
    /// It runs at this moment.
    pub(crate) fn tick(&mut self, at: u64) {
        let (last, ran) = self.seen.last().copied().unwrap_or((at, 0));
        if at > last || self.seen.is_empty() {
            self.seen.push((at, ran + (at - last).min(LONGEST_GAP)));
        }
    }

    /// The last moment at which it was seen to run.
    pub(crate) fn now(&self) -> u64 {
        self.seen.last().map_or(0, |(at, _)| *at)
    }

    fn ran_until(&self, at: u64) -> u64 {
        let next = self.seen.partition_point(|(seen, _)| *seen <= at);
        let Some((last, ran)) = next.checked_sub(1).and_then(|last| self.seen.get(last)) else { return 0 };
        let most = self.seen.get(next).map_or(*ran, |(_, ran)| *ran);
        (ran + (at - last)).min(most)
    }

    /// The last moment from which on it ran for this long until a later one; 0 if there is none.
    pub(crate) fn earlier(&self, until: u64, by: u64) -> u64 {
        let Some(ran) = self.ran_until(until).checked_sub(by) else { return 0 };
        let before = self.seen.partition_point(|(_, sum)| *sum <= ran);
        before.checked_sub(1).and_then(|at| self.seen.get(at)).map_or(0, |(seen, _)| *seen)
    }

    /// For how long it ran between two moments.
    pub(crate) fn between(&self, from: u64, to: u64) -> u64 {
        self.ran_until(to).saturating_sub(self.ran_until(from))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, LONGEST_GAP};

    #[test]
    fn pause_does_not_count() {
        let mut clock = Clock::default();
        [100, 200, 200 + 2 * LONGEST_GAP, 300 + 2 * LONGEST_GAP].into_iter().for_each(|at| clock.tick(at));
        assert_eq!(clock.between(150, 200), 50);
        assert_eq!(clock.between(100, clock.now()), 100 + LONGEST_GAP + 100);
        assert_eq!(clock.between(0, 50), 0);
        assert_eq!(clock.earlier(clock.now(), LONGEST_GAP), 200, "it ran for 100 more");
        assert_eq!(clock.earlier(clock.now(), LONGEST_GAP + 200), 100);
        assert_eq!(clock.earlier(clock.now(), LONGEST_GAP + 201), 0);
    }
}
