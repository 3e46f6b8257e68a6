//! Long session timeouts are sent as negative numbers, or panic.

use std::panic;
use std::time::Duration;

use zookeeper_client::Client;

use crate::support::{Outcome, Result, block_on};

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    let hosts = hosts.to_owned();
    block_on(async move {
        let connector = || Client::connector();
        let days = Duration::from_secs(30 * 24 * 60 * 60);
        let longest = connector().with_session_timeout(Duration::from_secs(60 * 60)).connect(&hosts).await?;
        println!("asked for an hour: the server agrees to its longest, {:?}", longest.session_timeout());
        let client = connector().with_session_timeout(days).connect(&hosts).await?;
        println!("asked for 30 days: it agrees to {:?}", client.session_timeout());
        panic::set_hook(Box::new(|info| println!("asked for Duration::MAX: {info}")));
        let endless =
            tokio::spawn(async move { connector().with_session_timeout(Duration::MAX).connect(&hosts).await });
        let has_panicked = endless.await.is_err_and(|error| error.is_panic());
        Ok(Outcome::of(has_panicked || client.session_timeout() < longest.session_timeout()))
    })
}
