//! Owns the queue: enter it, wait for admission, come out with a [`Hold`].
//!
//! 1. One acquisition goes through one or several steps; each is a place in one line or in several at once. A recipe
//!    says which. A place is owned by a value with `Drop` before its nodes are created, so the future may be dropped
//!    anywhere.
//! 2. A waiter watches one node, the nearest that excludes it, with one watch, for which it keeps the room. One that has
//!    several nodes also watches these: the loss of one is the loss of all.
//! 3. When the session ends, the waiter queues again, at the tail, in the renewed one.
//! 4. A hold whose trust has passed is never returned.

mod admission;
mod attempt;
mod line;
mod name;
mod parents;
mod place;
mod progress;
mod recovery;
mod wait;
mod waiting;

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, try_join_all};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::hold::{Hold, Looks, REVOKE};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::parents::MAX_REQUEST_BYTES;
use crate::queue::place::{Outlook, Place};
use crate::session::{Answer, Failure, Link, Session};

pub use self::name::Kind as ContenderKind;
pub use self::waiting::Waiting;

pub(crate) use self::admission::{Czxids, is_still};
pub(crate) use self::attempt::{Interrupt, attempt, within};
pub(crate) use self::line::{Line, Spot, clear_strays};
pub(crate) use self::name::{Kind, Name, Ranked};
pub(crate) use self::progress::Progress;

/// What an acquisition goes through.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) session: Session,
    /// What the lock is called.
    pub(crate) path: LockPath,
    pub(crate) options: Options,
    steps: Arc<[Step]>,
}

/// A part of the way to a hold.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A turn that is needed on the way, and given up at its end.
    Pass([Line; 1]),
    /// Places that are taken in one transaction, and become the hold.
    Keep(Vec<Line>),
}

impl Step {
    fn lines(&self) -> &[Line] {
        match self {
            Self::Pass(line) => line,
            Self::Keep(lines) => lines,
        }
    }
}

impl Queue {
    /// Makes a queue of several steps. `what` is the argument that makes a request too large, if one is.
    pub(crate) fn new(
        session: &Session,
        path: &LockPath,
        options: &Options,
        steps: Vec<Step>,
        what: &'static str,
    ) -> Result<Self> {
        options.validate()?;
        let mut lines = steps.iter().flat_map(Step::lines);
        if let Some(line) = lines.find(|line| line.path.is_the_servers() && !session.has_chroot()) {
            let reason =
                format!("{}: /zookeeper belongs to the servers; it should look like /locks/name", line.path);
            return Err(Error::invalid("lock path", reason));
        }
        for step in &steps {
            let per_node = options.request_bytes() + 60;
            let cost = |line: &Line| line.width().saturating_mul(line.path.as_str().len() + per_node);
            let bytes = step.lines().iter().map(cost).fold(0, usize::saturating_add);
            let nodes = step.lines().iter().map(Line::width).fold(0, usize::saturating_add);
            if nodes > 1 && bytes > MAX_REQUEST_BYTES {
                let reason = format!(
                    "{nodes} nodes are created in one request, of about {bytes} bytes; {MAX_REQUEST_BYTES} are the most \
                     (a server's jute.maxbuffer)"
                );
                return Err(Error::invalid(what, reason));
            }
        }
        Ok(Self { session: session.clone(), path: path.clone(), options: options.clone(), steps: steps.into() })
    }

    /// Makes a queue of one line.
    pub(crate) fn of_one(session: &Session, path: &str, kind: Kind, options: &Options) -> Result<Self> {
        let path = LockPath::new(path)?;
        let line = Line::new(&path, kind);
        Self::new(session, &path, options, vec![Step::Keep(vec![line])], "lock path")
    }

    /// The same lines, each a step of its own, in the order of their paths.
    pub(crate) fn one_by_one(&self) -> Self {
        let mut lines: Vec<_> = self.lines().cloned().collect();
        lines.sort_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
        let path = lines[0].path.clone();
        let steps = lines.into_iter().map(|line| Step::Keep(vec![line])).collect();
        Self { session: self.session.clone(), options: self.options.clone(), path, steps }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.steps.iter().flat_map(Step::lines)
    }

    /// The lines in which a place is a hold, and those in which it is only a turn.
    pub(crate) fn kept_and_passed(&self) -> (Vec<&Line>, Vec<&Line>) {
        let (kept, passed): (Vec<_>, Vec<_>) = self.steps.iter().partition(|step| matches!(step, Step::Keep(_)));
        (kept.into_iter().flat_map(Step::lines).collect(), passed.into_iter().flat_map(Step::lines).collect())
    }

