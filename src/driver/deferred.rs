//! Owns [`Deferred`]: wake-ups, callbacks and drops that run the user's code, and so wait until the session's lock is
//! released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::watch;
use zookeeper_client::SessionId;

use crate::driver::entry::{Entry, HoldListener, Ready};
use crate::driver::reports::Reports;
use crate::machine::{HoldState, Loss, Op};

#[derive(Default)]
pub(super) struct Deferred {
    /// The wakers of callers, to wake.
    pub(super) wakers: Vec<Waker>,
    /// The acquisitions whose answers and events the session's task has to poll.
    pub(super) unread: VecDeque<Op>,
    pub(super) changed: Vec<(Arc<dyn HoldListener>, HoldState)>,
    /// Entries to drop. The drop may run the user's code, for example that of a waker.
    #[expect(clippy::vec_box, reason = "an entry is dropped as the map had it")]
    pub(super) dropped: Vec<Box<Entry>>,
    pub(super) listeners: Vec<Arc<dyn HoldListener>>,
    pub(super) callers: Vec<Waker>,
    pub(super) wakes_driver: bool,
    pub(super) notifies_changes: bool,
}

impl Deferred {
    /// Takes the deferred work, if there is any.
    pub(super) fn take(&mut self) -> Option<Self> {
        let Self { wakers, unread, changed, dropped, listeners, callers, .. } = self;
        let is_empty = wakers.is_empty()
            && unread.is_empty()
            && changed.is_empty()
            && dropped.is_empty()
            && listeners.is_empty()
            && callers.is_empty();
        (!is_empty || self.wakes_driver || self.notifies_changes).then(|| std::mem::take(self))
    }

    /// Does the deferred work. Call this after the session's lock is released.
    pub(super) fn run(self, session: SessionId, ready: &Ready, reports: &Reports, changes: &watch::Sender<()>) {
        let Self { wakers, unread, changed, dropped, listeners, callers, wakes_driver, notifies_changes } = self;
        if !unread.is_empty() {
            ready.extend(unread);
        }
        let losses: Vec<Loss> = changed.iter().filter_map(|(listener, state)| listener.warns_of(*state)).collect();
        let are_many = losses.len() > 1;
        if let Some(loss) = losses.first().copied().filter(|_| are_many) {
            let count = losses.len();
            reports.push(move || {
                tracing::warn!(%session, count, %loss, cause = loss.as_str(), "locks of a session are lost");
            });
        }
        changed.iter().for_each(|(listener, state)| listener.changed(*state, are_many));
        wakers.into_iter().for_each(Waker::wake);
        if wakes_driver {
            ready.driver.notify_one();
        }
        if notifies_changes {
            changes.send_replace(());
        }
        // Dropping the last reference to a hold closes its span, and dropping a waker runs user code, so both come last.
        reports.flush();
        drop((dropped, listeners, callers));
    }
}
