//! [`Options`]: a user's choices for a lock.

use std::fmt;
use std::sync::{Arc, LazyLock, Once};
use std::time::Duration;

use uuid::Uuid;
use zookeeper_client::{Acl, Acls};

use crate::error::{Error, Result};

/// The most bytes of a node's data. The data is meant for people, and must leave room in a request.
const MAX_IDENTIFIER_BYTES: usize = 64 * 1024;

/// The data that Curator's `Revoker` writes to a node to ask its holder for the lock.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// The most bytes of a node's ACLs. A create of more than a megabyte would close the connection, and so would each retry.
const MAX_ACL_BYTES: usize = 64 * 1024;

/// How the path of a lock and its missing ancestors are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Parents {
    /// The lock creates missing nodes as containers, which the servers delete some time after they have become empty.
    /// ZooKeeper has containers since 3.5.3.
    #[default]
    Container,
    /// The lock creates missing nodes as persistent ones: for servers without containers. They stay until you delete them.
    Persistent,
    /// The lock creates no missing nodes. If the path is missing, acquiring fails with [`Error::InvalidInput`]. Create the
    /// path as a persistent node: an empty container may be deleted at any moment.
    MustExist,
}

/// Choices for one lock, or, with [`Session::with_lock_options`](crate::Session::with_lock_options), for all locks of a
/// session.
///
/// A lock's own options override its session's. An option that the lock does not set is as in the session. If the
/// session does not set it either, the default applies.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::Options;
/// use zookeeper_recipes::zookeeper_client::Acls;
///
/// let options = Options::new().with_identifier("billing-7").with_acls(Acls::creator_all());
/// ```
#[derive(Clone, Default)]
pub struct Options {
    acls: Option<Arc<[Acl]>>,
    parents: Option<Parents>,
    parent_acls: Option<Arc<[Acl]>>,
    identifier: Option<Arc<[u8]>>,
    path_removal: Option<bool>,
    stall_limit: Option<Duration>,
    start_limit: Option<Duration>,
    token_epoch: Option<u8>,
    one_request: Option<bool>,
    /// `Some` if the session's configuration has credentials. A lock without ACLs then logs a warning, once in a session.
    pub(crate) credentials: Option<Arc<Once>>,
}

impl Options {
    /// Creates options that set nothing. By default, nodes are open to everyone, and the identifier is host name,
    /// process id and a random part.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the ACLs of all nodes that the lock creates. These include the missing ancestors of its path, unless those have
    /// [their own](Self::with_parent_acls).
    ///
    /// By default, nodes are open to everyone. The ACLs may have 64 KiB, which is about a thousand entries.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::Options;
    /// use zookeeper_recipes::zookeeper_client::Acls;
    ///
    /// let options = Options::new().with_acls(Acls::creator_all());
    /// ```
    #[must_use]
    pub fn with_acls(mut self, acls: Acls<'_>) -> Self {
        self.acls = Some(Arc::from(&*acls));
        self
    }

    /// Sets how the lock's path and its missing ancestors are created. The default is [`Parents::Container`].
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::options::Parents;
    /// use zookeeper_recipes::Options;
    ///
    /// let options = Options::new().with_parents(Parents::MustExist);
    /// ```
    #[must_use]
    pub fn with_parents(mut self, parents: Parents) -> Self {
        self.parents = Some(parents);
        self
    }

    /// Sets the ACLs of the lock's path and of its missing ancestors, where the lock creates them.
    ///
    /// A contender needs CREATE, DELETE and READ on the path itself. The default is the ACLs of the lock nodes. At most 64
    /// KiB.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::Options;
    /// use zookeeper_recipes::zookeeper_client::Acls;
    ///
    /// let options = Options::new().with_acls(Acls::creator_all()).with_parent_acls(Acls::anyone_all());
    /// ```
    #[must_use]
    pub fn with_parent_acls(mut self, acls: Acls<'_>) -> Self {
        self.parent_acls = Some(Arc::from(&*acls));
        self
    }

    /// Sets the data of the lock's nodes, by which people recognise holders and waiters.
    ///
    /// The default is `host name/process id-random`, for example `web-1/4711-9f86d081`. The eight random digits differ
    /// between processes: in containers, host name and process id may repeat. At most 64 KiB.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::Options;
    ///
    /// let options = Options::new().with_identifier("10.0.0.7:8080");
    /// ```
    #[must_use]
    pub fn with_identifier(mut self, identifier: impl AsRef<[u8]>) -> Self {
        self.identifier = Some(Arc::from(identifier.as_ref()));
        self
    }

    /// Sets whether a release also deletes the lock's path if it leaves the path empty.
    ///
    /// Use it where each key has its own path: the servers delete at most 10,000 empty containers a minute. The default
    /// is `false`.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::Options;
    ///
    /// let options = Options::new().with_path_removal(true);
    /// ```
    #[must_use]
    pub fn with_path_removal(mut self, removal: bool) -> Self {
        self.path_removal = Some(removal);
        self
    }

