//! The numbers of members, by the [`metrics`](https://docs.rs/metrics) crate. Feature `metrics`.
//!
//! They go to the recorder that the process has installed. Those of the locks are of the feature of the same name of
//! [`zookeeper_recipes`].
//!
//! | name | type | labels | meaning |
//! |---|---|---|---|
//! | [`OWNED`] | gauge | `group` | shards that this member serves |
//! | [`UNASSIGNED`] | gauge | `group` | shards without an owner, of those for which this member is the next. The sum over all members is that of the group |
//! | [`MOVES`] | counter | `group` | shards that this member has begun to hand over to another, because the plan has changed |
//! | [`CUTS`] | counter | `group` | drains over their [limit](crate::shards::ShardsBuilder::drain_limit): the future of the function was dropped |
//! | [`RETURNED`] | counter | `group` | functions that have returned or panicked without being asked. If it grows all the time, shards are not served |
//! | [`PLAN_NODE_REFUSED`] | gauge | `group` | 1 while the plan node cannot be used, and the last rules stay; otherwise 0. An outage is none of it |
//!
//! `group` is the path of the group. Install the recorder before [`Shards::run`](crate::Shards::run).
//!
//! [`UNASSIGNED`] comes from the looks at other members' shards, each half [patience](crate::shards::ShardsBuilder::patience). A shard of a crashed
//! owner counts from the end of its session on. In a plan with one member it is the number of shards which that member does not serve.

use ::metrics::{counter, describe_counter, describe_gauge, gauge};

/// Shards that this member serves.
pub const OWNED: &str = "zookeeper_shards_owned";
/// Shards without an owner, of those for which this member is the next.
pub const UNASSIGNED: &str = "zookeeper_shards_unassigned";
/// Shards that this member has begun to hand over to another.
pub const MOVES: &str = "zookeeper_shards_moves_total";
/// Drains over their limit.
pub const CUTS: &str = "zookeeper_shards_cuts_total";
/// Functions that have ended without being asked.
pub const RETURNED: &str = "zookeeper_shards_returned_total";
/// Whether the plan node cannot be used.
pub const PLAN_NODE_REFUSED: &str = "zookeeper_shards_plan_node_refused";

/// Gives the recorder the meaning of each. Call it once, after the recorder was installed.
pub fn describe() {
    describe_gauge!(OWNED, "shards that this member serves");
    describe_gauge!(UNASSIGNED, "shards without an owner, of those for which this member is the next");
    describe_counter!(MOVES, "shards that this member has begun to hand over to another");
    describe_counter!(CUTS, "drains over their limit");
    describe_counter!(RETURNED, "functions that have ended without being asked");
    describe_gauge!(PLAN_NODE_REFUSED, "whether the plan node cannot be used");
}

pub(crate) fn shift(name: &'static str, group: &str, by: i64) {
    gauge!(name, "group" => group.to_owned()).increment(by as f64);
}

pub(crate) fn count(name: &'static str, group: &str, by: u64) {
    counter!(name, "group" => group.to_owned()).increment(by);
}
