//! Owns [`Line`]: what is queued for at one path, and what can be asked there.

use std::sync::Arc;

use zookeeper_client::Stat;

use crate::cleanup;
use crate::error::{Error, Result};
use crate::path::LockPath;
use crate::queue::admission::contenders;
use crate::queue::attempt::Interrupt;
use crate::queue::name::Kind;
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

    /// The names under the path, none if it does not exist.
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

    pub(super) fn listing(&self, link: &Arc<Link>) -> Answer<Names> {
        let (slot, answer) = Answer::deferred();
        let (path, asking) = (self.path.clone(), link.clone());
        link.burst(move |_| asking.list(path.as_str(), slot).into_iter().collect());
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

    /// Takes what is left of places that were given up out of a listing, and deletes it: nobody waits behind a node
    /// that no one owns.
    pub(crate) fn clear_strays(&self, link: &Arc<Link>, names: &mut Names) {
        let guids = contenders(names).filter_map(|name| Some((name.guid()?, name.text)));
        let strays: Vec<_> = link.strays(guids).into_iter().map(str::to_owned).collect();
        self.clear(link, names, &strays);
    }

    /// Takes nodes of ours that nobody wants out of a listing, and deletes them.
    pub(super) fn clear(&self, link: &Arc<Link>, names: &mut Names, unwanted: &[String]) {
        if !unwanted.is_empty() {
            unwanted.iter().for_each(|name| self.delete(link, name));
            // The others who asked have theirs.
            Arc::make_mut(names).retain(|name| !unwanted.contains(name));
        }
    }

    pub(super) fn delete(&self, link: &Arc<Link>, name: &str) {
        cleanup::delete_in_background(link, self.path.child(name));
    }
}
