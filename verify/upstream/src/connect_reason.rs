//! A failed connect does not report why: not for any host.

use std::error::Error as _;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use futures_util::future::join_all;
use testbed::free_port;
use zookeeper_client::{Client, Error};

use crate::support::{Outcome, Result, TIMEOUT, block_on};

pub(crate) fn run(_hosts: &str) -> Result<Outcome> {
    // A port on which nobody listens, and one of something else than ZooKeeper.
    let closed = format!("127.0.0.1:{}", free_port());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let hanging_up = listener.local_addr()?;
    thread::spawn(move || listener.incoming().for_each(drop));
    block_on(async {
        let tries = [
            ("nobody listens", closed),
            ("it hangs up", hanging_up.to_string()),
            ("there is no such name", "no-such-host.invalid:2181".to_owned()),
        ];
        let failures = join_all(tries.iter().map(|(_, hosts)| async move {
            let connector = Client::connector().with_session_timeout(TIMEOUT);
            let eager = connector.clone().with_fail_eagerly();
            [(eager.connect(hosts).await, "with_fail_eagerly"), (connector.connect(hosts).await, "by default")]
        }));
        let mut shows_no_reason = true;
        for ((what, _), failures) in tries.iter().zip(failures.await) {
            for (result, how) in failures {
                let error = result.err().ok_or("connected")?;
                println!("{what}, {how}: {error:?}; source: {:?}", error.source());
                shows_no_reason &= matches!(error, Error::NoHosts | Error::Timeout) && error.source().is_none();
            }
        }
        Ok(Outcome::of(shows_no_reason))
    })
}
