//! Trust as one bit, for the explorer: the world takes it away before it lets a session expire.

use crate::machine::{Moment, Trust};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bit {
    pub(crate) is_trusted: bool,
    /// The servers may be about to end the session, so answers prove nothing.
    pub(crate) is_doubted: bool,
}

impl Bit {
    pub(crate) fn new() -> Self {
        Self { is_trusted: true, is_doubted: false }
    }
}

impl Trust for Bit {
    fn answered(&mut self, by_quorum: bool, _: Moment, _: Moment) {
        self.is_trusted |= by_quorum && !self.is_doubted;
    }

    fn until(&self) -> Moment {
        Moment(if self.is_trusted { u64::MAX } else { 0 })
    }

    fn suffices(&self, now: Moment) -> bool {
        self.until() > now
    }

    fn reconnected(&mut self, _: Moment) {}

    fn is_reconnected(&self, _: Moment) -> bool {
        false
    }

    fn due(&self) -> Moment {
        Moment(0)
    }

    fn read_due(&self) -> Moment {
        Moment(0)
    }

    fn beat(&mut self, _: Moment, _: u64, _: bool) {}

    fn fresh_until(&self) -> Moment {
        Moment(u64::MAX)
    }

    fn is_recent(&self, _: Moment, _: Moment) -> bool {
        true
    }

    fn renewed(&mut self, _: u64, _: Moment, _: Moment) {
        *self = Self::new();
    }
}
