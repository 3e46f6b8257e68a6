//! Divides the shards of a service among its processes, on [ZooKeeper](https://zookeeper.apache.org). Each shard is owned by one
//! process at a time, under a lock of [`zookeeper_recipes`] with a fencing token.
//!
//! ```no_run
//! # struct Store;
//! # impl Store { async fn serve(&self, shard: zookeeper_groups::shards::Shard) {} }
//! # async fn example(session: zookeeper_recipes::Session, store: std::sync::Arc<Store>) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use zookeeper_groups::Shards;
//! use zookeeper_groups::shards::Shard;
//!
//! let shards = Shards::builder("/shards/orders", 256).name("orders-0").grace(Duration::from_secs(20)).build(&session)?;
//! let serve = move |shard: Shard| {
//!     // A future of its own for each shard: an `async` closure that captures something does not compile here.
//!     let store = store.clone();
//!     async move { store.serve(shard).await }
//! };
//! shards.run(serve).await?;
//! # Ok(())
//! # }
//! ```
//!
//! There is no elected assigner. Each process computes the same [`Plan`] from the names of all members and the
//! [`Rules`](crate::tools::Rules) of operators, and queues for the locks of its shards. The owner of a shard is the holder of its
//! lock. So an old or wrong plan costs time, but never gives a shard to two owners.
//!
//! * **Few moves.** When a process joins or leaves, about as many shards move as it owns. No process gets more than 1.1 times the
//!   mean, rounded up, unless operators pin more to it.
//! * **No move for a restart.** A process that is back under its name within the [grace](ShardsBuilder::grace) gets its shards
//!   again.
//! * **Short hand-overs.** The new owner queues before the old one releases, so a shard is without an owner for about a round
//!   trip.
//! * **No orphan.** If the planned owner does not take a shard, the next member takes it, and gives it back later.
//!
//! # The plan node
//!
//! Operators direct the group with the node `<path>/plan`, by hand or with `zklock shards`. Its [`Rules`](crate::tools::Rules)
//! drain members and pin shards. Without the node, the plan follows from the names alone.
//!
//! * Each member watches the node, and follows a change after the [settling time](ShardsBuilder::settling_time). Shards then move
//!   by hand-overs as usual.
//! * If a member cannot use the node, it logs a warning, and keeps the last valid rules. A member that starts meanwhile has no
//!   rules. Then plans differ, which costs time: some shards stay with their owners, or are taken only after the
//!   [patience](ShardsBuilder::patience).
//! * A pin to a member that is drained or not in the group is ignored. A member whose node is gone stays in the group for the
//!   [grace](ShardsBuilder::grace), so its pinned shards wait for it that long.
//! * If all members are drained, drains are ignored.
//! * The ACL of the node decides who may direct the group. Members need READ.
//!
//! # Without async
//!
//! A blocking thread runs a member with the session of `zookeeper_recipes::blocking`. The functions that serve shards are async,
//! and run on the thread of that session:
//!
//! ```no_run
//! # fn example() -> Result<(), zookeeper_recipes::Error> {
//! use zookeeper_recipes::blocking::Session;
//! use zookeeper_groups::Shards;
//!
//! let session = Session::connect("zk1:2181,zk2:2181,zk3:2181")?;
//! let shards = Shards::builder("/shards/orders", 256).name("orders-0").build(session.as_async())?;
//! let ended = session.block_on(shards.run(|shard| async move { shard.revoke_requested().await }));
//! session.close()?;
//! ended
//! # }
//! ```
//!
//! # Limits
//!
//! * A crashed owner keeps its shards until the servers expire its session, one session timeout later.
//! * A crashed waiter blocks the queue of its shard for the same time.
//! * A member has one session, which watches the nodes of its own holds up to 20 KiB of paths: 276 shards at `/shards/orders`.
//!   For the shards beyond, it notices a deletion by hand within a third of the session timeout, and no `revoke` of an operator.
//!   Moves, losses and tokens are not affected. For more shards, run two members in the process, each with its own session and name.
//! * A member that starts while another one restarts does not know the other, and takes a part of its shards, which move back
//!   later. So restart one member at a time.
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
/// Each process is a member, under a [name](ShardsBuilder::name) of its own. From their names and the
/// [rules](crate::tools::Rules) of operators, all members compute the same [`Plan`], which gives each shard a planned owner.
/// **The owner is the holder of the shard's lock**, the [`Mutex`](zookeeper_recipes::Mutex) at `<path>/<number>`. So an old or
/// wrong plan only delays moves, and there are never two owners.
///
/// `Shards` is a handle. Clones belong to the same member.
///
/// # Moves
///
/// When the plan changes, the new owner queues for the lock of the shard. The old owner sees the waiter, and asks its own
/// function to [end](Shard::revoke_requested). Once the function has returned, or was dropped after the
/// [limit](ShardsBuilder::drain_limit), the old owner releases the lock, and the new owner acquires it. Until then the old owner
/// serves the shard. So a shard is without an owner for about a round trip.
///
/// # What is not promised
///
/// As with every lock, a paused process may work for a moment on a shard that another process owns by now. Only a store that
/// checks the [fencing token](Shard::fencing_token) can prevent this.
///
/// After its owner has crashed, a shard is not served until the crashed session expires, and then until the process is back or the
/// [grace](ShardsBuilder::grace) has passed.
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
/// let running = tokio::spawn(shards.run(move |shard| async move {
///     println!("shard {} with token {}", shard.number(), shard.fencing_token());
///     // Serve it, and return when it is to be released.
///     shard.revoke_requested().await;
/// }));
/// tokio::signal::ctrl_c().await?;
/// shards.stop();
/// let ended = running.await;
/// // Whatever `run` returned: the session may hold other locks.
/// session.close().await?;
/// Ok(ended??)
/// # }
/// ```
#[derive(Clone)]
pub struct Shards {
    pub(crate) inner: Arc<Inner>,
}