    /// Sets how long the work under a hold may stand still. A session proves that the process lives, not that its work moves.
    /// So the work calls [`progress`](crate::HoldMonitor::progress) whenever it has done a piece. If it does not for this long,
    /// the hold releases itself and reports [`Lost(Stalled)`](crate::Loss::Stalled), and the next contender is granted the
    /// lock. The default is no limit.
    ///
    /// The limit begins at the grant, even if its future is not polled. Work that never calls `progress` may last for one
    /// limit, as under a lock with a time to live. Set the limit for locks whose work calls `progress`, or lasts for a known time.
    /// Do not set it for a session that has other locks: it would also end the terms of an `Election`, and the shards and the
    /// numbers of `zookeeper-groups`. It would end a permit of a `SemaphoreShare` even if the permit was lent to a task a
    /// moment ago.
    ///
    /// The holder keeps the time, not the servers: work that [blocks the runtime](crate#do-not-block-the-runtime) also stops this
    /// limit, and loses the lock with its session. While the process is paused, its work cannot move: a limit that passes then
    /// is extended by a sixteenth of the session timeout when the process continues, unless its session has ended. A duration
    /// too long for a clock is no limit.
    ///
    /// Work that has stood still may go on later. Its token is old by then, so a store that checks
    /// [fencing tokens](crate::FencingToken) refuses it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::Options;
    ///
    /// // The first piece takes longer, because a cache is filled.
    /// let options = Options::new()
    ///     .with_stall_limit(Duration::from_secs(30))
    ///     .with_start_limit(Duration::from_secs(300));
    /// ```
    #[must_use]
    pub fn with_stall_limit(mut self, limit: Duration) -> Self {
        self.stall_limit = Some(limit);
        self
    }

