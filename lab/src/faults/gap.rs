//! The process is killed between the two commands that lock.

use futures_util::FutureExt;

use super::{Fault, Fit};
use crate::event::now;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "killed-between",
    title: "killed between two commands",
    about: "The process is killed after SETNX and before EXPIRE.",
    in_short: true,
    times: 1,
    fit: |way| Ok(if way.id == "redis-setnx-expire" { Fit::Shared } else { Fit::Not("it locks by one command") }),
    play: |stage, _site, _setup| {
        async move {
            let holder = stage.holder(Gate::Locking, &[]).await?;
            let _others = stage.others().await?;
            let due = now();
            holder.kill();
            stage.settle(stage.pause() * 2).await;
            stage.count(due).await
        }
        .boxed()
    },
};
