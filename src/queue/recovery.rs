//! Owns the recovery of a place whose nodes are in doubt: created or not, deleted or only not seen.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::error::Error;
use crate::queue::place::Place;
use crate::session::{Created, Interrupt, OwnNode, ServerSession, delete_in_background, find};

impl Place<'_> {
    /// After a create with an unknown outcome: searches for the nodes, and returns whether they are there.
    pub(super) async fn recover(&mut self) -> Result<bool, Interrupt> {
        let zk = self.zk().clone();
        let wanted: Vec<_> = self.nodes.as_slice().iter().map(OwnNode::wanted).collect();
        let found = find(&zk, &wanted).await?.into_iter().enumerate();
        let named = found.flat_map(|(node, names)| names.into_iter().map(move |name| (node, name)));
        let looked = named.map(async |(node, name)| {
            let stat = self.waiters[self.queue_of(node)].queue.stat(&zk, &name).await?;
            Ok::<_, Interrupt>((node, name, stat))
        });
        let looked = try_join_all(looked.collect::<Vec<_>>()).await?;
        let delete = |node: usize, name: &str| delete_in_background(&zk, &wanted[node].0, name);
        let mut ours: Vec<Vec<Created>> = vec![Vec::new(); wanted.len()];
        for (node, name, stat) in looked {
            match stat {
                // A node of a dead session never counts as ours.
                Some(stat) if stat.ephemeral_owner == zk.id().0 => {
                    ours[node].push(Created { path: wanted[node].0.child(&name), czxid: stat.czxid });
                }
                Some(_) => delete(node, &name),
                None => {}
            }
        }
        // Several creates may have been applied. The first of them that is there in full keeps the best place.
        let transactions = ours[0].iter().map(|node| node.czxid);
        let whole = |czxid: &i64| ours.iter().all(|mine| mine.iter().any(|node| node.czxid == *czxid));
        let first = transactions.filter(whole).min();
        for (index, mine) in ours.into_iter().enumerate() {
            for node in mine {
                if Some(node.czxid) == first {
                    self.nodes.adopt(index, node);
                } else {
                    delete(index, node.name());
                }
            }
        }
        Ok(first.is_some())
    }

    /// A node of ours was not in a listing. That may be our own expiry, of which we have not learned, or a server that lags
    /// behind; only an answer from a quorum shows which. The node that is known counts, and no other of its guid.
    pub(super) async fn missing(&mut self, queue: usize) -> Result<(), Interrupt> {
        let zk = self.zk().clone();
        let own: Vec<_> = (0..self.nodes.as_slice().len()).filter(|node| self.queue_of(*node) == queue).collect();
        let nodes = self.nodes.as_slice();
        let wanted: Vec<_> = own.iter().map(|&node| nodes[node].wanted()).collect();
        let found = find(&zk, &wanted).await?;
        for (node, names) in own.into_iter().zip(found) {
            let created = self.nodes.as_slice()[node].created();
            if created.is_none_or(|created| !names.iter().any(|name| name == created.name())) {
                let path = self.nodes.as_slice()[node].path().to_owned();
                self.nodes.forget(node);
                // The session may have ended between the barrier and the listing.
                return Err(why_gone(&zk, path).await);
            }
        }
        // Where it is there after all, a server should show it now; one that does not is not asked in a hurry.
        Ok(zk.reconnected(1).await?)
    }
}

/// A node of ours was seen to go. The servers report that of every node of a session that ends before they report the end;
/// one that a quorum answers has been evicted.
pub(crate) async fn why_gone(zk: &Arc<ServerSession>, node: String) -> Interrupt {
    match zk.retry(|| zk.check(vec![node.clone()])).await {
        Ok(Ok(_)) => Error::Evicted { node }.into(),
        // A server may refuse the whole by itself, which proves nothing of the session.
        Ok(Err(error)) => Error::refused("check", &node, error).into(),
        Err(over) => over.into(),
    }
}
