//! Owns every duration that follows from the session timeout *T*, with its reason.

use std::time::Duration;

/// The durations of a session with this timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times(Duration);

/// The longest time between two beats.
const LONGEST_BEAT: Duration = Duration::from_secs(1);

impl Times {
    pub(crate) fn of(session_timeout: Duration) -> Self {
        Self(session_timeout)
    }

    pub(crate) fn session_timeout(self) -> Duration {
        self.0
    }

    // Trust; `DESIGN.md` argues these.

    /// How long a touch of the session may take from a follower to the leader. It is assumed that a follower answers pings of
    /// its leader within this time.
    pub(crate) fn ride(self) -> Duration {
        self.0 / 3
    }

    /// How long a single write vouches for a session whose client pings every *T*/5: what a ping and a ride leave of *T*.
    pub(crate) fn single_write(self) -> Duration {
        self.0 * 7 / 15
    }

    /// How late a timer may be.
    pub(crate) fn lateness(self) -> Duration {
        self.0 / 64
    }

    /// Exchanges and beats that are closer together count as one, so the ledger stays short.
    pub(crate) fn grain(self) -> Duration {
        self.0 / 64
    }

    /// How often the keeper looks whether the process runs and whether trust has to be renewed.
    pub(crate) fn beat(self) -> Duration {
        (self.0 / 16).clamp(Duration::from_millis(1), LONGEST_BEAT)
    }

    /// Trust is renewed when this much of it is left, which leaves time for a lost answer.
    pub(crate) fn renewal(self) -> Duration {
        self.0 / 3
    }

    /// A renewal may wait for a younger exchange until this much of trust is left.
    pub(crate) fn latest_renewal(self) -> Duration {
        self.0 / 4
    }

    /// A session is renewed by one write if that vouches for longer than this.
    pub(crate) fn enough_by_one_write(self) -> Duration {
        self.0 / 4
    }

    /// The shortest time between two writes that each vouch alone.
    pub(crate) fn between_single_writes(self) -> Duration {
        self.0 / 24
    }

    /// How much trust must be left of a new hold when it can be renewed first.
    pub(crate) fn spare_trust(self) -> Duration {
        self.0 / 8
    }

    /// How much trust a hand-over needs: it sends no proof of its own.
    pub(crate) fn hand_over(self) -> Duration {
        self.0 / 3
    }

    /// Without an answer for this long a hold is `Suspended`.
    pub(crate) fn suspended(self) -> Duration {
        self.0 / 2
    }

    /// Without an answer for this long one is asked for, well before a hold is `Suspended`.
    pub(crate) fn answer_due(self) -> Duration {
        self.0 / 3
    }

    /// How often a `Suspended` hold looks for an answer, which no event announces.
    pub(crate) fn suspended_look(self) -> Duration {
        self.0 / 32
    }

    // Locks and requests.

    /// How old an answer may be for a grant that rests on it. A node may have been deleted since.
    pub(crate) fn recent(self) -> Duration {
        self.0 / 8
    }

    /// What lives longer gets work in the background: most locks are released before.
    pub(crate) fn lasting(self) -> Duration {
        self.0 / 8
    }

    /// A hold with a shorter limit has a timer of its own: nothing else would notice its end in time.
    pub(crate) fn short_hold(self) -> Duration {
        self.0 / 4
    }

    /// How long `try_acquire` waits for a caller that is about to hold. It may have died.
    pub(crate) fn short_wait(self) -> Duration {
        self.0 / 8
    }

    /// How old a request may be that another caller joins, and how long a caller that does not poll its answer holds up the
    /// next.
    pub(crate) fn shared(self) -> Duration {
        self.0 / 8
    }

    /// How often to look where no watch is set.
    pub(crate) fn look(self) -> Duration {
        self.0 / 3
    }

    /// How long to try a host for the reason why it does not answer.
    pub(crate) fn host(self) -> Duration {
        self.0 / 8
    }

    // The close, which takes at most *T*.

    /// Until then callers give their nodes up. The rest is searched for.
    pub(crate) fn close_given_up(self) -> Duration {
        self.0 / 8
    }

    /// Until then nodes are deleted one by one. The end of the session deletes the rest.
    pub(crate) fn close_deleted(self) -> Duration {
        self.0 / 4
    }

    /// Until then the servers confirm that they answer.
    pub(crate) fn close_answered(self) -> Duration {
        self.0 * 3 / 8
    }

    /// How long servers that answer take to confirm the end. If they do not, a clone of the client keeps the session.
    pub(crate) fn close_kept(self) -> Duration {
        self.0 / 3
    }

    /// Until then the end of the session is waited for.
    pub(crate) fn close_ended(self) -> Duration {
        self.0 * 7 / 8
    }
}
