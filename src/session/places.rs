//! Owns the list of a session's nodes: each from before its create is sent until it is certainly gone. It bounds them, and
//! lets the end of a session find those that their owners do not give up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::error::Result;
use crate::path::LockPath;
use crate::session::budget::{Budget, Reserved};

/// All nodes that a session has or may have.
#[derive(Debug)]
pub(crate) struct Places {
    budget: Budget,
    entered: Arc<Mutex<HashMap<Uuid, LockPath>>>,
}

/// A node on the list; dropping this takes it off.
#[derive(Debug)]
pub(crate) struct Entered {
    guid: Uuid,
    entered: Arc<Mutex<HashMap<Uuid, LockPath>>>,
    reserved: Option<Reserved>,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { budget: Budget::of_nodes(), entered: Arc::default() }
    }

    /// Enters a node with this guid under `parent`, which costs the server so many bytes.
    pub(super) fn enter(&self, parent: &LockPath, guid: Uuid, bytes: usize) -> Result<Entered> {
        let reserved = self.budget.reserve(bytes)?;
        lock(&self.entered).insert(guid, parent.clone());
        Ok(Entered { guid, entered: self.entered.clone(), reserved: Some(reserved) })
    }

    /// Waits until no node is left that can be deleted.
    pub(super) async fn emptied(&self) {
        self.budget.emptied().await;
    }

    /// The nodes on the list.
    pub(super) fn all(&self) -> Vec<(LockPath, Uuid)> {
        lock(&self.entered).iter().map(|(guid, parent)| (parent.clone(), *guid)).collect()
    }
}

impl Entered {
    pub(crate) fn guid(&self) -> Uuid {
        self.guid
    }

    /// Notes that the node cannot be deleted: it takes its room to the end of the session.
    pub(crate) fn stays(mut self) {
        if let Some(reserved) = self.reserved.take() {
            reserved.keep();
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        lock(&self.entered).remove(&self.guid);
    }
}

fn lock(entered: &Mutex<HashMap<Uuid, LockPath>>) -> MutexGuard<'_, HashMap<Uuid, LockPath>> {
    entered.lock().unwrap_or_else(PoisonError::into_inner)
}
