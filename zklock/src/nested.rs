//! Owns the check that we do not wait for a lock that our command line runs under.

use zookeeper_recipes::{ContenderKind, Session};

use crate::acquire::Kind;
use crate::connect::variable;
use crate::exit::{Failure, USAGE};
use crate::queue::Queue;

/// Where a command finds its lock path.
pub(crate) const PATH: &str = "ZK_LOCK_PATH";

/// Where a command finds its fencing token.
pub(crate) const TOKEN: &str = "ZK_LOCK_TOKEN";

/// Refuses to wait for a lock of this kind if a `zklock run` around us holds the path in a way that excludes it.
///
/// The variables outlive the lock in processes that were left behind. So they count only while the lock is held with the token.
pub(crate) async fn refuse_own(session: &Session, path: &str, kind: Kind) -> Result<(), Failure> {
    let Some(token) = variable(TOKEN).filter(|_| variable(PATH).is_some_and(|held| held == path)) else {
        return Ok(());
    };
    let queue = Queue::look(session, path, None).await?;
    let mut holders = queue.entries().iter().map(|entry| &entry.contender).filter(|one| one.is_holder());
    let own = holders.find(|holder| holder.token().to_string() == token).map(|own| own.kind());
    match (own, kind) {
        (None, _) | (Some(ContenderKind::Read), Kind::Reader) | (Some(ContenderKind::Lease), Kind::Slot(2..)) => {
            Ok(())
        }
        _ => Err(Failure::new(
            USAGE,
            format!("{path} is held by the `zklock run` that this runs under: it would wait for itself"),
        )),
    }
}
