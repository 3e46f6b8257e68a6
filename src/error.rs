//! Owns what can go wrong: [`Error`], and [`Loss`], the reasons for which a hold ends before it is released.

use std::fmt;
use std::time::Duration;

/// An error of the client, beside [`Error`].
pub(crate) use zookeeper_client::Error as ZkError;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. A variant exists where a caller would act on it.
///
/// The text does not repeat the [`source`](std::error::Error::source): print that, too.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument cannot be used; nothing is left on the servers. Fix the argument.
    #[error("invalid {what}: {reason}")]
    InvalidInput {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },

    /// The server denies this session what the lock needs at `path`. Fix the ACLs or the session's credentials.
    #[error(
        "not authorized for {path}: a lock needs READ, CREATE and DELETE on its path, revoking and proclaiming WRITE"
    )]
    NoAuth {
        /// The node that may not be used.
        path: String,
    },

    /// No answer came within the time limit, so the state of the lock is unknown; `why` has the reason. A contended
    /// lock is never this error, but `None`.
    ///
    /// An HTTP service would map `None` to 423 (locked) and this to 503 (unavailable), for either reason: with a limit
    /// under 0.4 session timeouts, an outage begins with [`Unanswered::TimeLimit`]. While the servers are well, that
    /// reason means that the caller's limit was too short.
    #[error("no answer from {hosts} within {after:.1?}: {why}{}", shown(failures))]
    Unavailable {
        /// The servers that the session was given.
        hosts: String,
        /// How long it was tried.
        after: Duration,
        /// Whether time or a connection was missing.
        why: Unanswered,
        /// Why each host could not be reached when the session was last made or renewed, as far as is known. Empty after
        /// it was, and for an [attached](crate::Session::attach) session, whose hosts are not known.
        failures: Vec<HostFailure>,
    },

    /// Someone deleted our node while it waited, so we are no longer in the queue.
    #[error("node {node} was deleted by someone else while it waited")]
    Evicted {
        /// The node that was deleted.
        node: String,
    },

    /// [`Session::close`](crate::Session::close) or [`Session::drain`](crate::Session::drain) was called.
    #[error("session was closed")]
    Closed,

    /// The ZooKeeper session is over and will not be renewed. Connect a new [`Session`](crate::Session).
    #[error("session is over and cannot be renewed: {reason}")]
    SessionEnded {
        /// Why it cannot be renewed.
        reason: String,
    },

    /// [`Session::close`](crate::Session::close) has released all locks, but a clone of the session's client keeps the
    /// ZooKeeper session open, with the nodes that the ACLs did not let it delete. Drop the clone: then the session
    /// ends.
    #[error("a clone of its client keeps session {session} open, with all nodes that are left in it")]
    SessionKept {
        /// The id of the session.
        session: zookeeper_client::SessionId,
    },

    /// One session would hold or watch too many nodes. Spread the locks over several sessions.
    ///
    /// All nodes of a session are removed in one transaction when it ends; a server whose log holds one of more
    /// than a megabyte cannot be started again ([ZOOKEEPER-4306]).
    ///
    /// [ZOOKEEPER-4306]: https://issues.apache.org/jira/browse/ZOOKEEPER-4306
    #[error(
        "session is full: its {what} would take more than {limit} bytes; spread the locks over several sessions"
    )]
    SessionFull {
        /// `nodes` or `watches`.
        what: &'static str,
        /// The limit, in bytes of paths.
        limit: usize,
    },

    /// The lock was lost before it was released. See [`Loss`].
    #[error("lock was lost before it was released")]
    Lost(#[from] Loss),

    /// ZooKeeper refused a request for a reason that has no variant of its own.
    #[error("cannot {action} {path}")]
    Client {
        /// What was tried.
        action: &'static str,
        /// The node it was tried on.
        path: String,
        /// The error of the server, or of the client.
        source: zookeeper_client::Error,
    },
}

/// Why no answer came within a time limit; see [`Error::Unavailable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unanswered {
    /// The session was connected, but the limit passed before the requests were answered. Allow more time than a few
    /// requests take.
    ///
    /// A connection counts until the client gives it up: one on which the servers have fallen silent does so for 0.4
    /// session timeouts.
    TimeLimit,
    /// There was no connection to a server when the limit passed. Try again later.
    Servers,
}

/// Why a host could not be reached; see [`Error::Unavailable`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFailure {
    /// The host, as it was given.
    pub host: String,
    /// For people: its name does not resolve, it refuses connections, it does not answer, or it gives no session.
    /// `zklock doctor` finds out more, for example what is wrong with a certificate.
    pub reason: String,
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.host, self.reason)
    }
}

