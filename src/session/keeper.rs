//! Owns the tasks behind a session: the keeper, which keeps up trust and sees to an orderly end, and the worker, which
//! runs what is handed to [`Link::background`].

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use zookeeper_client::{SessionState, Stat};

use crate::options::Trust;
use crate::session::answer::{Answer, Failure};
use crate::session::clock::Moment;
use crate::session::link::{End, Link, PAUSE, Phase, Work};

/// So many probes lost one after the other, with no change of the connection between them, tell that the client's runtime
/// is gone: a live client loses one only with a connection that it had in the meantime.
const LOST_PROBES: u32 = 2;

/// Starts both tasks on the present runtime, once.
pub(super) fn start(link: &Arc<Link>) {
    if let Some(receiver) = link.take_work() {
        // The keeper is an argument, so that it is dropped with a task that never ran.
        tokio::spawn(keep(Keeper(link.clone())));
        tokio::spawn(work(link.clone(), receiver));
    }
}

/// Ends the link when the runtime drops the keeper.
struct Keeper(Arc<Link>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.end(End::Orphaned);
    }
}

async fn keep(keeper: Keeper) {
    let link = &keeper.0;
    let mut state = link.requests.state_watcher();
    let mut beat = tokio::time::interval((link.timeout / 8).max(Duration::from_millis(1)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewal: Option<Renewal> = None;
    let mut not_before = Instant::now();
    let mut lost_probes = 0;
    let mut closing = pin!(async {
        link.close_wanted.notified().await;
        shut_down(link).await
    });
    let mut ended = end_of(state.state());
    while ended.is_none() {
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
            _ = beat.tick() => link.requests.ledger().awake(Moment::now()),
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
    link.end(ended.unwrap_or(End::Orphaned));
}

fn end_of(state: SessionState) -> Option<End> {
    match state {
        SessionState::Expired => Some(End::Expired),
        SessionState::AuthFailed => Some(End::AuthFailed),
        SessionState::Closed => Some(End::Closed { confirmed: true }),
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
            result?;
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
        return End::Closed { confirmed: true };
    }
    // The end of the session removes what is left, so there is no need to wait long.
    let tidied = tokio::time::timeout_at(began + link.timeout / 4, tidied).await.is_ok();
    // Nothing that is under way may keep a clone of the client.
    link.work_over.notify_one();
    link.requests.give_up();
    let mut state = link.requests.state_watcher();
    let ended = tokio::time::timeout_at(began + link.timeout * 7 / 8, async {
        while end_of(state.state()).is_none() {
            state.changed().await;
        }
    });
    // A clone of the client that somebody keeps also keeps the session; without nodes it holds no lock.
    End::Closed { confirmed: ended.await.is_ok() || tidied }
}

/// Runs what is handed to the background, until the session is over.
async fn work(link: Arc<Link>, mut receiver: mpsc::UnboundedReceiver<Work>) {
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
}
