//! Nodes that are still there when everything was given back.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use zookeeper_recipes::zookeeper_client::{Client, Error};

use crate::workload::ROOT;

/// Names what is left under all locks, whose ever it is.
pub(crate) async fn of_all(hosts: &str) -> Result<Vec<String>, Error> {
    let client = Client::connect(hosts).await?;
    client.sync("/").await?;
    nodes(&client).await
}

/// Names what is left of this client's own session, which the end of the session will hide. What is given up is deleted
/// in the background, for which there is time within `limit`.
pub(crate) async fn of_session(client: &Client, limit: Duration) -> Result<Vec<String>, Error> {
    let deadline = Instant::now() + limit;
    loop {
        let left = match own(client).await {
            Ok(left) => left,
            Err(Error::SessionExpired) => return Ok(Vec::new()),
            Err(Error::ConnectionLoss) if Instant::now() < deadline => continue,
            Err(error) => return Err(error),
        };
        let Some(node) = left.first().filter(|_| Instant::now() < deadline) else { return Ok(left) };
        if let (Some(_), gone) = client.check_and_watch_stat(node).await? {
            // If it stays, the others may have gone meanwhile.
            let _ = timeout_at(deadline, gone.changed()).await;
        }
    }
}

async fn own(client: &Client) -> Result<Vec<String>, Error> {
    let mut own = Vec::new();
    for node in nodes(client).await? {
        let stat = client.check_stat(&node).await?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == client.session_id().0) {
            own.push(node);
        }
    }
    Ok(own)
}

async fn nodes(client: &Client) -> Result<Vec<String>, Error> {
    let mut nodes = Vec::new();
    let mut open = vec![ROOT.to_owned()];
    while let Some(dir) = open.pop() {
        let names = match client.list_children(&dir).await {
            Err(Error::NoNode) => continue,
            names => names?,
        };
        for name in names {
            let node = format!("{dir}/{name}");
            // The locks' paths and what they consist of have short names.
            if name.starts_with("_c_") { nodes.push(node) } else { open.push(node) }
        }
    }
    Ok(nodes)
}
