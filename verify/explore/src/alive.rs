//! How the leader learns that a client lives, within the times that docs/design/trust.md assumes; and clients that stand still.
//!
//! A client pings its server every fifth of the session timeout. The server passes on that it has heard of the client when it answers
//! the leader, within a third of it. A session that the leader has not heard of for a whole timeout may expire.

use crate::machine::Moment;

/// What the leader, a client's server and the client know of it. Where no time passes the timeout is 0, and nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Alive {
    timeout: u64,
    /// When the leader last learned that the client lives.
    touched: Moment,
    /// Its server has heard of it since it last passed that on.
    is_heard: bool,
    pings_at: Moment,
    passes_on_at: Moment,
    stall: Option<Stall>,
    pub(crate) cut_at: Moment,
    /// When its server is cut off no more, or its client connects again.
    pub(crate) lasts_until: Moment,
    /// When the leader has taken the session to end it.
    taken: Option<Moment>,
    /// Its server follows a leader that is deposed.
    pub(crate) is_deposed: bool,
}

/// A process that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stall {
    since: Moment,
    until: Moment,
    /// With its machine, so that its timers stand still as well.
    sleeps: bool,
}

impl Alive {
    pub(crate) fn new(timeout: u64, number: u64) -> Self {
        let passes_on_at = Moment(timeout / 3 / 7 * (number % 7));
        Self {
            timeout,
            touched: Moment(0),
            is_heard: false,
            pings_at: Moment(timeout / 5),
            passes_on_at,
            stall: None,
            cut_at: Moment(0),
            lasts_until: Moment(0),
            taken: None,
            is_deposed: false,
        }
    }

    /// It has a connection. The leader was asked for the session while it was made. Returns when.
    pub(crate) fn connected(&mut self, now: Moment) -> Moment {
        if self.timeout == 0 {
            return now;
        }
        let asked = now.minus(self.part_of_a_third(now)).max(self.cut_at);
        self.is_heard = false;
        self.touch(asked);
        self.pings_at = now.plus(self.timeout / 5);
        asked
    }

    /// Its leader is deposed and does not know: it is asked in the place of the one that counts.
    pub(crate) fn connected_to_deposed(&mut self, now: Moment, until: Moment) {
        (self.is_heard, self.is_deposed, self.lasts_until) = (false, true, until);
        self.pings_at = now.plus(self.timeout / 5);
    }

    fn touch(&mut self, at: Moment) {
        if self.taken.is_none() {
            self.touched = self.touched.max(at);
        }
    }

    /// As good as random: up to a third of the timeout.
    fn part_of_a_third(&self, now: Moment) -> u64 {
        self.timeout / 24 * (now.0 % 9)
    }

    /// Its server hears of it.
    pub(crate) fn heard(&mut self) {
        self.is_heard = self.timeout > 0;
    }

    /// The client has its session no more.
    pub(crate) fn forget(&mut self) {
        (self.touched, self.taken) = (Moment(0), None);
    }

    /// Its connection ends, perhaps with its server.
    pub(crate) fn cut(&mut self, now: Moment, until: Moment) {
        if self.timeout > 0 {
            (self.is_heard, self.cut_at, self.lasts_until) = (false, now, until);
            self.is_deposed = false;
        }
    }

    /// What is due happens. `hears`: its server hears its pings. `passes_on`: and reaches the leader.
    pub(crate) fn run(&mut self, now: Moment, hears: bool, passes_on: bool) {
        if self.pings_at <= now && self.stall.is_none() {
            self.is_heard |= hears;
            self.pings_at = now.plus(self.timeout / 5);
        }
        // One that was cut off answers when it is no more.
        if self.passes_on_at <= now && passes_on {
            if std::mem::take(&mut self.is_heard) {
                self.touch(now);
            }
            self.passes_on_at = now.plus(self.part_of_a_third(now).max(self.timeout / 24));
        }
    }

    /// When something is due next.
    pub(crate) fn next(&self) -> Moment {
        let pings_at = if self.stall.is_none() { self.pings_at } else { Moment(u64::MAX) };
        pings_at.min(self.passes_on_at)
    }

    pub(crate) fn may_expire(&self, now: Moment) -> bool {
        self.expires_at() <= now
    }

    /// When the leader ends the session, unless it hears of the client.
    pub(crate) fn expires_at(&self) -> Moment {
        self.touched.plus(self.timeout).plus(1)
    }

    /// Whether the leader may take it to end it.
    pub(crate) fn may_be_taken(&self, now: Moment) -> bool {
        self.taken.is_none() && self.may_expire(now)
    }

    pub(crate) fn take(&mut self, now: Moment) {
        self.taken = Some(now);
    }

    /// By when the leader has ended it, if it has taken it.
    pub(crate) fn ends_by(&self) -> Option<Moment> {
        self.taken.map(|taken| taken.plus(self.timeout / 32))
    }

    pub(crate) fn stall(&mut self, since: Moment, until: Moment, sleeps: bool) {
        self.stall = Some(Stall { since, until, sleeps });
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stall.is_some()
    }

    /// When it goes on, if it stands still.
    pub(crate) fn wakes_at(&self) -> Option<Moment> {
        self.stall.map(|stall| stall.until)
    }

    /// It goes on. Returns how long its machine has slept.
    pub(crate) fn wake(&mut self, now: Moment) -> u64 {
        let slept = self.stall.take().filter(|stall| stall.sleeps).map_or(0, |stall| now.since(stall.since));
        self.pings_at = self.pings_at.plus(slept);
        slept
    }
}
