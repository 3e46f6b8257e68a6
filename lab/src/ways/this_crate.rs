//! This crate's `Mutex`, with the defaults of its options.
//!
//! Source: its documentation. It promises exclusion among live sessions, the order of arrival, one wake-up for each
//! release, growing tokens, and a loss that is reported before the next grant. It does not promise exclusion at a
//! resource that ignores the tokens.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_recipes::{DistributedLock, Mutex, Servers, Session};

use super::{LEASE, Pause, Place};
use crate::Outcome;

/// Connects a contender, which has a session of its own.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let hosts: Vec<_> = place.addresses.iter().map(ToString::to_string).collect();
        let servers = Servers::new(&hosts.join(",")).with_session_timeout(LEASE);
        let session = Session::connect(servers).await?;
        let mutex = Mutex::new(&session, &format!("/{}", place.lock))?;
        Ok(Arc::new(mutex) as Arc<dyn DistributedLock>)
    }
    .boxed()
}
