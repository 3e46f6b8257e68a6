//! Owns [`History`]: which process owned which shard from when to when. It has no IO and no clock: time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

/// For how long a shard was served under one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) shard: u32,
    pub(crate) owner: String,
    pub(crate) token: i64,
    pub(crate) from: Duration,
    /// `None` while it lasts.
    pub(crate) to: Option<Duration>,
}

/// A time in which a process was stopped (SIGSTOP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) owner: String,
    pub(crate) from: Duration,
    pub(crate) to: Option<Duration>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) spans: Vec<Span>,
    pub(crate) stops: Vec<Stop>,
}

impl History {
    /// A process begins to serve a shard. An earlier owner that is stopped has lost it by now, and reports that later.
    pub(crate) fn begin(&mut self, at: Duration, owner: &str, shard: u32, token: i64) {
        self.close(at, |span| span.shard == shard && span.token < token);
        self.spans.push(Span { shard, owner: owner.to_owned(), token, from: at, to: None });
    }

    pub(crate) fn end(&mut self, at: Duration, shard: u32, token: i64) {
        self.close(at, |span| (span.shard, span.token) == (shard, token));
    }

    /// A process has ended, with all that it served.
    pub(crate) fn gone(&mut self, at: Duration, owner: &str) {
        self.close(at, |span| span.owner == owner);
    }

    pub(crate) fn stopped(&mut self, at: Duration, owner: &str) {
        self.stops.push(Stop { owner: owner.to_owned(), from: at, to: None });
    }

    pub(crate) fn goes_on(&mut self, at: Duration, owner: &str) {
        for stop in self.stops.iter_mut().filter(|stop| stop.owner == owner) {
            _ = stop.to.get_or_insert(at);
        }
    }

    /// The present owner of each shard that has one.
    pub(crate) fn owners(&self) -> BTreeMap<u32, &Span> {
        self.spans.iter().filter(|span| span.to.is_none()).map(|span| (span.shard, span)).collect()
    }

    /// The longest time in which a shard was not served, between these two times. That of a stopped process is served by nobody.
    pub(crate) fn longest_gap(&self, shards: u32, from: Duration, to: Duration) -> Duration {
        (0..shards).map(|shard| self.gap(shard, from, to)).max().unwrap_or_default()
    }

    fn gap(&self, shard: u32, from: Duration, to: Duration) -> Duration {
        let mut served: Vec<_> =
            self.spans.iter().filter(|span| span.shard == shard).flat_map(|span| self.served(span, to)).collect();
        served.sort_unstable();
        let (mut longest, mut until) = (Duration::ZERO, from);
        for (begin, end) in served.into_iter().chain([(to, to)]) {
            longest = longest.max(begin.min(to).saturating_sub(until));
            until = until.max(end);
        }
        longest
    }

    /// The parts of a span in which its owner was not stopped, as far as they are known at a time.
    fn served(&self, span: &Span, now: Duration) -> Vec<(Duration, Duration)> {
        let end = span.to.unwrap_or(now);
        let (mut parts, mut from) = (Vec::new(), span.from);
        for stop in self.stops.iter().filter(|stop| stop.owner == span.owner) {
            let back = stop.to.unwrap_or(now);
            if stop.from < end && back > from {
                parts.push((from, stop.from.max(from)));
                from = back;
            }
        }
        if from < end {
            parts.push((from, end));
        }
        parts
    }

    fn close(&mut self, at: Duration, is_over: impl Fn(&Span) -> bool) {
        for span in self.spans.iter_mut().filter(|span| span.to.is_none() && is_over(span)) {
            span.to = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn gap_is_the_time_in_which_nobody_serves() {
        let mut history = History::default();
        history.begin(at(1), "a", 0, 7);
        assert_eq!(history.longest_gap(1, at(0), at(3)), at(1));
        history.end(at(5), 0, 7);
        history.begin(at(8), "b", 0, 9);
        assert_eq!(history.longest_gap(1, at(1), at(9)), at(3));
        assert_eq!(history.longest_gap(1, at(1), at(7)), at(2));
        history.gone(at(10), "b");
        assert_eq!(history.longest_gap(1, at(8), at(14)), at(4));
        assert_eq!(history.longest_gap(2, at(8), at(14)), at(6));
    }

    #[test]
    fn stopped_owner_serves_nothing_and_is_followed_by_one_with_a_newer_token() {
        let mut history = History::default();
        history.begin(at(0), "a", 0, 7);
        history.stopped(at(2), "a");
        assert_eq!(history.longest_gap(1, at(0), at(5)), at(3));
        history.begin(at(6), "b", 0, 9);
        assert_eq!(history.longest_gap(1, at(0), at(7)), at(4));
        history.goes_on(at(8), "a");
        // It reports the loss now.
        history.end(at(8), 0, 7);
        assert_eq!(history.spans[0].to, Some(at(6)));
        assert_eq!(history.owners()[&0].owner, "b");
        assert_eq!(history.longest_gap(1, at(0), at(9)), at(4));
    }
}
