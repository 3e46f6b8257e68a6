//! Whether somebody waits: a proxy sees the watch that is set by who has looked and must not come in.

use testbed::proxy::{Proxy, Request};

use crate::peer::{Handle, Language, Peer};
use crate::support::{hosts, soon};

/// A driver behind a proxy.
pub(crate) struct Watched {
    pub(crate) peer: Peer,
    pub(crate) proxy: Proxy,
}

/// What comes of an acquire.
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

    /// Begins to acquire; tells whether it holds or has set a watch. What was sent before by the same driver is over.
    pub(crate) async fn acquire(&self, handle: &mut Handle) -> Outcome {
        self.proxy.reset();
        handle.send("acquire").await;
        tokio::select! {
            _ = handle.held() => Outcome::Holds,
            _ = watch(&self.proxy) => Outcome::Waits,
        }
    }
}

/// Before the server that the tests were given.
pub(crate) async fn proxy() -> Proxy {
    let hosts = hosts();
    Proxy::start(hosts.split(',').next().expect("a host")).await.expect("a proxy")
}

/// Waits until somebody behind the proxy has set a watch on what is there, since the proxy was reset; returns its path.
pub(crate) async fn watch(proxy: &Proxy) -> String {
    let is_set = |request: &Request| {
        request.watch && request.answer.is_some_and(|answer| answer.err == 0 && answer.forwarded.is_some())
    };
    soon("a watch", proxy.wait_for(is_set)).await.path
}
