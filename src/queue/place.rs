//! Owns [`Place`]: a place in one line or in several at once, from before its nodes are created to its admission.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::cleanup::{Stake, Stakes, find_guid};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::queue::admission::{Czxids, Verdict, judge};
use crate::queue::attempt::Interrupt;
use crate::queue::line::{Line, Spot, clear_strays, leave_out};
use crate::queue::parents::{Listings, Looks, Parents, Plan, Remedy};
use crate::queue::wait;
use crate::session::clock::Moment;
use crate::session::{Answer, Failure, Link, Names, Refusal, Reserved};

type ZkError = zookeeper_client::Error;

/// Empty containers vanish at any moment, so a missing parent is made again; but not for ever.
const MAX_ROUNDS: usize = 64;

/// How often a large request may lose the connection before it is taken for the cause.
const MAX_LOST: usize = 10;

/// More than this, in bytes, may be too large for a server that was set to take less than usual.
const LARGE: usize = 16 * 1024;

/// A place in line, in each of several lines if there are several. Dropping it leaves the queue, whatever is under way.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) lines: &'a [Line],
    options: &'a Options,
    pub(super) stakes: Stakes,
    /// Where the stakes of each line begin.
    starts: Vec<usize>,
    views: Vec<View>,
}

/// What is known of one of the lines.
#[derive(Debug)]
struct View {
    outlook: Option<Outlook>,
    czxids: Czxids,
}

/// What a line looks like from a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It is our turn.
    Admitted,
    /// In the line `index` the node `name` is in front of us, the last of `ahead` that are.
    Behind { index: usize, name: String, ahead: usize },
    /// There are so many more than there is room for.
    Full { excess: usize },
}

impl<'a> Place<'a> {
    /// Prepares a place; nothing is sent.
    pub(super) fn new(link: &Arc<Link>, lines: &'a [Line], options: &'a Options) -> Result<Self> {
        let all = lines.iter().flat_map(|line| std::iter::repeat_n(line, line.width()));
        let stakes = all.map(|line| Stake::new(link, &line.path, line.kind().separator(), options, &line.removes));
        let stakes = Stakes::new(stakes.collect::<Result<_>>()?);
        let views = lines.iter().map(|_| View { outlook: None, czxids: Czxids::new() }).collect();
        let mut stakes_before = 0;
        let starts = lines.iter().map(|line| {
            let start = stakes_before;
            stakes_before += line.width();
            start
        });
        Ok(Self { lines, options, stakes, starts: starts.collect(), views })
    }

    pub(super) fn into_stakes(self) -> Stakes {
        self.stakes
    }

    /// The nodes, and the transactions that created them.
    pub(super) fn nodes(&self) -> Vec<(String, i64)> {
        self.stakes.nodes()
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        self.stakes.link()
    }

    /// The stakes in the line `index`, as a range.
    pub(super) fn range(&self, index: usize) -> Range<usize> {
        let start = self.starts[index];
        start..start + self.lines[index].width()
    }

    fn own(&self, index: usize) -> &[Stake] {
        &self.stakes.all()[self.range(index)]
    }

    pub(super) fn line_of(&self, stake: usize) -> usize {
        self.starts.partition_point(|start| *start <= stake) - 1
    }

    /// The bytes of a request that creates the nodes.
    fn request_bytes(&self) -> usize {
        let bytes =
            |path: String| self.link().cost(path.len() + "0123456789".len()) + self.options.request_bytes();
        self.stakes.all().iter().map(|stake| bytes(stake.path())).sum()
    }

