//! A proxy between ZooKeeper's clients and a server. It counts requests and breaks connections at
//! chosen frames.

mod connection;
mod faults;
mod history;
mod shared;
mod state;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net;

use self::connection::Link;
use self::shared::Shared;
use crate::relay::{Relay, listen_apart};

pub use self::faults::{Cut, Verdict};
pub use self::history::{Answer, Direction, Request, Uncounted};
pub use crate::frames::{Kind, Op};
pub use crate::relay::Closing;

/// Forwards the frames of any number of clients to one server, records them, and injects faults on
/// demand.
///
/// The proxy *counts* requests of a client's user and their answers. It does not count pings,
/// authentication, connect frames, watches that are set again, and notifications
/// ([`uncounted`](Self::uncounted) has them), nor requests that a test
/// [leaves out](Self::leave_out). `k` counts from 1, over all connections, since the start or the
/// last [`reset`](Self::reset). The proxy runs on its own thread, also while the test's runtime is
/// busy, blocked or gone. Dropping it closes all connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _relay: Relay,
}

impl Proxy {
    /// Listens on a free port of a loopback address of its own and forwards to `upstream`, one `host:port`. The name is
    /// resolved here; the server may be down.
    ///
    /// # Errors
    ///
    /// If the name cannot be resolved, or there is no free port, or no thread can be started.
    pub async fn start(upstream: &str) -> io::Result<Self> {
        let upstream: Arc<[_]> = net::lookup_host(upstream).await?.collect();
        let (listener, address) = listen_apart()?;
        let shared = Arc::new(Shared::new());
        let route = {
            let shared = Arc::clone(&shared);
            move || Link::new(Arc::clone(&shared), Arc::clone(&upstream))
        };
        let relay = Relay::start("zookeeper-proxy", vec![(listener, route)]).await?;
        Ok(Self { address, shared, _relay: relay })
    }

    /// The address for clients, as `127.0.0.1:2181`.
    pub fn hosts(&self) -> String {
        self.address.to_string()
    }

    /// The number of open connections of clients. Black-holed ones count until the client closes
    /// them.
    pub fn connections(&self) -> usize {
        self.shared.state().open_connections()
    }

    /// The id and password of the session in the newest `ConnectResponse`.
    pub fn session(&self) -> Option<(i64, Vec<u8>)> {
        self.shared.state().sessions.last().cloned()
    }

    /// The password of a session that was opened through this proxy.
    pub fn password(&self, session: i64) -> Option<Vec<u8>> {
        let sessions = &self.shared.state().sessions;
        sessions.iter().find(|(id, _)| *id == session).map(|(_, password)| password.clone())
    }

