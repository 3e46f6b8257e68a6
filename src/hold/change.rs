//! Owns the change of a hold's node into another, without a moment in which neither stands for it.

use crate::cleanup::{Stake, Stakes};
use crate::error::{Error, Loss};
use crate::hold::Hold;
use crate::hold::core::{Core, Grip};
use crate::session::{Answer, Created, Failure, LinkOver, Refusal};

type ZkError = zookeeper_client::Error;

/// Why a node was not changed.
enum Unchanged {
    /// It is as it was.
    Refused(ZkError),
    /// The hold is lost.
    Lost(Loss),
}

impl From<LinkOver> for Unchanged {
    fn from(LinkOver: LinkOver) -> Self {
        Self::Lost(Loss::Expired)
    }
}

impl Hold {
    /// Puts a node with another suffix in the place of the hold's only one, in one transaction. The token stays.
    ///
    /// If that fails, the hold is given back: as it was, or lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the hold, like dropping the guard.
    pub(crate) async fn change(mut self, suffix: &str) -> Result<Self, (Self, Error)> {
        let core = self.core.clone();
        let Some(mut grip) = core.lend() else {
            let loss = core.loss().unwrap_or(Loss::Expired);
            return Err((self, loss.into()));
        };
        // From here on the nodes belong to this future.
        let mut next = match grip.stakes.all()[0].successor(suffix) {
            Ok(next) => Stakes::new(vec![next]),
            Err(error) => {
                core.give_back(grip);
                return Err((self, error));
            }
        };
        let changed = tokio::select! {
            biased;
            loss = core.trust_ended() => Err(Unchanged::Lost(loss)),
            changed = exchange(&core, &mut grip, &mut next.all_mut()[0]) => changed,
        };
        match changed {
            Ok(()) => {
                (self.nodes, self.czxids) = next.nodes().into_iter().unzip();
                core.give_back(Grip { stakes: next, interest: grip.interest });
                match core.loss() {
                    Some(loss) => Err((self, loss.into())),
                    None => Ok(self),
                }
            }
            Err(Unchanged::Refused(error)) => {
                core.give_back(grip);
                let error = Error::refused("change the node of", self.path(), error);
                Err((self, error))
            }
            Err(Unchanged::Lost(loss)) => {
                core.lose(loss);
                Err((self, core.loss().unwrap_or(loss).into()))
            }
        }
    }
}

/// Creates the node of `next` and deletes that of the grip, until it is certain whether that was done.
async fn exchange(core: &Core, grip: &mut Grip, next: &mut Stake) -> Result<(), Unchanged> {
    let link = next.link().clone();
    let old = grip.stakes.all()[0].path();
    // Of a node that nobody has written to. Nothing is deleted unseen: somebody may have asked for the lock back.
    let mut version = 0;
    link.connected().await?;
    loop {
        let (draft, slot) = next.expect();
        let name = draft.name.clone();
        let (report, refusal) = Answer::deferred();
        let replaced = old.clone();
        link.burst(move |requests| {
            let answer = requests.replace(draft, &replaced, version);
            let work = async move {
                match answer.await {
                    Ok(Ok(created)) => slot.put(Ok(created)),
                    Ok(Err(refused)) => {
                        slot.put(Err(Failure::Refused(refused.error.clone())));
                        report.put(Ok(refused));
                    }
                    Err(failure) => slot.put(Err(failure)),
                }
            };
            vec![Box::pin(work)]
        });
        match next.answer().await {
            Ok(()) => break,
            Err(Failure::Refused(error)) => match refusal.await {
                // One of those before, with an unknown outcome, has done it.
                Ok(Refusal { index: 0, error: ZkError::NodeExists }) => match ours(next, &name).await? {
                    Some(created) => {
                        next.adopt(created);
                        break;
                    }
                    None => return Err(Unchanged::Lost(Loss::Deleted)),
                },
                Ok(Refusal { error: ZkError::BadVersion, .. }) => version = look(core, &old).await?,
                // One of the two was deleted by somebody else.
                Ok(Refusal { error: ZkError::NoNode, .. }) => return Err(Unchanged::Lost(Loss::Deleted)),
                _ => return Err(Unchanged::Refused(error)),
            },
            Err(Failure::Unknown) => link.settled().await?,
            Err(Failure::Over) => return Err(Unchanged::Lost(Loss::Expired)),
        }
    }
    grip.stakes.all_mut()[0].forget();
    Ok(())
}

/// Takes note of what was written to a node of the hold; returns the version that has it.
async fn look(core: &Core, node: &str) -> Result<i32, Unchanged> {
    let link = &core.link;
    loop {
        let path = node.to_owned();
        match link.ask(move |requests| requests.read(&path)).await {
            Ok((data, stat)) => {
                core.saw(&data);
                return Ok(stat.version);
            }
            Err(Failure::Refused(ZkError::NoNode)) => return Err(Unchanged::Lost(Loss::Deleted)),
            Err(Failure::Refused(error)) => return Err(Unchanged::Refused(error)),
            Err(Failure::Unknown) => link.settled().await?,
            Err(Failure::Over) => return Err(Unchanged::Lost(Loss::Expired)),
        }
    }
}

/// The node `name`, if it is there and of our session.
async fn ours(stake: &Stake, name: &str) -> Result<Option<Created>, LinkOver> {
    let link = stake.link();
    loop {
        let path = stake.parent().child(name);
        match link.ask(move |requests| requests.stat(&path)).await {
            Ok(Some(stat)) if stat.ephemeral_owner == link.id().0 => {
                return Ok(Some(Created { name: name.to_owned(), czxid: stat.czxid }));
            }
            Ok(_) | Err(Failure::Refused(_)) => return Ok(None),
            Err(Failure::Unknown) => link.settled().await?,
            Err(Failure::Over) => return Err(LinkOver),
        }
    }
}
