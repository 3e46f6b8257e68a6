//! Mutexes of several kinds, held for a while or to guard a set.

use std::io;

use testbed::history::Acquire;
use zookeeper_recipes::{LockGuard, Mutex, MutexGuard, Options, Owner, ReentrantMutex};

use super::acquire::{Futures, Way, acquire, token};
use super::visit::Visit;
use super::{Result, Worker};
use crate::register::{RegisterClient, Tokens};
use crate::workload::path;

/// Holds a mutex in a loop.
pub(super) async fn mutex(worker: Worker) -> Result {
    hold(worker, "mutex", Options::new()).await
}

/// Holds a mutex whose path is removed by each release which leaves it empty.
pub(super) async fn fleeting(worker: Worker) -> Result {
    hold(worker, "fleeting", Options::new().with_path_removal(true)).await
}

/// Holds a mutex several times in a row, and then leaves it to others for a while.
pub(super) async fn again(mut worker: Worker) -> Result {
    let path = path("again");
    let mutex = Mutex::new(&worker.session, &path)?;
    while !worker.should_stop() {
        for _ in 0..worker.random.usize(1..8) {
            if let Some((visit, guard)) = enter(&mut worker, &mutex, &path).await {
                visit.complete(&mut worker, guard).await;
            }
        }
        let pause = worker.up_to(0.1);
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

async fn hold(mut worker: Worker, object: &str, options: Options) -> Result {
    let path = path(object);
    let mutex = Mutex::with_options(&worker.session, &path, options)?;
    while !worker.should_stop() {
        let Some((visit, guard)) = enter(&mut worker, &mutex, &path).await else { continue };
        visit.complete(&mut worker, guard).await;
    }
    Ok(())
}

async fn enter(worker: &mut Worker, mutex: &Mutex, path: &str) -> Option<(Visit, MutexGuard)> {
    let way = Way::any(worker);
    let futures =
        Futures { wait: mutex.lock(), enqueue: mutex.enqueue(), attempt: mutex.try_lock_for(way.limit()) };
    let (held, guard) = acquire(worker, way, vec![Acquire::exclusive(path)], futures, token).await?;
    Some((Visit::new(worker, held, path), guard))
}

/// Holds a re-entrant mutex, and sometimes locks it again.
pub(super) async fn reentrant(mut worker: Worker) -> Result {
    let path = path("reentrant");
    let mutex = ReentrantMutex::new(&worker.session, &path)?;
    let (owner, name) = (Owner::new(), format!("owner {}", worker.number));
    let object = || Acquire::exclusive(path.as_str()).with_owner(name.as_str());
    while !worker.should_stop() {
        let way = Way::without_enqueue(&mut worker);
        let futures = Futures {
            wait: mutex.lock(&owner),
            enqueue: std::future::pending(),
            attempt: mutex.try_lock_for(&owner, way.limit()),
        };
        let Some((held, guard)) = acquire(&worker, way, vec![object()], futures, token).await else { continue };
        let mut visit = Visit::new(&mut worker, held, &path);
        let work = worker.work();
        visit.stay(&mut worker, &guard, tokio::time::sleep(work)).await;
        if worker.random.u8(0..3) == 0 {
            let again = worker.process.acquire(object());
            match mutex.lock(&owner).await {
                Ok(inner) => {
                    let mut inside = Visit::new(&mut worker, vec![again.ok(inner.fencing_token().get())], &path);
                    inside.stay(&mut worker, &inner, tokio::time::sleep(work / 2)).await;
                    inside.leave(&mut worker, inner).await;
                }
                Err(zookeeper_recipes::Error::Lost(_)) => again.fail(),
                Err(error) => worker.wrong(format!("cannot lock again: {error:?}")),
            }
        }
        visit.leave(&mut worker, guard).await;
    }
    Ok(())
}

/// Adds elements to the set that checks tokens.
pub(super) async fn checked_set(worker: Worker) -> Result {
    add(worker, "set-checked", Tokens::Checked).await
}

/// Adds elements to the set that ignores tokens.
pub(super) async fn ignored_set(worker: Worker) -> Result {
    add(worker, "set-ignored", Tokens::Ignored).await
}

/// Under the lock reads a set, waits, and writes it back with one more element. It never checks that it still holds the
/// lock: only the set itself can refuse the write.
async fn add(mut worker: Worker, object: &str, tokens: Tokens) -> Result {
    let path = path(object);
    let mutex = Mutex::new(&worker.session, &path)?;
    let name = format!("{}/{}", worker.name, worker.number);
    let mut register = RegisterClient::open(&worker.register, &name).await?;
    while !worker.should_stop() {
        let Some((mut visit, guard)) = enter(&mut worker, &mutex, &path).await else { continue };
        let (token, thought) = (guard.fencing_token().get(), worker.work());
        let element = worker.random.u64(..);
        let work = async {
            if let Some(version) = register.read(tokens, token).await? {
                tokio::time::sleep(thought).await;
                register.write(tokens, token, &version, element).await?;
            }
            io::Result::Ok(())
        };
        visit.stay(&mut worker, &guard, work).await?;
        visit.leave(&mut worker, guard).await;
    }
    Ok(())
}
