//! The work of a contender, a process of its own: lock, read the counter, think, write it plus one, release.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{DistributedLock, HoldState, LockGuard};

use crate::Outcome;
use crate::event::{Event, What};
use crate::store::{Connection, Counter};
use crate::ways::mariadb_version::Versioned;
use crate::ways::{self, Pause, Place, Way, find};

/// How long a contender waits before it connects again.
const RETRY: Duration = Duration::from_millis(50);

/// Where a contender waits for the laboratory, which plays its fault there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Gate {
    /// Nowhere.
    #[default]
    None,
    /// Between the two commands of a lock that takes two.
    Locking,
    /// After it has read the counter. It then checks that it still holds the lock.
    Thinking,
    /// After that check: the next that it does is to send its write. It blocks, so that nothing comes in between.
    Writing,
    /// Before it releases.
    Releasing,
}

/// What a contender is to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Order {
    /// The way.
    pub way: String,
    /// Where the lock is.
    pub place: Place,
    /// Where the store is.
    pub store: Option<SocketAddr>,
    /// The number of rounds of each task.
    pub rounds: usize,
    /// The number of tasks, each with a lock of its own.
    pub tasks: usize,
    /// How long it thinks between its read and its write.
    pub think: Duration,
    /// Where it waits.
    #[serde(default)]
    pub gate: Gate,
    /// After which time it gives up waiting for the lock.
    #[serde(default)]
    pub cancel: Option<Duration>,
    /// How long it tries to lock again what it holds, if it does.
    #[serde(default)]
    pub again: Option<Duration>,
    /// How long it waits for the store's answer to its write.
    #[serde(default)]
    pub write_limit: Option<Duration>,
    /// The time after which no round begins.
    #[serde(default)]
    pub limit: Option<Duration>,
}

/// The lines that the laboratory sends.
type Lines = Arc<Mutex<mpsc::UnboundedReceiver<()>>>;

struct Task {
    number: usize,
    order: Arc<Order>,
    way: &'static Way,
    lines: Lines,
    lock: Arc<dyn DistributedLock>,
    counter: Box<dyn Counter>,
}

/// Runs a contender, which ends when its input does.
///
/// # Errors
///
/// If the way is unknown, or it cannot connect.
pub async fn contend(order: Order) -> Outcome {
    let way = find(&order.way)?;
    let order = Arc::new(order);
    let (sender, lines) = mpsc::unbounded_channel();
    let reader = tokio::spawn(async move {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = input.next_line().await {
            let _ = sender.send(());
        }
        // The laboratory has ended, perhaps by a kill: a contender that waits for a lock must not wait on.
        std::process::exit(0);
    });
    let lines = Arc::new(Mutex::new(lines));
    let tasks = try_join_all((0..order.tasks.max(1)).map(|number| Task::new(number, &order, way, &lines))).await?;
    emit(&Event::now(0, What::Ready));
    lines.lock().await.recv().await;
    let running = tasks.into_iter().map(|task| tokio::spawn(task.run()));
    let tasks = try_join_all(running).await?;
    emit(&Event::now(0, What::Done).with_number(ways::wake_ups().cast_signed()));
    // What is still held stays so, as in a process that lives on.
    reader.await?;
    drop(tasks);
    Ok(())
}

fn emit(event: &Event) {
    println!("{}", serde_json::to_string(event).expect("events are data"));
}

async fn gate(number: usize, lines: Lines) {
    emit(&Event::now(number, What::AtGate));
    lines.lock().await.recv().await;
}

async fn connect(number: usize, order: &Order, way: &Way, lines: &Lines) -> Arc<dyn DistributedLock> {
    let pause = if order.gate == Gate::Locking {
        let lines = lines.clone();
        Pause::at(move || gate(number, lines.clone()).boxed())
    } else {
        Pause::default()
    };
    loop {
        match (way.connect)(order.place.clone(), pause.clone()).await {
            Ok(lock) => return lock,
            Err(error) => emit(&Event::now(number, What::Failed).with_text(error)),
        }
        sleep(RETRY).await;
    }
}

