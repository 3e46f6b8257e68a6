//! The holder is stopped past its lease and goes on: just before its write, or earlier, so that it can still check.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::{Fault, any};
use crate::Outcome;
use crate::event::now;
use crate::stage::{Outcomes, Stage};
use crate::work::Gate;

/// Between its check and its write.
pub(super) const AFTER_CHECK: Fault = Fault {
    id: "stopped-after-check",
    title: "stopped after its check",
    about: "The holder checks that it has the lock, is stopped (SIGSTOP) until the others have had their turns, \
            continues, and writes what it computed before.",
    in_short: true,
    times: 1,
    fit: any,
    play: |stage, _site, _setup| play(stage, Gate::Writing),
};

/// While it thinks.
pub(super) const BEFORE_CHECK: Fault = Fault {
    id: "stopped-before-check",
    title: "stopped, checks again",
    about: "As before, but the holder is stopped before its check: a way that notices that the lock is lost does not \
            write.",
    in_short: true,
    times: 1,
    fit: any,
    play: |stage, _site, _setup| play(stage, Gate::Thinking),
};

fn play(stage: &Stage, gate: Gate) -> BoxFuture<'_, Outcome<Outcomes>> {
    async move {
        let mut holder = stage.holder(gate, &[]).await?;
        let _others = stage.others().await?;
        let due = now();
        holder.stop();
        // It finds this when it continues.
        holder.go()?;
        sleep(stage.pause()).await;
        holder.resume();
        stage.finish(due).await
    }
    .boxed()
}
