//! Sessions that do nothing most of the time.

use tokio::time::{sleep, timeout};
use zookeeper_recipes::Mutex;

use super::locks::enter;
use super::{Phase, Result, Worker};
use crate::workload::path;

/// Holds a mutex now and then, often after longer than a session timeout.
pub(super) async fn seldom(mut worker: Worker) -> Result {
    while !worker.should_stop() {
        let pause = worker.up_to(1.6);
        // An error is the end of the pause.
        let _ = timeout(pause, worker.phase.wait_for(|phase| *phase == Phase::Stop)).await;
        if worker.should_stop() {
            break;
        }
        let path = path(if worker.random.u8(0..4) == 0 { "mutex" } else { "quiet" });
        let mutex = Mutex::new(&worker.session, &path)?;
        if let Some((visit, guard)) = enter(&mut worker, &mutex, &path).await {
            visit.complete(&mut worker, guard).await;
        }
    }
    Ok(())
}

/// Holds a mutex for long, but only while there are faults.
pub(super) async fn long(mut worker: Worker) -> Result {
    let path = path("kept");
    let mutex = Mutex::new(&worker.session, &path)?;
    while !worker.should_stop() {
        let Some((mut visit, guard)) = enter(&mut worker, &mutex, &path).await else { continue };
        let (time, mut phase) = (worker.up_to(2.5), worker.phase.clone());
        let least = worker.up_to(0.02);
        let work = async {
            // An error is the end of the hold.
            let _ = timeout(time, phase.wait_for(|phase| *phase != Phase::Storm)).await;
            sleep(least).await;
        };
        visit.stay(&mut worker, &guard, work).await;
        visit.leave(&mut worker, guard).await;
    }
    Ok(())
}
