//! The sessions of an ensemble, and when they expire.

use std::collections::BTreeMap;
use std::time::Duration;

use sha1::{Digest, Sha1};

/// A connection of a client to a server. The caller chooses the numbers, and uses none twice.
pub type ConnectionId = u64;

#[derive(Clone, Copy, Debug)]
struct Session {
    /// The connection that continued it last. Only this one may write.
    owner: ConnectionId,
    deadline: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    tick: Duration,
    last: i64,
    living: BTreeMap<i64, Session>,
}

impl Sessions {
    /// The first session gets the number after `last`.
    pub(crate) fn new(tick: Duration, last: i64) -> Self {
        Self { tick, last, living: BTreeMap::new() }
    }

    pub(crate) fn open(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// Gives a session to a connection.
    pub(crate) fn assign(&mut self, session: i64, owner: ConnectionId, now: Duration, timeout: Duration) {
        let deadline = self.deadline(now, timeout);
        self.living.insert(session, Session { owner, deadline });
    }

    pub(crate) fn touch(&mut self, session: i64, now: Duration, timeout: Duration) {
        let deadline = self.deadline(now, timeout);
        if let Some(session) = self.living.get_mut(&session) {
            session.deadline = deadline;
        }
    }

    /// The connection that owns a living session.
    pub(crate) fn owner(&self, session: i64) -> Option<ConnectionId> {
        self.living.get(&session).map(|session| session.owner)
    }

    pub(crate) fn close(&mut self, session: i64) {
        self.living.remove(&session);
    }

    pub(crate) fn expired(&self, now: Duration) -> Vec<i64> {
        self.living.iter().filter(|(_, session)| session.deadline <= now).map(|(id, _)| *id).collect()
    }

    /// Servers look once a tick, so a session lives up to a tick longer than its timeout.
    fn deadline(&self, now: Duration, timeout: Duration) -> Duration {
        let tick = self.tick.as_millis().max(1);
        let ticks = (now + timeout).as_millis() / tick + 1;
        Duration::from_millis(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
    }
}

/// What a client has to know to continue a session.
pub(crate) fn password(session: i64) -> [u8; 16] {
    let hash = Sha1::digest(session.to_be_bytes());
    std::array::from_fn(|index| hash[index])
}
