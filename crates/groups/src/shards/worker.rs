//! Owns [`Worker`]: the loop of a member. It follows the members and the plan node, queues for the locks of the member's planned
//! shards, serves these shards, and gives back shards that the plan gives to others.
//!
//! 1. The owner of a shard is the holder of its lock. A mistake here only delays the service of shards.
//! 2. A member queues by the plan that it follows, and leaves the queue when its next plan gives the shard to another member. When
//!    its lock is granted, a shard is served if the member's node exists in the present session. After a pause of its process, a
//!    member may serve by an old plan until it has read the set of members again. It then hands the shard over. A needless move
//!    is better than a shard without an owner.
//! 3. A shard that the plan gives to another member is served until that member queues. To notice this, the owner counts the
//!    nodes of the locks of such shards, in one request per 500 shards. It does so soon after a change of the plan, and then less
//!    and less often, down to once a second. If the new owner asked by `revoke` instead, each shard would cost a listing, two
//!    reads and a write by a majority of the servers. A member with an old plan would ask as well. A holder without room for a
//!    watch on its own node would notice late.
//! 4. The first plan is made from a set that has the member's own node, so the set was read after the create.
//! 5. Each request runs in a task of its own, so the loop waits for no server, and always obeys a stop. The loop computes each
//!    plan itself, which takes some tens of milliseconds for a large group. Tokio's threads for blocking calls could all be busy
//!    with the user's functions.
//! 6. The rules are those of the last valid plan node, and are read before the first plan is made. No grant waits for newer
//!    rules: old rules only mean an old plan.

use std::collections::HashMap;
use std::future::Future;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_recipes::{Error, MutexGuard, Result};

use crate::members::{Member, MemberChanges, Membership};
use crate::metrics::{CUTS, MOVES, RETURNED};
use crate::request::is_over;
use crate::shards::inner::{Ending, Inner};
use crate::shards::look::{Sighting, look};
use crate::shards::meter::{Gauges, Meter};
use crate::shards::orphans::Orphans;
use crate::shards::owned::Owned;
use crate::shards::plan_node::Reader;
use crate::shards::shard::{Served, Shard, serve};
use crate::shards::view::View;
use crate::tools::{Announcement, Plan, Rules};

/// The longest time between two runs of the loop, and between two looks for waiters.
const TURN: Duration = Duration::from_secs(1);

/// Changes of the set of owned shards are logged together, as after a pause of the process.
const SOON: Duration = Duration::from_millis(100);

/// The least time between two looks for waiters at the locks of shards that this member should not own.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// The shortest and the longest pause of a shard whose function has returned or panicked, or whose lock was refused.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The function that serves shards.
pub(crate) type Serve = Arc<dyn Fn(Shard) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The loop of a member.
pub(crate) struct Worker {
    inner: Arc<Inner>,
    cleared: Cleared,
    function: Serve,
    membership: Arc<Membership>,
    changes: MemberChanges,
    ending: watch::Receiver<Ending>,
    /// The members of the last set that are not leaving.
    names: Vec<String>,
    rules: Rules,
    is_plan_node_refused: bool,
    view: View,
    orphans: Orphans,
    meter: Meter,
    states: Vec<State>,
    /// The last pause of each shard.
    pauses: HashMap<u32, Duration>,
    /// When to log the number of owned shards, after a change.
    shown_at: Option<Instant>,
    tasks: JoinSet<Done>,
    /// The shard of each task that waits for a lock or serves.
    shards: HashMap<Id, u32>,
    is_looking: bool,
    is_announced: bool,
    /// Whether the last look at locks has failed, and this was logged.
    cannot_look: bool,
    /// When to look next at the locks of shards that are [to be given back](Worker::is_to_be_given_back) or
    /// [held back](Worker::is_held_back), and the pause after that look.
    look_at: Instant,
    look_pause: Duration,
    /// Why the session is over.
    over: Option<Error>,
}

/// Empties the set of owned shards when dropped.
struct Cleared(Arc<Inner>);

impl Drop for Cleared {
    fn drop(&mut self) {
        drop(self.0.owned.send_replace(Owned::new()));
    }
}

