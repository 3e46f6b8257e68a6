//! The operations of one session that are measured, each several times.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{MultiLock, Mutex, Semaphore, Session};

use crate::{Outcome, ROUND_TRIP};

/// How often each operation is measured in each session.
pub(crate) const TIMES: usize = 9;

/// A waiter watches its predecessor by then.
const UNTIL_IT_WATCHES: u32 = 8;

/// An operation, and its median in one session.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) operation: &'static str,
    pub(crate) round_trips: f64,
}

impl Cost {
    fn of(operation: &'static str, mut times: Vec<Duration>) -> Self {
        times.sort();
        Self { operation, round_trips: times[times.len() / 2].as_secs_f64() / ROUND_TRIP.as_secs_f64() }
    }
}

/// Measures the operations of `session`, of which some need another session. `path` is theirs.
pub(crate) async fn measure(session: &Session, other: &Session, path: &str) -> Outcome<Vec<Cost>> {
    let mut costs = bare(session, path).await?;
    costs.extend(mutexes(session, other, path).await?);
    costs.extend(undisturbed(&Mutex::new(session, &format!("{path}/undisturbed"))?).await?);
    let shared = format!("{path}/shared");
    let [mutex, same, another] = [session, session, other].map(|session| Mutex::new(session, &shared));
    let (mutex, same, another) = (mutex?, same?, another?);
    costs.push(hand_over("hand-over, session to session", &mutex, &another).await?);
    costs.push(hand_over("hand-over, task to task", &mutex, &same).await?);
    costs.extend(several_nodes(session, path).await?);
    Ok(costs)
}

/// The least that a lock and its release can cost: one request each.
async fn bare(session: &Session, path: &str) -> Outcome<Vec<Cost>> {
    let client = client(session)?;
    let (mut reads, mut creates) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let began = Instant::now();
        client.check_stat("/").await?;
        reads.push(began.elapsed());
        let node = format!("{path}/bare");
        make(&client, path).await?;
        let began = Instant::now();
        client.create(&node, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        creates.push(began.elapsed());
        client.delete(&node, None).await?;
    }
    Ok(vec![Cost::of("a bare read", reads), Cost::of("a bare create", creates)])
}

/// The median of several times; `one` measures one of them, by its number.
async fn cost(operation: &'static str, mut one: impl AsyncFnMut(usize) -> Outcome<Duration>) -> Outcome<Cost> {
    let mut times = Vec::new();
    for number in 0..TIMES {
        times.push(one(number).await?);
    }
    Ok(Cost::of(operation, times))
}

/// How long it takes to acquire. What it returns is released.
macro_rules! acquire {
    ($acquire:expr) => {{
        let began = Instant::now();
        let guard = $acquire.await?;
        let took = began.elapsed();
        guard.release().await?;
        Ok(took)
    }};
}

async fn mutexes(session: &Session, other: &Session, path: &str) -> Outcome<Vec<Cost>> {
    let missing = async |number| acquire!(Mutex::new(session, &format!("{path}/new-{number}"))?.lock());
    let first = async |number| {
        // Another session has made the path.
        let path = format!("{path}/existing-{number}");
        make(&client(other)?, &path).await?;
        acquire!(Mutex::new(session, &path)?.lock())
    };
    let turns = format!("{path}/turns");
    let (ours, theirs) = (Mutex::new(session, &turns)?, Mutex::new(other, &turns)?);
    ours.lock().await?.release().await?;
    theirs.lock().await?.release().await?;
    let turn = async |_| {
        theirs.lock().await?.release().await?;
        acquire!(ours.lock())
    };
    Ok(vec![
        cost("lock, path is missing", missing).await?,
        cost("lock, first in this session", first).await?,
        cost("lock, sessions take turns", turn).await?,
    ])
}

/// Nobody else uses the path.
async fn undisturbed(mutex: &Mutex) -> Outcome<Vec<Cost>> {
    mutex.lock().await?.release().await?;
    let (mut locks, mut releases) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let began = Instant::now();
        let guard = mutex.lock().await?;
        locks.push(began.elapsed());
        let began = Instant::now();
        guard.release().await?;
        releases.push(began.elapsed());
    }
    Ok(vec![Cost::of("lock, undisturbed", locks), Cost::of("release", releases)])
}

/// From the call of release to the grant to a waiter.
async fn hand_over(operation: &'static str, from: &Mutex, to: &Mutex) -> Outcome<Cost> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let guard = from.lock().await?;
        let waiting = to.enqueue().await?;
        let waiter = tokio::spawn(async move {
            let guard = waiting.await?;
            Outcome::Ok((guard, Instant::now()))
        });
        sleep(ROUND_TRIP * UNTIL_IT_WATCHES).await;
        if waiter.is_finished() {
            return Err("granted to two".into());
        }
        let began = Instant::now();
        let (released, granted) = tokio::join!(guard.release(), waiter);
        released?;
        let (guard, at) = granted??;
        times.push(at - began);
        guard.release().await?;
    }
    Ok(Cost::of(operation, times))
}

async fn several_nodes(session: &Session, path: &str) -> Outcome<Vec<Cost>> {
    let semaphore = |name: &str| Semaphore::new(session, &format!("{path}/permits-{name}"), 4);
    let locks = |name: &str| MultiLock::new(session, (0..10).map(|lock| format!("{path}/together-{name}/{lock}")));
    let (known, together) = (semaphore("known")?, locks("known")?);
    known.acquire().await?.release().await?;
    together.lock().await?.release().await?;
    Ok(vec![
        cost("permit, path is missing", async |number| acquire!(semaphore(&number.to_string())?.acquire()))
            .await?,
        cost("permit, undisturbed", async |_| acquire!(known.acquire())).await?,
        cost("10 locks together, paths are missing", async |number| acquire!(locks(&number.to_string())?.lock()))
            .await?,
        cost("10 locks together, undisturbed", async |_| acquire!(together.lock())).await?,
    ])
}

fn client(session: &Session) -> Outcome<Client> {
    session.client().ok_or_else(|| "the session has expired".into())
}

async fn make(client: &Client, path: &str) -> Outcome {
    Ok(client.mkdir(path, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?)
}
