//! The one task of a session. It reads the answers and events, fires the timers, follows the connection, renews the ZooKeeper
//! session, and ends it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::SessionState as ClientState;

use crate::clock::now;
use crate::driver::core::Core;
use crate::driver::reports::is_traced;
use crate::driver::state::{Closing, RUNTIME_GONE, State};
use crate::error::Error;
use crate::machine::{Event, Life, Moment};
use crate::session::servers::Servers;
use crate::session::state_changes::StateChanges;
use crate::session::times::Times;
use crate::telemetry;

/// If the computer has slept for more than this many microseconds, subscribers are woken, because their timers are late.
const SLEPT: u64 = 20_000;

/// Returns the future of a session's task. The task ends when the session is over.
pub(crate) fn drive(core: Arc<Core>, servers: Arc<Servers>) -> impl Future<Output = ()> + Send + 'static {
    // Built outside the `async` block, so that `Task::drop` runs even if the future is never polled.
    let mut task = Task { core, servers, is_done: false };
    async move { task.run().await }
}

struct Task {
    core: Arc<Core>,
    servers: Arc<Servers>,
    /// Whether the session has been ended properly, so that `drop` has nothing left to do.
    is_done: bool,
}

impl Task {
    async fn run(&mut self) {
        let core = Arc::clone(&self.core);
        let mut beats = Beats::default();
        let mut unread = VecDeque::new();
        let (mut timer, mut set) = (pin!(sleep(Duration::ZERO)), Moment::default());
        loop {
            if is_traced() {
                core.report(|| tracing::trace!("session's task is woken"));
            }
            let (life, is_replaced, has_slept, wakes_at) = {
                let mut state = core.lock_current();
                let has_slept = beats.beat(&core, &mut state);
                let mut state = core.read(state, &mut unread);
                core.fire_timers(&mut state);
                // The code below handles all changes so far, so the task need not be woken for them.
                state.deferred.wakes_driver = false;
                (state.machine.life(), state.is_replaced(), has_slept, state.wakes_at)
            };
            if has_slept {
                // The timers of subscribers are late after a sleep. So wake all subscribers to read the state again.
                core.changes.send_replace(());
            }
            match life {
                _ if is_replaced => {
                    replaced(&core);
                    continue;
                }
                Life::Over => {
                    let closing = shut_down(&core).await;
                    // Make the reports before `state.closing` is set, because `Session::close` returns then.
                    core.reports.ended().await;
                    self.is_done = true;
                    let mut state = core.lock();
                    state.error.get_or_insert(Error::Closed);
                    state.closing.get_or_insert(closing);
                    return state.close();
                }
                Life::Renewing => {
                    renew(&core, &self.servers).await;
                    continue;
                }
                Life::Open | Life::Draining | Life::Closing => {}
            }
            // Setting a timer costs more than a wake-up, so the timer is set only if `wakes_at` has changed.
            if std::mem::replace(&mut set, wakes_at) != wakes_at {
                timer.as_mut().reset(Instant::now() + Duration::from_micros(wakes_at.since(now())));
            }
            tokio::select! {
                () = core.ready.driver.notified() => {}
                // The next pass sets the timer again, because `wakes_at` has passed and so changes.
                () = timer.as_mut() => {}
            }
        }
    }
}

/// Ends the session if its task has panicked or the runtime has dropped the task. Nothing would read its answers or renew it.
impl Drop for Task {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let is_panicking = std::thread::panicking();
        let mut state = self.core.lock();
        self.core.end(&mut state, RUNTIME_GONE);
        // The holds now report a loss, so the ZooKeeper session must end. After a panic, the drop of the client ends that
        // session. If the runtime is gone, the client is dead already. It is kept, because `Session::client` still returns it.
        let dropped = if is_panicking { state.client.take() } else { None };
        state.close();
        drop(state);
        self.core.reports.end();
        drop(dropped);
    }
}

