//! Owns [`Pace`]: a limit of requests a second.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Bounds the requests a second. Requests that are sent together make the next ones wait for as long as the limit asks.
pub(crate) struct Pace {
    rate: NonZeroU32,
    next: Instant,
}

impl Pace {
    pub(crate) fn new(rate: NonZeroU32) -> Self {
        Self { rate, next: Instant::now() }
    }

    /// Waits until the next request may be sent.
    pub(crate) async fn wait(&self) {
        sleep_until(self.next).await;
    }

    /// Counts requests that were sent.
    pub(crate) fn spend(&mut self, requests: usize) {
        let seconds = requests as f64 / f64::from(self.rate.get());
        self.next = Instant::now() + Duration::from_secs_f64(seconds);
    }
}
