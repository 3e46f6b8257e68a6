//! A proxy between ZooKeeper's clients and a server that counts requests and breaks connections at
//! chosen frames.

mod connection;
mod faults;
mod history;
mod shared;
mod state;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net;

use self::connection::Link;
use self::shared::Shared;
use crate::relay::{Relay, listen};

pub use self::faults::{Cut, Verdict};
pub use self::history::{Answer, Direction, Request, Uncounted};
pub use crate::frames::{Kind, Op};
pub use crate::relay::Closing;

/// Forwards the frames of any number of clients to one server, keeps a record of them, and makes
/// faults on demand.
///
/// *Counted* are the requests that a client's user asked for, and their answers; pings,
/// authentication, connect frames, watches that are set again and notifications are not
/// ([`uncounted`](Self::uncounted) has them), and neither is what a test
/// [leaves out](Self::leave_out). `k` counts from 1, over all connections, since the
/// start or the last [`reset`](Self::reset). It has a thread of its own, so it goes on while the
/// test's runtime is busy, blocked or gone. Dropping it closes everything.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _relay: Relay,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `upstream`, one `host:port`, which is
    /// resolved here and may be down for now.
    ///
    /// # Errors
    ///
    /// If the name cannot be resolved, or there is no port or thread to be had.
    pub async fn start(upstream: &str) -> io::Result<Self> {
        let upstream: Arc<[_]> = net::lookup_host(upstream).await?.collect();
        let (listener, port) = listen()?;
        let shared = Arc::new(Shared::new());
        let route = {
            let shared = Arc::clone(&shared);
            move || Link::new(Arc::clone(&shared), Arc::clone(&upstream))
        };
        let relay = Relay::start("zookeeper-proxy", vec![(listener, route)]).await?;
        Ok(Self { port, shared, _relay: relay })
    }

    /// The address for clients, `127.0.0.1:port`.
    pub fn hosts(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How many connections of clients are open now; the black-holed ones count until the client
    /// closes them.
    pub fn connections(&self) -> usize {
        self.shared.state().open_connections()
    }

    /// Id and password of the session in the newest `ConnectResponse`.
    pub fn session(&self) -> Option<(i64, Vec<u8>)> {
        self.shared.state().sessions.last().cloned()
    }

    /// The password of a session that came through here. Whoever knows its session asks for that: the client of a proxy
    /// that is gone may come back to its port, and find another.
    pub fn password(&self, session: i64) -> Option<Vec<u8>> {
        let sessions = &self.shared.state().sessions;
        sessions.iter().find(|(id, _)| *id == session).map(|(_, password)| password.clone())
    }

    /// The counted requests in the order of their arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().history.requests.clone()
    }

    /// What passed besides the counted requests and their answers, in order.
    pub fn uncounted(&self) -> Vec<Uncounted> {
        self.shared.state().history.uncounted.clone()
    }

    /// Forgets the record and starts all counts again. An armed fault stays armed, and counts from
    /// here; an answer to a request from before is forwarded and not counted.
    pub fn reset(&self) {
        self.shared.state().reset();
    }

    /// Counts no request any more for which `is_noise` is true; it replaces what was said before.
    ///
    /// Such a request is forwarded and answered, and a hook is asked about it, as about number 0.
    /// No record has it, nobody who waits for requests sees it, no cut falls on it, and it is part
    /// of no round. So a test can count what one call sends while the client under test also sends
    /// something now and then. `is_noise` must not call the proxy.
    pub fn leave_out(&self, is_noise: impl Fn(&Request) -> bool + Send + Sync + 'static) {
        self.shared.state().leave_out = Box::new(is_noise);
    }

    /// In how many bursts the requests came: the largest [`Request::round`], 0 without requests.
    ///
    /// A client that is fast, or a proxy that is slow, can make one burst look like two, so hold
    /// the answers back ([`hold_answers`](Self::hold_answers)) where the number matters.
    pub fn round_trips(&self) -> usize {
        self.shared.state().history.requests.iter().map(|request| request.round).max().unwrap_or(0)
    }

    /// Delays every answer that arrives from now on by this much; zero for no delay. Requests are
    /// not delayed. Their order is kept, so pings and notifications wait behind the answers before
    /// them.
    pub fn hold_answers(&self, by: Duration) {
        self.shared.state().faults.delay = by;
    }

    /// Arms a cut, which happens once. It replaces an armed one.
    pub fn cut(&self, at: Cut) {
        self.shared.state().faults.arm(at);
    }

    /// Whether the cut that was armed last has happened; false again after [`reset`](Self::reset).
    pub fn cut_fired(&self) -> bool {
        self.shared.state().faults.cut_fired
    }

    /// How connections of clients are closed by cuts and by [`refuse`](Self::refuse) from now on;
    /// at first [`Closing::Fin`].
    pub fn close_by(&self, closing: Closing) {
        self.shared.state().faults.closing = closing;
    }

    /// Closes all connections; new ones are accepted.
    pub fn cut_now(&self) {
        self.shared.order(|state| state.close_all());
    }

    /// Forwards nothing any more and closes nothing. Requests that arrive still count, as not
    /// forwarded; new connections are accepted and stay silent.
    pub fn black_hole(&self) {
        self.shared.order(|state| state.black_hole());
    }

    /// A [`black_hole`](Self::black_hole) from the moment in which the `k`-th request was
    /// forwarded: its answer is lost.
    pub fn black_hole_after_request(&self, k: usize) {
        self.shared.state().faults.hole_after = Some(k);
    }

    /// Closes all connections, and new ones at once.
    pub fn refuse(&self) {
        self.shared.order(|state| state.refuse());
    }

    /// Forwards again: closes the connections that were black-holed, sends on the requests that a
    /// hook held, and disarms [`cut`](Self::cut) and
    /// [`black_hole_after_request`](Self::black_hole_after_request). What
    /// [`hold_answers`](Self::hold_answers) and [`on_request`](Self::on_request) said stays.
    pub fn heal(&self) {
        self.shared.order(|state| state.heal());
    }

    /// Asks `hook` about every counted request from now on; it replaces the hook before. It runs on
    /// the proxy's thread, after the request was recorded and before it is forwarded, and may call
    /// the proxy, but should not block.
    pub fn on_request(&self, hook: impl Fn(&Request) -> Verdict + Send + Sync + 'static) {
        self.shared.state().hook = Some(Arc::new(hook));
    }

    /// Lets `rewrite` change the answer to every counted request from now on; it replaces the one
    /// before. An answer begins with `xid i32, zxid i64, err i32`. The record keeps what the server
    /// answered. `rewrite` must not call the proxy.
    pub fn rewrite_answers(&self, rewrite: impl Fn(&Request, &mut Vec<u8>) + Send + Sync + 'static) {
        self.shared.state().rewrite = Some(Box::new(rewrite));
    }

    /// Waits until at least `n` counted requests have arrived. It has no time limit.
    pub async fn wait_for_requests(&self, n: usize) {
        self.shared.wait_until(|state| (state.history.requests.len() >= n).then_some(())).await;
    }

    /// Waits until `condition` is true of the counted requests. It is asked at once, and again after
    /// every change, so nothing that comes in between is missed. It has no time limit.
    pub async fn wait_until(&self, condition: impl Fn(&[Request]) -> bool) {
        self.shared.wait_until(|state| condition(&state.history.requests).then_some(())).await;
    }

    /// Waits for a request that matches, and returns the first. Requests are looked at again when
    /// they are forwarded and when their answers come, so the predicate may ask for that too. It
    /// has no time limit.
    pub async fn wait_for(&self, predicate: impl Fn(&Request) -> bool) -> Request {
        let find = |request: &&Request| predicate(request);
        self.shared.wait_until(|state| state.history.requests.iter().find(find).cloned()).await
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("port", &self.port).finish_non_exhaustive()
    }
}