    /// Creates the nodes and looks where they stand: one round trip, two where parents are missing, unless something else
    /// is in the way.
    ///
    /// # Cancel safety
    ///
    /// What is under way belongs to the stakes, which the place owns.
    pub(super) async fn enter(&mut self) -> Result<Outlook, Interrupt> {
        let link = self.link().clone();
        let mut parents = Parents::new(self.lines, self.options, self.request_bytes());
        let (mut rounds, mut lost) = (0, 0);
        while rounds < MAX_ROUNDS {
            link.connected().await?;
            let plan = parents.plan(&link).await?;
            let guesses = plan.guesses.clone();
            let (refusals, looks, listings) = self.send(plan);
            match self.stakes.answer().await {
                Ok(()) => return self.look_into(listings).await,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
                Err(Failure::Unknown) => {
                    lost += 1;
                    // The last guess is the largest.
                    let last = guesses.last().into_iter().flatten();
                    if lost > MAX_LOST && parents.request_bytes(&link, last.map(String::as_str)) > LARGE {
                        let action = "create, in one large request, which closes the connection again and again (see \
                                      jute.maxbuffer of the servers), what is needed under";
                        return Err(
                            Error::refused(action, self.lines[0].path.as_str(), ZkError::ConnectionLoss).into()
                        );
                    }
                    link.settled().await?;
                    if self.recover().await? {
                        return self.look_into(Vec::new()).await;
                    }
                    continue;
                }
                Err(Failure::Refused(_)) => rounds += 1,
            }
            // They are reported together with the answer to the stakes.
            let refusals = refusals.await.map_err(|_| Interrupt::SessionOver)?;
            match parents.judge(&guesses, refusals, |stake| self.line_of(stake))? {
                Remedy::Search => {
                    if self.recover().await? {
                        return self.look_into(Vec::new()).await;
                    }
                }
                Remedy::OtherParents => parents.look_around(looks, listings).await,
            }
        }
        Err(Error::refused("keep the parents of", self.lines[0].path.as_str(), ZkError::NoNode).into())
    }

    /// Sends, in one burst, the creates of the nodes, with those of missing parents, and listings, which are answered
    /// after the creates and so contain the nodes.
    fn send(&mut self, plan: Plan) -> (Answer<Vec<Refusal>>, Looks, Listings) {
        let (create, refusals) = self.stakes.prepare(plan.guesses);
        let (asking, looks): (Vec<_>, Looks) = plan
            .asked
            .into_iter()
            .map(|path| {
                let (slot, answer) = Answer::deferred();
                ((slot, path.clone()), (path, answer))
            })
            .unzip();
        let (slots, listings): (Vec<_>, Listings) = (0..self.lines.len())
            .map(|index| {
                let (slot, answer) = Answer::deferred();
                (slot, (index, answer))
            })
            .unzip();
        let paths: Vec<_> = self.lines.iter().map(|line| line.path.clone()).collect();
        let link = self.link().clone();
        self.link().burst(move |requests| {
            let mut answers = vec![create(requests)];
            answers.extend(asking.into_iter().map(|(slot, path)| slot.fill(requests.stat(&path))));
            let lists = slots.into_iter().zip(paths);
            answers.extend(lists.filter_map(|(slot, path)| link.list(&path, Some(clear_strays), slot)));
            answers
        });
        (refusals, looks, listings)
    }

    /// Looks again where we stand, in the lines in which it was not our turn yet.
    pub(super) async fn look(&mut self) -> Result<Outlook, Interrupt> {
        let link = self.link().clone();
        for view in &mut self.views {
            view.outlook.take_if(|outlook| *outlook != Outlook::Admitted);
        }
        link.connected().await?;
        // Whether a hold that began now would be trusted long enough to be kept up.
        let needed = Moment::now().plus(link.timeout() / 3);
        if link.requests.ledger().until(self.options.trust()) > needed {
            return self.look_into(Vec::new()).await;
        }
        // A session that is not trusted any more proves itself at the same time, once for all who look.
        let proof = link.check();
        let listings = self.list();
        if let Err(Failure::Over) = proof.await {
            return Err(Interrupt::SessionOver);
        }
        self.look_into(listings).await
    }

    /// Judges listings; asks again until every line has been judged.
    async fn look_into(&mut self, mut listings: Listings) -> Result<Outlook, Interrupt> {
        let link = self.link().clone();
        loop {
            let mut unknown = false;
            for (index, listing) in listings {
                match listing.await {
                    Ok(mut names) => {
                        self.delete_doubles(index, &mut names);
                        self.views[index].outlook = self.judge(index, names).await?;
                    }
                    Err(Failure::Unknown) => unknown = true,
                    Err(Failure::Over) => return Err(Interrupt::SessionOver),
                    Err(Failure::Refused(ZkError::NoNode)) => self.missing(index).await?,
                    Err(Failure::Refused(error)) => {
                        return Err(Error::refused("list", self.lines[index].path.as_str(), error).into());
                    }
                }
            }
            if unknown {
                // Once for all lines: a lost connection loses the listings of thousands at a time.
                link.settled().await?;
            }
            listings = self.list();
            if listings.is_empty() {
                return Ok(self.outlook());
            }
        }
    }