/// Ends our session after the server gave the connection to another session. Drops the client, because its session is not
/// ours.
fn replaced(core: &Arc<Core>) {
    let mut state = core.lock();
    let client = state.give_client_up();
    core.expire(&mut state);
    let (is_refused, id) = (state.machine.is_listing_refused(), state.session_id());
    drop(state);
    drop(client);
    core.report(move || match is_refused {
        false => tracing::warn!(session = %id, "the server has given the connection to another session"),
        true => tracing::warn!(
            session = %id,
            "the server closes each connection on which it is asked for the nodes of the session (getEphemerals); the locks \
             of a session last until its first reconnect"
        ),
    });
}

/// Makes the first or the next ZooKeeper session, unless the session is closed meanwhile.
async fn renew(core: &Arc<Core>, servers: &Servers) {
    let (is_first, is_refused, id) = {
        let state = core.lock();
        (!state.was_connected(), state.is_refused, state.session_id())
    };
    if !is_first {
        let how = if is_refused { "was refused its credentials" } else { "has expired" };
        core.report(move || {
            tracing::warn!(session = %id, "session {how}; its locks are lost, and a new one is made");
        });
    }
    let wanted = || core.lock().machine.life() == Life::Renewing;
    let mut renewal = pin!(servers.renew(is_first, wanted, || core.lock().credentials_are_refused()));
    let renewed = loop {
        // A close does not wait for servers that do not answer.
        if !wanted() {
            return;
        }
        tokio::select! {
            renewed = &mut renewal => break renewed,
            () = core.ready.driver.notified() => drop(core.read(core.lock_current(), &mut VecDeque::new())),
        }
    };
    let Some((client, created)) = renewed else { return };
    let id = client.session_id();
    let mut state = core.lock();
    if state.machine.life() != Life::Renewing {
        return;
    }
    core.renew(&mut state, client, created);
    drop(state);
    core.report(move || {
        tracing::info!(session = %id, "session is made");
        if !is_first {
            telemetry::renewed();
        }
    });
}

/// Drops the client, because the ZooKeeper session ends with the last clone of the client. Waits for the end of that session,
/// for at most [`Times::close_ended`].
async fn shut_down(core: &Core) -> Closing {
    let (client, is_clean, times) = {
        let mut state = core.lock();
        let times = Times::of(Duration::from_micros(state.machine.session_timeout()));
        let client = state.give_client_up().filter(|_| state.connection.is_some());
        (client, state.is_clean, times)
    };
    let has_closed = match client {
        Some(client) => {
            let (_, changes) = StateChanges::new(client.state_watcher());
            drop(client);
            timeout(times.close_ended(), changes.ended()).await == Ok(ClientState::Closed)
        }
        // The session is over already, perhaps only by the clock of the client. The servers may still have its nodes.
        None => false,
    };
    if is_clean || has_closed { Closing::Released } else { Closing::Unconfirmed }
}

/// Tells a stalled process from a running one. Each pass of the session's task sends the machine a *beat*, so a stall shows as
/// a gap between two beats. A gap shortens trust in the session.
#[derive(Debug, Default)]
struct Beats {
    last: Option<(Moment, Instant)>,
    /// When the metrics were last reported.
    reported: Moment,
}

impl Beats {
    /// Sends the machine a beat, and reports metrics if [`State::beat`] has passed since the last time. Returns whether the
    /// computer has slept for longer than [`SLEPT`].
    fn beat(&mut self, core: &Arc<Core>, state: &mut State) -> bool {
        let (at, timers) = (now(), Instant::now());
        let slept = self.last.replace((at, timers)).map_or(0, |(before, then)| {
            // Timers stand still while the computer sleeps.
            let ran = u64::try_from(timers.duration_since(then).as_micros()).unwrap_or(u64::MAX);
            Some(at.since(before).saturating_sub(ran)).filter(|slept| *slept > 1_000).unwrap_or_default()
        });
        core.decide(state, Event::Beat { slept });
        if at.since(self.reported) >= state.beat() {
            self.reported = at;
            state.reports.beat();
        }
        slept > SLEPT
    }
}
