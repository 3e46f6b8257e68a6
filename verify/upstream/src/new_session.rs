//! A client that gets another session when it reconnects does not report it.

use zookeeper_client::{Acls, Client, CreateMode, SessionState};

use crate::relay::{Opening, Relay};
use crate::support::{Outcome, Result, UNHURRIED, block_on, connect, create_folder, reconnected};

/// Leaves out the number of the session, as if the server did not know it: some servers then open another session.
fn leave_out_the_session(opening: &mut Opening) {
    opening[20..].fill(0);
}

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let relay = Relay::start(hosts, leave_out_the_session).await?;
        let client = connect(&relay.hosts, UNHURRIED).await?;
        let folder = create_folder(&client, "new-session").await?;
        let first = owner(&client, &format!("{folder}/first")).await?;
        println!("session {}; its node belongs to {first:#x}", client.session_id());

        let state = reconnected(&client, || relay.cut()).await?;
        if state != SessionState::SyncConnected {
            println!("after a reconnect: state {state}");
            return Ok(Outcome::Gone);
        }
        let second = owner(&client, &format!("{folder}/second")).await?;
        println!("after a reconnect: state {state}, session {}", client.session_id());
        println!("its next node belongs to {second:#x}; the first node will go with the first session");
        if second == first {
            return Err("the server has opened no other session".into());
        }
        Ok(Outcome::of(client.session_id().0 == first))
    })
}

/// Creates an ephemeral node; returns the session that it belongs to.
async fn owner(client: &Client, path: &str) -> Result<i64> {
    let (stat, _) = client.create(path, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
    Ok(stat.ephemeral_owner)
}
