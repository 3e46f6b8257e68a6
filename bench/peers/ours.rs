//! The recipes of this crate.

use std::mem;
use std::time::{Duration, Instant};

use zookeeper_recipes::{MultiLock, Mutex, RwLock, Semaphore, Session};

use crate::Outcome;
use crate::crew::Worker;
use crate::workloads::{Shape, Workload};

/// A worker with a lock of this crate.
#[derive(Debug)]
pub(crate) enum Ours {
    Mutex(Mutex),
    Reader(Box<RwLock>),
    Semaphore(Semaphore),
    Many(MultiLock),
    Try(Mutex),
    First { session: Session, path: String, next: usize, counted: Duration },
    Deep(Session, String, usize),
}

/// The workers. A lock that is only tried is held by one more session, until its nodes go with the server.
pub(crate) async fn workers(sessions: &[Session], workload: &Workload, path: &str) -> Outcome<Vec<Ours>> {
    if workload.shape == Shape::Try {
        std::mem::forget(Mutex::new(&sessions[workload.sessions], path)?.lock().await?);
    }
    let worker = |worker: usize| {
        let session = &sessions[worker % workload.sessions];
        Ok(match workload.shape {
            Shape::Own => Ours::Mutex(Mutex::new(session, &format!("{path}/{worker}"))?),
            Shape::Shared => Ours::Mutex(Mutex::new(session, path)?),
            Shape::Read => Ours::Reader(Box::new(RwLock::new(session, path)?)),
            Shape::Permits(permits) => Ours::Semaphore(Semaphore::new(session, path, u32::try_from(permits)?)?),
            Shape::Many(locks) => {
                let paths = (0..locks).map(|lock| format!("{path}/{lock}"));
                Ours::Many(MultiLock::new(session, paths)?)
            }
            Shape::Try => Ours::Try(Mutex::new(session, path)?),
            Shape::First => {
                Ours::First { session: session.clone(), path: path.to_owned(), next: 0, counted: Duration::ZERO }
            }
            Shape::Deep => Ours::Deep(session.clone(), path.to_owned(), 0),
        })
    };
    (0..workload.workers).map(worker).collect()
}

impl Worker for Ours {
    async fn cycle(&mut self) -> Outcome {
        match self {
            Self::Mutex(mutex) => mutex.lock().await?.release().await?,
            Self::Reader(lock) => lock.read().await?.release().await?,
            Self::Semaphore(semaphore) => semaphore.acquire().await?.release().await?,
            Self::Many(lock) => lock.lock().await?.release().await?,
            Self::Try(mutex) => {
                if mutex.try_lock().await?.is_some() {
                    return Err("it is held by another session".into());
                }
            }
            Self::First { session, path, next, counted } => {
                let mutex = Mutex::new(session, &format!("{path}/{next}"))?;
                *next += 1;
                let began = Instant::now();
                let guard = mutex.lock().await?;
                *counted += began.elapsed();
                guard.release().await?;
            }
            Self::Deep(session, path, next) => {
                *next += 1;
                Mutex::new(session, &format!("{path}/{next}/1/2/3/4/lock"))?.lock().await?.release().await?;
            }
        }
        Ok(())
    }

    fn counted(&mut self) -> Option<Duration> {
        match self {
            Self::First { counted, .. } => Some(mem::take(counted)),
            _ => None,
        }
    }
}
