//! Workers of this process, and the time that their cycles take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Outcome, PATIENCE};

/// One of several tasks that acquire and release.
pub(crate) trait Worker: Send + 'static {
    /// Acquires and releases once.
    fn cycle(&mut self) -> impl Future<Output = Outcome> + Send;

    /// The part of the last cycles that counts, if not all of their time does. Such a worker works alone.
    fn counted(&mut self) -> Option<Duration> {
        None
    }
}

/// Lets each worker do `cycles` cycles, all at once, and returns the elapsed time and the CPU time of this process.
pub(crate) async fn time<W: Worker>(workers: &mut Vec<W>, cycles: usize) -> Outcome<(Duration, Duration)> {
    let start = Arc::new(Barrier::new(workers.len() + 1));
    let mut tasks = JoinSet::new();
    for mut worker in workers.drain(..) {
        let start = start.clone();
        tasks.spawn(async move {
            start.wait().await;
            for _ in 0..cycles {
                worker.cycle().await?;
            }
            Outcome::Ok(worker)
        });
    }
    let (cpu_before, began) = (cpu(), Instant::now());
    start.wait().await;
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            workers.push(ended??);
        }
        Outcome::Ok(())
    };
    timeout(PATIENCE, all).await.map_err(|_| "a lock is not released")??;
    let (elapsed, cpu) = (began.elapsed(), cpu() - cpu_before);
    Ok((workers[0].counted().unwrap_or(elapsed), cpu))
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(now.tv_sec.unsigned_abs()) + Duration::from_nanos(now.tv_nsec.unsigned_abs())
}
