//! Owns the tasks behind a session: the keeper, which keeps up trust and sees to an orderly end, and the worker, which
//! runs what is handed to [`Link::background`].

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;
use zookeeper_client::{SessionState, Stat};

use crate::options::Trust;
use crate::session::answer::{Answer, Failure};
use crate::session::clock::Moment;
use crate::session::link::{Closing, End, Link, PAUSE, Phase, Work};

/// So many probes lost one after the other, with no change of the connection between them, tell that the client's runtime
/// is gone: a live client loses one only with a connection that it had in the meantime.
const LOST_PROBES: u32 = 2;

/// How long the process runs between two signs of it, at most. In a shorter session it is a sixteenth of the timeout.
const LONGEST_BEAT: Duration = Duration::from_secs(1);

/// The timers have stood still, with the machine, if they are behind the clock of trust by more than this.
const SLEPT: Duration = Duration::from_millis(20);

/// The shortest time between two slow looks, which is up to a half longer, so that sessions do not look in step.
const SLOW_LOOK: Duration = Duration::from_secs(20);

/// Starts both tasks on the present runtime, once.
pub(super) fn start(link: &Arc<Link>) {
    // Outside of a runtime this panics, and somebody else may start them later.
    let runtime = Handle::current();
    if let Some(receiver) = link.take_work() {
        // The guards are arguments, so that they are dropped with a task that never ran.
        runtime.spawn(keep(TaskGuard::new(link)));
        runtime.spawn(work(TaskGuard::new(link), receiver));
    }
}

/// Ends the link if a task of it does not come to its own end: its runtime is gone, or it has panicked.
struct TaskGuard {
    link: Arc<Link>,
    done: bool,
}

impl TaskGuard {
    fn new(link: &Arc<Link>) -> Self {
        Self { link: link.clone(), done: false }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.link.end(End::Orphaned);
        if std::thread::panicking() && self.link.is_owned() {
            // The client lives, and would keep the nodes of those who are told that they have lost them. One that is not
            // ours lives on anyway, and takes the deletes of those who give them up.
            self.link.requests.give_up();
        }
    }
}

async fn keep(mut guard: TaskGuard) {
    let ended = kept(&guard.link).await;
    guard.link.end(ended);
    guard.done = true;
}

/// Keeps up the session until its end.
async fn kept(link: &Arc<Link>) -> End {
    let mut state = link.requests.state_watcher();
    let mut beat = tokio::time::interval((link.timeout / 16).clamp(Duration::from_millis(1), LONGEST_BEAT));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut clocks = (Moment::now(), Instant::now());
    let mut slow_look = Instant::now() + slow_look();
    let mut renewal: Option<Renewal> = None;
    let mut not_before = Instant::now();
    let mut lost_probes = 0;
    let mut closing = pin!(async {
        link.close_wanted.notified().await;
        shut_down(link).await
    });
    let mut ended = end_of(state.state());
    loop {
        if let Some(ended) = ended {
            return ended;
        }
        if link.phase() != Phase::Open {
            // Nothing that is under way may keep a clone of the client.
            renewal = None;
        }
        tokio::select! {
            changed = state.changed() => {
                ended = end_of(changed);
                lost_probes = 0;
                link.announce();
            }
            end = &mut closing => ended = Some(end),
            _ = beat.tick() => {
                let now = (Moment::now(), Instant::now());
                let slept = now.0.since(clocks.0).saturating_sub(now.1 - clocks.1);
                clocks = now;
                link.requests.ledger().slept(now.0, slept);
                if link.requests.is_connected() {
                    link.requests.ledger().awake(now.0);
                }
                if slept > SLEPT {
                    // Whoever waits by a timer looks again.
                    link.announce();
                }
            }
            () = tokio::time::sleep_until(slow_look) => {
                link.slow_looks.notify_waiters();
                slow_look = Instant::now() + self::slow_look();
            }
            () = link.renewal_wanted.notified() => {}
            answer = answered(&mut renewal) => {
                let probe = renewal.take().is_some_and(|renewal| renewal.probe);
                if answer.is_err() {
                    not_before = Instant::now() + PAUSE;
                    lost_probes += u32::from(probe);
                }
                if link.requests.is_orphaned() || lost_probes == LOST_PROBES {
                    ended = Some(End::Orphaned);
                }
            }
            trust = due(link, not_before), if renewal.is_none() && link.wants_renewal() => {
                renewal = Some(Renewal::send(link, trust));
            }
            () = tokio::time::sleep_until(not_before), if renewal.is_none() && link.wants_probe() => {
                renewal = Some(Renewal::probe(link));
            }
        }
    }
}