impl Shards {
    /// Returns a builder for a member of the group at `path`, with shards 0 to `count` − 1.
    ///
    /// The [name](ShardsBuilder::name) is required. All members must give the same count, and should give the same settings. For
    /// another count use another path: members with different counts never own a shard twice, but have different plans.
    pub fn builder(path: &str, count: u32) -> ShardsBuilder {
        ShardsBuilder::new(path, count)
    }

    /// Joins the group, and serves the shards of this member until it is [stopped](Self::stop) or has [left](Self::leave).
    ///
    /// Each time this member acquires a shard's lock, `serve` is called in a new task. Its future is dropped when the lock is
    /// lost, *before* the servers can grant the lock to another member. Let `serve` await
    /// [`revoke_requested`](Shard::revoke_requested), and return then. Tasks that it spawns do not end with it: let them use
    /// [`Shard::monitor`].
    ///
    /// If `serve` panics, or returns before this member asked it to end, its shard is released. This member takes the shard again
    /// after a pause of 1 s, which doubles up to 30 s. Meanwhile another member may take it, after the
    /// [grace](ShardsBuilder::grace) and the [`patience`](ShardsBuilder::patience). A panic is logged as a warning, and does not
    /// end the other shards: otherwise a shard that makes every owner panic would take down the fleet, member by member. So handle
    /// errors in `serve`, and return where a retry may help.
    ///
    /// The call waits while the name is [taken](ShardsBuilder::name_limit), in outages, also at its start, and while the session
    /// is renewed. If the session has no room for more locks, the member keeps the shards it has, and others take the rest.
    ///
    /// Call `run` once for each member. After an error you may call it again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the futures of all shards at their next `await`, and then releases the shards and leaves the
    /// group in the background. [`stop`](Self::stop) lets them finish. A future that is neither polled nor dropped keeps its
    /// locks, serves no new shard and hands none over, so a drain lasts until its limit. Drop the future, or run it in a task.
    ///
    /// # Errors
    ///
    /// [`Error::NameTaken`](zookeeper_recipes::Error::NameTaken) if another process had the name for longer than the
    /// [limit](ShardsBuilder::name_limit). [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) if the name cannot be that of a
    /// node. At the start also [`Error::SessionFull`](zookeeper_recipes::Error::SessionFull) if the session has no room for the member, and
    /// [`Error::Client`](zookeeper_recipes::Error::Client) if the servers refuse a request.
    /// [`Error::NoAuth`](zookeeper_recipes::Error::NoAuth) if the ACLs forbid the member to join.
    /// [`Error::Unavailable`](zookeeper_recipes::Error::Unavailable) if no server answers when the member leaves the group at the end.
    /// [`Error::Closed`](zookeeper_recipes::Error::Closed) after a close or a drain of the session, and
    /// [`Error::SessionEnded`](zookeeper_recipes::Error::SessionEnded) if the session is over for another reason. Both are returned once
    /// the futures of all shards have ended, so a drain lets them finish.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers.
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
            // `inner` keeps the sender alive.
            let ended = async { _ = ending.wait_for(|ending| *ending != Ending::No).await };
            let worker = tokio::select! {
                joined = Worker::join(inner, serve) => joined?,
                () = ended => return Ok(()),
            };
            worker.run().await
        }
    }

    /// Ends [`run`](Self::run): the member asks the futures of all shards to end, releases the shards and leaves the group, and
    /// then `run` returns. This call returns at once.
    ///
    /// Other members take the shards after the [grace](ShardsBuilder::grace). So this is for a process that restarts under its
    /// name. A stopped handle cannot run again.
    pub fn stop(&self) {
        self.end(Ending::Stopping);
    }

    /// Ends [`run`](Self::run) after the other members have taken this member's shards: for a process that does not come back.
    /// This call returns at once.
    ///
    /// The shards move without the [grace](ShardsBuilder::grace), a few [at a time](ShardsBuilder::moves_at_once), and none is
    /// without an owner for longer than a move takes. `run` waits as long as the others take: to limit this time, call
    /// [`stop`](Self::stop). Without other members, `leave` does the same as `stop`.
    pub fn leave(&self) {
        self.end(Ending::Leaving);
    }

    fn end(&self, how: Ending) {
        self.inner.ending.send_if_modified(|ending| std::mem::replace(ending, how.max(*ending)) < how);
    }

    /// The shards that this member owns at this moment, in the order of their numbers.
    ///
    /// Checks the clock and sends nothing. So the result is right even directly after a pause of the process.
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

    /// Reads the owner of a shard: the holder of its lock, whose [identifier](Contender::identifier_lossy) is the name of the
    /// member. `None` if the shard has no owner. The connected server answers from its own state, which may be behind the other
    /// servers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) for a shard that does not exist. Otherwise as
    /// [`Mutex::contenders`](zookeeper_recipes::Mutex::contenders).
    pub async fn owner(&self, shard: u32) -> Result<Option<Contender>> {
        if shard >= self.inner.count {
            return Err(invalid("shard", format!("there are {}, from 0 on", self.inner.count)));
        }
        let contenders = self.inner.mutex(shard)?.contenders().await?;
        Ok(contenders.into_iter().find(Contender::is_holder))
    }

    /// The name and the [data](ShardsBuilder::data) of a shard's planned owner, to send a request there. The plan is the one that
    /// this member follows. `None` before the first plan, and for a shard that does not exist.
    ///
    /// Sends nothing. While the shard moves, another member may still own it, and the owner may have crashed a moment ago. A
    /// missing member stays in the plan for the settling time after its grace, with empty data. So let the receiver check that it owns the
    /// shard, and the store check the token. A process that is not a member follows `<path>/members` with
    /// [`Members`](crate::Members), and computes the [`Plan`].
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
