//! Owns the rest of a number: the time in which nobody gets it, after its holder has gone.
//!
//! A number that rests has a node, `<path>/rest-<number>`. It says `used` before a claim returns the number, and `free` when a holder
//! releases it. A claim computes the rest from the time of `free`, by the servers' clock. Behind a holder that left `used`, nobody
//! knows when it has gone, so the next claim writes `free`: the number rests from then on, also if this claim is given up. The write
//! of `free` checks the hold, so one that is late cannot begin the rest of a later holder.

use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::{MutexGuard, Result, Session};

use crate::request::{Found, put, read_all, refused};

const USED: &[u8] = b"used";
const FREE: &[u8] = b"free";

/// The order in which resting numbers are claimed: first those never used, then by the beginning of the rest.
pub(super) fn rests_since(found: &Found) -> i64 {
    match found {
        None => 0,
        Some((data, stat)) if data == FREE => stat.mtime,
        Some(_) => i64::MAX,
    }
}

/// Waits until the number of this hold has rested, and marks it as used. `false` if the hold is lost meanwhile. Unless the claim
/// `waits`, also `false` if the number has not rested yet.
pub(super) async fn has_rested(
    session: &Session,
    (guard, path): (&MutexGuard, &str),
    rest: Duration,
    waits: bool,
) -> Result<bool> {
    let paths = [path.to_owned(), guard.nodes().first().cloned().unwrap_or_default()];
    let [mark, own] = &*read_all(session, Some(Duration::MAX), 2, &paths).await? else { return Ok(false) };
    let (mark, own) = (mark.clone()?, own.clone()?);
    // The own node was created after the number was free, so its time is that of the grant or before.
    let Some((_, own)) = own else { return Ok(false) };
    let rested = |since: i64| Duration::from_millis(own.ctime.saturating_sub(since).try_into().unwrap_or(0));
    let left = match rests_since(&mark) {
        0 => Duration::ZERO,
        i64::MAX if begin(guard, path).await => rest,
        // An attempt that was lost may still begin the rest, until this hold is released.
        i64::MAX => return Ok(false),
        since => rest.saturating_sub(rested(since)),
    };
    if !left.is_zero() && !waits {
        return Ok(false);
    }
    let uses = async {
        sleep(left).await;
        let options = session.lock_options();
        let written =
            session.request(Some(Duration::MAX), |client| async move { put(&client, options, path, USED).await });
        written.await?.map_err(|error| refused("write", path, error))
    };
    guard.run_until_lost(uses).await.map_or(Ok(false), |written| written.map(|()| true))
}

/// Begins the rest of a number. Returns whether it certainly has begun.
pub(super) async fn begin(guard: &MutexGuard, path: &str) -> bool {
    let Ok(mut writer) = guard.check_writer() else { return false };
    writer.add_set_data(path, FREE, None).is_ok() && writer.commit().await.is_ok()
}
