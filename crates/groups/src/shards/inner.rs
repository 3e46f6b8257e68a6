//! Owns [`Inner`]: the state that the handles of a member share with its worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_recipes::{Mutex, Options, Result, Session};

use crate::members::Members;
use crate::shards::owned::Owned;
use crate::tools::Plan;

/// Times and limits, as set by [`ShardsBuilder`](crate::shards::ShardsBuilder).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) grace: Duration,
    pub(crate) moves_at_once: usize,
    pub(crate) settling_time: Duration,
    pub(crate) drain_limit: Duration,
    pub(crate) patience: Duration,
    pub(crate) name_limit: Duration,
}

/// The state that the handles of a member share with its worker.
pub(crate) struct Inner {
    pub(crate) session: Session,
    pub(crate) members: Members,
    pub(crate) path: String,
    pub(crate) count: u32,
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) settings: Settings,
    /// The options of the locks.
    pub(crate) options: Options,
    pub(crate) owned: watch::Sender<Owned>,
    pub(crate) plan: watch::Sender<Option<Arc<Plan>>>,
    /// The data of the members of the last set, by their names.
    pub(crate) all_data: watch::Sender<HashMap<String, Vec<u8>>>,
    pub(crate) ending: watch::Sender<Ending>,
}

/// Whether a member is to end, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    #[default]
    No,
    Leaving,
    Stopping,
}

impl Inner {
    pub(crate) fn path_of(&self, shard: u32) -> String {
        format!("{}/{shard}", self.path)
    }

    pub(crate) fn plan_path(&self) -> String {
        format!("{}/plan", self.path)
    }

    pub(crate) fn mutex(&self, shard: u32) -> Result<Mutex> {
        Mutex::with_options(&self.session, &self.path_of(shard), self.options.clone())
    }
}
