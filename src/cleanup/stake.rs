//! Owns [`Stake`]: one node of ours, from before its create is sent until it is certainly gone.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::cleanup::deletion::{self, Deletion};
use crate::error::Result;
use crate::options::Options;
use crate::path::LockPath;
use crate::session::{Answer, Created, Failure, Link, Requests, Reserved, Work};

/// One node of ours. Dropping it, at any moment, sees to the node's deletion.
pub(crate) struct Stake {
    link: Arc<Link>,
    parent: LockPath,
    guid: Uuid,
    /// The name up to the sequence number.
    prefix: String,
    options: Options,
    state: State,
    /// Whether a create had an unknown outcome, so that a second node of ours may turn up.
    uncertain: bool,
    reserved: Option<Reserved>,
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
    pub(crate) fn new(link: &Arc<Link>, parent: &LockPath, suffix: &str, options: &Options) -> Result<Self> {
        let guid = Uuid::new_v4();
        let prefix = format!("_c_{guid}{suffix}");
        let bytes = parent.as_str().len() + 1 + prefix.len() + 10;
        Ok(Self {
            reserved: Some(link.nodes.reserve(link.cost(bytes))?),
            link: link.clone(),
            parent: parent.clone(),
            guid,
            prefix,
            options: options.clone(),
            state: State::Absent,
            uncertain: false,
        })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn guid(&self) -> Uuid {
        self.guid
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
        self.parent.child(self.created().map_or(&self.prefix, |created| &created.name))
    }

    /// Takes the answer to a create that the returned closure sends. Until it does, and after, the stake sees to the
    /// node; if it never does, the session is over.
    pub(crate) fn prepare(&mut self) -> impl FnOnce(&Requests) -> Work + Send + use<> {
        let (slot, answer) = Answer::deferred();
        self.state = State::Sent(answer);
        let (parent, prefix, options) = (self.parent.clone(), self.prefix.clone(), self.options.clone());
        move |requests| slot.fill(requests.create(parent.as_str(), &prefix, &options))
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

    /// Deletes the node; the receiver is told how that ended. Dropping the receiver stops nothing.
    pub(crate) fn release(mut self) -> oneshot::Receiver<Deletion> {
        let (report, receiver) = oneshot::channel();
        self.give_up(Some(report));
        receiver
    }

    fn give_up(&mut self, report: Option<oneshot::Sender<Deletion>>) {
        let (link, parent, guid) = (self.link.clone(), self.parent.clone(), self.guid);
        let (uncertain, reserved) = (std::mem::take(&mut self.uncertain), self.reserved.take());
        let state = std::mem::replace(&mut self.state, State::Absent);
        if uncertain || !matches!(state, State::Absent) {
            // From now on it stands in nobody's way, and every listing that shows it deletes it.
            link.remember_stray(guid);
        }
        match state {
            State::Known(created) => {
                let path = parent.child(&created.name);
                let connected = link.requests.is_connected();
                let first = connected.then(|| link.requests.delete(&path));
                if connected && self.options.path_removal() {
                    // It fails, as it should, while others are in the queue.
                    drop(link.requests.delete(parent.as_str()));
                }
                self.link.background(
                    async move {
                        let deletion = deletion::delete(&link, &path, first).await;
                        if let Some(report) = report {
                            // Nobody may be waiting any more.
                            let _ = report.send(deletion);
                        }
                        if uncertain {
                            deletion::search_twice(&link, &parent, guid, reserved).await;
                        }
                    }
                    .boxed(),
                );
            }
            State::Sent(create) => self.link.background(
                async move { deletion::delete_created(&link, &parent, guid, create, uncertain, reserved).await }
                    .boxed(),
            ),
            State::Absent if uncertain => self
                .link
                .background(async move { deletion::search_twice(&link, &parent, guid, reserved).await }.boxed()),
            State::Absent => {}
        }
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        self.give_up(None);
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
