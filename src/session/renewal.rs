//! Owns the task that connects a session, and renews it after it has expired.

use std::sync::{Arc, Weak};

use zookeeper_client::SessionInfo;

use crate::session::server_session::{End, Phase, ServerSession};
use crate::session::servers::Servers;
use crate::session::{Current, Inner, ORPHANED, Trial, ended, keeper};
use crate::telemetry;

/// Ends a session that is not over by itself when its runtime is dropped: nothing would renew it.
pub(super) struct Supervisor(pub(super) Weak<Inner>);

impl Drop for Supervisor {
    fn drop(&mut self) {
        let Some(inner) = self.0.upgrade() else { return };
        let is_over = matches!(
            &*inner.current.borrow(),
            Current::Live(zk) if matches!(zk.phase(), Phase::Over(End::Closed(_) | End::Orphaned))
        );
        if !is_over {
            inner.end(ended(ORPHANED));
        }
    }
}

/// Connects the session, and renews it whenever it has expired, for as long as somebody uses it.
pub(super) async fn supervise(supervisor: Supervisor, servers: Arc<Servers>) {
    let session = &supervisor.0;
    loop {
        let Some(zk) = session.upgrade().map(|inner| inner.current.borrow().zk().cloned()) else {
            return;
        };
        let old = match zk {
            None => None,
            Some(zk) => match until_over(&zk, session).await {
                Some(old) => Some(old),
                None => return,
            },
        };
        let wanted = || session.upgrade().is_some_and(|inner| inner.current.borrow().is_trying());
        let refused = || {
            if let Some(inner) = session.upgrade() {
                inner.credentials_are_refused();
            }
        };
        let Some((client, created)) = servers.renew(old.as_ref(), wanted, refused).await else {
            return;
        };
        let Some(inner) = session.upgrade() else {
            return;
        };
        let next = keeper::start(client, Some(created));
        tracing::info!(session = %next.id(), "session is made");
        if old.is_some() {
            telemetry::renewed();
        }
        if !inner.replace(Current::Live(next.clone())) {
            next.close();
            return;
        }
    }
}

/// Waits for the end of a session; returns it, if another is to take its place.
async fn until_over(zk: &Arc<ServerSession>, session: &Weak<Inner>) -> Option<SessionInfo> {
    let end = zk.over().await;
    let (how, trial) = match end {
        End::Expired | End::Unusable => ("has expired", Trial::UnderWay),
        End::AuthFailed => ("was refused its credentials", Trial::Refused),
        End::Closed(_) | End::Orphaned => return None,
    };
    let old = zk.client()?.session().clone();
    tracing::warn!(session = %zk.id(), "session {how}; its locks are lost, and a new one is made");
    if end == End::Unusable {
        // Its client is alive, in a session that nobody asked for.
        zk.drop_client();
    }
    let renewing = Current::Renewing(zk.clone(), trial);
    session.upgrade().is_some_and(|inner| inner.replace(renewing)).then_some(old)
}
