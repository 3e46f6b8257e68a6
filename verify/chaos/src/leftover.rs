//! Leftover nodes: those which exist after everything was released.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use zookeeper_recipes::zookeeper_client::{Client, Error};

use crate::workload::ROOT;

/// Leftover nodes of any session.
pub(crate) async fn of_all(hosts: &str) -> Result<Vec<String>, Error> {
    let client = Client::connect(hosts).await?;
    client.sync("/").await?;
    nodes(&client).await
}

/// Leftover nodes of this client's own session, before the end of the session deletes them. Clean-up in the background
/// has until `limit` to finish, and so has a connection that is lost meanwhile.
pub(crate) async fn of_session(client: &Client, limit: Duration) -> Result<Vec<String>, Error> {
    let deadline = Instant::now() + limit;
    loop {
        let is_over = Instant::now() >= deadline;
        match left(client, deadline).await {
            Ok(left) if left.is_empty() || is_over => return Ok(left),
            Err(Error::SessionExpired) => return Ok(Vec::new()),
            Err(error) if is_over => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}

/// What is left. Before the deadline it waits until the first of it has gone, or the deadline has come.
async fn left(client: &Client, deadline: Instant) -> Result<Vec<String>, Error> {
    let left = own(client).await?;
    if let Some(node) = left.first().filter(|_| Instant::now() < deadline)
        && let (Some(_), gone) = client.check_and_watch_stat(node).await?
    {
        // If this node stays, others may have gone meanwhile.
        let _ = timeout_at(deadline, gone.changed()).await;
    }
    Ok(left)
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
            // Lock nodes begin with `_c_`, and a member has its name; everything else is a parent.
            if name.starts_with("_c_") || dir.ends_with("/members") { nodes.push(node) } else { open.push(node) }
        }
    }
    Ok(nodes)
}
