//! Owns the check that we do not wait for a lock that our command line runs under.

use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::{FencingToken, Session};

use crate::acquire::Kind;
use crate::connect::variable;
use crate::exit::{Failure, USAGE};
use crate::queue::Queue;

/// Where a command finds its lock path.
pub(crate) const PATH: &str = "ZK_LOCK_PATH";

/// Where a command finds its fencing token.
pub(crate) const TOKEN: &str = "ZK_LOCK_TOKEN";

/// Where a command finds all locks that it runs under, the innermost last: a line each, with the token and the path.
const LOCKS: &str = "ZK_LOCKS";

/// The variables of a command that runs under a lock.
pub(crate) fn environment(path: &str, token: FencingToken) -> [(&'static str, String); 3] {
    let outer = variable(LOCKS).map_or(String::new(), |outer| format!("{outer}\n"));
    [(PATH, path.to_owned()), (TOKEN, token.to_string()), (LOCKS, format!("{outer}{token} {path}"))]
}

/// The tokens of the locks of a path that we run under, if the variables are true.
fn tokens(path: &str) -> Vec<String> {
    let of_line =
        |line: &str| line.split_once(' ').filter(|(_, held)| *held == path).map(|(token, _)| token.to_owned());
    let mut tokens: Vec<_> = variable(LOCKS).unwrap_or_default().lines().filter_map(of_line).collect();
    tokens.extend(variable(TOKEN).filter(|_| variable(PATH).is_some_and(|held| held == path)));
    tokens
}

/// Refuses to wait for a lock of this kind if a `zklock run` around us holds the path in a way that excludes it.
///
/// The variables outlive the lock in processes that were left behind. So they count only while the lock is held with the token.
pub(crate) async fn refuse_own(session: &Session, path: &str, kind: Kind) -> Result<(), Failure> {
    let tokens = tokens(path);
    if tokens.is_empty() {
        return Ok(());
    }
    let queue = Queue::look(session, path, None).await?;
    let mut holders = queue.entries().iter().map(|entry| &entry.contender).filter(|one| one.is_holder());
    let own = holders.find(|holder| tokens.contains(&holder.token().to_string())).map(|own| own.kind());
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
