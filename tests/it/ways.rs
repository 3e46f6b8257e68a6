//! The ways by which a lock is granted with few requests, and how often each was taken.

use std::fmt::Display;

use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

use crate::warnings::Warnings;

/// All ways but a listing.
pub(crate) const FAST: [&str; 3] = ["Counted", "HandedOver", "Deleted"];

/// Counts by what locks are granted, as the library logs it.
#[derive(Clone)]
pub(crate) struct Ways(Warnings);

impl Ways {
    pub(crate) fn new() -> Self {
        Self(Warnings::and_traces())
    }

    /// Counts the grants of this thread until the guard is dropped.
    pub(crate) fn listen(&self) -> DefaultGuard {
        self.0.listen()
    }

    /// For tasks that run on any thread.
    pub(crate) fn dispatch(&self) -> Dispatch {
        drop(self.0.listen());
        Dispatch::new(self.0.clone())
    }

    /// How many locks were granted in this way.
    pub(crate) fn count(&self, way: &str) -> usize {
        self.0.count(&format!(" by={way}"))
    }

    /// Whether the hold with this token was granted in this way.
    pub(crate) fn has(&self, token: impl Display, way: &str) -> bool {
        self.0.count(&format!(" token={token} by={way}")) == 1
    }

    /// The node of each grant, and by what it was granted.
    pub(crate) fn grants(&self) -> Vec<(String, String)> {
        let part = |text: &str, from: &str, to: char| {
            let (_, rest) = text.split_once(from).expect("a grant");
            rest.split(to).next().expect("a part").to_owned()
        };
        let grant = |text: &String| (part(text, " node=\"", '"'), part(text, " by=", ' '));
        self.0.with(" by=").iter().map(grant).collect()
    }

    /// How often each was taken.
    pub(crate) fn summary(&self) -> String {
        let ways = ["Listed"].into_iter().chain(FAST);
        ways.map(|way| format!("{way} {}", self.count(way))).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn assert_all_taken(&self) {
        let missing: Vec<_> = FAST.into_iter().filter(|way| self.count(way) == 0).collect();
        assert!(missing.is_empty(), "{missing:?} were not taken: {}", self.summary());
    }
}
