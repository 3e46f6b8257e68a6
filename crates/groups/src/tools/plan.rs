//! Owns [`Plan`]: which member should own which shard. All members compute the same plan from the names of the members and the
//! rules of operators alone.
//!
//! 1. Each pair of a member and a shard has a [score](crate::tools::score). The pairs are taken in the order of their scores,
//!    highest first. A shard goes to the member of its first pair that has room: rendezvous hashing with a limit.
//! 2. The limit is 1.1 times the mean, rounded up. All members together have room for all shards, so each shard has an owner.
//! 3. If a member comes or goes, its own shards move, and few others.
//! 4. Drained members are left out first, unless all are drained. Then pins are dealt, if necessary beyond the limit of a member.
//!    A pin to a missing or drained member is ignored.

use std::fmt;

use crate::tools::Rules;
use crate::tools::score::Hashed;

/// Which member of a group should own which shard.
///
/// The plan is a function of the number of shards, the names of the members and the [`Rules`] of operators. The order of the
/// names does not matter, and every process, machine and version computes the same plan. Members *strive for* the plan: the owner
/// of a shard is the holder of its lock.
///
/// Shards are dealt by rendezvous hashing. No member gets more than 1.1 times the mean, rounded up, except by pins. When a
/// member joins or leaves, about as many shards move as it has.
///
/// # Examples
///
/// ```
/// use zookeeper_groups::tools::Plan;
///
/// let before = Plan::new(256, ["orders-0", "orders-1", "orders-2"]);
/// let after = Plan::new(256, ["orders-0", "orders-1", "orders-2", "orders-3"]);
/// let moves = (0..256).filter(|&shard| before.owner(shard) != after.owner(shard)).count();
/// assert!(moves < 80);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    /// The names, sorted.
    members: Vec<String>,
    /// The index in `members` of each shard's owner.
    owners: Vec<u32>,
}

impl Plan {
    /// Computes the plan for the shards below `count`, and members with these names. A repeated name counts once.
    ///
    /// For 4,096 shards and 64 members, this takes some tens of milliseconds.
    #[must_use]
    pub fn new<N: Into<String>>(count: u32, names: impl IntoIterator<Item = N>) -> Self {
        Self::with_rules(count, names, &Rules::default())
    }

    /// Computes the plan as [`new`](Self::new) does, with the rules of operators. Leaves out drained members, unless all are
    /// drained.
    #[must_use]
    pub fn with_rules<N: Into<String>>(count: u32, names: impl IntoIterator<Item = N>, rules: &Rules) -> Self {
        let mut members: Vec<String> = names.into_iter().map(Into::into).collect();
        members.sort_unstable();
        members.dedup();
        let is_drained: Vec<_> = members.iter().map(|name| rules.is_drained(name)).collect();
        if is_drained.contains(&false) {
            let mut is_drained = is_drained.into_iter();
            members.retain(|_| is_drained.next() == Some(false));
        }
        let mut plan = Self { members, owners: Vec::new() };
        let pins: Vec<_> = rules.pins().filter_map(|(shard, name)| Some((shard, plan.place(name)?))).collect();
        if !plan.members.is_empty() {
            plan.owners = deal(count, &plan.hashed(), &pins);
        }
        plan
    }

