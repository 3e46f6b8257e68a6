//! Owns [`Shards`]: the handle of a member of a group that divides shards.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use zookeeper_recipes::{Contender, Error, Members, Mutex, Options, Result, Session};

use crate::builder::{Settings, ShardsBuilder};
use crate::owned::{Owned, OwnedChanges, held};
use crate::plan::Plan;
use crate::plan_node;
use crate::shard::Shard;
use crate::worker::{Serve, Worker};

/// The shards 0 to *n* − 1 of a service, each owned by one of its processes at a time.
///
/// Each process is a member, under a [name](ShardsBuilder::name) of its own. A [`Plan`], which all members compute alike from the
/// names of all and the [rules](crate::Rules) of operators, says who should own which shard. **The owner is the holder of the shard's lock**, the
/// [`Mutex`] at `<path>/<number>`, and no other process is. So a member whose plan is old or wrong is slow, and there are never two owners.
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
/// use zookeeper_shards::Shards;
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

/// What handles of a member and its worker share.
pub(crate) struct Inner {
    pub(crate) session: Session,
    pub(crate) members: Members,
    pub(crate) path: String,
    pub(crate) count: u32,
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) settings: Settings,
    options: Options,
    pub(crate) owned: watch::Sender<Owned>,
    pub(crate) plan: watch::Sender<Option<Arc<Plan>>>,
    /// The data of the members of the last set, by their names.
    pub(crate) all_data: watch::Sender<HashMap<String, Vec<u8>>>,
    pub(crate) ending: watch::Sender<Ending>,
}

/// Whether a member is to end, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    No,
    Leaving,
    Stopping,
}

impl Shards {
    /// Begins the settings of a member of the group at `path`, with shards 0 to `count` − 1.
    ///
    /// The [name](ShardsBuilder::name) is required. All members have to give the same count, and should give the same settings.
    /// For another count take another path: members that differ in it never own a shard twice, but have different plans.
    pub fn builder(path: &str, count: u32) -> ShardsBuilder {
        ShardsBuilder::new(path, count)
    }

    pub(crate) fn new(
        session: &Session,
        members: Members,
        path: String,
        count: u32,
        name: String,
        data: Vec<u8>,
        settings: Settings,
    ) -> Result<Self> {
        let inner = Inner {
            session: session.clone(),
            members,
            path,
            count,
            options: Options::new().with_identifier(&name),
            name,
            data,
            settings,
            owned: watch::Sender::default(),
            plan: watch::Sender::default(),
            all_data: watch::Sender::default(),
            ending: watch::Sender::new(Ending::No),
        };
        // The longest path, and the identifier.
        inner.mutex(count - 1)?;
        Ok(Self { inner: Arc::new(inner) })
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
    /// # async fn example(shards: zookeeper_shards::Shards, store: std::sync::Arc<Store>) -> Result<(), zookeeper_recipes::Error> {
    /// let serve = move |shard: zookeeper_shards::Shard| {
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
            let reason = format!("there are {}, from 0 on", self.inner.count);
            return Err(Error::InvalidInput { what: "shard", reason });
        }
        let contenders = self.inner.mutex(shard)?.contenders().await?;
        Ok(contenders.into_iter().find(Contender::is_holder))
    }

    /// The name and the [data](ShardsBuilder::data) of the member that should own a shard, by the plan that this member follows: to
    /// send a request there. `None` before the first plan, and for a shard that does not exist.
    ///
    /// It sends nothing. While the shard moves, another member may own it still, and the owner may have crashed a moment ago. A member
    /// that has left stays in the plan for the settling time, with empty data. So let the receiver look whether it owns the shard, and
    /// the store check the token. A process that is no member follows the group at `<path>/members` with [`Members`], and computes
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

impl Inner {
    pub(crate) fn path_of(&self, shard: u32) -> String {
        format!("{}/{shard}", self.path)
    }

    pub(crate) fn plan_path(&self) -> String {
        format!("{}/{}", self.path, plan_node::NAME)
    }

    pub(crate) fn mutex(&self, shard: u32) -> Result<Mutex> {
        Mutex::with_options(&self.session, &self.path_of(shard), self.options.clone())
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