/// The state of a shard in this member.
enum State {
    Idle,
    /// A task locks the shard. A claim takes another member's shard that has no owner, and does not wait for the lock.
    Queued {
        task: AbortHandle,
        since: Instant,
        is_claim: bool,
    },
    Serving {
        asked: watch::Sender<bool>,
        since: Instant,
    },
    Paused {
        until: Instant,
    },
}

/// The result of a task.
enum Done {
    Queued(Result<Option<MutexGuard>>),
    Served(Served),
    Looked(Result<Vec<(u32, Sighting)>>),
    Announced(Result<()>),
    Read(Reader, Result<Rules>),
}

impl Worker {
    /// Joins the group. Then waits for a set of members that was read after the join, and for the rules.
    pub(crate) async fn join(inner: Arc<Inner>, serve: Serve) -> Result<Self> {
        let (members, settings) = (&inner.members, inner.settings);
        let data = Announcement::new(inner.count, false, &inner.data).to_bytes();
        let membership = loop {
            match members.join(&inner.name, &data).await {
                Err(taken @ Error::NameTaken { .. }) => {
                    tracing::warn!(path = inner.path, name = inner.name, %taken, "waiting for the name of this member");
                    let joined = timeout(settings.name_limit, members.join_when_free(&inner.name, &data));
                    break joined.await.map_err(|_| taken)??;
                }
                Err(error @ Error::Unavailable { .. }) => {
                    warn(&inner, &error, "cannot join the group yet");
                    sleep(FIRST_PAUSE).await;
                }
                joined => break joined?,
            }
        };
        let created = membership.generation();
        let mut changes = members.changes();
        let has_own = |set: &[Member]| {
            set.iter().any(|member| member.name() == inner.name && Some(member.generation()) >= created)
        };
        let first = loop {
            match changes.wait_for(has_own).await {
                Err(error) if !is_over(&error) => warn(&inner, &error, "cannot see the members"),
                seen => break seen?,
            }
        };
        // The first plan needs the rules, so this waits until an outage ends.
        let (reader, rules) = Reader::new(&inner.session, inner.plan_path(), inner.count)?.next().await;
        let mut worker = Self {
            function: serve,
            membership: Arc::new(membership),
            changes,
            ending: inner.ending.subscribe(),
            names: Vec::new(),
            rules: Rules::default(),
            is_plan_node_refused: false,
            view: View::new(settings.settling_time),
            orphans: Orphans::new(settings.grace, settings.patience),
            meter: Meter::new(&inner.path),
            states: (0..inner.count).map(|_| State::Idle).collect(),
            pauses: HashMap::new(),
            shown_at: None,
            tasks: JoinSet::new(),
            shards: HashMap::new(),
            is_looking: false,
            is_announced: false,
            cannot_look: false,
            look_at: Instant::now(),
            look_pause: FIRST_LOOK,
            over: None,
            cleared: Cleared(inner.clone()),
            inner,
        };
        worker.see(Ok(first));
        worker.read(reader, rules);
        Ok(worker)
    }

