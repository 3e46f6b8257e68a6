//! Owns the tasks behind a session: the keeper, which keeps up trust and closes the session, and the worker, which runs
//! what is given to [`background`](ServerSession::background).

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;
use zookeeper_client::{Client, SessionState, Stat};

use crate::session::identity::watch_identity;
use crate::session::request::{Answer, Failure};
use crate::session::search::delete_leftovers;
use crate::session::server_session::{Closing, End, PAUSE, Phase, ServerSession, Work};
use crate::session::trust::Moment;
use crate::telemetry;

/// The timers have stood still, with the machine, if they are behind the clock of trust by more than this.
const SLEPT: Duration = Duration::from_millis(20);

/// The shortest time between two slow looks, which is up to a half longer, so that sessions do not look in step.
const SLOW_LOOK: Duration = Duration::from_secs(20);

/// The session of a client, with both tasks on the present runtime, which is that of the client. `created` is a moment before
/// the creation of the session, if that is ours to end.
pub(super) fn start(client: Client, created: Option<Moment>) -> Arc<ServerSession> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let zk = ServerSession::new(client, created, sender);
    // The guards are arguments, so that they are dropped with a task that never ran.
    tokio::spawn(keep(TaskGuard::new(&zk)));
    tokio::spawn(work(TaskGuard::new(&zk), receiver));
    zk
}

/// Ends the session if one of its tasks is dropped with its runtime, or panics.
struct TaskGuard {
    zk: Arc<ServerSession>,
    done: bool,
}

impl TaskGuard {
    fn new(zk: &Arc<ServerSession>) -> Self {
        Self { zk: zk.clone(), done: false }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.zk.end(End::Orphaned);
        if std::thread::panicking() && self.zk.is_owned() {
            // The client lives, and would keep the nodes of holds that report their loss. One that is not
            // ours lives on anyway, and takes the deletes of holds that give them up.
            self.zk.drop_client();
        }
    }
}

async fn keep(mut guard: TaskGuard) {
    let ended = kept(&guard.zk).await;
    guard.zk.end(ended);
    guard.done = true;
}

