//! Recipes for groups of processes on [ZooKeeper](https://zookeeper.apache.org), besides the locks of [`zookeeper_recipes`]:
//! which processes are members, which process holds which number, and which process owns which shard.
//!
//! | recipe | for |
//! |---|---|
//! | [`Members`] | the processes of a group, with the data of each, across lost connections and sessions |
//! | [`Slots`] | numbers from 0 to *n* − 1, each with one holder at a time: worker ids, licences |
//! | [`SharedCount`] | a number that all processes follow, and any may change: how many permits, how many slots |
//! | [`KeptNode`] | an ephemeral node that is created again in each session |
//! | [`Shards`] | the shards of a service, each owned by one process at a time, under a lock with a fencing token |
//!
//! The crate uses only the public API of `zookeeper_recipes`.

mod kept_node;
pub mod members;
#[cfg(not(feature = "metrics"))]
#[allow(unreachable_pub, reason = "the names are public with the feature")]
mod metrics;
#[cfg(feature = "metrics")]
pub mod metrics;
mod request;
pub mod shards;
mod shared_count;
pub mod slots;
pub mod tools;

pub use zookeeper_recipes;

pub use crate::kept_node::KeptNode;
pub use crate::members::{Members, Membership};
pub use crate::shards::Shards;
pub use crate::shared_count::{SetCount, SharedCount};
pub use crate::slots::{Slot, Slots};
