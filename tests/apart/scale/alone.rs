//! What the tests of scale stand on: their turn, and answers to how much there is.

use std::time::Duration;

use testbed::Server;
use testbed::proxy::{Proxy, Request};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::zookeeper_client::Client;

static TURN: Mutex<()> = Mutex::const_new(());

/// A session timeout that a busy machine does not use up.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Far longer than any of these tests takes on an idle machine; a busy one may need ten times as long.
const STUCK: Duration = Duration::from_secs(600);

/// Waits until no other test runs.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// Fails the test when `future` makes no end.
pub(crate) async fn unstuck<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(STUCK, future).await {
        Ok(output) => output,
        Err(_) => panic!("stuck: {what}"),
    }
}

/// A client that keeps its session while the machine is busy.
pub(crate) async fn watcher(server: &Server) -> Client {
    let connector = Client::connector().with_session_timeout(LONG);
    connector.connect(&server.hosts()).await.expect("connects")
}

/// Polls the proxy until it has seen `count` watches set.
pub(crate) async fn wait_for_watches(proxy: &Proxy, count: usize) {
    let set = |request: &Request| request.watch && request.answer.is_some();
    let mut beat = interval(Duration::from_millis(50));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while proxy.requests().iter().filter(|request| set(request)).count() < count {
        beat.tick().await;
    }
}

/// The bytes of memory that this process has, where the system shows that.
pub(crate) fn resident() -> Option<usize> {
    memory("VmRSS:")
}

/// The most bytes of memory that this process had since [`forget_peak`].
pub(crate) fn peak() -> Option<usize> {
    memory("VmHWM:")
}

/// Begins a new measurement of the [`peak`]; `None` where the system does not do that.
pub(crate) fn forget_peak() -> Option<()> {
    std::fs::write("/proc/self/clear_refs", "5").ok()
}

fn memory(field: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"))?;
    Some(1024 * kilobytes.parse::<usize>().ok()?)
}
