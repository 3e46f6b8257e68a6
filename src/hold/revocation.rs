//! Owns revocation: how a hold learns that somebody asks for the lock back, and passes it on.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::hold::core::Core;
use crate::hold::{HoldState, REVOKE};
use crate::session::drained;

impl Core {
    /// Takes note of the data of a node of the hold, in which somebody may ask for the lock back.
    pub(super) fn saw(&self, data: &[u8]) {
        if data == REVOKE && !self.revoked.swap(true, Ordering::AcqRel) {
            self.stage.send_modify(|_| {});
        }
    }

    /// Resolves when somebody asks for the lock back while it is held. The future does not keep the core.
    pub(super) fn when_revoked(self: &Arc<Self>) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.watch();
        let (mut stages, draining) = (self.stage.subscribe(), self.draining.clone());
        let core = Arc::downgrade(self);
        async move {
            let is_revoked = || core.upgrade().is_some_and(|core| core.revoked.load(Ordering::Acquire));
            let asked = tokio::select! {
                biased;
                asked = async { stages.wait_for(|_| is_revoked()).await.is_ok() } => asked,
                () = drained(draining) => true,
            };
            let state = core.upgrade().map_or(HoldState::Released, |core| core.state());
            if !asked || state.ended().is_some() {
                pending().await
            }
        }
    }
}
