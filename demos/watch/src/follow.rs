//! Owns [`follow`]: looks at all locks, in rounds.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use crate::Result;
use crate::locks::{Locks, Round};
use crate::pace::Pace;
use crate::reader::{Node, Reader};

/// How often a list that takes long to read is shown as far as it is known.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

struct Follower<'a> {
    reader: &'a Reader,
    locks: &'a Locks,
    every: Duration,
    pace: Pace,
    /// Whether a round has succeeded since the last failure.
    is_known: bool,
}

/// Looks at all locks for as long as it is polled: every so often, and less often where that would be more requests a second than
/// `rate`.
pub(crate) async fn follow(reader: &Reader, locks: &Locks, every: Duration, rate: NonZeroU32) {
    let mut this = Follower { reader, locks, every, pace: Pace::new(rate), is_known: false };
    loop {
        let began = Instant::now();
        let done = this.round(began).await;
        this.is_known = done.is_ok();
        if let Err(error) = done {
            locks.fail(&error.to_string());
        }
        sleep_until((began + every).into()).await;
    }
}

impl Follower<'_> {
    /// Looks at each path once, and between two of them at a lock that somebody has opened.
    async fn round(&mut self, began: Instant) -> Result<()> {
        let (mut paths, mut hidden) = (vec![self.locks.parent.clone()], BTreeSet::new());
        let mut shown = began;
        while let Some(path) = paths.pop() {
            let node = self.look(&path).await?;
            paths.extend(node.below.into_iter().rev());
            if node.is_denied {
                hidden.insert(path);
            }
            if let Some(open) = self.locks.due(self.every) {
                self.look(&open).await?;
            }
            if !self.is_known && shown.elapsed() > SHOWN_EVERY {
                shown = Instant::now();
                self.locks.show(Round { is_complete: false, denied: hidden.len() });
            }
        }
        self.locks.end_round(began, &hidden, self.is_known)
    }

    async fn look(&mut self, path: &str) -> Result<Node> {
        self.pace.wait().await;
        let looked = self.reader.look(path).await;
        self.pace.spend(looked.as_ref().map_or(1, |node| node.requests));
        let mut node = looked?;
        if node.is_denied {
            self.locks.hide(path);
        } else {
            self.locks.see(path, std::mem::take(&mut node.contenders), self.is_known)?;
        }
        Ok(node)
    }
}
