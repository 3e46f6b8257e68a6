//! Owns the change of a hold's node into another, without a moment in which neither stands for it.

use crate::error::{Error, Loss, ZkError};
use crate::hold::Hold;
use crate::hold::core::{Core, Owned};
use crate::session::{Created, Failure, OwnNodes, Refusal, SessionOver};

/// Why a node was not changed.
enum Unchanged {
    /// It is as it was.
    Refused(ZkError),
    /// The hold is lost.
    Lost(Loss),
}

impl From<SessionOver> for Unchanged {
    fn from(SessionOver: SessionOver) -> Self {
        Self::Lost(Loss::Expired)
    }
}

impl Hold {
    /// Puts a node with another suffix in the place of the hold's only one, in one transaction. The token stays.
    ///
    /// If that fails, the hold is returned: as it was, or lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the hold, like dropping the guard.
    pub(crate) async fn change(mut self, suffix: &str) -> Result<Self, (Self, Error)> {
        let core = self.core.clone();
        let Some(mut owned) = core.lend() else {
            let loss = core.loss().unwrap_or(Loss::Expired);
            return Err((self, loss.into()));
        };
        // From here on the nodes belong to this future.
        let mut next = match owned.nodes.successor(suffix) {
            Ok(next) => next,
            Err(error) => {
                core.put_back(owned);
                return Err((self, error));
            }
        };
        let changed = tokio::select! {
            biased;
            loss = core.trust_ended() => Err(Unchanged::Lost(loss)),
            changed = exchange(&core, &mut owned.nodes, &mut next) => changed,
        };
        match changed {
            Ok(()) => {
                self.nodes = next.paths().into_iter().map(|(path, _)| path).collect();
                core.put_back(Owned { nodes: next, trust: owned.trust });
                match core.loss() {
                    Some(loss) => Err((self, loss.into())),
                    None => Ok(self),
                }
            }
            Err(Unchanged::Refused(error)) => {
                core.put_back(owned);
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

/// Creates the node of `next` and deletes the old one, until it is certain whether that was done.
async fn exchange(core: &Core, old: &mut OwnNodes, next: &mut OwnNodes) -> Result<(), Unchanged> {
    let zk = next.zk().clone();
    let (old_path, new_path) = (old.as_slice()[0].path().to_owned(), next.as_slice()[0].path().to_owned());
    // Of a node that nobody has written to. Nothing is deleted unseen: somebody may have asked for the lock back.
    let mut version = 0;
    zk.connected().await?;
    let mut lost = 0;
    loop {
        next.create_instead_of(&old_path, version);
        let refusals = match next.created().await {
            Ok(Ok(())) => break,
            Ok(Err(refusals)) => refusals,
            Err(Failure::Unknown) => {
                lost += 1;
                zk.reconnected(lost).await?;
                continue;
            }
            Err(Failure::SessionOver | Failure::Refused(_)) => return Err(SessionOver.into()),
        };
        match refusals.into_iter().next() {
            // One of those before, with an unknown outcome, has done it.
            Some(Refusal { index: 0, error: ZkError::NodeExists }) => match zk.retry(|| zk.stat(&new_path)).await?
            {
                Ok(Some(stat)) if stat.ephemeral_owner == zk.id().0 => {
                    next.adopt(0, Created { path: new_path, czxid: stat.czxid });
                    break;
                }
                Ok(_) | Err(_) => return Err(Unchanged::Lost(Loss::Deleted)),
            },
            Some(Refusal { error: ZkError::BadVersion, .. }) => match zk.retry(|| zk.read(&old_path)).await? {
                Ok((data, stat)) => {
                    core.saw(&data);
                    version = stat.version;
                }
                Err(ZkError::NoNode) => return Err(Unchanged::Lost(Loss::Deleted)),
                Err(error) => return Err(Unchanged::Refused(error)),
            },
            // One of the two was deleted by somebody else.
            Some(Refusal { error: ZkError::NoNode, .. }) => return Err(Unchanged::Lost(Loss::Deleted)),
            Some(Refusal { error, .. }) => return Err(Unchanged::Refused(error)),
            None => return Err(SessionOver.into()),
        }
    }
    old.forget(0);
    // Those that follow it wait for its end.
    next.placed(0);
    Ok(())
}
