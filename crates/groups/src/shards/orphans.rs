//! Owns [`Orphans`]: which shards of other members this member looks at, and which it takes because they have no owner. No IO and
//! no clock.
//!
//! A member takes a shard whose lock was seen without a node for *grace* + *rank* · *patience*. The rank is the number of members
//! that may take the shard before this member, so one member comes after the other. Rank 0 is the planned owner, which queues for
//! the lock instead. A *turn* is a moment at which a member reads the locks of some shards. A member of rank *r* reads the lock of
//! a shard in every *r*th turn. So the reads by all members together grow with the logarithm of their number.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::shards::look::Sighting;

/// The least time between two turns.
const LEAST: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Orphans {
    grace: Duration,
    patience: Duration,
    /// This member's rank for each shard. Empty while this member is in no plan.
    ranks: Vec<u32>,
    /// Shards whose locks were seen without nodes: since when, and the last known [`Sighting::changes`].
    empty: HashMap<u32, (Instant, Option<i32>)>,
    turn: u32,
    due: Option<Instant>,
}

impl Orphans {
    pub(crate) fn new(grace: Duration, patience: Duration) -> Self {
        Self { grace, patience, ranks: Vec::new(), empty: HashMap::new(), turn: 0, due: None }
    }

    /// Follows another plan, with these ranks. For each shard, the time without an owner starts again.
    pub(crate) fn follow(&mut self, ranks: Vec<u32>, now: Instant) {
        self.ranks = ranks;
        self.empty.clear();
        self.due = Some(self.next_turn(now));
    }

    /// Whether the plan gives this shard to this member.
    pub(crate) fn is_own(&self, shard: u32) -> bool {
        self.ranks.get(shard as usize) == Some(&0)
    }

    /// When the next turn is; `None` without a plan.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn next_turn(&self, now: Instant) -> Instant {
        now + (self.patience / 2).max(LEAST)
    }

    /// Begins a turn. Returns the shards whose locks to read.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<u32> {
        self.turn = self.turn.wrapping_add(1);
        self.due = Some(self.next_turn(now));
        let is_looked_at = |(shard, rank): &(u32, &u32)| **rank > 0 && shard.wrapping_add(self.turn) % **rank == 0;
        (0..).zip(&self.ranks).filter(is_looked_at).map(|(shard, _)| shard).collect()
    }

    /// Notes what was seen of a shard's lock. Returns whether to take the shard. If the lock has changed since it was seen last,
    /// the shard had an owner meanwhile, and its time without an owner starts again.
    pub(crate) fn note(&mut self, shard: u32, lock: Sighting, now: Instant) -> bool {
        let rank = self.ranks.get(shard as usize).copied().unwrap_or_default();
        if lock.nodes > 0 || rank == 0 {
            self.empty.remove(&shard);
            return false;
        }
        let (since, changes) = self.empty.entry(shard).or_insert((now, lock.changes));
        // A new path means that the lock has changed. A missing one does not: servers delete the paths of empty locks.
        if lock.changes.is_some() && *changes != lock.changes {
            (*since, *changes) = (now, lock.changes);
        }
        now - *since >= self.grace + self.patience * rank
    }

    /// The number of shards seen without an owner for which this member comes directly after the planned owner (rank 1). So each
    /// shard is counted by one member only.
    pub(crate) fn unassigned(&self) -> usize {
        self.empty.keys().filter(|shard| self.ranks.get(**shard as usize) == Some(&1)).count()
    }

    /// Notes that this member takes the shard.
    pub(crate) fn claimed(&mut self, shard: u32) {
        self.empty.remove(&shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FREE: Sighting = Sighting { nodes: 0, changes: Some(7) };
    const HELD: Sighting = Sighting { nodes: 1, changes: Some(8) };

    #[test]
    fn candidates_take_a_shard_one_after_the_other_and_after_the_grace() {
        let begin = Instant::now();
        for rank in 1..5 {
            let mut orphans = Orphans::new(SECOND * 20, SECOND * 4);
            orphans.follow(vec![rank], begin);
            let (mut now, mut taken) = (begin, None);
            while taken.is_none() {
                now = orphans.due().unwrap();
                let looked_at = orphans.turn(now);
                taken = looked_at.into_iter().find(|&shard| orphans.note(shard, FREE, now));
            }
            let (least, most) = (SECOND * (20 + 4 * rank), SECOND * (20 + 4 * rank + 2 * (2 * rank)));
            assert!((least..=most).contains(&(now - begin)), "rank {rank}: {:?}", now - begin);
        }
    }

    #[test]
    fn shard_with_an_owner_and_that_of_the_own_plan_are_left_alone() {
        let now = Instant::now();
        let mut orphans = Orphans::new(Duration::ZERO, SECOND);
        assert!(orphans.due().is_none() && orphans.turn(now).is_empty());
        orphans.follow(vec![0, 1], now);
        assert_eq!(orphans.turn(now), [1]);
        assert!(!orphans.note(1, FREE, now));
        // The shard had an owner in between.
        assert!(!orphans.note(1, HELD, now + SECOND));
        assert_eq!(orphans.unassigned(), 0);
        assert!(!orphans.note(1, FREE, now + SECOND * 2) && orphans.note(1, FREE, now + SECOND * 3));
        assert_eq!(orphans.unassigned(), 1);
        assert!(!orphans.note(0, FREE, now) && !orphans.note(0, FREE, now + SECOND * 9));
    }

    #[test]
    fn shard_that_had_an_owner_between_two_looks_was_not_free() {
        let now = Instant::now();
        let mut orphans = Orphans::new(SECOND * 15, SECOND * 10);
        orphans.follow(vec![1], now);
        assert!(!orphans.note(0, FREE, now));
        // An owner came and went: a create and a delete.
        let again = Sighting { changes: Some(9), ..FREE };
        assert!(!orphans.note(0, again, now + SECOND * 20));
        assert!(!orphans.note(0, again, now + SECOND * 40));
        // The path was deleted meanwhile.
        let gone = Sighting { changes: None, ..FREE };
        assert!(!orphans.note(0, gone, now + SECOND * 44) && orphans.note(0, gone, now + SECOND * 45));
    }

    #[test]
    fn another_plan_begins_all_times_again() {
        let now = Instant::now();
        let mut orphans = Orphans::new(Duration::ZERO, SECOND);
        orphans.follow(vec![1], now);
        assert!(!orphans.note(0, FREE, now));
        orphans.follow(vec![1], now + SECOND);
        assert!(!orphans.note(0, FREE, now + SECOND));
    }
}
