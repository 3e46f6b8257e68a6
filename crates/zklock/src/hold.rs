//! Owns `zklock hold`: a lock that is held without a command, until standard input ends or a signal comes.

use std::io::{self, Write};

use zookeeper_recipes::HoldState;

use crate::acquire::Held;
use crate::cli::{Hold, Wanted};
use crate::exit::Failure;
use crate::input;
use crate::locked::{locked, lost, release, report_suspensions};
use crate::messages::report;
use crate::signals::Signals;

pub(crate) async fn hold(hold: &Hold) -> Result<u8, Failure> {
    let wanted = &hold.wanted;
    locked(&hold.connection, wanted, None, async |held, signals| until_the_end(wanted, held, signals).await).await
}

async fn until_the_end(wanted: &Wanted, held: Held, signals: &mut Signals) -> Result<u8, Failure> {
    const GOES_ON: &str = "the work that it protects is not stopped";
    let Held { guard, monitor } = held;
    let (mut loss, mut revoked, mut is_revoked) = (guard.lost(), guard.revoke_requested(), false);
    let (end, suspensions) = (input::end(), report_suspensions(wanted, monitor));
    tokio::pin!(end, suspensions);
    // A script waits for this line.
    writeln!(io::stdout(), "{}", guard.fencing_token())?;
    loop {
        tokio::select! {
            biased;
            loss = &mut loss => return Ok(lost(wanted, loss, GOES_ON)),
            _ = signals.next() => break,
            () = &mut end => break,
            () = &mut revoked, if !is_revoked => {
                is_revoked = true;
                report(format_args!("a release of {} is requested", wanted.path));
            }
            never = &mut suspensions => match never {},
        }
    }
    if let HoldState::Lost(loss) = guard.state() {
        return Ok(lost(wanted, loss, GOES_ON));
    }
    Ok(match release(wanted, guard).await {
        Ok(()) => 0,
        Err(loss) => lost(wanted, loss, GOES_ON),
    })
}
