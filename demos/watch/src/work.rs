//! What a handler does under a lock, with a span for each part.

use std::time::Duration;

use tokio::time::sleep;
use tracing::instrument;
use zookeeper_recipes::{Error, FencingToken, Loss, Mutex};

/// How long a request waits for the lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the work ended.
pub(crate) enum Ended {
    Done,
    Revoked,
    Lost(Loss),
}

/// Handles a request: waits for the lock and works under it. `None` if others kept it for too long.
#[instrument(name = "POST /work", skip_all)]
pub(crate) async fn handle(lock: &Mutex, time: Duration) -> Result<Option<(FencingToken, Ended)>, Error> {
    // The crate opens `lock.acquire` and `lock.hold` in the span of now, which is the handler's.
    let Some(guard) = lock.try_lock_for(PATIENCE).await? else {
        return Ok(None);
    };
    let token = guard.fencing_token();
    let asked = guard.revoke_requested();
    // What is polled here is in the span of the hold, and so are the spans that it opens.
    let worked = guard.run_until_lost(async {
        tokio::select! {
            () = charge(time) => Ended::Done,
            () = asked => Ended::Revoked,
        }
    });
    match worked.await {
        Ok(ended) => Ok(Some((token, ended))),
        Err(loss) => Ok(Some((token, Ended::Lost(loss)))),
    }
}

/// Stands for work.
#[instrument]
async fn charge(time: Duration) {
    sleep(time).await;
}