    /// The names of the members, sorted.
    #[must_use]
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// Whether this member is in the plan.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.members.binary_search_by(|member| member.as_str().cmp(name)).ok()
    }

    fn hashed(&self) -> Vec<Hashed> {
        self.members.iter().map(|name| Hashed::new(name)).collect()
    }

    /// The member that should own this shard; `None` without members, and for a shard that does not exist.
    #[must_use]
    pub fn owner(&self, shard: u32) -> Option<&str> {
        let owner = *self.owners.get(usize::try_from(shard).ok()?)?;
        self.members.get(owner as usize).map(String::as_str)
    }

    /// The shards that this member should own.
    pub fn shards_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + use<'a> {
        (0..)
            .zip(&self.owners)
            .filter(move |(_, owner)| self.members[**owner as usize] == name)
            .map(|(shard, _)| shard)
    }

    /// For each shard, how many members may take it before this one: 0 for the planned owner. The others follow by score.
    /// Empty if the member is not in the plan.
    pub(crate) fn ranks(&self, name: &str) -> Vec<u32> {
        let Some(at) = self.place(name) else { return Vec::new() };
        let hashed = self.hashed();
        let rank = |(shard, &owner): (u32, &u32)| {
            if owner as usize == at {
                return 0;
            }
            // The larger score comes first, and of two equal scores the first name.
            let mine = (!hashed[at].score(shard), at);
            let is_ahead = |(place, other): (usize, &Hashed)| {
                place != at && (place == owner as usize || (!other.score(shard), place) < mine)
            };
            u32::try_from(hashed.iter().enumerate().filter(|other| is_ahead(*other)).count()).unwrap_or(u32::MAX)
        };
        (0..).zip(&self.owners).map(rank).collect()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("members", &self.members)
            .field("shards", &self.owners.len())
            .finish_non_exhaustive()
    }
}

/// The most shards that a member gets, unless more are pinned to it: 1.1 times the mean, rounded up.
fn limit(count: u32, members: usize) -> usize {
    (count as usize * 11).div_ceil(members * 10)
}

