//! Owns [`Queue`]: the queue of a lock as last seen, and the grants that were seen before.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::{Contender, Error, Mutex};

/// How many grants are remembered.
const GRANTS: usize = 100;

/// A queue, and what is remembered of it. Nothing was seen yet in the default one.
#[derive(Default)]
pub(crate) struct Queue {
    seen: Option<Vec<Contender>>,
    /// Whom each contender is, in the same order: a revocation overwrites the identifier on the servers.
    identifiers: Vec<String>,
    /// The latest first.
    grants: VecDeque<Grant>,
    /// When a look succeeded last.
    looked: Option<SystemTime>,
    /// Why the last look failed.
    error: Option<String>,
}

/// A hold, by when it was seen.
struct Grant {
    holder: Contender,
    identifier: String,
    /// `None` if it held already at the first look.
    began: Option<SystemTime>,
    ended: Option<SystemTime>,
}

/// Looks at the queue at every interval, for as long as it is polled.
pub(crate) async fn follow(lock: &Mutex, every: Duration, queue: &watch::Sender<Queue>) {
    let mut ticks = interval(every);
    // After a slow answer there is a pause, too.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looked = lock.contenders().await;
        queue.send_if_modified(|queue| queue.update(looked, SystemTime::now()));
    }
}

impl Queue {
    /// Takes in what a look has returned. Returns whether it makes a difference.
    pub(crate) fn update(&mut self, looked: Result<Vec<Contender>, Error>, now: SystemTime) -> bool {
        let error = looked.as_ref().err().map(ToString::to_string);
        let has_changed =
            error != self.error || looked.as_ref().is_ok_and(|seen| Some(seen) != self.seen.as_ref());
        if error.is_none() {
            self.looked = Some(now);
        }
        self.error = error;
        if let (true, Ok(seen)) = (has_changed, looked) {
            self.see(seen, now);
        }
        has_changed
    }

    fn see(&mut self, seen: Vec<Contender>, now: SystemTime) {
        let identifiers: Vec<_> = seen.iter().map(|contender| self.identifier(contender)).collect();
        let holders = || seen.iter().zip(&identifiers).filter(|(contender, _)| contender.is_holder());
        for grant in self.grants.iter_mut().filter(|grant| grant.ended.is_none()) {
            if !holders().any(|(holder, _)| is_same(holder, &grant.holder)) {
                grant.ended = Some(now);
            }
        }
        let began = self.seen.is_some().then_some(now);
        for (holder, identifier) in holders() {
            if !self.grants.iter().any(|grant| is_same(&grant.holder, holder)) {
                let (holder, identifier) = (holder.clone(), identifier.clone());
                self.grants.push_front(Grant { holder, identifier, began, ended: None });
            }
        }
        // A hold that lasts is forgotten last.
        while self.grants.len() > GRANTS
            && let Some(oldest) = self.grants.iter().rposition(|grant| grant.ended.is_some())
        {
            self.grants.remove(oldest);
        }
        (self.seen, self.identifiers) = (Some(seen), identifiers);
    }

    fn identifier(&self, contender: &Contender) -> String {
        let known = self.seen.iter().flatten().zip(&self.identifiers).find(|(known, _)| is_same(known, contender));
        match known {
            Some((_, identifier)) if contender.revoke_requested() => identifier.clone(),
            _ => contender.identifier_lossy().into_owned(),
        }
    }

    /// The contender with this node and token, if it was there at the last look.
    pub(crate) fn find(&self, name: &str, token: &str) -> Option<Contender> {
        let is_meant = |it: &&Contender| it.name() == name && it.token().to_string() == token;
        self.seen.iter().flatten().find(is_meant).cloned()
    }

    /// For the page. Tokens as text: JavaScript loses digits above 2^53. Times in milliseconds.
    pub(crate) fn to_json(&self) -> Value {
        let queue = self.seen.as_ref().map(|seen| {
            let rows = seen.iter().zip(&self.identifiers);
            rows.map(|(contender, identifier)| self.row(contender, identifier)).collect::<Vec<_>>()
        });
        let grants = self.grants.iter().map(|grant| {
            json!({
                "name": grant.holder.name(),
                "identifier": grant.identifier,
                "kind": grant.holder.kind().to_string(),
                "token": grant.holder.token().to_string(),
                "began": grant.began.map(millis),
                "ended": grant.ended.map(millis),
            })
        });
        let looked = self.looked.map(millis);
        json!({ "queue": queue, "grants": grants.collect::<Vec<_>>(), "looked": looked, "error": self.error })
    }

    fn row(&self, contender: &Contender, identifier: &str) -> Value {
        let grant = self.grants.iter().find(|grant| is_same(&grant.holder, contender));
        json!({
            "name": contender.name(),
            "identifier": identifier,
            "kind": contender.kind().to_string(),
            "token": contender.token().to_string(),
            "joined": millis(contender.since()),
            "holds": contender.is_holder(),
            "granted": grant.and_then(|grant| grant.began).map(millis),
            "revoked": contender.revoke_requested(),
        })
    }
}

/// Whether both are the same node.
fn is_same(one: &Contender, other: &Contender) -> bool {
    (one.token(), one.name()) == (other.token(), other.name())
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
