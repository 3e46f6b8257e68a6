//! The frames that passed through the proxy, and their rounds.

use std::time::Instant;

use crate::frames::{Kind, Op, RequestFrame};

/// A counted request of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The connection that it came on, numbered from 1 since the start of the proxy.
    pub connection: usize,
    /// Its number among the counted requests, from 1; 0 if it was [left out](super::Proxy::leave_out).
    pub number: usize,
    /// The number that the client gave it, unique on its connection.
    pub xid: i32,
    /// Its operation.
    pub op: Op,
    /// The first path in its body, including the chroot; empty if the operation has none.
    pub path: String,
    /// Whether it sets a watch.
    pub watch: bool,
    /// The operations of a multi with their paths.
    pub parts: Vec<(Op, String)>,
    /// 1 + the largest round of the requests whose answers had been forwarded when this one
    /// arrived; 1 without such requests.
    pub round: usize,
    /// When it arrived at the proxy.
    pub arrived: Instant,
    /// When it was forwarded, `None` if it was not (yet).
    pub forwarded: Option<Instant>,
    /// The server's answer, `None` if there is none (yet).
    pub answer: Option<Answer>,
}

/// The server's answer to a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The newest transaction that the server knew of.
    pub zxid: i64,
    /// The protocol's error code, 0 for success.
    pub err: i32,
    /// When it arrived at the proxy.
    pub arrived: Instant,
    /// When it was forwarded, `None` if it was not (yet).
    pub forwarded: Option<Instant>,
}

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direction {
    /// From a client.
    ToServer,
    /// From the server.
    ToClient,
}

/// A frame that is neither a counted request nor its answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Uncounted {
    /// The connection that it came on, numbered from 1 since the start of the proxy.
    pub connection: usize,
    /// Its direction.
    pub direction: Direction,
    /// Its kind.
    pub kind: Kind,
    /// When it arrived at the proxy.
    pub arrived: Instant,
}

impl Request {
    /// Whether it goes through the quorum as a transaction.
    pub fn is_write(&self) -> bool {
        self.op.is_write()
    }
}

/// Identifies a request in the record, until the next reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    epoch: usize,
    index: usize,
}

impl Ticket {
    const OF_NOTHING: Self = Self { epoch: usize::MAX, index: usize::MAX };
}

/// The record since the last reset.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) requests: Vec<Request>,
    pub(super) uncounted: Vec<Uncounted>,
    epoch: usize,
    answered: usize,
    answered_round: usize,
}

impl History {
    pub(super) fn reset(&mut self) {
        *self = Self { epoch: self.epoch + 1, ..Self::default() };
    }

    /// Records a request, unless it is left out. A request that is left out has number 0 and an empty ticket.
    pub(super) fn request(
        &mut self,
        connection: usize,
        frame: RequestFrame,
        is_left_out: impl FnOnce(&Request) -> bool,
    ) -> (Ticket, Request) {
        let RequestFrame { xid, op, path, watch, parts } = frame;
        let index = self.requests.len();
        let mut request = Request {
            connection,
            number: 0,
            xid,
            op,
            path,
            watch,
            parts,
            round: self.answered_round + 1,
            arrived: Instant::now(),
            forwarded: None,
            answer: None,
        };
        if is_left_out(&request) {
            return (Ticket::OF_NOTHING, request);
        }
        request.number = index + 1;
        self.requests.push(request.clone());
        (Ticket { epoch: self.epoch, index }, request)
    }

    pub(super) fn aside(&mut self, connection: usize, direction: Direction, kind: Kind) {
        self.uncounted.push(Uncounted { connection, direction, kind, arrived: Instant::now() });
    }

    /// The request, `None` if it is from before the last reset.
    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut Request> {
        self.requests.get_mut(ticket.index).filter(|_| ticket.epoch == self.epoch)
    }

    pub(super) fn answer(&mut self, ticket: Ticket, zxid: i64, err: i32) {
        if let Some(request) = self.get(ticket) {
            request.answer = Some(Answer { zxid, err, arrived: Instant::now(), forwarded: None });
        }
    }

    /// Counts an answer that is about to be forwarded, and returns its number.
    pub(super) fn count_answer(&mut self, ticket: Ticket) -> Option<usize> {
        self.get(ticket)?;
        self.answered += 1;
        Some(self.answered)
    }

    pub(super) fn answer_forwarded(&mut self, ticket: Ticket) {
        let Some(request) = self.get(ticket) else {
            return;
        };
        if let Some(answer) = &mut request.answer {
            answer.forwarded = Some(Instant::now());
        }
        let round = request.round;
        self.answered_round = self.answered_round.max(round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(history: &mut History) -> Ticket {
        let frame = RequestFrame { xid: 1, op: Op::Sync, path: "/".to_owned(), watch: false, parts: Vec::new() };
        history.request(1, frame, |_| false).0
    }

    #[test]
    fn round_begins_after_an_answer() {
        let mut history = History::default();
        let (first, second) = (arrive(&mut history), arrive(&mut history));
        history.answer_forwarded(first);
        let third = arrive(&mut history);
        history.answer_forwarded(second);
        let fourth = arrive(&mut history);
        history.answer_forwarded(third);
        let fifth = arrive(&mut history);
        let rounds = [first, second, third, fourth, fifth].map(|ticket| history.get(ticket).map(|r| r.round));
        assert_eq!(rounds, [1, 1, 2, 2, 3].map(Some));
    }

    #[test]
    fn answer_from_before_a_reset_is_not_counted() {
        let mut history = History::default();
        let old = arrive(&mut history);
        history.reset();
        let new = arrive(&mut history);
        history.answer(old, 1, 0);
        assert!(history.count_answer(old).is_none());
        history.answer_forwarded(old);
        assert!(history.get(new).is_some_and(|request| request.answer.is_none()));
        let next = arrive(&mut history);
        assert_eq!(history.get(next).map(|request| request.round), Some(1));
        assert_eq!(history.count_answer(new), Some(1));
    }
}
