//! Owns [`Line`]: what is queued for at one path, and what can be asked there.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use uuid::fmt::Hyphenated;
use zookeeper_client::Stat;

use crate::cleanup;
use crate::error::{Error, Result};
use crate::path::LockPath;
use crate::queue::admission::{Czxids, contenders, first};
use crate::queue::attempt::Interrupt;
use crate::queue::name::{Kind, guid_in};
use crate::session::{Answer, Failure, Link, Names};

/// What is queued for at one path.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) path: LockPath,
    pub(crate) spot: Spot,
    /// What to remove with the last node, where the options say so.
    pub(crate) removes: Arc<[LockPath]>,
}

/// As what one stands in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Behind whoever came before and excludes us.
    InLine(Kind),
    /// Among the first to fit: with so many nodes, where so many have room.
    Room { leases: u32, permits: u32 },
}

impl Line {
    /// A line that is all there is of its lock.
    pub(crate) fn new(path: &LockPath, kind: Kind) -> Self {
        Self { path: path.clone(), spot: Spot::InLine(kind), removes: Arc::new([path.clone()]) }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.spot {
            Spot::InLine(kind) => kind,
            Spot::Room { .. } => Kind::Lease,
        }
    }

    /// How many nodes one contender has here.
    pub(crate) fn width(&self) -> usize {
        match self.spot {
            Spot::InLine(_) => 1,
            Spot::Room { leases, .. } => leases as usize,
        }
    }

    /// The bytes of the path that a waiter watches here, as long as names are like its own.
    pub(super) fn watch_bytes(&self) -> usize {
        let name = match self.spot {
            Spot::InLine(kind) => "/_c_".len() + Hyphenated::LENGTH + kind.separator().len() + "0123456789".len(),
            Spot::Room { .. } => 0,
        };
        self.path.as_str().len() + name
    }

    /// Whether somebody who joined now would have to wait.
    pub(crate) fn is_blocked(&self, names: &[String]) -> bool {
        match self.spot {
            Spot::InLine(kind) => contenders(names).any(|other| kind.waits_for(other.kind)),
            Spot::Room { permits, .. } => names.len() + self.width() > permits as usize,
        }
    }

    /// How many more there are than there is room for.
    pub(super) fn excess(&self, names: &[String]) -> usize {
        match self.spot {
            Spot::InLine(_) => 0,
            Spot::Room { permits, .. } => names.len().saturating_sub(permits as usize),
        }
    }

    /// The names under the path, none if it does not exist; without strays.
    pub(crate) async fn list(&self, link: &Arc<Link>) -> Result<Names, Interrupt> {
        link.connected().await?;
        loop {
            match self.listing(link).await {
                Ok(names) => return Ok(names),
                Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return Ok(Names::default()),
                Err(Failure::Refused(error)) => {
                    return Err(Error::refused("list", self.path.as_str(), error).into());
                }
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// The listing of the path, without strays, shared with others who ask for it.
    pub(super) fn listing(&self, link: &Arc<Link>) -> Answer<Names> {
        let (slot, answer) = Answer::deferred();
        let (path, asking) = (self.path.clone(), link.clone());
        link.burst(move |_| asking.list(&path, Some(clear_strays), slot).into_iter().collect());
        answer
    }

    /// The data and the stat of the node `name` of the line; `None` if it is gone.
    pub(crate) async fn read(&self, link: &Arc<Link>, name: &str) -> Result<Option<(Vec<u8>, Stat)>, Interrupt> {
        let path = self.path.child(name);
        loop {
            let node = path.clone();
            match link.ask(move |requests| requests.read(&node)).await {
                Ok(found) => return Ok(Some(found)),
                Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return Ok(None),
                Err(Failure::Refused(error)) => return Err(Error::refused("read", &path, error).into()),
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// The stat of the node `name` of the line; `None` if it is gone.
    pub(crate) async fn stat(&self, link: &Arc<Link>, name: &str) -> Result<Option<Stat>, Interrupt> {
        let path = self.path.child(name);
        loop {
            let node = path.clone();
            match link.ask(move |requests| requests.stat(&node)).await {
                Ok(found) => return Ok(found),
                Err(Failure::Refused(error)) => return Err(Error::refused("look at", &path, error).into()),
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// The name of the contender whose turn it is. What it takes to know at the end of the counter is kept in `czxids`.
    pub(crate) async fn first(&self, link: &Arc<Link>, czxids: &mut Czxids) -> Result<Option<String>, Interrupt> {
        let mut names = self.list(link).await?;
        if !czxids.is_empty() {
            let listed: HashSet<_> = names.iter().collect();
            czxids.retain(|name, _| listed.contains(name));
        }
        loop {
            match first(&names, czxids) {
                Ok(first) => return Ok(first.map(|name| name.text.to_owned())),
                Err(unknown) => {
                    let gone = self.read_czxids(link, unknown, czxids).await?;
                    leave_out(&mut names, &gone);
                }
            }
        }
    }

    /// Reads the `czxid`s of `names` all in one burst; returns the names of those who have left in the meantime.
    pub(super) async fn read_czxids(
        &self,
        link: &Arc<Link>,
        names: Vec<String>,
        czxids: &mut Czxids,
    ) -> Result<Vec<String>, Interrupt> {
        let nodes = join_all(names.iter().map(|name| self.stat(link, name))).await;
        let mut gone = Vec::new();
        for (name, node) in names.into_iter().zip(nodes) {
            match node? {
                Some(stat) => drop(czxids.insert(name, stat.czxid)),
                None => gone.push(name),
            }
        }
        Ok(gone)
    }

    pub(super) fn delete(&self, link: &Arc<Link>, name: &str) {
        cleanup::delete_in_background(link, self.path.child(name));
    }
}

/// Takes names out of a listing; the others who share it keep theirs as it is.
pub(super) fn leave_out(names: &mut Names, unwanted: &[String]) {
    if !unwanted.is_empty() {
        Arc::make_mut(names).retain(|name| !unwanted.contains(name));
    }
}

/// Takes what is left of places that were given up out of a listing, and deletes it: nobody waits behind a node that no
/// one owns.
pub(crate) fn clear_strays(link: &Arc<Link>, path: &LockPath, names: &mut Vec<String>) {
    let guids = names.iter().filter_map(|name| Some((guid_in(name)?, name.as_str())));
    let strays: HashSet<_> = link.strays(guids).into_iter().map(str::to_owned).collect();
    strays.iter().for_each(|name| cleanup::delete_in_background(link, path.child(name)));
    if !strays.is_empty() {
        names.retain(|name| !strays.contains(name));
    }
}
