//! One session, on a thread of its own that can be stopped, with a proxy before each server.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use testbed::Ensemble;
use testbed::history::{Journal, now};
use testbed::proxy::Proxy;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::{Servers, Session};

use super::{Result, SESSION};
use crate::client::crew::{Crew, busy, idle, keepers};
use crate::client::logs::record_machine;
use crate::line::{Mark, What};

const BEAT: Duration = Duration::from_millis(10);
/// Trust allows for timers that are late by a little more.
const STALL: u64 = 25_000_000;

/// The name in the present round, and where that is recorded.
pub(super) type Record = Arc<Mutex<Option<(Arc<str>, Journal)>>>;

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// It uses all recipes at once.
    Busy,
    /// It does nothing most of the time.
    Idle,
    /// It has few nodes, and keeps them for long.
    Keeps,
}

/// What the thread is asked to do.
enum Order {
    /// To work, and to report how that ended.
    Work(Box<Crew>, oneshot::Sender<Result<()>>),
    /// To do nothing at all.
    Stall(Duration),
    /// To close the session.
    Close(oneshot::Sender<Result<()>>),
}

pub(super) struct Peer {
    pub(super) session: Session,
    pub(super) proxies: Arc<[Proxy]>,
    pub(super) habit: Habit,
    /// The name of the present round, and where it is recorded.
    pub(super) record: Record,
    /// The id of its session, and whether it is connected. Another thread must not look at the session: what its machine does then
    /// would be missing in the journal.
    present: watch::Receiver<(i64, bool)>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Peer {
    /// `record`: where the journals of its machine and of its proxies go, if they are wanted.
    pub(super) async fn start(
        ensemble: &Ensemble,
        habit: Habit,
        name: &str,
        record: Option<&Path>,
    ) -> Result<Self> {
        let mut proxies = Vec::new();
        for i in 0..ensemble.len() {
            let proxy = Proxy::start(&ensemble.server(i).hosts()).await?;
            if let Some(folder) = record {
                proxy.record_to(Journal::create(folder.join(format!("{name}-{i}.wire.jsonl")))?);
            }
            proxies.push(proxy);
        }
        let machine = record.map(|folder| Journal::create(folder.join(format!("{name}.1.machine.jsonl"))));
        let machine = machine.transpose()?;
        let hosts = proxies.iter().map(Proxy::hosts).collect::<Vec<_>>().join(",");
        let (orders, given) = mpsc::unbounded_channel();
        let (connected, connects) = oneshot::channel();
        let record = Record::default();
        let (seen, (presents, present)) = (Arc::clone(&record), watch::channel((0, false)));
        std::thread::Builder::new().spawn(move || {
            let _recording = machine.map(record_machine);
            serve(&hosts, habit, connected, given, (seen, presents));
        })?;
        Ok(Self { session: connects.await??, proxies: proxies.into(), habit, record, present, orders })
    }

    /// Begins to work for a round.
    pub(super) fn work(&self, crew: Crew) -> oneshot::Receiver<Result<()>> {
        let (done, ended) = oneshot::channel();
        *self.record.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Arc::clone(&crew.name), crew.journal.clone()));
        // The thread lives as long as this value.
        let _ = self.orders.send(Order::Work(Box::new(crew), done));
        ended
    }

    /// Waits until its session reports a connection.
    pub(super) async fn connected(&self) {
        // The thread lives as long as this value.
        let _ = self.present.clone().wait_for(|(_, connected)| *connected).await;
    }

    /// The id of its session, and whether it is connected.
    pub(super) fn present(&self) -> (i64, bool) {
        *self.present.borrow()
    }

    pub(super) async fn close(&self) -> Result<()> {
        let (done, closed) = oneshot::channel();
        let _ = self.orders.send(Order::Close(done));
        closed.await?
    }

    /// Stops its thread for this time, from the next moment on at which it does not work.
    pub(super) fn stall(&self, time: Duration) {
        let _ = self.orders.send(Order::Stall(time));
    }

    /// A call for [`Self::stall`] that may be made from anywhere.
    pub(super) fn staller(&self) -> impl Fn(Duration) + Send + Sync + 'static {
        let orders = self.orders.clone();
        move |time| drop(orders.send(Order::Stall(time)))
    }
}

type Connected = Result<Session>;

fn serve(
    hosts: &str,
    habit: Habit,
    connected: oneshot::Sender<Connected>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    (record, present): (Record, watch::Sender<(i64, bool)>),
) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let servers = Servers::new(hosts).with_session_timeout(SESSION);
        let session = match Session::connect(servers).await {
            Ok(session) => session,
            Err(error) => return drop(connected.send(Err(error.into()))),
        };
        tokio::spawn(look(session.clone(), record, present));
        let _ = connected.send(Ok(session.clone()));
        while let Some(order) = orders.recv().await {
            match order {
                Order::Work(crew, done) => {
                    let tasks = match habit {
                        Habit::Busy => busy(),
                        Habit::Idle => idle(),
                        Habit::Keeps => keepers(),
                    };
                    tokio::spawn(async move { drop(done.send(crew.work(tasks).await)) });
                }
                Order::Stall(time) => std::thread::sleep(time),
                Order::Close(done) => drop(done.send(session.close().await.map_err(Into::into))),
            }
        }
    });
}

/// Records when the thread did not run, and what the session reports about itself.
async fn look(session: Session, record: Record, present: watch::Sender<(i64, bool)>) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut seen) = (now(), None);
    loop {
        beat.tick().await;
        let since = std::mem::replace(&mut last, now());
        let at = last;
        let connected = session.state().is_connected();
        present.send_replace((session.id().0, connected));
        let Some((name, journal)) = record.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            continue;
        };
        let note = |what| {
            let mark = Mark { at, process: Arc::clone(&name), what };
            journal.write(&mark).expect("the journal can be written");
        };
        if at - since > STALL {
            note(What::Stalled { since });
        }
        let state = Some((Arc::clone(&name), session.id().0, connected));
        if state != seen {
            note(What::Session { id: session.id().0, connected });
            seen = state;
        }
    }
}