fn shown(failures: &[HostFailure]) -> String {
    if failures.is_empty() {
        return String::new();
    }
    let failures: Vec<_> = failures.iter().map(HostFailure::to_string).collect();
    format!(" ({})", failures.join("; "))
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeLimit => "the time limit passed first",
            Self::Servers => "not connected",
        })
    }
}

/// What kind of [`Error`] it is, for metrics and for tables of reactions. It displays as a word like `unavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::InvalidInput`]
    InvalidInput,
    /// [`Error::NoAuth`]
    NoAuth,
    /// [`Error::Unavailable`]
    Unavailable,
    /// [`Error::Evicted`]
    Evicted,
    /// [`Error::Closed`]
    Closed,
    /// [`Error::SessionEnded`]
    SessionEnded,
    /// [`Error::SessionKept`]
    SessionKept,
    /// [`Error::SessionFull`]
    SessionFull,
    /// [`Error::Lost`]
    Lost,
    /// [`Error::Client`]
    Client,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl ErrorKind {
    /// How an acquisition can fail.
    #[cfg(feature = "metrics")]
    pub(crate) const OF_ACQUISITIONS: [Self; 9] = [
        Self::InvalidInput,
        Self::NoAuth,
        Self::Unavailable,
        Self::Evicted,
        Self::Closed,
        Self::SessionEnded,
        Self::SessionFull,
        Self::Lost,
        Self::Client,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::NoAuth => "no_auth",
            Self::Unavailable => "unavailable",
            Self::Evicted => "evicted",
            Self::Closed => "closed",
            Self::SessionEnded => "session_ended",
            Self::SessionKept => "session_kept",
            Self::SessionFull => "session_full",
            Self::Lost => "lost",
            Self::Client => "client",
        }
    }
}

impl Error {
    /// What kind of error it is.
    ///
    /// # Examples
    ///
    /// ```
    /// use zookeeper_recipes::Error;
    ///
    /// assert_eq!(Error::Closed.kind().to_string(), "closed");
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidInput { .. } => ErrorKind::InvalidInput,
            Self::NoAuth { .. } => ErrorKind::NoAuth,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Evicted { .. } => ErrorKind::Evicted,
            Self::Closed => ErrorKind::Closed,
            Self::SessionEnded { .. } => ErrorKind::SessionEnded,
            Self::SessionKept { .. } => ErrorKind::SessionKept,
            Self::SessionFull { .. } => ErrorKind::SessionFull,
            Self::Lost(_) => ErrorKind::Lost,
            Self::Client { .. } => ErrorKind::Client,
        }
    }

    /// Whether the same call may succeed later without a change to the program, its configuration or the servers' ACLs:
    /// the servers were away, our node was deleted, or the lock was lost.
    ///
    /// After [`Error::Lost`] the work under the lock has to begin again, and not only the call that failed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// loop {
    ///     match mutex.try_lock_for(Duration::from_secs(1)).await {
    ///         Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_secs(1)).await,
    ///         tried => break tried?,
    ///     };
    /// };
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Evicted { .. } => true,
            Self::Lost(loss) => *loss != Loss::Closed,
            _ => false,
        }
    }

    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidInput { what, reason: reason.into() }
    }

    /// Gives a refusal by the server its place and, where a caller would act on it, its variant.
    pub(crate) fn refused(action: &'static str, path: &str, source: zookeeper_client::Error) -> Self {
        match source {
            zookeeper_client::Error::NoAuth => Self::NoAuth { path: path.to_owned() },
            source => Self::Client { action, path: path.to_owned(), source },
        }
    }
}

/// Why a hold ended before it was released.
///
/// For every reason, another contender may hold the lock from now on: stop, or let a store that checks
/// [fencing tokens](crate::FencingToken) refuse late writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The session has expired, or nothing proves any more that it has not.
    #[error("session has expired, or can no longer be trusted to live")]
    Expired,
    /// The node of the hold was deleted: by a person, or by the servers together with its session, if the deletion was
    /// reported first.
    #[error("node was deleted")]
    Deleted,
    /// The session was closed under the hold.
    #[error("session was closed")]
    Closed,
    /// The hold reached the longest time that its options allow.
    #[error("hold reached its time limit")]
    MaxHold,
}

impl Loss {
    /// A word, for labels.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Closed => "closed",
            Self::MaxHold => "max_hold",
        }
    }
}
