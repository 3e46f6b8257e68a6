//! Shards of a service over its processes, on [ZooKeeper](https://zookeeper.apache.org): each is owned by one process at a time,
//! under a lock of [`zookeeper_recipes`] with a fencing token.
//!
//! ```no_run
//! # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use zookeeper_shards::Shards;
//!
//! let shards = Shards::builder("/shards/orders", 256).name("orders-0").grace(Duration::from_secs(20)).build(&session)?;
//! shards.run(async |shard| {
//!     println!("shard {} with token {}", shard.number(), shard.fencing_token());
//!     shard.revoke_requested().await;
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```
//!
//! There is no elected assigner. Each process computes the same [`Plan`] from the names of all and the [`Rules`] of operators, and queues for
//! the locks of its shards.
//! The holder of its lock is the owner of a shard, and no other process is. So a plan that is old or wrong costs time, and never gives a
//! shard to two owners.
//!
//! * **Few moves.** When a process joins or leaves, about as many shards move as it has. No process gets more than 1.1 times the mean, rounded up.
//! * **No move for a restart.** A process that is back under its name within the [grace](ShardsBuilder::grace) has its shards again.
//! * **Short hand-overs.** The new owner queues before the old one ends, so a shard is without an owner for about a round trip.
//! * **No orphan.** A shard that its planned owner does not take is taken by the next member, and is given back later.
//!
//! # The plan node
//!
//! Operators direct the group by a node, `<path>/plan`, by hand or with `zklock shards`: [`Rules`] has its form. It drains members, gives them
//! weights, and pins shards. Without the node the names decide alone.
//!
//! * Each member watches the node. It follows a change after the [settling time](ShardsBuilder::settling_time), by hand-overs as for any other move.
//! * A member logs a warning about a node that it cannot use, and keeps the last rules that it could use. A member that starts meanwhile has
//!   no rules. Then plans differ, which costs time: some shards stay where they are, or are taken after the
//!   [patience](ShardsBuilder::patience).
//! * A pin to a member that is not in the group, or is drained, does not count, and the plan decides. A member that has gone is in the group
//!   for the [grace](ShardsBuilder::grace), so its pinned shards wait for it that long.
//! * If all members are drained, no drain counts.
//! * The ACL of the node decides who may direct the group. Members need READ.
//!
//! # Without async
//!
//! A thread that blocks runs a member with the session of `zookeeper_recipes::blocking`. The functions of the shards are async, and run on the
//! thread of that session:
//!
//! ```no_run
//! # fn example() -> Result<(), zookeeper_recipes::Error> {
//! use zookeeper_recipes::blocking::Session;
//! use zookeeper_shards::Shards;
//!
//! let session = Session::connect("zk1:2181,zk2:2181,zk3:2181")?;
//! let shards = Shards::builder("/shards/orders", 256).name("orders-0").build(session.as_async())?;
//! session.block_on(shards.run(async |shard| shard.revoke_requested().await))??;
//! session.close()
//! # }
//! ```
//!
//! # Limits
//!
//! * A crashed owner keeps its shards until the servers have ended its session: one session timeout.
//! * A dead waiter stops the queue of its shard for as long.
//! * A member has one session, which watches the nodes of its own holds in the first 20 KiB of their paths: 276 shards at
//!   `/shards/orders`. For more shards it sends a listing of its nodes, and reads of four of them, each third of the session timeout *T*. Then a deletion by
//!   hand is noticed within *T*/3, and a `revoke` of an operator after up to *n*/12 *T* for *n* shards beyond. Moves, losses and
//!   tokens stay as they are. If that is too late, run two members in the process, each with a session and a name of its own.
//! * A member that starts while another one restarts does not know of it, and takes a part of its shards, which move back later. So restart one
//!   member at a time.
//! * At the start of a fleet, shards move until the set of members has settled.

mod announcement;
mod builder;
mod look;
mod meter;
#[cfg(feature = "metrics")]
pub mod metrics;
mod orphans;
mod owned;
mod plan;
mod plan_node;
mod rules;
mod score;
mod shard;
mod shards;
mod view;
mod worker;

pub use zookeeper_recipes;

pub use crate::announcement::Announcement;
pub use crate::builder::ShardsBuilder;
pub use crate::owned::OwnedChanges;
pub use crate::plan::Plan;
pub use crate::rules::Rules;
pub use crate::shard::Shard;
pub use crate::shards::Shards;
