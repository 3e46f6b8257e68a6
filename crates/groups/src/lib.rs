//! Groups of processes on [ZooKeeper](https://zookeeper.apache.org), beside the locks of [`zookeeper_recipes`]: who is there, who has which
//! number, and who owns which shard.
//!
//! | recipe | for |
//! |---|---|
//! | [`Members`] | who is there: the processes of a group, with data of each, over lost connections and sessions |
//! | [`Slots`] | numbers from 0 to *n* − 1, each with one holder at a time: worker ids, licences |
//! | [`KeptNode`] | an ephemeral node that is created again in each session |
//! | [`Shards`] | the shards of a service, each owned by one process at a time, under a lock with a fencing token |
//!
//! It uses nothing of `zookeeper_recipes` but its public API.

mod kept_node;
pub mod members;
#[cfg(feature = "metrics")]
pub mod metrics;
mod request;
pub mod shards;
pub mod slots;
pub mod tools;

pub use zookeeper_recipes;

pub use crate::kept_node::KeptNode;
pub use crate::members::{Members, Membership};
pub use crate::shards::Shards;
pub use crate::slots::{Slot, Slots};