fn slow_look() -> Duration {
    let random = Uuid::new_v4().as_u64_pair().1 as u32;
    SLOW_LOOK + SLOW_LOOK / 2 * (random >> 16) / 0x1_0000
}

fn end_of(state: SessionState) -> Option<End> {
    match state {
        SessionState::Expired => Some(End::Expired),
        SessionState::AuthFailed => Some(End::AuthFailed),
        SessionState::Closed => Some(End::Closed(Closing::Confirmed)),
        SessionState::Disconnected | SessionState::SyncConnected | SessionState::ConnectedReadOnly => None,
    }
}

/// What was sent to renew trust: a read, and a write unless reads are trusted. Or only to see whether the client is alive.
struct Renewal {
    probe: bool,
    read: Option<Answer<Option<Stat>>>,
    write: Option<Answer<Option<usize>>>,
}

impl Renewal {
    fn send(link: &Link, trust: Trust) -> Self {
        let read = link.requests.ping();
        let write = (trust == Trust::Quorum).then(|| link.requests.check("/"));
        Self { probe: false, read: Some(read), write }
    }

    /// A request that a client which is away keeps until it is back, and that is lost if there is no client any more.
    fn probe(link: &Link) -> Self {
        Self { probe: true, read: Some(link.requests.ping()), write: None }
    }

    /// Waits for the answers, each of which counts as soon as it has come.
    async fn answered(&mut self) -> Result<(), Failure> {
        if let Some(waiting) = &mut self.read {
            let result = waiting.await;
            self.read = None;
            // A refusal is an answer, too: some servers do not let everybody look at the root.
            if let Err(failure @ (Failure::Unknown | Failure::Over)) = result {
                return Err(failure);
            }
        }
        if let Some(waiting) = &mut self.write {
            let result = waiting.await;
            self.write = None;
            result?;
        }
        Ok(())
    }
}

async fn answered(renewal: &mut Option<Renewal>) -> Result<(), Failure> {
    match renewal {
        Some(renewal) => renewal.answered().await,
        None => pending().await,
    }
}

/// Waits until trust has to be renewed.
async fn due(link: &Link, not_before: Instant) -> Trust {
    loop {
        // Other requests renew trust as well, so what was due may not be any more.
        let Some((trust, due)) = link.renewal() else {
            return pending().await;
        };
        let wait = due.since(Moment::now());
        if wait.is_zero() && not_before <= Instant::now() {
            return trust;
        }
        tokio::time::sleep_until(not_before.max(Instant::now() + wait)).await;
    }
}

/// Waits for what is still to be tidied up, then ends the session, in less than one session timeout if it is ours.
async fn shut_down(link: &Arc<Link>) -> End {
    let began = Instant::now();
    let tidied = async {
        // A place whose future is kept and not polled is not given up.
        let given_up = tokio::time::timeout_at(began + link.timeout / 8, link.places.emptied()).await;
        if given_up.is_err() {
            link.sweep().await;
        }
    };
    if !link.is_owned() {
        // The session goes on, so nothing else would remove what is left.
        tidied.await;
        link.requests.give_up();
        return End::Closed(Closing::Confirmed);
    }
    // The end of the session removes what is left, so there is no need to wait long.
    let tidied = tokio::time::timeout_at(began + link.timeout / 4, tidied).await.is_ok();
    let answering = async { link.is_client_shared() && link.check().await.is_ok() };
    let is_answering = tokio::time::timeout_at(began + link.timeout * 3 / 8, answering).await == Ok(true);
    // Nothing that is under way may keep a clone of the client.
    link.work_over.notify_one();
    link.requests.give_up();
    let mut state = link.requests.state_watcher();
    // Servers that have just answered a write confirm the end as soon. If they do not, and somebody has had a clone of
    // the client, it is still there, and waiting longer does not help.
    let is_kept = tidied && is_answering;
    let until = if is_kept { Instant::now() + link.timeout / 3 } else { began + link.timeout * 7 / 8 };
    let ended = tokio::time::timeout_at(until, async {
        while end_of(state.state()).is_none() {
            state.changed().await;
        }
    });
    End::Closed(match ended.await {
        Ok(()) => Closing::Confirmed,
        Err(_) if is_kept => Closing::ClientKept,
        Err(_) if tidied => Closing::Confirmed,
        Err(_) => Closing::Unconfirmed,
    })
}

/// Runs what is handed to the background, until the session is over.
async fn work(mut guard: TaskGuard, mut receiver: mpsc::UnboundedReceiver<Work>) {
    let link = guard.link.clone();
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            _ = link.over() => break,
            () = link.work_over.notified() => break,
            Some(()) = running.next(), if !running.is_empty() => {}
            Some(work) = receiver.recv() => running.push(work),
        }
    }
    guard.done = true;
}
