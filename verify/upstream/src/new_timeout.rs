//! `Client::session_timeout` stays what it was at first when a server agrees to another one on a reconnect.

use std::time::Duration;

use crate::relay::{Opening, Relay};
use crate::support::{Outcome, Result, block_on, connect, reattached};

const FIRST: Duration = Duration::from_secs(8);
const SECOND: Duration = Duration::from_secs(2);

/// Asks for less: a server with a lower `maxSessionTimeout` would agree to less, too.
fn ask_for_less(opening: &mut Opening) {
    opening[16..20].copy_from_slice(&2_000_i32.to_be_bytes());
}

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let relay = Relay::start(hosts, ask_for_less).await?;
        let client = connect(&relay.hosts, FIRST).await?;
        println!("the server agrees to {:?}; the client reports {:?}", relay.agreed(), client.session_timeout());
        reattached(&client, || relay.cut()).await?;
        let (agreed, reported) = (relay.agreed(), client.session_timeout());
        println!("after a reconnect the server agrees to {agreed:?}; the client reports {reported:?}");
        if agreed != SECOND {
            return Err("the server has not agreed to another timeout".into());
        }
        Ok(Outcome::of(reported != agreed))
    })
}
