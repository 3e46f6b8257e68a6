//! Whether a client waits: a proxy sees the watch that it sets.

use testbed::proxy::{Proxy, Request};

use crate::peer::{Handle, Language, Peer};
use crate::support::{hosts, soon};

/// A driver behind a proxy.
pub(crate) struct Watched {
    pub(crate) peer: Peer,
    pub(crate) proxy: Proxy,
}

/// The outcome of an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Holds,
    Waits,
}

impl Watched {
    pub(crate) async fn start(language: Language) -> Self {
        let proxy = proxy().await;
        Self { peer: Peer::start(language, &proxy.hosts()).await, proxy }
    }

    /// Starts to acquire; returns whether it holds or has set a watch. Earlier commands of the same driver must have
    /// been answered.
    pub(crate) async fn acquire(&self, handle: &mut Handle) -> Outcome {
        self.proxy.reset();
        handle.send("acquire").await;
        tokio::select! {
            _ = handle.held() => Outcome::Holds,
            _ = watch(&self.proxy) => Outcome::Waits,
        }
    }
}

/// A proxy before the server given to the tests.
pub(crate) async fn proxy() -> Proxy {
    let hosts = hosts();
    Proxy::start(hosts.split(',').next().expect("a host")).await.expect("a proxy")
}

/// Waits for a watch on an existing node, set through the proxy since its reset; returns the node's path.
pub(crate) async fn watch(proxy: &Proxy) -> String {
    let is_set = |request: &Request| {
        request.watch && request.answer.is_some_and(|answer| answer.err == 0 && answer.forwarded.is_some())
    };
    soon("a watch", proxy.wait_for(is_set)).await.path
}
