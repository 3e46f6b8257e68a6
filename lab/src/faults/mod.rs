//! The faults, one file each. Each is played against each way for which it makes sense.

mod again;
mod clock;
mod cut;
mod delayed;
mod failover;
mod gap;
mod killed;
mod other_key;
mod restart;
mod stopped;
mod unlock;
mod waiter;

use std::fmt::{self, Debug, Formatter};

use futures_util::future::BoxFuture;
use serde::Serialize;

use crate::Outcome;
use crate::servers::Setup;
use crate::site::Site;
use crate::stage::{Outcomes, Stage};
use crate::ways::Way;

/// What a fault needs of a way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fit {
    /// It is played on servers that other faults use, too.
    Shared,
    /// It is played on servers of its own, which are started like this.
    Own(Setup),
    /// It makes no sense for the way, for this reason.
    Not(&'static str),
}

/// What is played against a way.
#[non_exhaustive]
pub struct Fault {
    /// What it is called in options and files.
    pub id: &'static str,
    /// What it is called in the table.
    pub title: &'static str,
    /// What happens.
    pub about: &'static str,
    /// Whether the short form plays it.
    pub in_short: bool,
    /// How often it is played; once in the short form.
    pub times: usize,
    /// What it needs.
    pub fit: fn(&Way) -> Outcome<Fit>,
    /// Plays it.
    pub play: for<'a> fn(&'a Stage, &'a mut Site, &'a Setup) -> BoxFuture<'a, Outcome<Outcomes>>,
}

impl Debug for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("id", &self.id).finish_non_exhaustive()
    }
}

/// All of them, in the order of the table.
pub const FAULTS: &[Fault] = &[
    stopped::AFTER_CHECK,
    stopped::BEFORE_CHECK,
    delayed::FAULT,
    clock::OF_SERVER,
    clock::OF_CLIENT,
    killed::FAULT,
    gap::FAULT,
    restart::WITHIN_LEASE,
    restart::AFTER_LEASE,
    restart::LOST,
    failover::FAULT,
    unlock::FAULT,
    waiter::FAULT,
    cut::FAULT,
    again::FAULT,
    other_key::FAULT,
];

/// The fault with this id.
///
/// # Errors
///
/// If there is none; the message lists all.
pub fn find(id: &str) -> Outcome<&'static Fault> {
    let all: Vec<_> = FAULTS.iter().map(|fault| fault.id).collect();
    let found = FAULTS.iter().find(|fault| fault.id == id);
    found.ok_or_else(|| format!("there is no fault {id:?}; there are {}", all.join(", ")).into())
}

/// Any way, on shared servers.
fn any(_way: &Way) -> Outcome<Fit> {
    Ok(Fit::Shared)
}

/// Any way that locks. The other has no waiters.
fn locks(way: &Way) -> Outcome<Fit> {
    Ok(if way.optimistic { Fit::Not("nobody holds anything") } else { Fit::Shared })
}

/// A fault, for JSON and the page.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct About {
    /// Its id.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What happens.
    pub about: &'static str,
}

impl From<&Fault> for About {
    fn from(fault: &Fault) -> Self {
        Self { id: fault.id, title: fault.title, about: fault.about }
    }
}
