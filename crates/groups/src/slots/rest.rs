//! Owns the time for which a number rests: after its holder has gone, no claim returns the number for that long.
//!
//! A number that was used has a node, `<path>/rest-<number>`. It says `used` before a claim returns the number, and `free` when a holder
//! releases it. A claim computes the time from that of `free`, by the servers' clock. If the last holder left `used`, nobody knows when it
//! went. The next claim then writes `free`, and the number begins to rest, even if that claim is dropped. The write of `free` checks the
//! hold, so a late one cannot mark the number of a later holder.

use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::{MutexGuard, Result, Session};

use crate::request::{Found, put, read_all, refused};

const USED: &[u8] = b"used";
const FREE: &[u8] = b"free";

/// Returns since when a number rests, as a key to sort by: 0 if it was never used, `i64::MAX` if it has not begun to rest.
pub(super) fn rests_since(found: &Found) -> i64 {
    match found {
        None => 0,
        Some((data, stat)) if data == FREE => stat.mtime,
        Some(_) => i64::MAX,
    }
}

/// Waits until the number of this hold has rested, and marks it as used. Returns `false` if the hold was lost, if it is not certain that
/// the rest has begun, or, unless the claim `waits`, if the number has not rested yet.
pub(super) async fn has_rested(
    session: &Session,
    (guard, path): (&MutexGuard, &str),
    rest: Duration,
    waits: bool,
) -> Result<bool> {
    let paths = [path.to_owned(), guard.nodes().first().cloned().unwrap_or_default()];
    let [mark, own] = &*read_all(session, Some(Duration::MAX), 2, &paths).await? else { return Ok(false) };
    let (mark, own) = (mark.clone()?, own.clone()?);
    // Our node is not newer than the grant, so this is never too long.
    let Some((_, own)) = own else { return Ok(false) };
    let rested = |since: i64| Duration::from_millis(own.ctime.saturating_sub(since).try_into().unwrap_or(0));
    let left = match rests_since(&mark) {
        0 => Duration::ZERO,
        i64::MAX if begin(guard, path).await => rest,
        // The write may still be done, until this hold is released. So release it, and claim again.
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

/// Lets a number begin to rest. Returns whether it certainly has begun.
pub(super) async fn begin(guard: &MutexGuard, path: &str) -> bool {
    let Ok(mut writer) = guard.check_writer() else { return false };
    writer.add_set_data(path, FREE, None).is_ok() && writer.commit().await.is_ok()
}
