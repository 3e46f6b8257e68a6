//! [`Members`]: the members of a group, with their data, across sessions.
//!
//! 1. A member is an ephemeral child of the group's path. A [`KeptNode`] creates it again in each ZooKeeper session. Other
//!    children are not members.
//! 2. One task reads the group for all subscribers of a `Members` and its clones. It has one watch, on the children of the path.
//!    An event of this watch starts a *look*: the task lists the children, and reads the nodes that may be new or changed. Each
//!    subscriber compares the set with the one it returned last. Looks begin at least 200 ms apart, so flapping members cost a
//!    bounded number of requests.
//! 3. The stat of a listing shows the number of creates under the path so far. If this number has grown by exactly the number of
//!    new names, only the new nodes are read. Otherwise a member was away or has changed its data, and all nodes are read.
//! 4. A change of data fires no watch on children. So the transaction that writes the data also creates and deletes a child
//!    (`kept_node`). The create fires the watch and is counted, and no listing shows the child.
//! 5. No wait relies on an event alone: without events, everything is read again every 20 to 30 s.
//! 6. A member whose node is gone stays in the set for the [grace](Members::with_grace). Only a listing sent after the grace
//!    removes the member, and not the clock alone. So an outage of this process removes no member.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use zookeeper_recipes::session::Looks;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, OneshotWatcher, SessionId, Stat};
use zookeeper_recipes::{Error, Result, Session, path};

use crate::kept_node::{KeptNode, PAUSE};
use crate::request::{LONGEST, is_over, read_all, refused, validate_data, validate_path};

/// The most children that one request reads: 2 MB of data, if all joined by this crate. The nodes of other clients may be larger.
const BURST: usize = 500;

/// The most data of a member: every process of a group reads the data of all members, after an outage all at once.
const MAX_DATA_BYTES: usize = 4 * 1024;

/// A look reads all nodes again if the last full read is this old. Without events, [`Looks`] come 20 to 30 s apart.
const SLOW: Duration = Duration::from_secs(20);

/// A group of processes: its members, with the data of each, across lost connections and sessions.
///
/// A process [joins](Self::join) under a name, which has one owner at a time. [`members`](Self::members) reads the group once,
/// and [`changes`](Self::changes) follows it. Choose stable names, such as those of hosts or of pods in a stateful set. Then a
/// restarted process is the same member.
///
/// Curator's `GroupMember` does the same over a `PathChildrenCache`. Both use the same nodes: an ephemeral child of the path for each
/// member, with the member's name and data.
///
/// `Members` is a handle. Clones share one watch, and one listing for each change, for any number of members and
/// [subscribers](Self::changes). So create one handle for each group in a process, and clone it.
///
/// # What is not promised
///
/// Membership is not a lock. A disconnected member stays in the set until the servers expire its session, and two processes may
/// see different sets for a moment. Use a lock for work that only one process may do at a time.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](zookeeper_recipes#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
/// use std::time::Duration;
///
/// use zookeeper_groups::Members;
///
/// let members = Members::new(&session, "/services/orders/members")?.with_grace(Duration::from_secs(10));
/// let mine = members.join("orders-0", b"10.0.0.7:8080").await?;
/// let mut changes = members.changes();
/// loop {
///     for member in changes.changed().await? {
///         println!("{} at {}", member.name(), String::from_utf8_lossy(member.data()));
///     }
/// }
/// # }
/// ```
#[doc(alias = "GroupMember")]
#[doc(alias = "PathChildrenCache")]
#[derive(Clone, Debug)]
pub struct Members {
    group: Group,
    /// The task that reads the group, while there are subscribers.
    looking: Arc<Mutex<Weak<Looking>>>,
}

/// A group, and the settings of its handle.
#[derive(Clone, Debug)]
struct Group {
    session: Session,
    path: Arc<str>,
    grace: Duration,
}

