//! The errors of this crate: [`Error`], and [`Loss`], the reason why a hold has ended before it was released.

use std::fmt;
use std::time::Duration;

pub use crate::machine::Loss;

/// The error type of the ZooKeeper client.
pub(crate) use zookeeper_client::Error as ZkError;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed. Each variant needs a different reaction.
///
/// The text does not repeat the [`source`](std::error::Error::source): print both.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument cannot be used. Nothing is left on the servers. Fix the argument.
    #[error("invalid {what}: {reason}")]
    InvalidInput {
        /// The argument.
        what: &'static str,
        /// The fault, and the remedy.
        reason: String,
    },

    /// The servers deny this session rights that the lock needs at `path`. Fix the ACLs or the session's credentials.
    #[error(
        "not authorized for {path}: a lock needs READ, CREATE and DELETE on its path, revoking and proclaiming WRITE"
    )]
    NoAuth {
        /// The node that may not be used.
        path: String,
    },

    /// No answer came within the time limit, so the state of the lock is unknown. `why` has the reason. If the lock is
    /// known to be contended, the call returns `None` instead.
    ///
    /// Let an HTTP service map `None` to 423 (locked) and this error to 503 (unavailable), for either reason. If your limit is
    /// shorter than a fifth of the session timeout, the first errors of an outage have the reason [`Unanswered::TimeLimit`].
    /// While the servers are well, that reason means that your limit was too short.
    #[error("no answer from {hosts} within {after:.1?}: {why}{}", shown(failures))]
    Unavailable {
        /// The servers that the session was given.
        hosts: String,
        /// How long the call tried.
        after: Duration,
        /// Whether time or a connection was missing.
        why: Unanswered,
        /// The reason for each host, as far as it is known, from the last attempt to make or renew the session. Empty once
        /// that has succeeded.
        failures: Vec<HostFailure>,
    },

    /// Another client deleted our node while the call waited. The call is no longer in the queue.
    #[error("node {node} was deleted by someone else while it waited")]
    Evicted {
        /// The node that was deleted.
        node: String,
    },

    /// Another member of a group has this name: see `Members::join` of the package `zookeeper-groups`. Take another name, or
    /// wait with `join_when_free`.
    #[error("{path} is taken by session {session}, whose data is {:?}", String::from_utf8_lossy(data))]
    NameTaken {
        /// The node of the name.
        path: String,
        /// The ZooKeeper session of its owner; 0 if the node is not ephemeral, and so no member's.
        session: zookeeper_client::SessionId,
        /// The data that the owner has joined with.
        data: Vec<u8>,
    },

    /// [`Session::close`](crate::Session::close) or [`Session::drain`](crate::Session::drain) was called.
    #[error("session was closed")]
    Closed,

    /// The ZooKeeper session is over and will not be renewed. Connect a new [`Session`](crate::Session).
    #[error("session is over and cannot be renewed: {reason}")]
    SessionEnded {
        /// The reason why it cannot be renewed.
        reason: String,
    },

    /// One session would hold or watch too many nodes. Spread the locks over several sessions.
    ///
    /// A session has room for about 8,000 lock nodes, and for watches on about 900 nodes of other contenders, at lock paths of 55
    /// bytes. Nodes beyond that are refused. A waiter without room for its watch polls every third of the session timeout instead. Other watches,
    /// such as an observer's, are refused.
    ///
    /// All nodes of a session are removed in one transaction when it ends. A server whose log holds a transaction of more
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
    ///
    /// With the source [`Throttled`](zookeeper_client::Error::Throttled), a server has refused the request eleven times in a
    /// row: the server is overloaded, or this session has more nodes than the server allows. Retry later, or spread the
    /// locks over sessions.
    #[error("cannot {action} {path}")]
    Client {
        /// The operation.
        action: &'static str,
        /// The node of the operation.
        path: String,
        /// The error of the server, or of the client.
        source: zookeeper_client::Error,
    },
}

/// The reason why no answer came within a time limit: see [`Error::Unavailable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unanswered {
    /// The session was connected, but the limit passed before the requests were answered. Set a limit that is longer
    /// than a few requests take.
    ///
    /// The session counts as connected until the client gives the connection up, which takes a fifth of the session
    /// timeout if the servers fall silent.
    TimeLimit,
    /// There was no connection to a server when the limit passed. Retry later.
    Servers,
}

/// The reason why a host could not be reached: see [`Error::Unavailable`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFailure {
    /// The host, as it was given.
    pub host: String,
    /// The reason, as text for people: for example, the name of the host does not resolve, or the host refuses connections,
    /// does not answer, or gives no session. `zklock doctor` finds out more, for example what is wrong with a certificate.
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

/// Defines [`Error::kind`] by a word for each variant.
macro_rules! kinds {
    ($($kind:ident: $word:literal),+) => {
        impl Error {
            /// The words that [`Error::kind`] can return.
            #[cfg(feature = "metrics")]
            pub(crate) const KINDS: &[&str] = &[$($word),+];

            /// Returns the kind of the error as a word: for metrics, and for tables of reactions.
            ///
            /// # Examples
            ///
            /// ```
            /// use zookeeper_recipes::Error;
            ///
            /// assert_eq!(Error::Closed.kind(), "closed");
            /// ```
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$kind { .. } => $word),+ }
            }
        }
    };
}

kinds! {
    InvalidInput: "invalid_input",
    NoAuth: "no_auth",
    Unavailable: "unavailable",
    Evicted: "evicted",
    NameTaken: "name_taken",
    Closed: "closed",
    SessionEnded: "session_ended",
    SessionFull: "session_full",
    Lost: "lost",
    Client: "client"
}

impl Error {
    /// Returns whether the same call may succeed later without a change to the program, its configuration or the
    /// servers' ACLs: the servers were away or throttled us, our node was deleted, a name was taken, or the lock was
    /// lost, unless by a close.
    ///
    /// After [`Error::Lost`], repeat the work under the lock, and not only the call that failed.
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
            Self::Unavailable { .. } | Self::Evicted { .. } | Self::NameTaken { .. } => true,
            Self::Lost(loss) => *loss != Loss::Closed,
            _ => matches!(self, Self::Client { source: ZkError::Throttled, .. }),
        }
    }

    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidInput { what, reason: reason.into() }
    }

    /// Converts the server's refusal of an action on `path` into an error.
    pub(crate) fn refused(action: &'static str, path: &str, source: zookeeper_client::Error) -> Self {
        match source {
            zookeeper_client::Error::NoAuth => Self::NoAuth { path: path.to_owned() },
            source => Self::Client { action, path: path.to_owned(), source },
        }
    }
}
