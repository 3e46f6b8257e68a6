//! Shards of a service over its processes, on [ZooKeeper](https://zookeeper.apache.org): each is owned by one process at a time,
//! under a lock of [`zookeeper_recipes`] with a fencing token.
//!
//! ```no_run
//! # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use zookeeper_groups::Shards;
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
//! There is no elected assigner. Each process computes the same [`Plan`] from the names of all and the [`Rules`](crate::tools::Rules) of operators, and queues for
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
//! Operators direct the group by a node, `<path>/plan`, by hand or with `zklock shards`: [`Rules`](crate::tools::Rules) has its form. It drains members, gives them
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
//! use zookeeper_groups::Shards;
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

mod builder;
mod inner;
mod look;
mod meter;
mod orphans;
mod owned;
mod plan_node;
mod shard;
mod view;
mod worker;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use zookeeper_recipes::{Contender, Result};

use crate::request::invalid;
pub use crate::shards::builder::ShardsBuilder;
use crate::shards::inner::{Ending, Inner};
pub use crate::shards::owned::OwnedChanges;
use crate::shards::owned::held;
pub use crate::shards::shard::Shard;
use crate::shards::worker::{Serve, Worker};
use crate::tools::Plan;

/// The shards 0 to *n* − 1 of a service, each owned by one of its processes at a time.
///
/// Each process is a member, under a [name](ShardsBuilder::name) of its own. A [`Plan`], which all members compute alike from the
/// names of all and the [rules](crate::tools::Rules) of operators, says who should own which shard. **The owner is the holder of the shard's lock**, the
/// [`Mutex`](zookeeper_recipes::Mutex) at `<path>/<number>`, and no other process is. So a member whose plan is old or wrong is slow, and there are never two owners.
///
/// It is a handle. Clones belong to the same member.
///
/// # Moves
///
/// When the plan changes, the new owner queues for the lock of the shard. The old owner sees the waiter, and asks its own
/// function to [end](Shard::revoke_requested). When that has returned, or was dropped after the
/// [limit](ShardsBuilder::drain_limit), it releases the lock, and the servers grant it to the new owner with the same event. Until
/// then the old owner serves the shard. So a shard is without an owner for about a round trip.
///
/// # What is not promised
///
/// As with every lock, a process that was stopped may go on for a moment with a shard that another one owns by now. Only a store that
/// checks the [fencing token](Shard::fencing_token) can exclude that.
///
/// A shard has no owner between the crash of its owner and the end of the crashed session, and for the [grace](ShardsBuilder::grace)
/// after that.
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use zookeeper_groups::Shards;
///
/// let shards = Shards::builder("/shards/orders", 256).name("orders-0").grace(Duration::from_secs(20)).build(&session)?;
/// let running = tokio::spawn(shards.run(async |shard| {
///     println!("shard {} with token {}", shard.number(), shard.fencing_token());
///     // Serve it, and return when it is to be released.
///     shard.revoke_requested().await;
/// }));
/// tokio::signal::ctrl_c().await?;
/// shards.stop();
/// running.await??;
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Shards {
    inner: Arc<Inner>,
}

impl Shards {
    /// Begins the settings of a member of the group at `path`, with shards 0 to `count` − 1.
    ///
    /// The [name](ShardsBuilder::name) is required. All members have to give the same count, and should give the same settings.
    /// For another count take another path: members that differ in it never own a shard twice, but have different plans.
    pub fn builder(path: &str, count: u32) -> ShardsBuilder {
        ShardsBuilder::new(path, count)
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Joins the group, and serves the shards of this member until it is [stopped](Self::stop) or has [left](Self::leave).
    ///
    /// `serve` is called for each shard that this member owns, at each grant of its lock, in a task of its own. Its future is dropped
    /// when the lock is lost, *before* the servers can grant it to another member. Let it await
    /// [`revoke_requested`](Shard::revoke_requested), and return then. Tasks that it spawns are not ended with it: let them use
    /// [`Shard::monitor`].
    ///
    /// If `serve` returns without being asked, or panics, its shard is released, and this member takes it again after a pause of 1 s,
    /// which doubles up to 30 s. Meanwhile another member may take it, after [`patience`](ShardsBuilder::patience). A panic does not end
    /// the other shards: one that makes every owner panic would take down the fleet, member by member. It is logged as a warning. So handle errors in
    /// `serve`, and return where another try may help.
    ///
    /// It waits while the name is [taken](ShardsBuilder::name_limit), in outages, also at its start, and while the session is renewed. In a session
    /// that has no room for the locks of more shards, it keeps those it has, and others take the rest.
    ///
    /// Start it once for each member. After an error it may be called again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the futures of all shards at their next `await`, and then releases the shards and leaves the group in
    /// the background. [`stop`](Self::stop) lets them finish. A future that is kept and not polled keeps the locks of its shards, serves no new one
    /// and gives none away, so a drain takes its limit: drop it, or run it in a task.
    ///
    /// # Errors
    ///
    /// [`Error::NameTaken`] if another process had the name for longer than the [limit](ShardsBuilder::name_limit).
    /// [`Error::InvalidInput`] if the name cannot be that of a node. At the start also [`Error::SessionFull`] if the session has no room for the
    /// member, and [`Error::Client`] for what the servers refuse. [`Error::NoAuth`] if the ACLs deny it to join the group.
    /// [`Error::Unavailable`] if no server answers when it leaves the group at the end.
    /// [`Error::Closed`] after a close or a drain of the session, and [`Error::SessionEnded`] if it is over for another reason.
    /// They are returned when no future of a shard is left, so a drain lets them finish.
    ///
    /// # Panics
    ///
    /// It may panic outside a tokio runtime with timers.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # struct Store;
    /// # impl Store { async fn serve(&self, shard: u32, token: zookeeper_recipes::FencingToken) {} }
    /// # async fn example(shards: zookeeper_groups::Shards, store: std::sync::Arc<Store>) -> Result<(), zookeeper_recipes::Error> {
    /// let serve = move |shard: zookeeper_groups::shards::Shard| {
    ///     let store = store.clone();
    ///     async move {
    ///         tokio::select! {
    ///             () = shard.revoke_requested() => {}
    ///             () = store.serve(shard.number(), shard.fencing_token()) => {}
    ///         }
    ///     }
    /// };
    /// shards.run(serve).await
    /// # }
    /// ```
    pub fn run<F, R>(&self, serve: F) -> impl Future<Output = Result<()>> + Send + 'static + use<F, R>
    where
        F: Fn(Shard) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let inner = self.inner.clone();
        let serve: Serve = Arc::new(move |shard| Box::pin(serve(shard)));
        async move {
            let mut ending = inner.ending.subscribe();
            // The sender is in `inner`.
            let ended = async { _ = ending.wait_for(|ending| *ending != Ending::No).await };
            let worker = tokio::select! {
                joined = Worker::join(inner, serve) => joined?,
                () = ended => return Ok(()),
            };
            worker.run().await
        }
    }