    /// The counted requests, in the order of their arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().history.requests.clone()
    }

    /// The frames other than counted requests and their answers, in order.
    pub fn uncounted(&self) -> Vec<Uncounted> {
        self.shared.state().history.uncounted.clone()
    }

    /// Clears the record and restarts all counts. An armed fault stays armed, and counts from here.
    /// The answer to an earlier request is forwarded and not counted.
    pub fn reset(&self) {
        self.shared.state().reset();
    }

    /// Leaves out requests for which `is_noise` is true. Replaces the previous `is_noise`.
    ///
    /// Such a request is forwarded and answered, and a hook sees it with the number 0. It is not
    /// recorded, wakes no wait for requests, triggers no cut, and belongs to no round. So a test can
    /// count the requests of one call while the client under test also sends requests in the
    /// background. `is_noise` must not call the proxy.
    pub fn leave_out(&self, is_noise: impl Fn(&Request) -> bool + Send + Sync + 'static) {
        self.shared.state().leave_out = Box::new(is_noise);
    }

    /// The number of bursts of requests: the largest [`Request::round`], 0 without requests.
    ///
    /// A fast client, or a slow proxy, can make one burst look like two. So hold back the answers
    /// ([`hold_answers`](Self::hold_answers)) if the number matters.
    pub fn round_trips(&self) -> usize {
        self.shared.state().history.requests.iter().map(|request| request.round).max().unwrap_or(0)
    }

    /// Delays every answer that arrives from now on by this time; zero means no delay. Requests are
    /// not delayed. The order is kept, so pings and notifications wait behind earlier answers.
    pub fn hold_answers(&self, by: Duration) {
        self.shared.state().faults.delay = by;
    }

    /// From now on, no event of a watch reaches a client: so is a session served that may not read what it
    /// watches (CVE-2024-23944).
    pub fn swallow_events(&self) {
        self.shared.state().faults.no_events = true;
    }

    /// From now on, every connection gets a session of its own, also where the client names an old one: so does ClickHouse Keeper.
    pub fn forget_sessions(&self) {
        self.shared.state().faults.new_sessions = true;
    }

    /// From now on, a connection is closed when the client sets its watches again on it, as by a server that does not know how.
    pub fn refuse_set_watches(&self) {
        self.shared.state().faults.no_set_watches = true;
    }

    /// Arms a cut, which happens once. Replaces an armed cut.
    pub fn cut(&self, at: Cut) {
        self.shared.state().faults.arm(at);
    }

    /// Whether the last armed cut has happened; false again after [`reset`](Self::reset).
    pub fn cut_fired(&self) -> bool {
        self.shared.state().faults.cut_fired
    }

    /// Sets how cuts and [`refuse`](Self::refuse) close connections of clients from now on. The
    /// default is [`Closing::Fin`].
    pub fn close_by(&self, closing: Closing) {
        self.shared.state().faults.closing = closing;
    }

    /// Closes all connections; new ones are accepted.
    pub fn cut_now(&self) {
        self.shared.order(|state| state.close_all());
    }

    /// Stops forwarding and closes nothing. Requests that arrive are still counted, as not
    /// forwarded. New connections are accepted and stay silent.
    pub fn black_hole(&self) {
        self.shared.order(|state| state.black_hole());
    }

    /// Begins a [`black_hole`](Self::black_hole) as soon as the `k`-th request was forwarded: its
    /// answer is lost.
    pub fn black_hole_after_request(&self, k: usize) {
        self.shared.state().faults.hole_after = Some(k);
    }

    /// Closes all connections, and closes new ones at once.
    pub fn refuse(&self) {
        self.shared.order(|state| state.refuse());
    }

    /// Forwards again. Closes black-holed connections, forwards the requests that a hook held, and
    /// disarms [`cut`](Self::cut) and
    /// [`black_hole_after_request`](Self::black_hole_after_request).
    /// [`hold_answers`](Self::hold_answers) and [`on_request`](Self::on_request) stay in effect.
    pub fn heal(&self) {
        self.shared.order(|state| state.heal());
    }

    /// Calls `hook` for every counted request from now on. Replaces the previous hook. It runs on the
    /// proxy's thread, after the request was recorded and before it is forwarded. It may call the
    /// proxy, but should not block.
    pub fn on_request(&self, hook: impl Fn(&Request) -> Verdict + Send + Sync + 'static) {
        self.shared.state().hook = Some(Arc::new(hook));
    }

    /// Lets `rewrite` change the answer to every counted request from now on. Replaces the previous
    /// `rewrite`. An answer begins with `xid i32, zxid i64, err i32`. The record keeps the server's
    /// answer. `rewrite` must not call the proxy.
    pub fn rewrite_answers(&self, rewrite: impl Fn(&Request, &mut Vec<u8>) + Send + Sync + 'static) {
        self.shared.state().rewrite = Some(Box::new(rewrite));
    }

    /// Waits until at least `n` counted requests have arrived. It has no time limit.
    pub async fn wait_for_requests(&self, n: usize) {
        self.shared.wait_until(|state| (state.history.requests.len() >= n).then_some(())).await;
    }

    /// Waits until `condition` is true of the counted requests. It is checked at once, and again after
    /// every change, so no change is missed. It has no time limit.
    pub async fn wait_until(&self, condition: impl Fn(&[Request]) -> bool) {
        self.shared.wait_until(|state| condition(&state.history.requests).then_some(())).await;
    }

    /// Waits for a request that matches, and returns the first. Requests are checked again when they
    /// are forwarded and when their answers arrive, so the predicate may depend on that too. It has
    /// no time limit.
    pub async fn wait_for(&self, predicate: impl Fn(&Request) -> bool) -> Request {
        let find = |request: &&Request| predicate(request);
        self.shared.wait_until(|state| state.history.requests.iter().find(find).cloned()).await
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}
