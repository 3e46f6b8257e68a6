//! Owns [`Stakes`]: the nodes of one acquisition, created and deleted in one transaction.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, TryFutureExt};

use crate::cleanup::deletion::Deletion;
use crate::cleanup::stake::{Stake, give_up_all};
use crate::session::{Answer, Created, Draft, Failure, Link, Refusal, Requests, Work};

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

    /// Takes the answer to the creates that the returned closure sends: of all nodes at once, and of the containers before
    /// them, of which there are several guesses. When all are refused, the second value has the reason for each.
    pub(crate) fn prepare(
        &mut self,
        guesses: Vec<Vec<String>>,
    ) -> (impl FnOnce(&Requests) -> Work + Send + use<>, Answer<Vec<Refusal>>) {
        let (drafts, slots): (Vec<_>, Vec<_>) = self.0.iter_mut().map(Stake::expect).unzip();
        let (report, refusals) = Answer::deferred();
        let send = move |requests: &Requests| {
            let answer = create(requests, guesses, drafts);
            async move {
                let failure = match answer.await {
                    Ok(Ok(created)) => {
                        slots.into_iter().zip(created).for_each(|(slot, node)| slot.put(Ok(node)));
                        return;
                    }
                    Ok(Err(refused)) => {
                        let uncertain = refused.iter().find(|refusal| !Failure::is_certain(&refusal.error));
                        let error = uncertain.or(refused.first()).map(|refusal| refusal.error.clone());
                        report.put(Ok(refused));
                        error.map_or(Failure::Unknown, Failure::Refused)
                    }
                    Err(failure) => failure,
                };
                slots.into_iter().for_each(|slot| slot.put(Err(failure.clone())));
            }
            .boxed()
        };
        (send, refusals)
    }

    /// Waits for the answer to the creates.
    ///
    /// # Cancel safety
    ///
    /// The answers stay with the stakes until they have come.
    pub(crate) async fn answer(&mut self) -> Result<(), Failure> {
        let mut failed = None;
        for stake in &mut self.0 {
            failed = failed.or(stake.answer().await.err());
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

/// What became of the creates: the nodes, or why each of the transactions was refused.
type Creation = Result<Vec<Created>, Vec<Refusal>>;

/// Sends the creates. That of a single node is no transaction, which would cost a round trip more on servers that do not
/// tell its number.
fn create(
    requests: &Requests,
    guesses: Vec<Vec<String>>,
    mut drafts: Vec<Draft>,
) -> BoxFuture<'static, Result<Creation, Failure>> {
    let is_single = drafts.len() == 1 && guesses.iter().all(Vec::is_empty);
    let answer = if is_single {
        requests.create(drafts.swap_remove(0)).map_ok(|created| Ok(vec![created])).boxed()
    } else {
        requests.create_all(guesses, drafts).boxed()
    };
    let refused = |failure| match failure {
        Failure::Refused(error) => Ok(Err(vec![Refusal { index: 0, error }])),
        failure => Err(failure),
    };
    answer.map(move |result| result.or_else(refused)).boxed()
}

impl Drop for Stakes {
    fn drop(&mut self) {
        drop(give_up_all(&mut self.0));
    }
}
