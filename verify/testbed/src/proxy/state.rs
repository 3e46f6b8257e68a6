//! The record, the faults, and the fate of each connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::faults::{Faults, Verdict};
use super::history::{History, Request, Ticket};
use crate::relay::Closing;

type Hook = Arc<dyn Fn(&Request) -> Verdict + Send + Sync>;
type Rewrite = Box<dyn Fn(&Request, &mut Vec<u8>) + Send + Sync>;
type LeaveOut = Box<dyn Fn(&Request) -> bool + Send + Sync>;

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Flows,
    /// Nothing is forwarded; bytes are discarded.
    Holed,
    Closes(Closing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Forward,
    BlackHole,
    Refuse,
}

#[derive(Debug)]
struct Link {
    fate: Fate,
    client_is_gone: bool,
    /// Requests that the server has not answered, in order, with their xids.
    pending: VecDeque<(i32, Ticket)>,
}

/// The state of the proxy.
pub(super) struct State {
    pub(super) history: History,
    pub(super) faults: Faults,
    pub(super) hook: Option<Hook>,
    pub(super) leave_out: LeaveOut,
    pub(super) rewrite: Option<Rewrite>,
    /// The sessions of all `ConnectResponse`s, with their passwords, the newest last.
    pub(super) sessions: Vec<(i64, Vec<u8>)>,
    mode: Mode,
    heals: usize,
    links: BTreeMap<usize, Link>,
    last_link: usize,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            history: History::default(),
            faults: Faults::new(),
            hook: None,
            leave_out: Box::new(|_| false),
            rewrite: None,
            sessions: Vec::new(),
            mode: Mode::Forward,
            heals: 0,
            links: BTreeMap::new(),
            last_link: 0,
        }
    }

    /// Adds a new connection.
    pub(super) fn add(&mut self) -> usize {
        let fate = match self.mode {
            Mode::Forward => Fate::Flows,
            Mode::BlackHole => Fate::Holed,
            Mode::Refuse => Fate::Closes(self.faults.closing),
        };
        self.last_link += 1;
        self.links.insert(self.last_link, Link { fate, client_is_gone: false, pending: VecDeque::new() });
        self.last_link
    }

    pub(super) fn remove(&mut self, link: usize) {
        self.links.remove(&link);
    }

    pub(super) fn fate(&self, link: usize) -> Fate {
        self.links.get(&link).map_or(Fate::Closes(self.faults.closing), |entry| entry.fate)
    }

    /// Notes that the server gets the request; false if it must no longer get it.
    pub(super) fn expect_answer(&mut self, link: usize, xid: i32, ticket: Ticket) -> bool {
        let flowing = self.links.get_mut(&link).filter(|entry| entry.fate == Fate::Flows);
        flowing.map(|entry| entry.pending.push_back((xid, ticket))).is_some()
    }

    /// The request that an answer belongs to.
    pub(super) fn answered(&mut self, link: usize, xid: i32) -> Option<Ticket> {
        let pending = &mut self.links.get_mut(&link)?.pending;
        let at = pending.iter().position(|(expected, _)| *expected == xid)?;
        pending.drain(..=at).next_back().map(|(_, ticket)| ticket)
    }

    pub(super) fn client_is_gone(&mut self, link: usize) {
        if let Some(entry) = self.links.get_mut(&link) {
            entry.client_is_gone = true;
        }
    }

    pub(super) fn open_connections(&self) -> usize {
        let is_open = |entry: &&Link| !entry.client_is_gone && !matches!(entry.fate, Fate::Closes(_));
        self.links.values().filter(is_open).count()
    }

    pub(super) fn heals(&self) -> usize {
        self.heals
    }

    pub(super) fn reset(&mut self) {
        self.history.reset();
        self.faults.cut_fired = false;
    }

    pub(super) fn close_all(&mut self) {
        let closing = self.faults.closing;
        self.links.values_mut().for_each(|entry| entry.fate = Fate::Closes(closing));
    }

    pub(super) fn black_hole(&mut self) {
        self.mode = Mode::BlackHole;
        self.links
            .values_mut()
            .filter(|entry| entry.fate == Fate::Flows)
            .for_each(|entry| entry.fate = Fate::Holed);
    }

    pub(super) fn refuse(&mut self) {
        self.mode = Mode::Refuse;
        self.close_all();
    }

    pub(super) fn heal(&mut self) {
        self.mode = Mode::Forward;
        self.heals += 1;
        self.faults.disarm();
        let closing = self.faults.closing;
        let holed = self.links.values_mut().filter(|entry| entry.fate == Fate::Holed);
        holed.for_each(|entry| entry.fate = Fate::Closes(closing));
    }
}