impl Task {
    async fn new(number: usize, order: &Arc<Order>, way: &'static Way, lines: &Lines) -> Outcome<Self> {
        let lock = connect(number, order, way, lines).await;
        let counter: Box<dyn Counter> = match order.store {
            Some(store) => Box::new(Connection::to(store).await?),
            None => Box::new(Versioned::connect(&order.place).await?),
        };
        Ok(Self { number, order: order.clone(), way, lines: lines.clone(), lock, counter })
    }

    fn emit(&self, what: What) {
        emit(&Event::now(self.number, what));
    }

    fn failed(&self, what: What, error: impl ToString) {
        emit(&Event::now(self.number, what).with_text(error));
    }

    /// Returns what the process goes on having.
    async fn run(mut self) -> Self {
        let began = tokio::time::Instant::now();
        for _ in 0..self.order.rounds {
            if self.order.limit.is_some_and(|limit| began.elapsed() > limit) {
                break;
            }
            self.emit(What::Requested);
            let Some(guard) = self.lock().await else {
                self.emit(What::Cancelled);
                continue;
            };
            let token = self.way.tokens.then(|| i64::from(guard.fencing_token()));
            let granted = Event::now(self.number, What::Granted);
            emit(&if let Some(token) = token { granted.with_number(token) } else { granted });
            if let Some(limit) = self.order.again {
                self.lock_again(limit).await;
            }
            if let Err(error) = self.add_one(&*guard, token).await {
                self.failed(What::Failed, error);
            }
            if self.order.gate == Gate::Releasing {
                gate(self.number, self.lines.clone()).await;
            }
            match guard.release().await {
                Ok(()) => self.emit(What::Released),
                Err(error) => self.failed(What::ReleaseFailed, error),
            }
        }
        self
    }

    /// Waits for the lock, and connects again after an error. `None`: it has given up.
    async fn lock(&mut self) -> Option<Box<dyn LockGuard>> {
        loop {
            let lock = self.lock.clone();
            let locked = match self.order.cancel {
                // The future is dropped, and the process lives on.
                Some(limit) => timeout(limit, lock.lock()).await.ok()?,
                None => lock.lock().await,
            };
            match locked {
                Ok(guard) => return Some(guard),
                Err(error) => self.failed(What::Failed, error),
            }
            sleep(RETRY).await;
            self.lock = connect(self.number, &self.order, self.way, &self.lines).await;
        }
    }

    /// Locks a second time, and releases that.
    async fn lock_again(&mut self, limit: Duration) {
        // It would wait for itself.
        let Ok(locked) = timeout(limit, self.lock.lock()).await else { return };
        match locked {
            Ok(guard) => {
                if let Err(error) = guard.release().await {
                    self.failed(What::ReleaseFailed, error);
                }
                self.emit(What::Again);
            }
            Err(error) => self.failed(What::Failed, error),
        }
    }

    async fn add_one(&mut self, guard: &dyn LockGuard, token: Option<i64>) -> Outcome {
        loop {
            let Some(value) = self.counter.read(token).await? else {
                self.emit(What::Refused);
                return Ok(());
            };
            emit(&Event::now(self.number, What::Read).with_number(value));
            sleep(self.order.think).await;
            if self.order.gate == Gate::Thinking {
                gate(self.number, self.lines.clone()).await;
            }
            if matches!(guard.state(), HoldState::Lost(_)) {
                self.emit(What::Noticed);
                return Ok(());
            }
            if self.order.gate == Gate::Writing {
                let (number, lines) = (self.number, self.lines.clone());
                emit(&Event::now(number, What::AtGate));
                tokio::task::block_in_place(|| lines.blocking_lock().blocking_recv());
            }
            emit(&Event::now(self.number, What::Writing).with_number(value + 1));
            let write = self.counter.write(value + 1, token);
            let written = match self.order.write_limit {
                Some(limit) => timeout(limit, write).await,
                None => Ok(write.await),
            };
            match written {
                Ok(Ok(true)) => emit(&Event::now(self.number, What::Written).with_number(value + 1)),
                Ok(Ok(false)) if self.way.optimistic => {
                    // Its turn is to read again.
                    self.emit(What::Conflict);
                    continue;
                }
                Ok(Ok(false)) => self.emit(What::Refused),
                Ok(Err(error)) => return Err(error),
                Err(_) => self.emit(What::Unknown),
            }
            return Ok(());
        }
    }
}
