//! Owns [`Stake`]: one node of ours, from before its create is sent until it is certainly gone.

use std::fmt;
use std::slice;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::cleanup::deletion::{self, Deletion, Loose};
use crate::error::Result;
use crate::options::Options;
use crate::path::LockPath;
use crate::session::{Answer, Created, Draft, Entered, Failure, Link, Slot};

/// One node of ours. Dropping it, at any moment, sees to the node's deletion.
pub(crate) struct Stake {
    link: Arc<Link>,
    guid: Uuid,
    draft: Draft,
    state: State,
    /// Whether a create had an unknown outcome, so that a second node of ours may turn up.
    uncertain: bool,
    entered: Option<Entered>,
    /// What to remove together with the node, where that leaves it empty.
    removes: Arc<[LockPath]>,
}

enum State {
    /// No create is under way, and none has made a node that is known.
    Absent,
    /// A create is under way.
    Sent(Answer<Created>),
    /// The node is there.
    Known(Created),
}

impl Stake {
    /// Prepares a node `_c_<guid><suffix><number>` under `parent`. Nothing is sent yet.
    ///
    /// When it is given up, `removes` are deleted, too, if the options say so and nothing is in them.
    pub(crate) fn new(
        link: &Arc<Link>,
        parent: &LockPath,
        suffix: &str,
        options: &Options,
        removes: &Arc<[LockPath]>,
    ) -> Result<Self> {
        let removes = if options.path_removal() { removes.clone() } else { Arc::default() };
        let draft = |name| Draft { parent: parent.clone(), name, is_sequential: true, options: options.clone() };
        Self::of(link, suffix, draft, removes)
    }

    /// Prepares the node that takes the place of this one: same parent, a suffix that says all, number included.
    pub(crate) fn successor(&self, suffix: &str) -> Result<Self> {
        let draft = |name| Draft { name, is_sequential: false, ..self.draft.clone() };
        Self::of(&self.link, suffix, draft, self.removes.clone())
    }

    fn of(
        link: &Arc<Link>,
        suffix: &str,
        draft: impl FnOnce(String) -> Draft,
        removes: Arc<[LockPath]>,
    ) -> Result<Self> {
        let guid = Uuid::new_v4();
        let draft = draft(format!("_c_{guid}{suffix}"));
        let bytes = draft.parent.as_str().len() + 1 + draft.name.len() + if draft.is_sequential { 10 } else { 0 };
        Ok(Self {
            entered: Some(link.enter(&draft.parent, guid, bytes, deletion::sweep)?),
            link: link.clone(),
            guid,
            draft,
            state: State::Absent,
            uncertain: false,
            removes,
        })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn guid(&self) -> Uuid {
        self.guid
    }

    pub(crate) fn parent(&self) -> &LockPath {
        &self.draft.parent
    }

    /// Whether a second node of ours may turn up.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// The node, once it is known to be there.
    pub(crate) fn created(&self) -> Option<&Created> {
        match &self.state {
            State::Known(created) => Some(created),
            State::Absent | State::Sent(_) => None,
        }
    }

    /// The full path of the node, or of what it would begin with.
    pub(crate) fn path(&self) -> String {
        self.draft.parent.child(self.created().map_or(&self.draft.name, |created| &created.name))
    }

    /// Takes the answer to a create of this draft that somebody is about to send. From now on the stake sees to the
    /// node; if it is never sent, the session is over.
    pub(crate) fn expect(&mut self) -> (Draft, Slot<Created>) {
        let (slot, answer) = Answer::deferred();
        self.state = State::Sent(answer);
        (self.draft.clone(), slot)
    }

    /// Waits for the answer to the create.
    ///
    /// # Cancel safety
    ///
    /// The answer stays with the stake until it has come.
    pub(crate) async fn answer(&mut self) -> Result<(), Failure> {
        let State::Sent(answer) = &mut self.state else {
            return Ok(());
        };
        match answer.await {
            Ok(created) => {
                self.state = State::Known(created);
                Ok(())
            }
            Err(failure) => {
                self.state = State::Absent;
                self.uncertain |= match &failure {
                    Failure::Refused(error) => !Failure::is_certain(error),
                    Failure::Unknown => true,
                    Failure::Over => false,
                };
                Err(failure)
            }
        }
    }

    /// Takes a node that a search has found for the one of this stake.
    pub(crate) fn adopt(&mut self, found: Created) {
        self.state = State::Known(found);
    }

    /// Forgets a node that is certainly gone.
    pub(crate) fn forget(&mut self) {
        self.state = State::Absent;
    }

    /// Sees to the end of the node; `first` is the answer to a delete that is under way. Returns what else may be left.
    fn give_up(&mut self, first: Option<Answer<()>>, report: oneshot::Sender<Deletion>) -> Option<Loose> {
        let (link, parent, guid) = (self.link.clone(), self.draft.parent.clone(), self.guid);
        let (uncertain, mut entered) = (std::mem::take(&mut self.uncertain), self.entered.take());
        let state = std::mem::replace(&mut self.state, State::Absent);
        if uncertain || !matches!(state, State::Absent) {
            // From now on it stands in nobody's way, and every listing that shows it deletes it.
            link.remember_stray(guid);
        }
        let create = match state {
            State::Known(created) => {
                let (path, held) = (parent.child(&created.name), entered.take_if(|_| !uncertain));
                self.link.background(
                    async move {
                        let deletion = deletion::delete(&link, &path, first).await;
                        if let (Deletion::Refused { .. }, Some(held)) = (&deletion, held) {
                            held.stays();
                        }
                        // Nobody may be waiting any more.
                        let _ = report.send(deletion);
                    }
                    .boxed(),
                );
                None
            }
            State::Sent(create) => Some(create),
            State::Absent => None,
        };
        (uncertain || create.is_some()).then_some(Loose { parent, guid, create, uncertain, entered })
    }
}

/// Gives up stakes of one session: sends what deletes their nodes, all in one transaction if there are several, and
/// leaves the rest to the background. The receivers are told how it ended; dropping them stops nothing.
pub(super) fn give_up_all(stakes: &mut [Stake]) -> Vec<oneshot::Receiver<Deletion>> {
    let Some(link) = stakes.first().map(|stake| stake.link.clone()) else {
        return Vec::new();
    };
    let known: Vec<_> = stakes.iter().filter(|stake| stake.created().is_some()).map(Stake::path).collect();
    let connected = !known.is_empty() && link.requests.is_connected();
    let mut firsts = if connected { deletion::send_all(&link, known) } else { Vec::new() }.into_iter();
    if connected {
        // It fails, as it should, while others are in the queue.
        let mut removed: Vec<_> = stakes.iter().flat_map(|stake| stake.removes.iter().cloned()).collect();
        removed.dedup();
        removed.iter().for_each(|path| drop(link.requests.delete(path.as_str())));
    }
    let (mut receivers, mut loose) = (Vec::new(), Vec::new());
    for stake in stakes {
        let (report, receiver) = oneshot::channel();
        let first = if stake.created().is_some() { firsts.next() } else { None };
        loose.extend(stake.give_up(first, report));
        receivers.push(receiver);
    }
    if !loose.is_empty() {
        let tidied = link.clone();
        link.background(async move { deletion::tidy(&tidied, loose).await }.boxed());
    }
    receivers
}

impl Drop for Stake {
    fn drop(&mut self) {
        drop(give_up_all(slice::from_mut(self)));
    }
}

impl fmt::Debug for Stake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stake")
            .field("path", &self.path())
            .field("uncertain", &self.uncertain)
            .finish_non_exhaustive()
    }
}
