//! Lists the nodes of this session, to see whether they are there, and whether the connection belongs to our session. A
//! server may answer a reconnect with another session, which the client accepts silently (ClickHouse Keeper does so).
//! Then every request is answered, but nothing keeps our session and its nodes alive.

use std::collections::BTreeSet;

use crate::{
    Acquisition, Action, Ask, Machine, Moment, Name, Node, Op, Outcome, Phase, Timer, Trust, Untracked, WatchState,
};

/// Whether the connection belongs to our session. Answers count for trust only while that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    Known,
    /// Not known yet. A session without nodes cannot find out, and has nothing to lose.
    Unknown,
    /// A node was missing from the listing. A quorum is asked whether the node is there.
    Doubted,
}

/// What the last listing of this session's nodes shows of an acquisition's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shown {
    #[default]
    Unasked,
    /// The nodes were there when the listing was sent, so the answer should show them.
    Asked,
    /// The listing, whose answer was read at this moment, did not show all the nodes. The success of a confirm that was
    /// sent earlier does not refute that.
    Missing(Untracked<Moment>),
}

/// The listing of this session's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnListing {
    pub is_asked: bool,
    /// How many listings in a row were lost.
    pub lost: u8,
}

/// The session is given up after this many lost listings in a row: the server seems to close the connection on each. Later
/// sessions send this listing only after a reconnect, and are given up when the first one is lost.
const LOST_LISTINGS: u8 = 11;

impl OwnListing {
    /// Returns whether the server seems to close each connection over which this listing is sent.
    pub fn is_refused(self) -> bool {
        self.lost >= LOST_LISTINGS
    }

    /// Returns what the next session knows of this listing.
    pub(crate) fn in_next_session(self) -> Self {
        Self { is_asked: false, lost: if self.is_refused() { LOST_LISTINGS } else { 0 } }
    }
}

impl<T: Trust> Machine<T> {
    /// Forgets the identity after a reconnect. The first request over the new connection lists our own nodes.
    pub(crate) fn doubt_identity(&mut self) {
        self.identity = Identity::Unknown;
        self.ops.values_mut().for_each(|acquisition| acquisition.shown = Shown::Unasked);
        self.list_own();
    }

    /// Lists our own nodes to learn whether the connection belongs to our session, if that is not known.
    pub(crate) fn identify(&mut self) {
        if self.identity == Identity::Doubted
            && !self.ops.values().any(|acquisition| matches!(acquisition.shown, Shown::Missing(_)))
        {
            self.identity = Identity::Unknown;
        }
        if self.identity == Identity::Unknown && self.has_nodes() {
            self.list_own();
        }
    }

    pub(crate) fn has_nodes(&self) -> bool {
        self.ops.values().any(|acquisition| acquisition.node == Node::There)
    }

    /// Returns whether the server seems to close each connection on which the nodes of the session are listed.
    pub fn is_listing_refused(&self) -> bool {
        self.own_listing.is_refused()
    }

    /// Lists the nodes of this session in case events were lost, unless the server seems to close the connection then.
    pub(crate) fn list_own_again(&mut self) {
        if !self.own_listing.is_refused() {
            self.list_own();
        }
    }

    /// Lists the nodes of this session, unless such a listing is under way.
    pub(crate) fn list_own(&mut self) {
        if self.is_up && !std::mem::replace(&mut self.own_listing.is_asked, true) {
            for acquisition in self.ops.values_mut() {
                acquisition.shown = if acquisition.node == Node::There { Shown::Asked } else { Shown::Unasked };
            }
            self.send(Ask::ListOwn);
        }
    }

    /// Schedules an early listing of this session's nodes, because some of them are not watched.
    pub(crate) fn list_own_soon(&mut self, now: Moment) {
        self.timers.set(Timer::ListOwn, now.plus(self.timeout.0 / 3));
    }

    /// Lists the nodes of this session again if some of them are not watched.
    pub(crate) fn list_unwatched(&mut self, now: Moment) {
        let is_unwatched = |acquisition: &Acquisition| {
            let mut queues = acquisition.queues.iter();
            acquisition.node == Node::There && queues.any(|queue| queue.own_watch == WatchState::Refused)
        };
        if self.ops().any(|(_, acquisition)| is_unwatched(acquisition)) {
            self.list_own_again();
            self.list_own_soon(now);
        }
    }

    /// Updates the identity from an answer. Returns false if the connection belongs to another session.
    pub(crate) fn is_of_session(&mut self, now: Moment, ask: &Ask, is_stale: bool, outcome: &Outcome) -> bool {
        match (ask, outcome) {
            (_, Outcome::Created { owner: Some(owner), .. }) if *owner != self.id => self.replace(now),
            (_, Outcome::Created { owner: Some(_), .. }) if !is_stale => self.identity = Identity::Known,
            (Ask::ListOwn, _) => self.own_listed(now, is_stale, outcome),
            _ => {}
        }
        !matches!(self.out.back(), Some(Action::Replace))
    }

    fn own_listed(&mut self, now: Moment, is_stale: bool, outcome: &Outcome) {
        self.own_listing.is_asked = false;
        match outcome {
            // The connection is still up, so the request may have been throttled.
            Outcome::Unknown if !is_stale => self.pause(now),
            Outcome::Unknown => {
                self.own_listing.lost = self.own_listing.lost.saturating_add(1);
                if self.own_listing.is_refused() { self.replace(now) } else { self.pause(now) }
            }
            _ if is_stale => self.identify(),
            Outcome::Names { names, .. } => {
                self.own_listing.lost = 0;
                self.own_shown(now, &names.iter().copied().collect());
                self.identify();
            }
            _ => self.replace(now),
        }
    }

    fn own_shown(&mut self, now: Moment, names: &BTreeSet<Name>) {
        let (mut found, mut missing) = (false, Vec::<Op>::new());
        let asked = |acquisition: &&mut Box<Acquisition>| {
            acquisition.shown == Shown::Asked && acquisition.node == Node::There
        };
        for (op, acquisition) in self.ops.iter_mut().filter(|(_, acquisition)| asked(acquisition)) {
            let has_reader =
                acquisition.change.guid().is_some_and(|guid| names.iter().any(|name| name.guid == guid));
            let is_there = has_reader
                || acquisition.queues.iter().all(|queue| queue.name.is_some_and(|name| names.contains(&name)));
            found |= is_there;
            if !is_there {
                acquisition.shown = Shown::Missing(Untracked(now));
                missing.push(*op);
            }
        }
        match self.identity {
            Identity::Known => {}
            _ if !missing.is_empty() => self.identity = Identity::Doubted,
            _ if found => self.identity = Identity::Known,
            _ => {}
        }
        for op in missing {
            if matches!(self.phase(op), Some(Phase::Held | Phase::Waiting | Phase::Confirming { .. })) {
                self.confirm(now, op, false);
            }
        }
    }

    pub fn replace(&mut self, now: Moment) {
        self.expired(now);
        self.out.push_back(Action::Replace);
    }
}
