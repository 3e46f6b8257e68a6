//! Measures how far apart two requests arrive at the server that are handed to the client at once.

use std::time::Duration;

use testbed::proxy::Proxy;
use zookeeper_client::Client;

use crate::support::{Result, UNHURRIED, connect};

/// The proxy holds each answer for so long. It is shorter than a kernel delays an acknowledgement (40 ms), so the first
/// request is acknowledged with its answer, as by a server that is as far away.
pub(crate) const HOLD: Duration = Duration::from_millis(25);

/// Requests after which both kernels acknowledge with their answers, and not at once.
const WARM_UP: usize = 40;
const BURSTS: usize = 5;

/// A session through a proxy of its own.
pub(crate) struct Subject {
    pub(crate) client: Client,
    pub(crate) proxy: Proxy,
}

impl Subject {
    pub(crate) async fn connect(hosts: &str) -> Result<Self> {
        let proxy = Proxy::start(hosts).await?;
        let client = connect(&proxy.hosts(), UNHURRIED).await?;
        for _ in 0..WARM_UP {
            client.check_stat("/").await?;
        }
        proxy.hold_answers(HOLD);
        Ok(Self { client, proxy })
    }

    /// Sends bursts of two requests; returns the median of the time between the arrivals of both.
    pub(crate) async fn gap(&self) -> Result<Duration> {
        let mut gaps = Vec::new();
        for _ in 0..BURSTS {
            self.proxy.reset();
            // Both are in the client's queue before its task runs: it shares this thread.
            let (one, other) = (self.client.check_stat("/"), self.client.check_stat("/"));
            one.await?;
            other.await?;
            let arrived: Vec<_> = self.proxy.requests().iter().map(|request| request.arrived).collect();
            let [first, second] = arrived[..] else {
                return Err(format!("{} requests arrived, and not 2", arrived.len()).into());
            };
            gaps.push(second - first);
        }
        gaps.sort();
        Ok(gaps[BURSTS / 2])
    }
}

/// Whether the second request has waited for the answer to the first.
pub(crate) fn is_apart(gap: Duration) -> bool {
    gap > HOLD / 2
}

/// Milliseconds, for people.
pub(crate) fn ms(gap: Duration) -> String {
    format!("{:.1} ms", gap.as_secs_f64() * 1e3)
}