    /// Sets how long the work may take from the grant to its first [`progress`](crate::HoldMonitor::progress), where that is
    /// longer than the [stall limit](Self::with_stall_limit).
    #[must_use]
    pub fn with_start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = Some(limit);
        self
    }

    /// Sets the epoch of the [fencing tokens](crate::FencingToken). A token is `epoch · 2⁵⁵ + czxid`, so it is larger than
    /// every token of a lower epoch. The default is 0, which leaves the `czxid` alone.
    ///
    /// Raise the epoch after the ensemble's data was wiped, restored from an older backup, or replaced by another ensemble:
    /// czxids fall then, and a store that keeps the largest token would refuse every holder. All programs that write to one
    /// store need the same epoch, including programs in other languages. The next epoch is that of the [largest
    /// token](crate::FencingToken::epoch) that was ever sent, plus one. A program with the old epoch must not acquire a lock
    /// from the new data. [Wiped data](crate::guide::fencing#wiped-data) has the steps. Give the epoch to
    /// [`Session::with_lock_options`](crate::Session::with_lock_options), so that no lock is without it.
    ///
    /// An epoch leaves 55 bits for the `czxid`, which are enough for eight million leader elections of the ensemble. After
    /// that every acquisition fails with [`Error::InvalidInput`]; there is never a smaller token.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::Options;
    ///
    /// let options = Options::new().with_token_epoch(1);
    /// ```
    #[must_use]
    pub fn with_token_epoch(mut self, epoch: u8) -> Self {
        self.token_epoch = Some(epoch);
        self
    }

    /// Sets whether an uncontended lock is acquired in one request. On by default.
    ///
    /// The request that creates the node then also writes empty data to the lock's path, because the answer has the
    /// number of children. A session does so only if it has seen that the path has no data. Data that is written there
    /// later may be overwritten, so turn this off if the path of a lock has data of your own.
    #[must_use]
    pub fn with_one_request(mut self, on: bool) -> Self {
        self.one_request = Some(on);
        self
    }

    /// Logs, once for each session, that its credentials do not protect a lock, because no ACLs are set.
    pub(crate) fn warn_if_open(&self, path: &str) {
        if let (None, None, Some(once)) = (&self.acls, &self.parent_acls, &self.credentials) {
            once.call_once(|| tracing::warn!(path, "credentials are set, but no ACLs: the lock is open"));
        }
    }

    /// Returns these options. What they do not set is as in `base`.
    pub(crate) fn over(&self, base: &Self) -> Self {
        Self {
            acls: self.acls.as_ref().or(base.acls.as_ref()).cloned(),
            parents: self.parents.or(base.parents),
            parent_acls: self.parent_acls.as_ref().or(base.parent_acls.as_ref()).cloned(),
            identifier: self.identifier.as_ref().or(base.identifier.as_ref()).cloned(),
            path_removal: self.path_removal.or(base.path_removal),
            stall_limit: self.stall_limit.or(base.stall_limit),
            start_limit: self.start_limit.or(base.start_limit),
            token_epoch: self.token_epoch.or(base.token_epoch),
            one_request: self.one_request.or(base.one_request),
            credentials: self.credentials.as_ref().or(base.credentials.as_ref()).cloned(),
        }
    }

    /// Returns the ACLs of the nodes.
    #[must_use]
    pub fn acls(&self) -> Acls<'_> {
        self.acls.as_deref().map_or(Acls::anyone_all(), Acls::new)
    }

    /// Returns how the path and its missing ancestors are created.
    #[must_use]
    pub fn parents(&self) -> Parents {
        self.parents.unwrap_or_default()
    }

    /// Returns the ACLs of the path and its missing ancestors.
    #[must_use]
    pub fn parent_acls(&self) -> Acls<'_> {
        self.parent_acls.as_deref().map_or_else(|| self.acls(), Acls::new)
    }

    /// Returns the identifier of contenders.
    #[must_use]
    pub fn identifier(&self) -> &[u8] {
        self.identifier.as_deref().unwrap_or_else(|| DEFAULT_IDENTIFIER.as_bytes())
    }

    /// Returns whether a release also deletes a lock path that it leaves empty.
    #[must_use]
    pub fn path_removal(&self) -> bool {
        self.path_removal.unwrap_or_default()
    }

    /// Returns how long the work under a hold may stand still; `None` for no limit.
    #[must_use]
    pub fn stall_limit(&self) -> Option<Duration> {
        self.stall_limit
    }

    /// Returns how long the work may take from the grant to its first progress, if that is another time.
    #[must_use]
    pub fn start_limit(&self) -> Option<Duration> {
        self.start_limit
    }

    /// Returns whether an uncontended lock is acquired in one request.
    #[must_use]
    pub fn one_request(&self) -> bool {
        self.one_request.unwrap_or(true)
    }

    /// Returns the epoch of fencing tokens.
    #[must_use]
    pub fn token_epoch(&self) -> u8 {
        self.token_epoch.unwrap_or_default()
    }

    /// Estimates the bytes of a request to create a node, without its path.
    pub(crate) fn request_bytes(&self) -> usize {
        self.identifier().len() + acl_bytes(&self.acls()) + 40
    }

    /// Estimates the bytes of a request to create a container, without its path.
    pub(crate) fn container_bytes(&self) -> usize {
        acl_bytes(&self.parent_acls()) + 40
    }

    pub(crate) fn validate(&self) -> Result<()> {
        for (what, limit) in [("stall_limit", self.stall_limit), ("start_limit", self.start_limit)] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                let reason = "it is zero, so every hold would be lost at once; give a longer one";
                return Err(Error::invalid(what, reason));
            }
        }
        if self.start_limit.is_some() && self.stall_limit.is_none() {
            let reason = "there is no stall limit that it could precede; give one with `with_stall_limit`";
            return Err(Error::invalid("start_limit", reason));
        }
        for (what, acls) in [("acls", self.acls()), ("parent_acls", self.parent_acls())] {
            if acls.is_empty() {
                let reason = "there are none, so nobody could use the node; give at least one";
                return Err(Error::invalid(what, reason));
            }
            let bytes = acl_bytes(&acls);
            if bytes > MAX_ACL_BYTES {
                let reason = format!("they take about {bytes} bytes; {MAX_ACL_BYTES} are the most for one node");
                return Err(Error::invalid(what, reason));
            }
        }
        self.identifier.as_deref().map_or(Ok(()), |identifier| validate_data("identifier", identifier))
    }
}

fn acl_bytes(acls: &[Acl]) -> usize {
    acls.iter().map(|acl| acl.scheme().len() + acl.id().len() + 12).sum()
}

/// Checks whether `data` can be the data of a node. `what`: the argument that it comes from.
pub(crate) fn validate_data(what: &'static str, data: &[u8]) -> Result<()> {
    if data == REVOKE {
        return Err(Error::invalid(what, "__REVOKE__ asks a holder to release the lock; give another one"));
    }
    match data.len() {
        0..=MAX_IDENTIFIER_BYTES => Ok(()),
        long => Err(Error::invalid(what, format!("it has {long} bytes; {MAX_IDENTIFIER_BYTES} are the most"))),
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("acls", &self.acls)
            .field("parents", &self.parents)
            .field("parent_acls", &self.parent_acls)
            .field("identifier", &self.identifier.as_deref().map(String::from_utf8_lossy))
            .field("path_removal", &self.path_removal)
            .field("stall_limit", &self.stall_limit)
            .field("start_limit", &self.start_limit)
            .field("token_epoch", &self.token_epoch)
            .field("one_request", &self.one_request)
            .finish()
    }
}

static DEFAULT_IDENTIFIER: LazyLock<String> = LazyLock::new(|| {
    let random = Uuid::new_v4().as_fields().0;
    format!("{}/{}-{random:08x}", node_name(), std::process::id())
});

#[cfg(unix)]
fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn node_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}
