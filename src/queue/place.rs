//! Owns [`Place`]: a place in line, from before its node is created to its admission.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::cleanup::{self, Stake, find_guid};
use crate::error::{Error, Result};
use crate::path::LockPath;
use crate::queue::admission::{Czxids, Verdict, judge};
use crate::queue::line::{Interrupt, Line};
use crate::session::{Answer, Created, Failure, Fired, Link, Slot};

type ZkError = zookeeper_client::Error;

/// Empty containers vanish at any moment, so a missing parent is made again; but not for ever.
const MAX_ROUNDS: usize = 64;

/// A place in line. Dropping it leaves the queue, whatever is under way.
#[derive(Debug)]
pub(super) struct Place<'a> {
    line: &'a Line,
    stake: Stake,
    czxids: Czxids,
}

/// What the queue looks like from a place.
#[derive(Debug)]
pub(super) enum Outlook {
    /// It is our turn.
    Admitted,
    /// This node is in front of us.
    Behind(String),
}

impl<'a> Place<'a> {
    /// Prepares a place; nothing is sent.
    pub(super) fn new(link: &Arc<Link>, line: &'a Line) -> Result<Self> {
        let stake = Stake::new(link, &line.path, line.kind.separator(), &line.options)?;
        Ok(Self { line, stake, czxids: Czxids::new() })
    }

    pub(super) fn into_stake(self) -> Stake {
        self.stake
    }

    fn link(&self) -> &Arc<Link> {
        self.stake.link()
    }