    /// Asks for the listings of the lines of which nothing is known.
    fn list(&self) -> Listings {
        let unknown = self.views.iter().enumerate().filter(|(_, view)| view.outlook.is_none());
        unknown.map(|(index, _)| (index, self.lines[index].listing(self.link()))).collect()
    }

    /// The first line in which it is not our turn.
    fn outlook(&self) -> Outlook {
        let outlooks = self.views.iter().filter_map(|view| view.outlook.clone());
        outlooks.into_iter().find(|outlook| *outlook != Outlook::Admitted).unwrap_or(Outlook::Admitted)
    }

    /// How many stand before us where most do.
    pub(super) fn ahead(&self) -> usize {
        let ahead = self.views.iter().map(|view| match view.outlook {
            Some(Outlook::Behind { ahead, .. }) => ahead,
            Some(Outlook::Full { excess }) => excess,
            Some(Outlook::Admitted) | None => 0,
        });
        ahead.max().unwrap_or_default()
    }

    /// The verdict on a listing, or `None` if another listing is needed.
    async fn judge(&mut self, index: usize, mut names: Names) -> Result<Option<Outlook>, Interrupt> {
        let mine: Vec<_> = self.own(index).iter().filter_map(Stake::created).cloned().collect();
        if let Spot::Room { .. } = self.lines[index].spot {
            let listed: HashSet<_> = names.iter().collect();
            if mine.iter().any(|node| !listed.contains(&node.name)) {
                self.missing(index).await?;
                return Ok(None);
            }
            let excess = self.lines[index].excess(&names);
            return Ok(Some(if excess == 0 { Outlook::Admitted } else { Outlook::Full { excess } }));
        }
        loop {
            let name = mine.first().map_or("", |created| &created.name);
            match judge(&names, name, &self.views[index].czxids) {
                Verdict::Admit => return Ok(Some(Outlook::Admitted)),
                Verdict::Wait { name, ahead } => {
                    return Ok(Some(Outlook::Behind { index, name, ahead }));
                }
                Verdict::Unordered(mut unknown) => {
                    let link = self.link().clone();
                    let czxids = &mut self.views[index].czxids;
                    czxids.extend(mine.iter().map(|created| (created.name.clone(), created.czxid)));
                    unknown.retain(|name| !czxids.contains_key(name));
                    let gone = self.lines[index].read_czxids(&link, unknown, czxids).await?;
                    leave_out(&mut names, &gone);
                }
                Verdict::Missing => {
                    self.missing(index).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Waits until what is in the way changes, or may have; with one watch, which has `room`.
    pub(super) async fn wait(&mut self, outlook: &Outlook, room: &mut Option<Reserved>) -> Result<(), Interrupt> {
        let link = self.link().clone();
        match outlook {
            Outlook::Admitted => Ok(()),
            Outlook::Behind { index, name, .. } => {
                wait::behind(&link, &self.lines[*index], name, &mut self.views[*index].czxids, room).await
            }
            Outlook::Full { excess } => {
                let full = |view: &View| matches!(view.outlook, Some(Outlook::Full { .. }));
                let index = self.views.iter().position(full).unwrap_or_default();
                wait::for_room(&link, &self.lines[index], *excess, room).await
            }
        }
    }

    /// Takes doubles of our own nodes out of a listing, and deletes them.
    fn delete_doubles(&self, index: usize, names: &mut Names) {
        let line = &self.lines[index];
        for stake in self.own(index).iter().filter(|stake| stake.is_uncertain()) {
            if let Some(created) = stake.created() {
                let mut doubles = find_guid(names, stake.guid());
                doubles.retain(|name| *name != created.name);
                doubles.iter().for_each(|name| line.delete(self.link(), name));
                leave_out(names, &doubles);
            }
        }
    }
}
