//! The holder is killed.

use futures_util::FutureExt;

use super::{Fault, locks};
use crate::event::now;
use crate::stage::SOON;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "killed",
    title: "holder killed",
    about: "The holder is killed (SIGKILL) while it holds the lock.",
    in_short: true,
    times: 1,
    fit: locks,
    play: |stage, _site, _setup| {
        async move {
            let holder = stage.holder(Gate::Thinking, &[]).await?;
            let _others = stage.others().await?;
            let due = now();
            holder.kill();
            // For as long as a way may need that has a job for it.
            stage.settle((stage.pause() + stage.pause()).min(SOON)).await;
            stage.count(due).await
        }
        .boxed()
    },
};
