//! A request whose connection is lost fails with `ConnectionLoss`, or with another error, depending on how it was lost.

use testbed::proxy::{Closing, Cut, Proxy};
use zookeeper_client::{Acls, Error, LockPrefix};

use crate::support::{Outcome, Result, TIMEOUT, block_on, connect, create_folder, soon};

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let mut others = 0;
        for (what, lose) in [
            ("closed", close as fn(&Proxy)),
            ("reset", reset),
            ("silent for 0.4 session timeouts", |proxy| proxy.black_hole_after_request(1)),
        ] {
            let proxy = Proxy::start(hosts).await?;
            let client = connect(&proxy.hosts(), TIMEOUT).await?;
            lose(&proxy);
            let error = soon(client.set_data("/", b"", None)).await?.err().ok_or("there was an answer")?;
            println!("the connection is {what}: {error:?}");
            others += usize::from(error != Error::ConnectionLoss);
        }
        let proxy = Proxy::start(hosts).await?;
        let client = connect(&proxy.hosts(), TIMEOUT).await?;
        let folder = create_folder(&client, "connection-loss").await?;
        proxy.reset();
        reset(&proxy);
        let lock = client.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", Acls::anyone_all());
        match soon(lock).await? {
            Ok(_) => println!("Client::lock, reset after its create: it searches for its node, and is granted"),
            Err(error) => {
                println!("Client::lock, reset after its create: it does not search for its node, {error:?}")
            }
        }
        Ok(Outcome::of(others > 0))
    })
}

fn close(proxy: &Proxy) {
    proxy.cut(Cut::AfterRequest(1));
}

fn reset(proxy: &Proxy) {
    proxy.close_by(Closing::Reset);
    proxy.cut(Cut::AfterRequest(1));
}
