//! Owns [`Shard`], the argument of the user's function, and [`serve`], the task that calls the function.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_recipes::{Error, FencingToken, HoldMonitor, Loss, MutexGuard};

/// A shard that this member owns: the argument of the function given to [`Shards::run`](crate::Shards::run).
///
/// Keeping this value does not keep the shard, which is released when the future of the function has ended.
#[derive(Clone, Debug)]
pub struct Shard {
    number: u32,
    monitor: HoldMonitor,
    asked: watch::Receiver<bool>,
}

impl Shard {
    /// The number of the shard.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The fencing token: larger than those of all earlier owners of this shard. Send it with each write, and let the store
    /// refuse smaller ones.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.monitor.fencing_token()
    }

    /// A monitor of the shard's lock, for health checks and for tasks that work for this shard. Blocking code, on a thread of
    /// [`spawn_blocking`], checks its [`state`](HoldMonitor::state) between two steps.
    ///
    /// [`spawn_blocking`]: https://docs.rs/tokio/latest/tokio/task/fn.spawn_blocking.html
    #[must_use]
    pub fn monitor(&self) -> &HoldMonitor {
        &self.monitor
    }

    /// Resolves when the shard is to be released: it moves to another member, this member [stops](crate::Shards::stop), an operator has
    /// called `revoke` on its lock, or the session is drained. Finish the work, and return.
    ///
    /// If the shard moves or this member stops, the future of the function is dropped after the
    /// [limit](crate::shards::ShardsBuilder::drain_limit). If the lock is lost, that future is dropped at once. A task that the
    /// function spawned is not dropped. In such a task, select this future with [`ended`](HoldMonitor::ended) of the
    /// [`monitor`](Self::monitor): this one resolves neither at a loss, nor when the function has returned or panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Each call returns its own future, which also resolves if the request came before the
    /// call.
    pub fn revoke_requested(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (asked, revoked) = (self.asked.clone(), self.monitor.revoke_requested());
        async move {
            tokio::select! {
                () = is_asked(asked) => {}
                () = revoked => {}
            }
        }
    }
}

/// Waits until this member asks the function to end, for ever if it never does.
async fn is_asked(mut asked: watch::Receiver<bool>) {
    if asked.wait_for(|asked| *asked).await.is_err() {
        std::future::pending().await
    }
}

/// How the service of a shard ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Served {
    /// The function has returned.
    Returned,
    Lost(Loss),
    /// The function was asked to end and did not.
    Cut,
}

/// Serves a shard until the function returns, the lock is lost, or the limit after the request to end has passed. Then releases
/// the lock.
pub(crate) async fn serve<R: Future<Output = ()>>(
    guard: MutexGuard,
    number: u32,
    asked: watch::Receiver<bool>,
    limit: Duration,
    serve: impl FnOnce(Shard) -> R,
) -> Served {
    let cut = async {
        is_asked(asked.clone()).await;
        sleep(limit).await;
    };
    let shard = Shard { number, monitor: guard.monitor(), asked: asked.clone() };
    // The future of the function is dropped before the lock is released.
    let served = tokio::select! {
        biased;
        served = guard.run_until_lost(async { serve(shard).await }) => match served {
            Ok(()) => Served::Returned,
            Err(loss) => Served::Lost(loss),
        },
        () = cut => Served::Cut,
    };
    let path = guard.path().to_owned();
    match guard.release().await {
        Ok(()) | Err(Error::Lost(_)) => {}
        // The next owner waits until the leftover node is gone.
        Err(error) => tracing::warn!(path, %error, "cannot release a shard"),
    }
    served
}