/// Keeps up the session until its end.
async fn kept(zk: &Arc<ServerSession>) -> End {
    let mut state = zk.state_watcher();
    let mut beat = tokio::time::interval(zk.times().beat());
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut clocks = (Moment::now(), Instant::now());
    let mut slow_look = Instant::now() + slow_look();
    let mut renewal: Option<Renewal> = None;
    let mut not_before = Instant::now();
    let mut closing = pin!(async {
        zk.close_wanted.notified().await;
        shut_down(zk).await
    });
    let mut identity = pin!(watch_identity(zk));
    let mut ended = end_of(state.state());
    let mut connected = telemetry::Connected::default();
    loop {
        tracing::trace!("keeper is woken");
        connected.set(zk.is_connected());
        if let Some(ended) = ended {
            return ended;
        }
        tokio::select! {
            changed = state.changed() => {
                ended = end_of(changed);
                zk.announce();
            }
            end = &mut closing => ended = Some(end),
            end = &mut identity => ended = Some(end),
            _ = beat.tick() => {
                let now = (Moment::now(), Instant::now());
                let slept = now.0.since(clocks.0).saturating_sub(now.1 - clocks.1);
                clocks = now;
                zk.ledger().slept(now.0, slept);
                if zk.is_connected() {
                    zk.ledger().awake(now.0);
                }
                zk.begin_lasting(now.0);
                if let Some(until) = zk.trusted_until() {
                    telemetry::trusted_for(until.since(now.0));
                }
                zk.forget_old_watches();
                if slept > SLEPT {
                    // Everybody that waits by a timer looks again.
                    zk.announce();
                }
            }
            () = tokio::time::sleep_until(slow_look) => {
                zk.look_slowly();
                slow_look = Instant::now() + self::slow_look();
            }
            () = zk.trust_wanted.notified() => {}
            answer = answered(&mut renewal) => {
                renewal = None;
                if answer.is_err() {
                    not_before = Instant::now() + PAUSE;
                }
                ended = ended.or_else(|| zk.evidence.over());
            }
            () = due(zk, not_before), if renewal.is_none() && zk.can_renew_trust() => {
                renewal = Some(Renewal::send(zk));
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

/// What was sent to renew trust: a read and a write.
struct Renewal {
    read: Option<Answer<Option<Stat>>>,
    write: Option<Answer<Option<usize>>>,
}

impl Renewal {
    fn send(zk: &ServerSession) -> Self {
        Self { read: Some(zk.stat("/")), write: Some(zk.check(vec!["/".to_owned()])) }
    }

    /// Waits for the answers, each of which counts as soon as it has come.
    async fn answered(&mut self) -> Result<(), Failure> {
        if let Some(waiting) = &mut self.read {
            let result = waiting.await;
            self.read = None;
            // A refusal is an answer, too: some servers do not let everybody look at the root.
            if let Err(failure @ (Failure::Unknown | Failure::SessionOver)) = result {
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
async fn due(zk: &ServerSession, not_before: Instant) {
    loop {
        // Other requests renew trust as well, so what was due may not be any more.
        let Some(due) = zk.renewal() else {
            return pending().await;
        };
        let wait = due.since(Moment::now());
        if wait.is_zero() && not_before <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(not_before.max(Instant::now() + wait)).await;
    }
}

/// Waits for what is still to be cleaned up, then ends the session, in less than one session timeout if it is ours.
async fn shut_down(zk: &Arc<ServerSession>) -> End {
    let began = Instant::now();
    // Holds that nothing watches over yet give up their nodes, too.
    zk.begin_lasting(Moment::now().plus(zk.timeout()));
    let cleaned_up = async {
        // A place whose future is kept and not polled is not given up.
        let given_up = tokio::time::timeout_at(began + zk.times().close_given_up(), zk.nodes.emptied()).await;
        if given_up.is_err() {
            delete_leftovers(zk).await;
        }
    };
    if !zk.is_owned() {
        // The session goes on, so nothing else would remove what is left.
        cleaned_up.await;
        zk.drop_client();
        return End::Closed(Closing::Confirmed);
    }
    // The end of the session removes what is left, so there is no need to wait long.
    let cleaned_up = tokio::time::timeout_at(began + zk.times().close_deleted(), cleaned_up).await.is_ok();
    let answering = async { zk.is_client_shared() && zk.check_session().await.is_ok() };
    let is_answering = tokio::time::timeout_at(began + zk.times().close_answered(), answering).await == Ok(true);
    zk.drop_client();
    let mut state = zk.state_watcher();
    // Servers that have just answered a write confirm the end as soon. If they do not, and somebody has had a clone of
    // the client, it is still there, and waiting longer does not help.
    let is_kept = cleaned_up && is_answering;
    let until = if is_kept { Instant::now() + zk.times().close_kept() } else { began + zk.times().close_ended() };
    let ended = tokio::time::timeout_at(until, async {
        while end_of(state.state()).is_none() {
            state.changed().await;
        }
    });
    End::Closed(match ended.await {
        Ok(()) => Closing::Confirmed,
        Err(_) if is_kept => Closing::ClientKept,
        Err(_) if cleaned_up => Closing::Confirmed,
        Err(_) => Closing::Unconfirmed,
    })
}

/// Runs what is handed to the background, until the session is over.
async fn work(mut guard: TaskGuard, mut receiver: mpsc::UnboundedReceiver<Work>) {
    let zk = guard.zk.clone();
    let mut running = FuturesUnordered::new();
    loop {
        tracing::trace!("worker is woken");
        tokio::select! {
            biased;
            _ = zk.over() => break,
            Some(()) = running.next(), if !running.is_empty() => {}
            Some(work) = receiver.recv() => running.push(work),
        }
    }
    guard.done = true;
}

impl ServerSession {
    /// Whether trust can be renewed at this moment.
    pub(super) fn can_renew_trust(&self) -> bool {
        self.phase() == Phase::Open && self.evidence.is_ours()
    }

    /// Until when the holds that there are trust the session.
    fn trusted_until(&self) -> Option<Moment> {
        (self.holds() > 0).then(|| self.ledger().until())
    }

    /// When trust has to be renewed next, if a hold needs it.
    pub(super) fn renewal(&self) -> Option<Moment> {
        (self.holds() > 0).then(|| self.ledger().renewal_due())
    }
}
