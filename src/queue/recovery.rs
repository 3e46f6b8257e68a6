//! Owns the recovery of a place whose nodes are in doubt: created or not, deleted or only not seen.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::cleanup;
use crate::error::Error;
use crate::queue::attempt::Interrupt;
use crate::queue::place::Place;
use crate::session::{Created, Failure, Link};

impl Place<'_> {
    /// After a create with an unknown outcome: searches for the nodes, and tells whether they are there.
    pub(super) async fn recover(&mut self) -> Result<bool, Interrupt> {
        let link = self.link().clone();
        let wanted: Vec<_> =
            self.stakes.all().iter().map(|stake| (stake.parent().clone(), stake.guid())).collect();
        let found = cleanup::find_all(&link, &wanted).await?;
        let named = found
            .into_iter()
            .enumerate()
            .flat_map(|(stake, names)| names.into_iter().map(move |name| (stake, name)).collect::<Vec<_>>());
        let looked = named.map(async |(stake, name)| {
            let stat = self.lines[self.line_of(stake)].stat(&link, &name).await?;
            Ok::<_, Interrupt>((stake, name, stat))
        });
        let looked = try_join_all(looked.collect::<Vec<_>>()).await?;
        let mut ours: Vec<Vec<Created>> = vec![Vec::new(); self.stakes.all().len()];
        for (stake, name, stat) in looked {
            match stat {
                // A node of a dead session never counts as ours.
                Some(stat) if stat.ephemeral_owner == link.id().0 => {
                    ours[stake].push(Created { name, czxid: stat.czxid });
                }
                Some(_) => self.lines[self.line_of(stake)].delete(&link, &name),
                None => {}
            }
        }
        // Several creates may have been applied. The first of them that is there in full keeps the best place.
        let transactions = ours[0].iter().map(|node| node.czxid);
        let whole = |czxid: &i64| ours.iter().all(|mine| mine.iter().any(|node| node.czxid == *czxid));
        let first = transactions.filter(whole).min();
        for (stake, mine) in ours.into_iter().enumerate() {
            for node in mine {
                if Some(node.czxid) == first {
                    self.stakes.all_mut()[stake].adopt(node);
                } else {
                    self.lines[self.line_of(stake)].delete(&link, &node.name);
                }
            }
        }
        Ok(first.is_some())
    }

    /// A node of ours was not in a listing. That may be our own expiry, which we have not heard of, or a server that lags
    /// behind; only an answer from a quorum tells. The node that is known counts, and no other of its guid.
    pub(super) async fn missing(&mut self, index: usize) -> Result<(), Interrupt> {
        let (link, range) = (self.link().clone(), self.range(index));
        let own = &self.stakes.all()[range.clone()];
        let wanted: Vec<_> = own.iter().map(|stake| (stake.parent().clone(), stake.guid())).collect();
        let found = cleanup::find_all(&link, &wanted).await?;
        for (stake, names) in self.stakes.all_mut()[range].iter_mut().zip(found) {
            let is_there = stake.created().is_some_and(|created| names.contains(&created.name));
            if !is_there {
                let node = stake.path();
                stake.forget();
                return Err(Error::Evicted { node }.into());
            }
        }
        // Where it is there after all, a server should show it now; one that does not is not asked in a hurry.
        Ok(link.settled().await?)
    }
}

/// A node of ours was seen to go. The servers tell that of every node of a session that ends before they tell of the end;
/// whom a quorum answers has been evicted.
pub(super) async fn why_gone(link: &Arc<Link>, node: String) -> Interrupt {
    loop {
        let path = node.clone();
        match link.ask(move |requests| requests.check(&path)).await {
            Ok(_) | Err(Failure::Refused(_)) => return Error::Evicted { node }.into(),
            Err(Failure::Over) => return Interrupt::SessionOver,
            Err(Failure::Unknown) => {
                if link.settled().await.is_err() {
                    return Interrupt::SessionOver;
                }
            }
        }
    }
}