    /// Queues and waits for admission, for as long as it takes.
    pub(crate) async fn hold(&self) -> Result<Hold> {
        self.hold_with(&Progress::new()).await
    }

    /// Queues and waits for admission; tells of the progress.
    #[tracing::instrument(level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn hold_with(&self, progress: &Progress) -> Result<Hold> {
        loop {
            match attempt(&self.session, |link| self.queue_once(link, progress).boxed()).await {
                // Who loses one place of several takes all of them anew.
                Err(Error::Evicted { node }) if self.retakes() => {
                    tracing::debug!(node, "lost one of several places; taking all anew");
                }
                held => return held,
            }
        }
    }

    /// Queues and waits for admission; `None` if somebody was ahead of us to the end of the time limit.
    pub(crate) async fn try_hold_for(&self, limit: Duration) -> Result<Option<Hold>> {
        if limit.is_zero() {
            return self.try_hold().await;
        }
        let progress = Progress::new();
        match tokio::time::timeout(limit, self.hold_with(&progress)).await {
            Ok(hold) => hold.map(Some),
            Err(_) if progress.last().is_some() => Ok(None),
            Err(_) => Err(self.session.unavailable(limit)),
        }
    }

    /// Takes the lock if nobody is ahead of us.
    pub(crate) async fn try_hold(&self) -> Result<Option<Hold>> {
        within(&self.session, self.try_patiently()).await
    }

    /// Takes the lock if nobody is ahead of us, however long it takes to ask.
    #[tracing::instrument(level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn try_patiently(&self) -> Result<Option<Hold>> {
        attempt(&self.session, |link| self.try_once(link).boxed()).await
    }

    /// How many nodes there are where a place is a hold.
    pub(crate) async fn occupancy(&self) -> Result<usize> {
        let counted = attempt(&self.session, |link| {
            async move {
                let mut count = 0;
                for line in self.kept_and_passed().0 {
                    count += line.list(&link).await?.len();
                }
                Ok(count)
            }
            .boxed()
        });
        within(&self.session, counted).await
    }

    /// Whether a waiter that was evicted from one line queues again in all of them.
    fn retakes(&self) -> bool {
        self.lines().filter(|line| matches!(line.spot, Spot::InLine(_))).count() > 1
    }

    async fn queue_once(&self, link: Arc<Link>, progress: &Progress) -> Result<Hold, Interrupt> {
        let link = &link;
        let mut places: Vec<(&Step, Place<'_>)> = Vec::new();
        let mut waited = false;
        let mut room = None;
        // A waiter goes from line to line; who comes later is not to take the room for the longest.
        let longest = self.lines().map(Line::watch_bytes).max().unwrap_or_default();
        for step in self.steps.iter() {
            let mut place = Place::new(link, step.lines(), &self.options)?;
            let mut outlook = place.enter().await?;
            let nodes: Vec<_> =
                places.iter().map(|(_, place)| place).chain([&place]).flat_map(Place::nodes).collect();
            // A waiter with one node will hear of its loss when it is woken.
            let watched = if nodes.len() > 1 { &nodes[..] } else { &[] };
            let mut lost = pin!(async {
                if watched.is_empty() {
                    pending::<()>().await;
                }
                // A short wait is spared the watches.
                tokio::time::sleep(link.timeout() / 8).await;
                Looks::begin(link, watched, Arc::new(|_: &[u8]| {})).any_gone().await
            });
            while outlook != Outlook::Admitted {
                waited = true;
                progress.ahead(place.ahead());
                tracing::debug!(?outlook, "waiting");
                link.make_room(&mut room, longest)?;
                tokio::select! {
                    biased;
                    node = &mut lost => return Err(recovery::why_gone(link, node).await),
                    woken = place.wait(&outlook, &mut room) => woken?,
                }
                outlook = place.look().await?;
            }
            places.push((step, place));
        }
        let mut revoked = false;
        if waited || self.goes_in_turn() {
            let (checked, asked) = join(self.check_all(link, &places), revoked_on_the_way(link, &places)).await;
            checked?;
            revoked = asked?;
        }
        let hold = self.admitted(places, link).await?;
        if revoked {
            hold.revoke();
        }
        Ok(hold)
    }

    async fn try_once(&self, link: Arc<Link>) -> Result<Option<Hold>, Interrupt> {
        let link = &link;
        // Whoever is there came before us, so nothing need be written to know that. Who has a turn while there is room
        // is on the way to a hold.
        let blocked = self
            .kept_and_passed()
            .0
            .into_iter()
            .map(async |line| Ok::<_, Interrupt>(line.is_blocked(&line.list(link).await?)));
        if try_join_all(blocked).await?.contains(&true) {
            return Ok(None);
        }
        let mut places = Vec::new();
        for step in self.steps.iter() {
            let mut place = Place::new(link, step.lines(), &self.options)?;
            let mut outlook = place.enter().await?;
            if let Step::Pass(_) = step {
                outlook = pass(link, &mut place, outlook).await?;
            }
            if outlook != Outlook::Admitted {
                return Ok(None);
            }
            places.push((step, place));
        }
        if self.goes_in_turn() {
            self.check_all(link, &places).await?;
        }
        self.admitted(places, link).await.map(Some)
    }

    /// Whether it keeps places that were not taken at once, so that one may be lost before the last is taken.
    fn goes_in_turn(&self) -> bool {
        self.steps.iter().filter(|step| matches!(step, Step::Keep(_))).count() > 1
    }

    /// Asks whether all nodes are still there, after a wait in which one of several may have been deleted.
    async fn check_all(&self, link: &Arc<Link>, places: &[(&Step, Place<'_>)]) -> Result<(), Interrupt> {
        let nodes: Vec<_> = places.iter().flat_map(|(_, place)| place.nodes()).map(|(node, _)| node).collect();
        if nodes.len() < 2 {
            return Ok(());
        }
        link.connected().await?;
        loop {
            let (check, checked) = Answer::deferred();
            let all = nodes.clone();
            link.burst(move |requests| vec![check.fill(requests.check_all(all))]);
            match checked.await {
                Ok(Some(gone)) => return Err(Error::Evicted { node: nodes[gone].clone() }.into()),
                Ok(None) | Err(Failure::Refused(_)) => return Ok(()),
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// Turns admitted places into a hold, as soon as the session is trusted.
    async fn admitted(&self, places: Vec<(&Step, Place<'_>)>, link: &Arc<Link>) -> Result<Hold, Interrupt> {
        let interest = link.interest(self.options.trust());
        link.trusted(self.options.trust()).await?;
        let (mut passed, mut kept) = (Vec::new(), None);
        for (step, place) in places {
            match (step, &mut kept) {
                (Step::Pass(_), _) => passed.push(place),
                (Step::Keep(_), None) => kept = Some(place.into_stakes()),
                (Step::Keep(_), Some(stakes)) => stakes.join(place.into_stakes()),
            }
        }
        let stakes = kept.expect("a queue has a step to keep");
        let hold = Hold::new(&self.session, &self.path, &self.options, stakes, interest);
        tracing::debug!(node = hold.nodes()[0], token = %hold.fencing_token(), "held");
        // The next in turn may go, now that the leases count.
        drop(passed);
        Ok(hold)
    }
}

/// Waits for a turn behind those who are on their way through, but not long: one may have died there.
async fn pass(link: &Arc<Link>, place: &mut Place<'_>, mut outlook: Outlook) -> Result<Outlook, Interrupt> {
    let until = Instant::now() + link.timeout() / 8;
    let mut room = None;
    while outlook != Outlook::Admitted {
        match tokio::time::timeout_at(until, place.wait(&outlook, &mut room)).await {
            Ok(woken) => woken?,
            Err(_) => break,
        }
        outlook = place.look().await?;
    }
    Ok(outlook)
}

/// Whether somebody has asked a waiter to let go on a turn, which it gives up when it has its hold.
async fn revoked_on_the_way(link: &Arc<Link>, places: &[(&Step, Place<'_>)]) -> Result<bool, Interrupt> {
    for (step, turn) in places {
        let Step::Pass([line]) = step else { continue };
        for (node, _) in turn.nodes() {
            let name = &node[line.path.as_str().len() + 1..];
            match line.read(link, name).await {
                Ok(Some((data, _))) if data == REVOKE => return Ok(true),
                // Who gives itself no right to read its nodes is not asked by them.
                Ok(_) | Err(Interrupt::Failed(Error::NoAuth { .. })) => {}
                Err(interrupt) => return Err(interrupt),
            }
        }
    }
    Ok(false)
}