/// A member of a group at one moment.
///
/// Two members are equal if they show the same node with the same data, and agree in [`is_away`](Self::is_away).
#[derive(Clone, PartialEq, Eq)]
pub struct Member {
    name: Arc<str>,
    data: Arc<[u8]>,
    czxid: i64,
    session_id: i64,
    since: SystemTime,
    is_away: bool,
}

impl Member {
    fn new(node: &str, data: Vec<u8>, stat: &Stat) -> Self {
        let since = UNIX_EPOCH + Duration::from_millis(stat.ctime.try_into().unwrap_or_default());
        let name = path::key(node).map_or_else(|| node.into(), Arc::from);
        Self {
            name,
            data: data.into(),
            czxid: stat.czxid,
            session_id: stat.ephemeral_owner,
            since,
            is_away: false,
        }
    }

    /// The name under which the member joined.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The member's data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// When the member joined, or came back after being away, by the servers' clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The number of the transaction that created the member's node (`czxid`). The number grows each time the member comes back
    /// after being away. A change of data does not change it.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.czxid.cast_unsigned()
    }

    /// The ZooKeeper session that owns the member's node.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        SessionId(self.session_id)
    }

    /// Whether the member's node is gone, and only the [grace](Members::with_grace) keeps the member in the set.
    /// [`MemberChanges::wait_for`] notices this change, [`MemberChanges::changed`] does not.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.name)
            .field("data", &String::from_utf8_lossy(&self.data))
            .field("generation", &self.generation())
            .field("session_id", &self.session_id())
            .finish_non_exhaustive()
    }
}

