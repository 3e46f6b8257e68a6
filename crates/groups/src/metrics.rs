//! Metrics of members, through the [`metrics`](https://docs.rs/metrics) crate. Feature `metrics`.
//!
//! The metrics go to the recorder that the process has installed. The metrics of locks need the feature `metrics` of
//! [`zookeeper_recipes`].
//!
//! | name | type | labels | meaning |
//! |---|---|---|---|
//! | [`OWNED`] | gauge | `group` | shards that this member serves |
//! | [`UNASSIGNED`] | gauge | `group` | shards without an owner that this member takes next, if their planned owners do not. The sum over all members is the number for the group |
//! | [`MOVES`] | counter | `group` | shards that this member has begun to hand over to another member |
//! | [`CUTS`] | counter | `group` | drains that exceeded their [limit](crate::shards::ShardsBuilder::drain_limit): the future of the function was dropped |
//! | [`RETURNED`] | counter | `group` | functions that panicked, or returned before this member asked them to end. If the counter keeps growing, shards are not served |
//! | [`PLAN_NODE_REFUSED`] | gauge | `group` | 1 while the plan node is unusable, and the last rules stay; otherwise 0. An outage does not count |
//!
//! `group` is the path of the group. Install the recorder before [`Shards::run`](crate::Shards::run).
//!
//! For [`UNASSIGNED`], a member reads the locks of other members' shards every half
//! [patience](crate::shards::ShardsBuilder::patience). A crashed owner's shard counts once its session has ended. In a plan with
//! one member, the gauge is the number of shards that this member does not serve.

#[cfg(feature = "metrics")]
use ::metrics::{counter, describe_counter, describe_gauge, gauge};

/// Shards that this member serves.
pub const OWNED: &str = "zookeeper_shards_owned";
/// Shards without an owner. One member counts each of them, so the sum over all members is the number for the group.
pub const UNASSIGNED: &str = "zookeeper_shards_unassigned";
/// Shards that this member has begun to hand over to another member.
pub const MOVES: &str = "zookeeper_shards_moves_total";
/// Drains that exceeded their limit.
pub const CUTS: &str = "zookeeper_shards_cuts_total";
/// Functions that panicked, or returned before this member asked them to end.
pub const RETURNED: &str = "zookeeper_shards_returned_total";
/// Whether the plan node is unusable.
pub const PLAN_NODE_REFUSED: &str = "zookeeper_shards_plan_node_refused";

/// Describes each metric to the recorder. Call this once, after installing the recorder.
#[cfg(feature = "metrics")]
pub fn describe() {
    describe_gauge!(OWNED, "shards that this member serves");
    describe_gauge!(UNASSIGNED, "shards without an owner, of those for which this member is the next");
    describe_counter!(MOVES, "shards that this member has begun to hand over to another");
    describe_counter!(CUTS, "drains over their limit");
    describe_counter!(RETURNED, "functions that have ended without being asked");
    describe_gauge!(PLAN_NODE_REFUSED, "whether the plan node cannot be used");
}

#[cfg(feature = "metrics")]
pub(crate) fn shift(name: &'static str, group: &str, by: i64) {
    gauge!(name, "group" => group.to_owned()).increment(by as f64);
}

#[cfg(feature = "metrics")]
pub(crate) fn count(name: &'static str, group: &str, by: u64) {
    counter!(name, "group" => group.to_owned()).increment(by);
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn shift(_: &'static str, _: &str, _: i64) {}

#[cfg(not(feature = "metrics"))]
pub(crate) fn count(_: &'static str, _: &str, _: u64) {}
