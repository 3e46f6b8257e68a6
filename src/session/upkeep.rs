//! Owns the upkeep of trust in one session: who needs it, when it is renewed, and the proof of life that those who look at
//! the same time share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use futures_util::FutureExt;

use crate::options::Trust;
use crate::session::answer::{Answer, Slot};
use crate::session::clock::Moment;
use crate::session::link::{Link, LinkOver, PAUSE, Phase};

/// A hold that needs its session to be trusted.
#[derive(Debug)]
pub(crate) struct Interest {
    link: Arc<Link>,
    trust: Trust,
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.link.interest[self.trust as usize].fetch_sub(1, Ordering::AcqRel);
    }
}

impl Link {
    /// Keeps trust up for as long as the value lives.
    pub(crate) fn interest(self: &Arc<Self>, trust: Trust) -> Interest {
        self.interest[trust as usize].fetch_add(1, Ordering::AcqRel);
        self.renewal_wanted.notify_one();
        Interest { link: self.clone(), trust }
    }

    /// Waits until the session is trusted at this moment; [`Interest`] must be there to make it so.
    pub(crate) async fn trusted(&self, trust: Trust) -> Result<(), LinkOver> {
        while self.requests.ledger().until(trust) <= Moment::now() {
            if let Phase::Over(_) = self.phase() {
                return Err(LinkOver);
            }
            // Rare (a first hold after a stall), so it is asked now and then.
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Asks a quorum whether it honours the session, together with all who ask while that is under way. What an answer is
    /// worth counts from its sending, so one that was sent before is no less true.
    pub(crate) fn check(self: &Arc<Self>) -> Answer<()> {
        let (slot, answer) = Answer::deferred();
        let mut checks = self.checks();
        if let Some(waiting) = &mut *checks {
            waiting.push(slot);
            return answer;
        }
        *checks = Some(vec![slot]);
        let link = self.clone();
        self.burst(move |requests| {
            let check = requests.check("/");
            let work = async move {
                let result = check.await.map(drop);
                let waiting = link.checks().take();
                waiting.into_iter().flatten().for_each(|slot| slot.put(result.clone()));
            };
            vec![work.boxed()]
        });
        answer
    }

    fn checks(&self) -> MutexGuard<'_, Option<Vec<Slot<()>>>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether trust can be renewed at this moment.
    pub(super) fn wants_renewal(&self) -> bool {
        self.phase() == Phase::Open && self.requests.is_connected()
    }

    /// Whether a request should be under way without a connection: the one that can tell that the runtime of a given
    /// client is gone, where its state stays what it was.
    pub(super) fn wants_probe(&self) -> bool {
        self.phase() == Phase::Open && !self.is_owned() && !self.requests.is_connected()
    }

    /// When trust has to be renewed next, and how.
    pub(super) fn renewal(&self) -> Option<(Trust, Moment)> {
        let ledger = self.requests.ledger();
        [Trust::Quorum, Trust::Connection]
            .into_iter()
            .filter(|&trust| self.interest[trust as usize].load(Ordering::Acquire) > 0)
            .map(|trust| (trust, ledger.renewal_due(trust)))
            .min_by_key(|&(_, due)| due)
    }
}