impl Members {
    /// Creates a handle of the group at `path`. Sends nothing.
    ///
    /// The session's [lock options](Session::with_lock_options) set the ACLs of the nodes, and how a missing path is created. A
    /// member needs CREATE and DELETE on the path, and READ on its node. A subscriber needs READ on the path and on the nodes of
    /// all members.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path.
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        validate_path(path)?;
        let group = Group { session: session.clone(), path: path.into(), grace: Duration::ZERO };
        Ok(Self { group, looking: Arc::default() })
    }

    /// Sets how long a member stays in the set after its node is gone. The default is zero.
    ///
    /// The node goes when the member leaves, and when the servers expire its session. If the member is back within the grace with
    /// the same data, [`changed`](MemberChanges::changed) does not return. So a renewed session, or a restart under the same
    /// name, is not a change. [`Member::generation`] is larger afterwards. Without a grace, a member that was away and is back is
    /// a change, even if no listing came in between.
    ///
    /// This process measures the grace, from the listing in which the member was missing. When the grace ends, one more listing
    /// removes the member. So an outage of this process removes no member. The grace applies to [`changes`](Self::changes) of
    /// this value and of clones made from it.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.group.grace = grace.min(LONGEST);
        // The task of the old handle has the old grace, so the new handle starts a task of its own.
        self.looking = Arc::default();
        self
    }

    /// The path of the group.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.group.path
    }

    /// Joins the group under `name`, with `data`. The membership survives lost connections and expired sessions, until it is
    /// dropped or the session is closed.
    ///
    /// `name` is any text; [`path::segment`] encodes it for the path.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the group in the background.
    ///
    /// # Errors
    ///
    /// [`Error::NameTaken`], with the session and data of the owner, if another process has the name, or another membership of
    /// this process. After a crash, the last session of the crashed process owns the name until the servers expire that session.
    /// [`join_when_free`](Self::join_when_free) waits until the name is free.
    ///
    /// [`Error::Unavailable`] if no server answered within one session timeout. [`Error::NoAuth`] if the ACLs deny access.
    /// [`Error::SessionFull`] if the session has too many watches. [`Error::InvalidInput`] if `data` is longer than
    /// 4 KiB, or the name makes the path too long. [`Error::Closed`] and [`Error::SessionEnded`] if the session is over.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(members: zookeeper_groups::Members) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Error;
    ///
    /// let mine = match members.join("orders-0", b"10.0.0.7:8080").await {
    ///     Err(Error::NameTaken { session, .. }) => {
    ///         eprintln!("session {session} is orders-0; its process may have crashed a moment ago");
    ///         members.join_when_free("orders-0", b"10.0.0.7:8080").await?
    ///     }
    ///     joined => joined?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn join(&self, name: &str, data: &[u8]) -> Result<Membership> {
        let (session, path) = (&self.group.session, self.node_of(name, data)?);
        let joined = async {
            let node = KeptNode::of_member(session, &path, data, false).await?;
            node.created_if_free().await?;
            Ok(Membership { node, name: name.to_owned() })
        };
        session.within(None, joined).await
    }

    /// Joins the group as soon as the name is free, and waits as long as that takes. Several waiters for one name get it in no
    /// particular order.
    ///
    /// # Cancel safety
    ///
    /// As [`join`](Self::join).
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join), but neither [`Error::NameTaken`] nor [`Error::Unavailable`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(members: zookeeper_groups::Members) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use tokio::time::timeout;
    ///
    /// // The session of a process that has crashed ends after one session timeout.
    /// let mine = timeout(Duration::from_secs(30), members.join_when_free("orders-0", b"10.0.0.7:8080")).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn join_when_free(&self, name: &str, data: &[u8]) -> Result<Membership> {
        let node = KeptNode::of_member(&self.group.session, &self.node_of(name, data)?, data, true).await?;
        let membership = Membership { node, name: name.to_owned() };
        membership.node.created().await?;
        Ok(membership)
    }

    /// The path of a member's node. Fails if the data is too long.
    fn node_of(&self, name: &str, data: &[u8]) -> Result<String> {
        validate_data(data, MAX_DATA_BYTES)?;
        Ok(format!("{}/{}", self.group.path, path::segment(name)))
    }

    /// Reads the members, in the order of their names, with one listing and one request per 500 members. The connected server
    /// answers from its own state, which may be behind the other servers. The grace does not apply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within one session timeout. [`Error::NoAuth`] if the ACLs deny READ on the
    /// path or on any member's node: a set without this member would be wrong. [`Error::Closed`] and [`Error::SessionEnded`] if
    /// the session is over.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(members: zookeeper_groups::Members) -> Result<(), zookeeper_recipes::Error> {
    /// for member in members.members().await? {
    ///     println!("{member:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn members(&self) -> Result<Vec<Member>> {
        let (mut view, session) = (View::default(), &self.group.session);
        let group = Group { grace: Duration::ZERO, ..self.group.clone() };
        session.within(None, view.look(&group, None)).await?;
        Ok(view.members())
    }

    /// Subscribes to the set of members. The first [`changed`](MemberChanges::changed) returns the present set.
    ///
    /// One task reads the group for all subscribers of this value and its clones, on the tokio runtime of the first subscriber.
    /// The task ends with the last subscriber. A change costs one listing, and one read if a member has joined or has changed
    /// its data. The task reads the group at most five times a second. At rest it reads everything every 20 to 30 s, in case an
    /// event was lost.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn changes(&self) -> MemberChanges {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = looking.upgrade().unwrap_or_else(|| {
            let (sender, seen) = watch::channel(Seen::Nothing);
            let task = tokio::spawn(look(self.group.clone(), sender)).abort_handle();
            Arc::new(Looking { group: self.group.clone(), seen, task })
        });
        *looking = Arc::downgrade(&shared);
        let mut seen = shared.seen.clone();
        seen.mark_changed();
        MemberChanges { looking: shared, seen, last: None }
    }
}

/// The membership of a process in a group, from [`Members::join`]. Dropping it leaves the group in the background.
///
/// [`Session::drain`] keeps the membership until the session is closed. So leave before a drain, or announce the drain with
/// [`set`](Self::set).
#[derive(Debug)]
#[must_use = "dropping it leaves the group"]
pub struct Membership {
    node: KeptNode,
    name: String,
}