/// Deals the shards below `count`. Returns the index of each shard's owner. A pin is a shard, and the index of a member.
fn deal(count: u32, members: &[Hashed], pins: &[(u32, usize)]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut room = vec![limit(count, members.len()); members.len()];
    let mut owners = vec![NONE; count as usize];
    for &(shard, member) in pins {
        if let (Some(owner), Ok(place)) = (owners.get_mut(shard as usize), u32::try_from(member)) {
            *owner = place;
            // A pin may exceed the limit of its member. The remaining room is enough for all other shards.
            room[member] = room[member].saturating_sub(1);
        }
    }
    let mut pairs = Vec::with_capacity(members.len() * count as usize);
    for (member, hashed) in (0..).zip(members) {
        let free = (0..count).filter(|shard| owners[*shard as usize] == NONE);
        // The largest score comes first.
        pairs.extend(free.map(|shard| (!hashed.score(shard), shard, member)));
    }
    pairs.sort_unstable();
    for (_, shard, member) in pairs {
        let (owner, room) = (&mut owners[shard as usize], &mut room[member as usize]);
        if *owner == NONE && *room > 0 {
            (*owner, *room) = (member, *room - 1);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("orders-{number}")).collect()
    }

    fn moves(before: &Plan, after: &Plan) -> usize {
        before
            .owners
            .iter()
            .zip(&after.owners)
            .filter(|(a, b)| before.members[**a as usize] != after.members[**b as usize])
            .count()
    }

    fn loads(plan: &Plan) -> BTreeMap<&str, u64> {
        let mut loads = BTreeMap::new();
        (0..u32::try_from(plan.owners.len()).unwrap())
            .for_each(|shard| *loads.entry(plan.owner(shard).unwrap()).or_default() += 1);
        loads
    }

    /// The ranks of all members for a shard, sorted.
    fn ranks(plan: &Plan, shard: u32) -> Vec<u32> {
        let ranks = plan.members().iter().map(|name| plan.ranks(name)[shard as usize]);
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_unstable();
        ranks
    }

    /// A naive twin of [`deal`]: each step picks the best remaining pair.
    fn deal_naively(count: u32, members: &[String], rules: &Rules) -> Vec<String> {
        let pinned = rules.pins().filter(|(shard, to)| *shard < count && members.iter().any(|name| name == to));
        let mut owners: BTreeMap<u32, String> = pinned.map(|(shard, name)| (shard, name.to_owned())).collect();
        while owners.len() < count as usize {
            let has_room = |name: &&String| {
                owners.values().filter(|owner| owner == name).count() < limit(count, members.len())
            };
            let mut best = None;
            for name in members.iter().filter(has_room) {
                for shard in (0..count).filter(|shard| !owners.contains_key(shard)) {
                    let score = Hashed::new(name).score(shard);
                    best = best.max(Some((score, std::cmp::Reverse(shard), name)));
                }
            }
            let (.., std::cmp::Reverse(shard), name) = best.unwrap();
            owners.insert(shard, name.clone());
        }
        owners.into_values().collect()
    }

    fn rules(text: &str) -> Rules {
        Rules::parse(format!("version 1\n{text}").as_bytes()).unwrap()
    }

    fn load(plan: &Plan, name: &str) -> usize {
        plan.shards_of(name).count()
    }

    #[test]
    fn every_shard_has_an_owner_and_no_member_more_than_the_limit() {
        let mut random = fastrand::Rng::with_seed(44);
        for _ in 0..300 {
            let (count, members) = (random.u32(1..400), random.usize(1..40));
            let plan = Plan::new(count, (0..members).map(|_| format!("{:x}", random.u64(..))));
            let loads = loads(&plan);
            assert_eq!(loads.values().sum::<u64>(), u64::from(count));
            let most = loads.values().max().copied().unwrap_or_default();
            assert!(most <= limit(count, plan.members().len()) as u64, "{most} of {count} over {members}");
        }
    }

    #[test]
    fn plan_is_that_of_the_naive_twin_and_of_any_order_of_names() {
        let mut random = fastrand::Rng::with_seed(45);
        for _ in 0..40 {
            let (count, mut members) = (random.u32(1..60), names(random.usize(1..9)));
            let plan = Plan::new(count, members.clone());
            let mut sorted = members.clone();
            sorted.sort();
            let owners: Vec<_> = (0..count).map(|shard| plan.owner(shard).unwrap().to_owned()).collect();
            assert_eq!(owners, deal_naively(count, &sorted, &Rules::default()));
            random.shuffle(&mut members);
            let twice = members.iter().chain(&members).cloned();
            assert_eq!(Plan::new(count, twice), plan);
        }
    }

    #[test]
    fn ranks_of_a_shard_are_the_numbers_from_0_on_and_0_is_that_of_the_owner() {
        let plan = Plan::new(97, names(7));
        for shard in 0..97 {
            assert_eq!(ranks(&plan, shard), (0..7).collect::<Vec<_>>());
            assert_eq!(plan.ranks(plan.owner(shard).unwrap())[shard as usize], 0);
        }
        assert!(plan.ranks("stranger").is_empty() && plan.owner(97).is_none());
        assert_eq!(plan.shards_of("orders-3").count() as u64, loads(&plan)["orders-3"]);
    }

    /// Random drains and pins, also of missing members.
    #[test]
    fn plan_with_rules_is_that_of_the_naive_twin_and_gives_every_shard_an_owner() {
        let mut random = fastrand::Rng::with_seed(48);
        for _ in 0..60 {
            let (count, members) = (random.u32(1..50), names(random.usize(1..8)));
            let mut rules = Rules::default();
            for _ in 0..random.usize(..12) {
                let name = format!("orders-{}", random.usize(..9));
                match random.u32(..3) {
                    0 => _ = rules.drain(&name).unwrap(),
                    _ => _ = rules.pin(random.u32(..60), &name).unwrap(),
                }
            }
            let plan = Plan::with_rules(count, members.clone(), &rules);
            let present: Vec<_> = members.iter().filter(|name| !rules.is_drained(name)).cloned().collect();
            let present = if present.is_empty() { members } else { present };
            let owners: Vec<_> = (0..count).map(|shard| plan.owner(shard).unwrap().to_owned()).collect();
            assert_eq!(owners, deal_naively(count, &present, &rules), "{rules}");
            for shard in 0..count {
                let all: Vec<_> = (0..u32::try_from(present.len()).unwrap()).collect();
                assert_eq!(ranks(&plan, shard), all, "{rules}");
            }
        }
    }

    #[test]
    fn drained_member_gets_nothing_and_its_shards_move_and_few_more() {
        let (before, after) =
            (Plan::new(256, names(4)), Plan::with_rules(256, names(4), &rules("drain orders-2")));
        assert_eq!(after, Plan::new(256, ["orders-0", "orders-1", "orders-3"]));
        assert!(!after.has("orders-2") && after.ranks("orders-2").is_empty());
        assert!(moves(&before, &after) < load(&before, "orders-2") * 5 / 4);
        // If all members are drained, drains are ignored.
        let all = rules("drain orders-0\ndrain orders-1");
        assert_eq!(Plan::with_rules(256, names(2), &all), Plan::new(256, names(2)));
    }

    #[test]
    fn pin_moves_its_shard_and_few_more_and_counts_only_for_members_that_are_there() {
        let before = Plan::new(256, names(4));
        let shard = (0..256).find(|&shard| before.owner(shard) == Some("orders-0")).unwrap();
        let pinned = |text: &str| Plan::with_rules(256, names(4), &rules(text));
        let after = pinned(&format!("pin {shard} orders-1"));
        assert_eq!((after.owner(shard), after.ranks("orders-1")[shard as usize]), (Some("orders-1"), 0));
        assert!(moves(&before, &after) <= 3, "{}", moves(&before, &after));
        assert_eq!(pinned(&format!("pin {shard} orders-9")), before);
        assert_eq!(pinned("pin 256 orders-1"), before);
        let drained = format!("drain orders-1\npin {shard} orders-1");
        assert_eq!(pinned(&drained), pinned("drain orders-1"));
        // Pins may exceed the limit.
        let all: String = (0..200).map(|shard| format!("pin {shard} orders-1\n")).collect();
        assert!(
            load(&pinned(&all), "orders-1") == 200 && (0..256).all(|shard| pinned(&all).owner(shard).is_some())
        );
    }

    #[test]
    fn nobody_owns_anything_without_members() {
        let plan = Plan::new(5, names(0));
        assert!(plan.owner(0).is_none() && !plan.has("orders-0"));
    }

    /// Measures means over several sets of names.
    #[test]
    fn change_of_a_member_moves_little_more_than_its_shards() {
        for (count, members, most) in [(256, 3, 1.25), (4_096, 64, 1.25)] {
            let (mut joins, mut leaves, mut rounds, mut most_moves) = (0, 0, 0, 0);
            for set in 0..if members > 10 { 3 } else { 40 } {
                let name =
                    |number| format!("{}-{number}", ["orders", "eu-west", "10.0.0"][set % 3].repeat(set / 3 + 1));
                let before = Plan::new(count, (0..members).map(name));
                let after = Plan::new(count, (0..=members).map(name));
                let left = Plan::new(count, (1..members).map(name));
                joins += moves(&before, &after);
                leaves += moves(&before, &left);
                most_moves = most_moves.max(moves(&before, &after));
                rounds += 1;
            }
            let ideal_join = f64::from(count) / f64::from(members + 1);
            let ideal_leave = f64::from(count) / f64::from(members);
            let mean = |moves: usize| moves as f64 / f64::from(rounds);
            println!(
                "{count} x {members}: a join moves {:.1} (ideal {ideal_join:.1}, at most {most_moves}), a leave {:.1} (ideal {ideal_leave:.1})",
                mean(joins),
                mean(leaves)
            );
            assert!(mean(joins) <= most * ideal_join && mean(leaves) <= most * ideal_leave);
        }
    }

    #[test]
    fn large_plan_is_computed_fast() {
        let began = Instant::now();
        let plan = Plan::new(4_096, names(64));
        let planned = began.elapsed();
        let ranks = plan.ranks("orders-7").len();
        println!("4,096 x 64: {planned:?}, and {:?} for the ranks of a member", began.elapsed() - planned);
        assert_eq!(ranks, 4_096);
    }
}
