//! Owns [`ShardsBuilder`]: the settings of a member, and their validation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Sender;
use zookeeper_recipes::{Options, Result, Session};

use crate::members::Members;
use crate::request::{LONGEST, invalid, validate_data};
use crate::shards::Shards;
use crate::shards::inner::{Inner, Settings};
use crate::tools::MOST;

/// The most bytes of a member's own data.
const MOST_DATA: usize = 4_000;

/// The settings of a member, from [`Shards::builder`].
#[derive(Clone, Debug)]
#[must_use = "build a handle of it"]
pub struct ShardsBuilder {
    path: String,
    count: u32,
    name: String,
    data: Vec<u8>,
    settings: Settings,
}

impl ShardsBuilder {
    pub(crate) fn new(path: &str, count: u32) -> Self {
        let settings = Settings {
            grace: Duration::from_secs(10),
            moves_at_once: 8,
            settling_time: Duration::from_secs(1),
            drain_limit: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            name_limit: Duration::from_secs(60),
        };
        Self { path: path.to_owned(), count, name: String::new(), data: Vec::new(), settings }
    }

    /// Sets the name of this member. It is required.
    ///
    /// Choose a stable name that no other process has, such as the name of a host or of a pod in a stateful set. The plan follows
    /// from the names, so a process that restarts under its name gets the same shards again.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Sets the data of this member that others see, such as its address; see [`Shards::route`]. At most 4,000 bytes.
    pub fn data(mut self, data: impl AsRef<[u8]>) -> Self {
        self.data = data.as_ref().to_owned();
        self
    }

    /// Sets how long other members wait before they take the shards of a member whose node is gone. The default is 10 s.
    ///
    /// If the member is back under the same name within this time, its shards have not moved. Meanwhile no member serves them. So
    /// choose the time that a restart takes, or zero if others should take the shards at once. The grace begins when the node is
    /// gone: after a [`stop`](Shards::stop) once the last function has ended, and after a crash one session timeout later. If
    /// that function and the restart take longer than the grace and the [`patience`](Self::patience) together, others take the
    /// shards that were released before, and give them back. A member that [leaves](Shards::leave) for good has no grace.
    ///
    /// A member that starts meanwhile does not know the missing one, and takes a part of its shards. **Restart one member at a
    /// time**, and add members before or after that. A member that crashes again and again within the grace keeps its shards
    /// without service.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace.min(LONGEST);
        self
    }

    /// Sets how many shards this member takes from others at a time, and how many it hands over at a time. The default is 8.
    ///
    /// Shards without an owner do not count: the member takes up to this many of them every 50 ms. A shard that the member has
    /// waited for longer than the [`patience`](Self::patience) does not count either, because its owner takes long to end.
    pub fn moves_at_once(mut self, moves: usize) -> Self {
        self.settings.moves_at_once = moves;
        self
    }

    /// Sets how long the set of members must stay the same before shards move. The default is one second. A member that starts
    /// waits for it, too.
    ///
    /// So a member that comes and goes moves nothing. If the set changes all the time, shards move after ten settling times.
    pub fn settling_time(mut self, time: Duration) -> Self {
        self.settings.settling_time = time.min(LONGEST);
        self
    }

    /// Sets how long the function of a shard may go on after it was [asked to end](crate::shards::Shard::revoke_requested),
    /// because the shard moves or this member stops. After this time its future is dropped. The default is 30 s.
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.settings.drain_limit = limit.min(LONGEST);
        self
    }

    /// Sets how long a shard may be without an owner, in addition to the [grace](Self::grace), before the next member takes it
    /// instead of the planned owner. The default is 10 s.
    ///
    /// The member after that takes the shard after twice this time, and so on. The planned owner gets the shard back as soon as
    /// it queues for the lock.
    pub fn patience(mut self, time: Duration) -> Self {
        self.settings.patience = time.min(LONGEST);
        self
    }

    /// Sets how long [`Shards::run`] waits if the name is taken. The default is 60 s.
    ///
    /// After a crash the name is taken until the servers expire the old session. So the limit must be longer than the session
    /// timeout.
    pub fn name_limit(mut self, limit: Duration) -> Self {
        self.settings.name_limit = limit.min(LONGEST);
        self
    }

    /// Builds a handle. Sends nothing.
    ///
    /// The session's [lock options](Session::with_lock_options) set the ACLs of the nodes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) if the path cannot be a lock path, the count is zero or larger than
    /// 8,192, the name is missing, the data is too long, or `moves_at_once` or `patience` is zero.
    pub fn build(self, session: &Session) -> Result<Shards> {
        let Self { path, count, name, data, settings } = self;
        let members = Members::new(session, &format!("{path}/members"))?.with_grace(settings.grace);
        if count == 0 || count > MOST {
            return Err(invalid("count", format!("give 1 to {MOST}, not {count}")));
        }
        if name.is_empty() {
            return Err(invalid("name", "give each member a stable name of its own, such as that of its host"));
        }
        validate_data(&data, MOST_DATA)?;
        if settings.moves_at_once == 0 {
            return Err(invalid("moves_at_once", "with 0 no shard would ever get an owner; give 1 or more"));
        }
        if settings.patience.is_zero() {
            return Err(invalid(
                "patience",
                "others would take shards that are about to get their owner; give a second or more",
            ));
        }
        let inner = Inner {
            session: session.clone(),
            members,
            path,
            count,
            options: Options::new().with_identifier(&name),
            name,
            data,
            settings,
            owned: Sender::default(),
            plan: Sender::default(),
            all_data: Sender::default(),
            ending: Sender::default(),
        };
        // Validates the longest lock path, and the identifier.
        inner.mutex(count - 1)?;
        Ok(Shards { inner: Arc::new(inner) })
    }
}
