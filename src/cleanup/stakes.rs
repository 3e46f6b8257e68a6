//! Owns [`Stakes`]: the nodes of one acquisition, created and deleted in one transaction.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::cleanup::deletion::Deletion;
use crate::cleanup::stake::{Stake, give_up_all};
use crate::session::{Failure, Link, Refusal, Requests, Work};

type ZkError = zookeeper_client::Error;

/// One node or several, all of one session. Dropping it, at any moment, sees to the deletion of all.
#[derive(Debug)]
pub(crate) struct Stakes(Vec<Stake>);

impl Stakes {
    /// Puts stakes together; there is at least one.
    pub(crate) fn new(stakes: Vec<Stake>) -> Self {
        debug_assert!(!stakes.is_empty(), "nothing is at stake");
        Self(stakes)
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        self.0[0].link()
    }

    pub(crate) fn all(&self) -> &[Stake] {
        &self.0
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Stake] {
        &mut self.0
    }

    pub(crate) fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The paths of the nodes, and the transactions that created them.
    pub(crate) fn nodes(&self) -> Vec<(String, i64)> {
        let created = self.0.iter().filter_map(|stake| Some((stake.path(), stake.created()?.czxid)));
        created.collect()
    }

    /// Takes the answer to the create that the returned closure sends, of all nodes at once.
    pub(crate) fn prepare(&mut self) -> impl FnOnce(&Requests) -> Work + Send + use<> {
        let (mut drafts, mut slots): (Vec<_>, Vec<_>) = self.0.iter_mut().map(Stake::expect).unzip();
        move |requests| {
            if drafts.len() == 1
                && let (Some(draft), Some(slot)) = (drafts.pop(), slots.pop())
            {
                return slot.fill(requests.create(draft));
            }
            let answer = requests.create_all(drafts);
            async move {
                match answer.await {
                    Ok(Ok(created)) => slots.into_iter().zip(created).for_each(|(slot, node)| slot.put(Ok(node))),
                    Ok(Err(Refusal { index, error })) => {
                        for (at, slot) in slots.into_iter().enumerate() {
                            let bystander = at != index && Failure::is_certain(&error);
                            let error = if bystander { ZkError::RuntimeInconsistent } else { error.clone() };
                            slot.put(Err(Failure::Refused(error)));
                        }
                    }
                    Err(failure) => slots.into_iter().for_each(|slot| slot.put(Err(failure.clone()))),
                }
            }
            .boxed()
        }
    }

    /// Waits for the answer to the create; tells which of the nodes was in its way.
    ///
    /// # Cancel safety
    ///
    /// The answers stay with the stakes until they have come.
    pub(crate) async fn answer(&mut self) -> Result<(), (usize, Failure)> {
        let mut failed = None;
        for (index, stake) in self.0.iter_mut().enumerate() {
            match stake.answer().await {
                // Another node was in the way of this one.
                Ok(()) | Err(Failure::Refused(ZkError::RuntimeInconsistent)) => {}
                Err(failure) => failed = failed.or(Some((index, failure))),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Deletes the nodes; the future tells how that ended for the worst of them. Dropping it stops nothing.
    pub(crate) fn release(mut self) -> impl Future<Output = Deletion> + Send + use<> {
        let receivers = give_up_all(&mut self.0);
        async move {
            // The worker is gone only when the session is.
            let ends = join_all(receivers).await.into_iter().map(|end| end.unwrap_or(Deletion::Over));
            ends.reduce(|one, other| if other.badness() > one.badness() { other } else { one })
                .unwrap_or(Deletion::Done)
        }
    }
}

impl Drop for Stakes {
    fn drop(&mut self) {
        drop(give_up_all(&mut self.0));
    }
}
