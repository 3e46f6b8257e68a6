//! Owns [`Plan`]: which member should own which shard. It is computed from the names of the members alone, alike by all of them.
//!
//! 1. Each pair of a member and a shard has a [score](crate::score). The pairs are taken in the order of their scores. A shard goes to
//!    the first member that comes with it and has room: rendezvous hashing with a limit.
//! 2. The limit is 1.1 times the mean, rounded up. All members together have room for all shards, so each shard has an owner.
//! 3. A change of one member moves its own shards, and few more.

use std::fmt;

use crate::score::Hashed;

/// Which member of a group should own which shard.
///
/// It is a function of the number of shards and the names of the members. The order of the names does not matter, and
/// every process, machine and version computes the same. It is what members *strive for*: the holder of a shard's lock
/// is its owner.
///
/// Shards are dealt by rendezvous hashing. No member gets more than 1.1 times the mean. When a member joins or leaves, about as many
/// shards move as it has.
///
/// # Examples
///
/// ```
/// use zookeeper_shards::Plan;
///
/// let before = Plan::new(256, ["orders-0", "orders-1", "orders-2"]);
/// let after = Plan::new(256, ["orders-0", "orders-1", "orders-2", "orders-3"]);
/// let moves = (0..256).filter(|&shard| before.owner(shard) != after.owner(shard)).count();
/// assert!(moves < 80);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    /// Sorted.
    members: Vec<String>,
    /// The place of its owner among the members, for each shard.
    owners: Vec<u32>,
}

impl Plan {
    /// Computes the plan for the shards below `count`, and members with these names. A name that comes twice counts once.
    ///
    /// It takes time: for 4,096 shards and 64 members some tens of milliseconds.
    #[must_use]
    pub fn new<N: Into<String>>(count: u32, names: impl IntoIterator<Item = N>) -> Self {
        let mut members: Vec<String> = names.into_iter().map(Into::into).collect();
        members.sort_unstable();
        members.dedup();
        let owners = if members.is_empty() { Vec::new() } else { deal(count, &members) };
        Self { members, owners }
    }

    /// The names of the members, sorted.
    #[must_use]
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// Whether this member is in the plan.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.members.binary_search_by(|member| member.as_str().cmp(name)).is_ok()
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

    /// All members in the order in which they may take this shard: the owner first, and then the others in the order of their scores.
    #[must_use]
    pub fn candidates(&self, shard: u32) -> Vec<&str> {
        let Some(owner) = self.owner(shard) else { return Vec::new() };
        let mut others: Vec<_> = self.members.iter().map(String::as_str).filter(|name| *name != owner).collect();
        // The sort is stable, and the names are sorted.
        others.sort_by_key(|name| std::cmp::Reverse(Hashed::new(name).score(shard)));
        others.insert(0, owner);
        others
    }

    /// For each shard, how many candidates are ahead of this member: 0 for the owner. Empty if it is no member.
    pub(crate) fn ranks(&self, name: &str) -> Vec<u32> {
        let Ok(at) = self.members.binary_search_by(|member| member.as_str().cmp(name)) else { return Vec::new() };
        let hashed: Vec<_> = self.members.iter().map(|member| Hashed::new(member)).collect();
        let rank = |(shard, &owner): (u32, &u32)| {
            if owner as usize == at {
                return 0;
            }
            let mine = hashed[at].score(shard);
            let is_ahead = |(place, other): (usize, &Hashed)| {
                let score = other.score(shard);
                place != at && (place == owner as usize || score > mine || (score == mine && place < at))
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

/// The most shards that a member gets, of this many members.
fn limit(count: u32, members: usize) -> u64 {
    (u64::from(count) * 11).div_ceil(members as u64 * 10)
}

fn deal(count: u32, members: &[String]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut pairs = Vec::with_capacity(members.len() * count as usize);
    for (member, name) in (0..).zip(members) {
        let hashed = Hashed::new(name);
        pairs.extend((0..count).map(|shard| (!hashed.score(shard), shard, member)));
    }
    pairs.sort_unstable();
    let mut room = vec![limit(count, members.len()); members.len()];
    let mut owners = vec![NONE; count as usize];
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

    /// The twin: in each step it looks for the best pair that is left.
    fn deal_naively(count: u32, members: &[String]) -> Vec<String> {
        let mut owners: BTreeMap<u32, String> = BTreeMap::new();
        while owners.len() < count as usize {
            let has_room = |name: &&String| {
                let load = owners.values().filter(|owner| owner == name).count() as u64;
                load < limit(count, members.len())
            };
            let mut best = None;
            for name in members.iter().filter(has_room) {
                for shard in (0..count).filter(|shard| !owners.contains_key(shard)) {
                    best = best.max(Some((Hashed::new(name).score(shard), shard, name)));
                }
            }
            let (_, shard, name) = best.unwrap();
            owners.insert(shard, name.clone());
        }
        owners.into_values().collect()
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
            assert!(most <= limit(count, plan.members().len()), "{most} of {count} over {members}");
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
            assert_eq!(owners, deal_naively(count, &sorted));
            random.shuffle(&mut members);
            let twice = members.iter().chain(&members).cloned();
            assert_eq!(Plan::new(count, twice), plan);
        }
    }

    #[test]
    fn candidates_are_all_members_with_the_owner_first_and_ranks_are_their_places() {
        let plan = Plan::new(97, names(7));
        for shard in 0..97 {
            let candidates = plan.candidates(shard);
            assert_eq!(candidates.first().copied(), plan.owner(shard));
            for (place, name) in candidates.iter().enumerate() {
                assert_eq!(plan.ranks(name)[shard as usize] as usize, place);
            }
            let mut all = candidates.clone();
            all.sort_unstable();
            assert_eq!(all, plan.members());
        }
        assert!(plan.ranks("stranger").is_empty() && plan.owner(97).is_none());
        assert_eq!(plan.shards_of("orders-3").count() as u64, loads(&plan)["orders-3"]);
    }

    #[test]
    fn nobody_owns_anything_without_members() {
        let plan = Plan::new(5, names(0));
        assert!(plan.owner(0).is_none() && plan.candidates(0).is_empty() && !plan.has("orders-0"));
    }

    /// The means over the members that join or leave, of several sets of names.
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