    /// Runs until the member has stopped or left, or the session is over.
    pub(crate) async fn run(mut self) -> Result<()> {
        loop {
            self.follow();
            if self.is_done() {
                break;
            }
            let wake = self.wake();
            tokio::select! {
                Some(done) = self.tasks.join_next_with_id() => self.note(done),
                seen = self.changes.changed(), if self.over.is_none() => self.see(seen),
                // This does not fail, because `inner` keeps the sender alive.
                _ = self.ending.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
        let Self { membership, over, mut tasks, cleared, .. } = self;
        drop(cleared);
        if let Some(error) = over {
            return Err(error);
        }
        // The task that announces the leave shares the membership. So end it first.
        tasks.shutdown().await;
        match Arc::try_unwrap(membership) {
            Ok(membership) => membership.leave().await,
            Err(_) => Ok(()),
        }
    }

    fn ending(&self) -> Ending {
        let is_alone = || self.view.followed().is_some_and(|plan| plan.members().is_empty());
        match *self.ending.borrow() {
            Ending::Leaving if is_alone() => Ending::Stopping,
            ending => ending,
        }
    }

    /// Whether no shard is served, and the member stops, has left the plan, or has no session any more.
    fn is_done(&self) -> bool {
        let is_out = match self.ending() {
            Ending::No => false,
            Ending::Leaving => self.view.followed().is_some_and(|plan| !plan.has(&self.inner.name)),
            Ending::Stopping => true,
        };
        (is_out || self.over.is_some()) && !self.states.iter().any(|state| matches!(state, State::Serving { .. }))
    }

    /// Handles a new set of members.
    fn see(&mut self, seen: Result<Vec<Member>>) {
        let members = match seen {
            Ok(members) => members,
            Err(error) if is_over(&error) => return self.over = Some(error),
            Err(error) => return warn(&self.inner, &error, "cannot see the members"),
        };
        let count = self.inner.count;
        let (mut names, mut all_data) = (Vec::new(), HashMap::new());
        for member in members {
            let announced = Announcement::parse(member.data());
            if !announced.as_ref().is_some_and(Announcement::is_leaving) {
                names.push(member.name().to_owned());
            }
            if let Some(announced) = &announced {
                all_data.insert(member.name().to_owned(), announced.data().to_owned());
            }
            if announced.is_none_or(|announced| announced.count() != count) {
                let (path, its) = (&self.inner.path, String::from_utf8_lossy(member.data()));
                tracing::warn!(path, count, member = member.name(), %its, "members differ in the number of shards");
            }
        }
        self.inner.all_data.send_replace(all_data);
        self.names = names;
        self.plan();
    }

    /// Handles the rules of the plan node, and starts a task that waits for the node's next change.
    fn read(&mut self, reader: Reader, rules: Result<Rules>) {
        let (path, name) = (self.inner.plan_path(), &self.inner.name);
        self.is_plan_node_refused &= rules.is_err();
        match rules {
            Ok(rules) if self.rules == rules => {}
            Ok(rules) => {
                tracing::info!(path, name, "the plan node has other rules");
                self.rules = rules;
                self.plan();
            }
            Err(error) if is_over(&error) => return self.over = Some(error),
            Err(error) => {
                self.is_plan_node_refused = true;
                tracing::warn!(path, name, %error, "cannot use the plan node; its last rules stay");
            }
        }
        let read = reader.next();
        self.tasks.spawn(async move {
            let (reader, rules) = read.await;
            Done::Read(reader, rules)
        });
    }

    /// Computes the plan of the present names and rules. The member follows it after the settling time.
    fn plan(&mut self) {
        if !self.names.is_empty() && self.names.iter().all(|name| self.rules.is_drained(name)) {
            tracing::warn!(path = self.inner.path, "all members are drained, so no drain counts");
        }
        let plan = Plan::with_rules(self.inner.count, self.names.clone(), &self.rules);
        self.view.see(plan, Instant::now());
    }

    /// Does everything that is due now: follows a settled plan, locks shards, leaves queues, asks functions to end.
    fn follow(&mut self) {
        let now = Instant::now();
        if self.view.settle(now) {
            self.adopt(now);
        }
        if self.ending() == Ending::Leaving && !self.is_announced && self.over.is_none() {
            self.is_announced = true;
            let data = Announcement::new(self.inner.count, true, &self.inner.data).to_bytes();
            let membership = self.membership.clone();
            self.tasks.spawn(async move { Done::Announced(membership.set(&data).await) });
        }
        // A queued shard counts as moving only until the patience has passed. So a slow owner does not keep this member from
        // other shards.
        let limit = self.inner.settings.patience;
        let is_moving = |state: &&State| matches!(state, State::Queued { since, .. } if now < *since + limit);
        let mut moving = self.states.iter().filter(is_moving).count();
        let (is_member, is_stopping) = (self.is_member(), self.ending() == Ending::Stopping);
        for shard in 0..self.inner.count {
            let is_wanted = is_member && self.orphans.is_own(shard);
            if matches!(&self.states[shard as usize], State::Paused { until } if *until <= now) {
                self.states[shard as usize] = State::Idle;
            }
            match &self.states[shard as usize] {
                State::Idle if is_wanted && moving < self.inner.settings.moves_at_once => {
                    moving += 1;
                    self.queue(shard, false);
                }
                State::Queued { task, is_claim: false, .. } if !is_wanted => {
                    task.abort();
                    self.states[shard as usize] = State::Idle;
                }
                State::Serving { asked, .. } if is_stopping => _ = asked.send_replace(true),
                _ => {}
            }
        }
        self.look(now);
        self.measure();
    }

    fn measure(&mut self) {
        let owned = self.inner.owned.borrow().len();
        if self.shown_at.take_if(|at| *at <= Instant::now()).is_some() {
            tracing::info!(path = self.inner.path, name = self.inner.name, owned, "owns other shards");
        }
        let is_alone = self.view.followed().is_some_and(|plan| plan.members() == [self.inner.name.as_str()]);
        let unassigned = match is_alone {
            true => self.states.len() - owned,
            // What was seen earlier does not count while this member does not look at other members' shards.
            false if !self.looks_for_orphans() => 0,
            false => self.orphans.unassigned(),
        };
        let is_plan_node_refused = self.is_plan_node_refused;
        self.meter.measure(Gauges { owned, unassigned, is_plan_node_refused });
    }

    /// Publishes the plan that is followed from now on, and follows its ranks.
    fn adopt(&mut self, now: Instant) {
        let Some(plan) = self.view.followed().cloned() else { return };
        let (path, name) = (&self.inner.path, &self.inner.name);
        let shards = plan.shards_of(name).count();
        tracing::debug!(path, name, members = plan.members().len(), shards, "follows another plan");
        self.orphans.follow(plan.ranks(name), now);
        self.inner.plan.send_replace(Some(plan));
        self.look_soon(now);
    }

    /// Whether this member may act on its plan: its node exists, it does not stop, and the session is not over.
    fn is_member(&self) -> bool {
        self.over.is_none() && self.ending() != Ending::Stopping && self.membership.is_joined()
    }

    fn queue(&mut self, shard: u32, is_claim: bool) {
        let mutex = match self.inner.mutex(shard) {
            Ok(mutex) => mutex,
            // The longest path was validated when the handle was built.
            Err(error) => return self.refused(shard, error),
        };
        let task = self.tasks.spawn(async move {
            Done::Queued(match is_claim {
                false => mutex.lock().await.map(Some),
                // An outage ends the claim, as a contended lock does. The shard's time without an owner then starts again.
                true => mutex.try_lock().await.or_else(|error| match error {
                    Error::Unavailable { .. } => Ok(None),
                    error => Err(error),
                }),
            })
        });
        self.shards.insert(task.id(), shard);
        self.states[shard as usize] = State::Queued { task, since: Instant::now(), is_claim };
    }

    /// Serves a shard whose lock was granted.
    fn serve(&mut self, shard: u32, guard: MutexGuard) {
        self.inner.owned.send_modify(|owned| _ = owned.insert(shard, guard.monitor()));
        tracing::debug!(path = self.inner.path, name = self.inner.name, shard, "serves a shard");
        self.shown_at.get_or_insert(Instant::now() + SOON);
        let (asked, limit, function) =
            (watch::Sender::new(false), self.inner.settings.drain_limit, self.function.clone());
        let served = serve(guard, shard, asked.subscribe(), limit, move |shard| function(shard));
        let task = self.tasks.spawn(async move { Done::Served(served.await) });
        self.shards.insert(task.id(), shard);
        self.states[shard as usize] = State::Serving { asked, since: Instant::now() };
    }

    /// Starts to read the locks of some shards, if that is due. A shard that is to be given back may have a waiter. An own shard
    /// that is held back, and a shard of another member, may have no owner.
    fn look(&mut self, now: Instant) {
        if self.is_looking || self.over.is_some() {
            return;
        }
        let mut shards = Vec::new();
        if self.look_at <= now {
            shards.extend((0..self.inner.count).filter(|&shard| self.waits_for_a_look(shard)));
            self.look_at = now + self.look_pause;
            self.look_pause = (self.look_pause * 2).min(TURN);
        }
        if self.orphans.due().is_some_and(|due| due <= now) && self.looks_for_orphans() {
            let idle = |shard: &u32| matches!(self.states[*shard as usize], State::Idle);
            shards.extend(self.orphans.turn(now).into_iter().filter(idle));
        }
        if shards.is_empty() {
            return;
        }
        self.is_looking = true;
        let paths = shards.iter().map(|shard| self.inner.path_of(*shard)).collect();
        let session = self.inner.session.clone();
        self.tasks.spawn(async move { Done::Looked(look(session, shards, paths).await) });
    }

    /// Whether this member serves a shard without having asked its function to end, although the plan gives the shard to another
    /// member, or this member's node is missing.
    fn is_to_be_given_back(&self, shard: u32) -> bool {
        let is_served = matches!(&self.states[shard as usize], State::Serving { asked, .. } if !*asked.borrow());
        is_served && !(self.orphans.is_own(shard) && self.is_member())
    }

    /// Whether this member should queue for a shard, but does not because it has as many moves under way as are allowed.
    fn is_held_back(&self, shard: u32) -> bool {
        matches!(&self.states[shard as usize], State::Idle) && self.orphans.is_own(shard) && self.is_member()
    }

    fn waits_for_a_look(&self, shard: u32) -> bool {
        self.is_to_be_given_back(shard) || self.is_held_back(shard)
    }

    fn looks_for_orphans(&self) -> bool {
        self.is_member() && self.ending() == Ending::No
    }

    fn look_soon(&mut self, now: Instant) {
        self.look_at = now + FIRST_LOOK;
        self.look_pause = FIRST_LOOK;
    }

    fn looked(&mut self, locks: Vec<(u32, Sighting)>) {
        let now = Instant::now();
        let is_draining = |state: &&State| matches!(state, State::Serving { asked, .. } if *asked.borrow());
        let mut draining = self.states.iter().filter(is_draining).count();
        let is_claim = |state: &&State| matches!(state, State::Queued { is_claim: true, .. });
        let mut claims = self.states.iter().filter(is_claim).count();
        let (most, before, mut free) = (self.inner.settings.moves_at_once, draining, 0);
        for (shard, lock) in locks {
            let is_given_back = self.is_to_be_given_back(shard);
            match &self.states[shard as usize] {
                // This shard has no owner, so it does not count as one that its owner hands over.
                State::Idle if lock.nodes == 0 && free < most && self.is_held_back(shard) => {
                    free += 1;
                    self.queue(shard, false);
                }
                // `nodes > 1`: our node and that of a waiter.
                State::Serving { asked, .. } if is_given_back && lock.nodes > 1 && draining < most => {
                    draining += 1;
                    asked.send_replace(true);
                }
                State::Idle if self.orphans.note(shard, lock, now) && self.is_member() && claims < most => {
                    claims += 1;
                    self.orphans.claimed(shard);
                    tracing::info!(path = self.inner.path, name = self.inner.name, shard, "takes a free shard");
                    self.queue(shard, true);
                }
                _ => {}
            }
        }
        self.meter.count(MOVES, (draining - before) as u64);
        if free > 0 {
            self.look_soon(now);
        }
    }

    /// Handles the result of a task.
    fn note(&mut self, done: std::result::Result<(Id, Done), JoinError>) {
        let id = done.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let shard = self.shards.remove(&id);
        match (done.map(|(_, done)| done), shard) {
            (Ok(Done::Queued(queued)), Some(shard)) => self.queued(id, shard, queued),
            (Ok(Done::Served(served)), Some(shard)) => self.served(shard, Ok(served)),
            (Ok(Done::Looked(looked)), _) => {
                self.is_looking = false;
                let cannot_look = std::mem::replace(&mut self.cannot_look, looked.is_err());
                match looked {
                    Ok(locks) => self.looked(locks),
                    Err(error) if is_over(&error) => self.over = Some(error),
                    Err(_) if cannot_look => {}
                    Err(error) => warn(&self.inner, &error, "cannot look at shards"),
                }
            }
            (Ok(Done::Read(reader, rules)), _) => self.read(reader, rules),
            (Ok(Done::Announced(Err(error))), _) => {
                warn(&self.inner, &error, "cannot announce that this member leaves; it stops");
                self.inner.ending.send_replace(Ending::Stopping);
            }
            (Err(failed), Some(shard)) if failed.is_panic() && self.is_served(shard) => {
                self.served(shard, Err(failed))
            }
            // The user's function has not panicked. The runtime may have no timers, for example.
            (Err(failed), _) if failed.is_panic() => resume_unwind(failed.into_panic()),
            // An aborted task, or a leave that was announced.
            _ => {}
        }
    }

    fn is_served(&self, shard: u32) -> bool {
        matches!(&self.states[shard as usize], State::Serving { .. })
    }

    fn queued(&mut self, id: Id, shard: u32, queued: Result<Option<MutexGuard>>) {
        match &self.states[shard as usize] {
            State::Queued { task, .. } if task.id() == id => match queued {
                Ok(Some(guard)) if self.is_member() && !guard.state().has_ended() => self.serve(shard, guard),
                Ok(_) => self.states[shard as usize] = State::Idle,
                Err(error) => self.refused(shard, error),
            },
            // The task was aborted when it had ended already. Its guard is dropped.
            _ => {}
        }
    }

    /// Pauses a shard whose lock was refused.
    fn refused(&mut self, shard: u32, error: Error) {
        if is_over(&error) {
            self.states[shard as usize] = State::Idle;
            return self.over = Some(error);
        }
        let retry_in = self.pause(shard);
        tracing::warn!(path = self.inner.path, name = self.inner.name, shard, %error, ?retry_in, "cannot lock a shard");
    }

    fn served(&mut self, shard: u32, served: std::result::Result<Served, JoinError>) {
        let mut was_asked = false;
        if let State::Serving { asked, since } = &self.states[shard as usize] {
            was_asked = *asked.borrow();
            if since.elapsed() > LONGEST_PAUSE {
                self.pauses.remove(&shard);
            }
        }
        self.states[shard as usize] = State::Idle;
        self.shown_at.get_or_insert(Instant::now() + SOON);
        let mut monitor = None;
        self.inner.owned.send_modify(|owned| monitor = owned.remove(&shard));
        // The drop may call log layers of the user. So the set is not locked here.
        drop(monitor);
        let (path, name) = (self.inner.path.clone(), self.inner.name.clone());
        match served {
            Ok(Served::Lost(loss)) => tracing::debug!(path, name, shard, %loss, "has lost a shard"),
            Ok(Served::Cut) => {
                self.meter.count(CUTS, 1);
                tracing::warn!(path, name, shard, "a shard was cut off: its function did not end in time")
            }
            Ok(Served::Returned) if was_asked => {}
            Ok(Served::Returned) => {
                self.meter.count(RETURNED, 1);
                let retry_in = self.pause(shard);
                tracing::warn!(path, name, shard, ?retry_in, "the function of a shard has returned unasked");
            }
            Err(failed) => {
                discard(failed);
                self.meter.count(RETURNED, 1);
                let retry_in = self.pause(shard);
                tracing::warn!(path, name, shard, ?retry_in, "the function of a shard has panicked");
            }
        }
        if was_asked {
            // This shard was handed over, so the next one may move: look soon for a waiter for it.
            self.look_soon(Instant::now());
        }
    }

    /// Pauses a shard. Returns the pause.
    fn pause(&mut self, shard: u32) -> Duration {
        let next = self.pauses.get(&shard).map_or(FIRST_PAUSE, |last| (*last * 2).min(LONGEST_PAUSE));
        self.pauses.insert(shard, next);
        self.states[shard as usize] = State::Paused { until: Instant::now() + next };
        next
    }

    /// When to run again without an event.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        // Waking at a due time at which nothing can be done would make the loop spin.
        let can_look = !self.is_looking && self.over.is_none();
        let look =
            (can_look && (0..self.inner.count).any(|shard| self.waits_for_a_look(shard))).then_some(self.look_at);
        let orphans = self.orphans.due().filter(|_| can_look && self.looks_for_orphans());
        let pauses = self.states.iter().filter_map(|state| match state {
            State::Paused { until } => Some(*until),
            _ => None,
        });
        let dues = [self.view.due(), look, orphans, self.shown_at].into_iter().flatten().chain(pauses);
        dues.fold(now + TURN, Instant::min).max(now)
    }
}

/// Drops the value of a panic. Its destructor is the user's, and may panic as well.
fn discard(failed: JoinError) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(failed))) {
        forget(another);
    }
}

fn warn(inner: &Inner, error: &Error, what: &str) {
    tracing::warn!(path = inner.path, name = inner.name, %error, "{what}");
}
