//! A space in the list of hosts is taken for a part of a name.

use testbed::free_port;
use zookeeper_client::{Client, Error};

use crate::support::{Outcome, Result, TIMEOUT, block_on};

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    // Nobody listens there.
    let closed = format!("127.0.0.1:{}", free_port());
    block_on(async {
        let connect = |hosts: String| async move {
            let connector = Client::connector().with_session_timeout(TIMEOUT).with_fail_eagerly();
            let connected = connector.connect(&hosts).await;
            let outcome = connected.as_ref().map_or_else(|error| format!("{error:?}"), |_| "connected".to_owned());
            println!("connect({hosts:?}): {outcome}");
            connected.err()
        };
        if connect(format!("{closed},{hosts}")).await.is_some() {
            return Err("the server does not answer".into());
        }
        let error = connect(format!("{closed}, {hosts}")).await;
        Ok(Outcome::of(error == Some(Error::NoHosts)))
    })
}