    /// Lets [`run`](Self::run) end: it asks the futures of all shards to end, releases the shards, leaves the group, and returns. This call returns
    /// at once.
    ///
    /// The others take the shards after the [grace](ShardsBuilder::grace). So this is for a process that restarts under its name. A
    /// handle that was stopped stays so.
    pub fn stop(&self) {
        self.end(Ending::Stopping);
    }

    /// Lets [`run`](Self::run) end after the other members have taken the shards of this one: for a process that does not come back. This call returns
    /// at once.
    ///
    /// The shards move without the [grace](ShardsBuilder::grace), a few [at a time](ShardsBuilder::moves_at_once), and none is without an owner
    /// for longer than a move takes. It lasts as long as the others take: call [`stop`](Self::stop) after a limit of yours. Without
    /// other members it does the same as `stop`.
    pub fn leave(&self) {
        self.end(Ending::Leaving);
    }

    fn end(&self, how: Ending) {
        self.inner.ending.send_if_modified(|ending| std::mem::replace(ending, how.max(*ending)) < how);
    }

    /// The shards that this member owns at this moment, in the order of their numbers.
    ///
    /// It compares clocks and sends nothing. So it is right at once after a pause of the process.
    #[must_use]
    pub fn owned(&self) -> Vec<u32> {
        let owned = self.inner.owned.borrow().clone();
        held(owned)
    }

    /// Subscribes to the set of shards that this member owns.
    #[must_use]
    pub fn changes(&self) -> OwnedChanges {
        OwnedChanges::new(self.inner.owned.subscribe())
    }

    /// Reads who owns a shard: the holder of its lock, whose [identifier](Contender::identifier_lossy) is the name of the member. `None`
    /// if it has no owner. It is what the connected server knows, which may be behind the others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] for a shard that does not exist. Otherwise as
    /// [`Mutex::contenders`](zookeeper_recipes::Mutex::contenders).
    pub async fn owner(&self, shard: u32) -> Result<Option<Contender>> {
        if shard >= self.inner.count {
            return Err(invalid("shard", format!("there are {}, from 0 on", self.inner.count)));
        }
        let contenders = self.inner.mutex(shard)?.contenders().await?;
        Ok(contenders.into_iter().find(Contender::is_holder))
    }

    /// The name and the [data](ShardsBuilder::data) of the member that should own a shard, by the plan that this member follows: to
    /// send a request there. `None` before the first plan, and for a shard that does not exist.
    ///
    /// It sends nothing. While the shard moves, another member may own it still, and the owner may have crashed a moment ago. A member
    /// that has left stays in the plan for the settling time, with empty data. So let the receiver look whether it owns the shard, and
    /// the store check the token. A process that is no member follows the group at `<path>/members` with [`Members`](crate::Members), and computes
    /// the [`Plan`].
    #[must_use]
    pub fn route(&self, shard: u32) -> Option<(String, Vec<u8>)> {
        let plan = self.plan()?;
        let name = plan.owner(shard)?;
        let data = self.inner.all_data.borrow().get(name).cloned().unwrap_or_default();
        Some((name.to_owned(), data))
    }

    /// The plan that this member follows. `None` before the first one.
    #[must_use]
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.inner.plan.borrow().clone()
    }

    /// The name of this member.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The path of the group.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// How many shards there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.inner.count
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("path", &self.path())
            .field("name", &self.name())
            .field("owned", &self.owned())
            .finish_non_exhaustive()
    }
}