impl Membership {
    /// The name under which the member joined.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the member's node exists in the present ZooKeeper session, as far as is known.
    ///
    /// False while the session is renewed, and while another session's node has the name. This may be the node of the member's
    /// last session, until that session expires, or the node of another process. The member joins again as soon as the name is
    /// free.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.node.is_created()
    }

    /// Waits until the member [is joined](Self::is_joined).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// The servers' error, such as [`Error::NoAuth`], if they refuse the node. The refused request is retried every second.
    /// [`Error::Closed`] or [`Error::SessionEnded`] if the session is over.
    pub async fn joined(&self) -> Result<()> {
        self.node.created().await
    }

    /// The member's [generation](Member::generation), if it [is joined](Self::is_joined).
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.node.generation()
    }

    /// Changes the member's data, also for all later ZooKeeper sessions, and waits until the servers have it. Subscribers get the
    /// changed set.
    ///
    /// The data is written at once if the last change was 200 ms ago or longer. Of several changes within 200 ms, perhaps only
    /// the last is written. Each change costs every subscribed process one listing and one read of all members. So do not publish
    /// a value that changes all the time, such as the load.
    ///
    /// # Cancel safety
    ///
    /// The first poll stores the data. Dropping the future later only stops the waiting: the data is still written.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `data` is longer than 4 KiB. Otherwise as [`joined`](Self::joined).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mine: zookeeper_groups::Membership) -> Result<(), zookeeper_recipes::Error> {
    /// mine.set(b"10.0.0.7:8080 draining").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set(&self, data: &[u8]) -> Result<()> {
        validate_data(data, MAX_DATA_BYTES)?;
        self.node.set_data(data).await
    }

    /// Leaves the group, and waits until the servers have confirmed it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the member leaves in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within one session timeout. The member then leaves in the background, as soon
    /// as a server answers. [`Error::Closed`] or [`Error::SessionEnded`] if the session is over, and the servers' error, such as
    /// [`Error::NoAuth`], if they refuse the delete. In the latter cases the member stays in the set until its ZooKeeper session
    /// ends.
    pub async fn leave(self) -> Result<()> {
        self.node.remove().await
    }
}

/// A subscription to the set of members, from [`Members::changes`].
///
/// Nothing is queued: after several changes between two calls, the next call returns the latest set. A set equal to the one
/// returned last is not returned again.
pub struct MemberChanges {
    looking: Arc<Looking>,
    seen: watch::Receiver<Seen>,
    /// The set returned last.
    last: Option<Arc<[Member]>>,
}

impl MemberChanges {
    /// Waits for a set that differs from the one returned last, and returns it in the order of the names. The first call returns the
    /// present set as soon as it is known.
    ///
    /// Sets differ in names or in data. Without a [grace](Members::with_grace) they also differ in
    /// [generations](Member::generation).
    ///
    /// In an outage the call waits. While the [session](Session::state) is disconnected, the set returned last may be out of date.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoAuth`] if the ACLs deny READ, and [`Error::SessionFull`] if the session has too many watches. The next call
    /// waits for the next attempt, a second later. [`Error::Closed`] and [`Error::SessionEnded`] if the session is over.
    pub async fn changed(&mut self) -> Result<Vec<Member>> {
        loop {
            let members = self.next().await?;
            if self.is_news(&members) {
                return Ok(self.returned(members));
            }
        }
    }