    /// Creates the node and looks where it stands: one round trip, unless something is in the way.
    ///
    /// # Cancel safety
    ///
    /// What is under way belongs to the stake, which the place owns.
    pub(super) async fn enter(&mut self) -> Result<Outlook, Interrupt> {
        let link = self.link().clone();
        let mut missing: Vec<String> = Vec::new();
        let mut rounds = 0;
        while rounds < MAX_ROUNDS {
            link.connected().await?;
            let (parents, listing) = self.send(std::mem::take(&mut missing));
            match self.stake.answer().await {
                Ok(()) => return self.outlook(listing).await,
                Err(Failure::Refused(ZkError::NoNode)) => {
                    check_parents(&self.line.path, parents).await?;
                    rounds += 1;
                    missing = self.line.path.lineage().map(str::to_owned).collect();
                }
                Err(Failure::Refused(ZkError::NoChildrenForEphemerals)) => {
                    return Err(no_children(self.line.path.as_str()).into());
                }
                Err(Failure::Refused(ZkError::Unimplemented)) => {
                    return Err(Error::refused(
                        "create a node (which needs ZooKeeper 3.5.3 or later) under",
                        self.line.path.as_str(),
                        ZkError::Unimplemented,
                    )
                    .into());
                }
                Err(Failure::Refused(error)) => {
                    return Err(Error::refused("create a node under", self.line.path.as_str(), error).into());
                }
                Err(Failure::Unknown) => {
                    link.settled().await?;
                    if self.recover().await? {
                        return self.outlook(self.list()).await;
                    }
                }
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
        Err(Error::refused("keep the parents of", self.line.path.as_str(), ZkError::NoNode).into())
    }

    /// Sends, in one burst, the creates of missing parents and of the node, and a listing, which is answered after the
    /// create and so contains the node.
    fn send(&mut self, missing: Vec<String>) -> (Vec<Parent>, Answer<Vec<String>>) {
        let create = self.stake.prepare();
        let (list, listing) = Answer::deferred();
        let (makes, parents): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .map(|path| {
                let (slot, answer) = Answer::deferred();
                ((path.clone(), slot), Parent { path, answer })
            })
            .unzip();
        let (path, options) = (self.line.path.clone(), self.line.options.clone());
        self.link().burst(move |requests| {
            let make =
                |(parent, slot): (String, Slot<()>)| slot.fill(requests.create_container(&parent, &options));
            let mut answers: Vec<_> = makes.into_iter().map(make).collect();
            answers.push(create(requests));
            answers.push(list.fill(requests.list(path.as_str())));
            answers
        });
        (parents, listing)
    }

    /// After a create with an unknown outcome: searches for the node, and tells whether there is one.
    async fn recover(&mut self) -> Result<bool, Interrupt> {
        let (link, path) = (self.link().clone(), self.line.path.clone());
        let mut ours: Vec<Created> = Vec::new();
        for name in cleanup::find(&link, &path, self.stake.guid()).await? {
            match self.line.read(&link, &name).await? {
                // A node of a dead session never counts as ours.
                Some((_, stat)) if stat.ephemeral_owner == link.id().0 => {
                    ours.push(Created { name, czxid: stat.czxid });
                }
                Some(_) => self.delete_in_background(&name),
                None => {}
            }
        }
        // Several creates may have been applied. The first of them keeps the best place.
        ours.sort_by_key(|node| std::cmp::Reverse(node.czxid));
        let first = ours.pop();
        ours.iter().for_each(|node| self.delete_in_background(&node.name));
        let found = first.is_some();
        first.into_iter().for_each(|node| self.stake.adopt(node));
        Ok(found)
    }

    /// Looks again where we stand.
    pub(super) async fn look(&mut self) -> Result<Outlook, Interrupt> {
        let link = self.link().clone();
        link.connected().await?;
        if self.line.is_trusted(&link) {
            return self.outlook(self.list()).await;
        }
        // A session that is not trusted any more proves itself in the same burst. If the check finds no node, the
        // listing will not, either.
        let ((check, proof), (list, listing)) = (Answer::deferred(), Answer::deferred());
        let (node, path) = (self.stake.path(), self.line.path.clone());
        link.burst(move |requests| {
            vec![check.fill(requests.check(&node)), list.fill(requests.list(path.as_str()))]
        });
        if let Err(Failure::Over) = proof.await {
            return Err(Interrupt::SessionOver);
        }
        self.outlook(listing).await
    }

    /// Judges a listing; asks again until there is one to judge.
    async fn outlook(&mut self, mut listing: Answer<Vec<String>>) -> Result<Outlook, Interrupt> {
        let link = self.link().clone();
        loop {
            match listing.await {
                Ok(mut names) => {
                    self.delete_strays(&mut names);
                    if let Some(outlook) = self.judge(&names).await? {
                        return Ok(outlook);
                    }
                }
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
                Err(Failure::Refused(ZkError::NoNode)) => self.missing().await?,
                Err(Failure::Refused(error)) => {
                    return Err(Error::refused("list", self.line.path.as_str(), error).into());
                }
            }
            listing = self.list();
        }
    }

    fn list(&self) -> Answer<Vec<String>> {
        let path = self.line.path.clone();
        self.link().ask(move |requests| requests.list(path.as_str()))
    }

    /// The verdict on a listing, or `None` if another listing is needed.
    async fn judge(&mut self, names: &[String]) -> Result<Option<Outlook>, Interrupt> {
        loop {
            let mine = self.stake.created().map_or("", |created| created.name.as_str());
            match judge(names, mine, &self.czxids) {
                Verdict::Admit => return Ok(Some(Outlook::Admitted)),
                Verdict::Wait(ahead) => return Ok(Some(Outlook::Behind(ahead))),
                Verdict::Unordered(unknown) => {
                    if !self.read_czxids(unknown).await? {
                        return Ok(None);
                    }
                }
                Verdict::Missing => {
                    self.missing().await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Our node was not in a listing. That may be our own expiry, which we have not heard of, or a server that lags
    /// behind; only an answer from a quorum tells.
    async fn missing(&mut self) -> Result<(), Interrupt> {
        let (link, guid) = (self.link().clone(), self.stake.guid());
        if cleanup::find(&link, &self.line.path, guid).await?.is_empty() {
            let node = self.stake.path();
            self.stake.forget();
            return Err(Error::Evicted { node }.into());
        }
        Ok(())
    }

    /// Reads what the order needs at the end of the counter; `false` if somebody has left in the meantime.
    async fn read_czxids(&mut self, names: Vec<String>) -> Result<bool, Interrupt> {
        let mut complete = true;
        if let Some(created) = self.stake.created() {
            self.czxids.insert(created.name.clone(), created.czxid);
        }
        // All in one burst.
        let nodes = join_all(names.iter().map(|name| self.line.read(self.link(), name))).await;
        for (name, node) in names.into_iter().zip(nodes) {
            match node? {
                Some((_, stat)) => drop(self.czxids.insert(name, stat.czxid)),
                None => complete = false,
            }
        }
        Ok(complete)
    }

    /// Waits until the node in front of us changes, or may have.
    pub(super) async fn wait_behind(&self, ahead: &str) -> Result<(), Interrupt> {
        let (link, path) = (self.link(), self.line.path.child(ahead));
        let _room = link.watches.reserve(link.cost(path.len()))?;
        let node = path.clone();
        match link.ask(move |requests| requests.watch(&node)).await {
            Ok((stat, watch)) => {
                if stat.ephemeral_owner == link.id().0 {
                    tracing::debug!(path, "waiting behind a node of the same session");
                }
                match watch.fired().await {
                    Fired::Deleted | Fired::Changed => Ok(()),
                    Fired::SessionOver => Err(Interrupt::SessionOver),
                }
            }
            Err(Failure::Refused(ZkError::NoNode)) => Ok(()),
            Err(Failure::Refused(error)) => Err(Error::refused("watch", &path, error).into()),
            Err(Failure::Unknown) => Ok(link.settled().await?),
            Err(Failure::Over) => Err(Interrupt::SessionOver),
        }
    }

    /// Clears a listing of what is left of places that were given up, and of doubles of our own node.
    fn delete_strays(&self, names: &mut Vec<String>) {
        self.line.clear_strays(self.link(), names);
        if let (Some(created), true) = (self.stake.created(), self.stake.is_uncertain()) {
            let mut doubles = find_guid(names, self.stake.guid());
            doubles.retain(|name| *name != created.name);
            self.line.clear(self.link(), names, &doubles);
        }
    }

    fn delete_in_background(&self, name: &str) {
        cleanup::delete_in_background(self.link(), self.line.path.child(name));
    }
}

/// An ancestor of the lock path that is being made.
struct Parent {
    path: String,
    answer: Answer<()>,
}

/// Why the parents could not be made, if it is a reason to stop.
async fn check_parents(path: &LockPath, parents: Vec<Parent>) -> Result<(), Interrupt> {
    // The server checks the permission before it looks whether the node exists. So a refusal means something only if
    // what stands below it could not be made either.
    let mut denied = None;
    for (index, Parent { path: parent, answer }) in parents.into_iter().enumerate() {
        match answer.await {
            Err(Failure::Unknown) => {}
            Ok(()) => denied = None,
            Err(Failure::Over) => return Err(Interrupt::SessionOver),
            Err(Failure::Refused(error)) => match error {
                ZkError::NodeExists => denied = None,
                ZkError::NoAuth => denied = Some(parent),
                ZkError::NoNode if index == 0 => {
                    let reason =
                        format!("there is no parent for {parent}: the chroot of the session does not exist");
                    return Err(Error::invalid("chroot", format!("{reason}; create it first")).into());
                }
                // It has vanished again; the next round makes it again.
                ZkError::NoNode => {}
                ZkError::NoChildrenForEphemerals => return Err(no_children(path.as_str()).into()),
                ZkError::Unimplemented => {
                    let action = "create a container (which needs ZooKeeper 3.5.3 or later) at";
                    return Err(Error::refused(action, &parent, error).into());
                }
                error => return Err(Error::refused("create", &parent, error).into()),
            },
        }
    }
    match denied {
        Some(path) => Err(Error::NoAuth { path }.into()),
        None => Ok(()),
    }
}

fn no_children(path: &str) -> Error {
    Error::invalid(
        "lock path",
        format!("{path:?} or an ancestor of it is an ephemeral node, which can have no children"),
    )
}
