//! Owns `--stall`: a command whose file does not change any more loses the lock.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::HoldMonitor;

use crate::cli::Run;

/// The shortest and the longest time between two looks at the file.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Reports progress whenever the modification time of the file has changed. A look at a disk that hangs does not end, so the
/// command stands still.
pub(crate) async fn follow(run: &Run, monitor: &HoldMonitor) -> Infallible {
    let (Some(limit), Some(file)) = (run.stall, &run.stall_file) else { return pending().await };
    let mut looks = interval((limit / 8).clamp(LOOKS.0, LOOKS.1));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None::<Option<SystemTime>>;
    loop {
        looks.tick().await;
        let file = file.clone();
        let look = spawn_blocking(move || fs::metadata(file).and_then(|file| file.modified()).ok());
        let changed = look.await.unwrap_or_default();
        // What the file was before the command ran is no progress.
        if last.replace(changed).is_some_and(|before| before != changed) && changed.is_some() {
            monitor.progress();
        }
    }
}