    /// Waits for a set for which `wanted` is true, and returns it: at once if it is the present one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// As [`changed`](Self::changed).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(members: zookeeper_groups::Members) -> Result<(), zookeeper_recipes::Error> {
    /// // Begin when the fleet is complete.
    /// let fleet = members.changes().wait_for(|members| members.len() >= 3).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&[Member]) -> bool) -> Result<Vec<Member>> {
        // The present set counts, even if it was returned before. A failed look is reported once.
        if !matches!(*self.seen.borrow(), Seen::Failed(_)) {
            self.seen.mark_changed();
        }
        loop {
            let members = self.next().await?;
            if wanted(&members) {
                return Ok(self.returned(members));
            }
        }
    }

    /// Waits for the next result of the task that reads the group.
    async fn next(&mut self) -> Result<Arc<[Member]>> {
        loop {
            // This fails if the task has ended: the session is over, or the task's runtime has shut down.
            self.seen.changed().await.map_err(|_| Error::Closed)?;
            match &*self.seen.borrow() {
                Seen::Failed(error) => return Err(error.clone()),
                Seen::Members(members) => return Ok(members.clone()),
                Seen::Nothing => {}
            }
        }
    }

    /// Whether this set differs from the one returned last.
    fn is_news(&self, members: &[Member]) -> bool {
        let Some(last) = &self.last else { return true };
        if self.looking.group.grace.is_zero() {
            return members != &**last;
        }
        let what = |member: &Member| (member.name.clone(), member.data.clone());
        !members.iter().map(what).eq(last.iter().map(what))
    }

    fn returned(&mut self, members: Arc<[Member]>) -> Vec<Member> {
        let returned = members.to_vec();
        self.last = Some(members);
        returned
    }
}

impl fmt::Debug for MemberChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberChanges")
            .field("path", &self.looking.group.path)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// What the task that reads the group has found last.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Nothing,
    Members(Arc<[Member]>),
    Failed(Error),
}

/// The task that reads the group for all subscribers.
struct Looking {
    group: Group,
    seen: watch::Receiver<Seen>,
    task: AbortHandle,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the group until the session is over.
async fn look(group: Group, seen: watch::Sender<Seen>) {
    let mut view = View::default();
    let Some(mut looks) = begin(&group, &seen).await else { return };
    loop {
        looks.due().await;
        match view.look(&group, Some(&mut looks)).await {
            Ok(()) => {
                let now = Seen::Members(view.members().into());
                seen.send_if_modified(|last| {
                    let is_modified = *last != now;
                    *last = now;
                    is_modified
                });
                if let Some(end) = view.away.values().map(|(_, until)| *until).min() {
                    looks.look_by(end);
                }
            }
            Err(error) if is_over(&error) => {
                seen.send_replace(Seen::Failed(error));
                return;
            }
            Err(error) => {
                tracing::warn!(path = &*group.path, %error, "cannot see the members of a group");
                seen.send_replace(Seen::Failed(error));
                looks.look_by(Instant::now() + PAUSE);
            }
        }
    }
}

/// Waits until the session has room for the watch. `None` if no subscriber is left.
async fn begin(group: &Group, seen: &watch::Sender<Seen>) -> Option<Looks> {
    while !seen.is_closed() {
        match group.session.looks([&*group.path]) {
            Ok(looks) => return Some(looks),
            Err(error) => seen.send_replace(Seen::Failed(error)),
        };
        sleep(PAUSE).await;
    }
    None
}

/// What was read of a group so far.
#[derive(Default)]
struct View {
    /// The group node's `czxid`, and twice the number of creates under it.
    parent: Option<(i64, i32)>,
    /// The children in the last listing. A child that is not a member has no value.
    there: BTreeMap<String, Option<Member>>,
    /// Members missing from the last listing, and until when each is kept.
    away: BTreeMap<String, (Member, Instant)>,
    /// When to read everything again.
    slow: Option<Instant>,
}

/// A listing, empty if the group's path does not exist.
#[derive(Default)]
struct Listing {
    names: Vec<String>,
    parent: Option<Stat>,
}

impl View {
    /// Lists the children, and reads those that may be new or changed. Sets a watch if `looks` is given.
    async fn look(&mut self, group: &Group, looks: Option<&mut Looks>) -> Result<()> {
        let now = Instant::now();
        let Listing { names, parent } = group.list(looks).await?;
        let new: Vec<_> = names.iter().filter(|name| !self.there.contains_key(*name)).cloned().collect();
        // `cversion` counts creates and deletes: it is 2 × creates − children. So its sum with the children is 2 × creates.
        let parent = parent.map(|stat| (stat.czxid, stat.cversion.wrapping_add(stat.num_children)));
        let accounted = |(node, doubled_creates): (i64, i32)| {
            let added = i32::try_from(2 * new.len()).unwrap_or_default();
            parent == Some((node, doubled_creates.wrapping_add(added)))
        };
        let reads_new = self.slow.is_some_and(|slow| now < slow) && self.parent.is_some_and(accounted);
        // If a read fails, the next look reads everything.
        self.parent = None;
        let read = group.read(if reads_new { &new } else { &names }).await?;
        if !reads_new {
            self.slow = Some(now + SLOW);
        }
        self.parent = parent;
        let mut before = std::mem::take(&mut self.there);
        self.away.retain(|_, (_, until)| now < *until);
        for name in names {
            let known = before.get(&name).filter(|_| reads_new);
            // A listed node that was not found was deleted after the listing.
            let Some(found) = read.get(&name).or(known).cloned() else { continue };
            before.remove(&name);
            if found.is_some() {
                self.away.remove(&name);
            }
            self.there.insert(name, found);
        }
        if !group.grace.is_zero() {
            let until = Instant::now() + group.grace;
            let gone = before.into_iter().filter_map(|(name, member)| Some((name, member?)));
            for (name, member) in gone {
                self.away.entry(name).or_insert((Member { is_away: true, ..member }, until));
            }
        }
        Ok(())
    }

    /// The members, including those away, in the order of their names.
    fn members(&self) -> Vec<Member> {
        let there = self.there.values().flatten();
        let mut members: Vec<_> = there.chain(self.away.values().map(|(member, _)| member)).cloned().collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }
}

impl Group {
    /// Lists the children. With `looks`, sets a watch on the children, or on the creation of the path.
    async fn list(&self, looks: Option<&mut Looks>) -> Result<Listing> {
        let path = &*self.path;
        let listed = match looks {
            Some(looks) => looks.look(|client| list_and_watch(client, path)).await?,
            None => {
                let list = |client: Client| async move { client.get_children(path).await };
                match self.session.request(Some(Duration::MAX), list).await? {
                    Ok((names, stat)) => Ok(Listing { names, parent: Some(stat) }),
                    Err(ZkError::NoNode) => Ok(Listing::default()),
                    Err(error) => Err(error),
                }
            }
        };
        listed.map_err(|error| refused("list", path, error))
    }

    /// Reads these children. A child that is not a member has no value. A deleted child is left out.
    async fn read(&self, names: &[String]) -> Result<BTreeMap<String, Option<Member>>> {
        let mut found = BTreeMap::new();
        let paths: Vec<_> = names.iter().map(|name| format!("{}/{name}", self.path)).collect();
        let answers = read_all(&self.session, Some(Duration::MAX), BURST, &paths).await?;
        for (name, answer) in names.iter().zip(answers) {
            if let Some((data, stat)) = answer? {
                let is_member = stat.ephemeral_owner != 0;
                found.insert(name.clone(), is_member.then(|| Member::new(name, data, &stat)));
            }
        }
        Ok(found)
    }
}

async fn list_and_watch(client: Client, path: &str) -> Result<(Listing, Vec<OneshotWatcher>), ZkError> {
    loop {
        match client.get_and_watch_children(path).await {
            Ok((names, stat, watch)) => return Ok((Listing { names, parent: Some(stat) }, vec![watch])),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error),
        }
        // A watch on a missing path fires when the path is created. If the path was created meanwhile, this watch is on its data
        // instead: list again.
        if let (None, watch) = client.check_and_watch_stat(path).await? {
            return Ok((Listing::default(), vec![watch]));
        }
    }
}
