//! What the pages show, as JSON: tokens as text, because JavaScript loses digits above 2^53, times in milliseconds, and all text of
//! clients escaped.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};
use zookeeper_recipes::Contender;

use crate::Result;
use crate::history::{Grant, Moment, millis};
use crate::locks::{Locks, Round, Status};
use crate::queue::Queue;
use crate::text::plain;

/// The list of all locks that somebody holds or waits for.
pub(crate) fn list(locks: &Locks, round: Round, status: &Status) -> Result<Value> {
    let held: BTreeMap<_, _> = locks
        .history
        .held()?
        .into_iter()
        .map(|grant| ((grant.path, grant.token, grant.name), grant.began))
        .collect();
    let mut rows = Vec::new();
    locks.each(|path, queue| {
        if queue.contenders().next().is_none() {
            return;
        }
        let began = |holder: &Contender| {
            held.get(&(path.to_owned(), holder.token().into(), holder.name().to_owned())).copied()
        };
        let first = queue.holders().next();
        rows.push(json!({
            "key": path,
            "path": plain(path),
            "identifier": first.map(|(_, identifier)| plain(identifier)),
            "granted": queue.holders().filter_map(|(holder, _)| began(holder)).min_by_key(|began| began.at).map(moment),
            "holders": queue.holders().count(),
            "waiters": queue.waiters().count(),
            "waits": queue.waiters().map(|waiter| millis(waiter.since())).min(),
        }));
    });
    let was_seen = round.is_complete || !rows.is_empty();
    let shown = json!({
        "path": plain(&locks.parent), "locks": was_seen.then_some(rows),
        "is_complete": round.is_complete, "denied": round.denied,
    });
    Ok(with_status(shown, status))
}

/// The queue of a lock, and its grants.
pub(crate) fn lock(locks: &Locks, path: &str, queue: &Queue, status: &Status) -> Result<Value> {
    let grants = locks.history.of(path)?;
    let rows = queue.was_seen().then(|| {
        let mut waiters = 0;
        let rows = queue.contenders().map(|(contender, identifier)| {
            waiters += usize::from(!contender.is_holder());
            row(contender, identifier, waiters, &grants)
        });
        rows.collect::<Vec<_>>()
    });
    let held = grants.iter().map(|grant| {
        json!({
            "key": [&grant.name, &grant.token.to_string()],
            "identifier": plain(&grant.identifier),
            "kind": grant.kind,
            "token": grant.token.to_string(),
            "granted": moment(grant.began),
            "ended": grant.ended.map(moment),
        })
    });
    let shown = json!({ "path": plain(path), "hidden": queue.is_hidden, "queue": rows, "grants": held.collect::<Vec<_>>() });
    Ok(with_status(shown, status))
}

fn row(contender: &Contender, identifier: &str, position: usize, grants: &[Grant]) -> Value {
    let token = i64::from(contender.token());
    let grant = grants.iter().find(|grant| (grant.token, grant.name.as_str()) == (token, contender.name()));
    json!({
        "key": [contender.name(), &token.to_string()],
        "position": position,
        "identifier": plain(identifier),
        "kind": contender.kind().to_string(),
        "token": token.to_string(),
        "joined": millis(contender.since()),
        "holds": contender.is_holder(),
        "granted": grant.filter(|_| contender.is_holder()).map(|grant| moment(grant.began)),
        "revoked": contender.revoke_requested(),
    })
}

fn moment(moment: Moment) -> Value {
    json!({ "at": moment.at, "seen": moment.seen })
}

fn with_status(mut shown: Value, status: &Status) -> Value {
    shown["now"] = millis(SystemTime::now()).into();
    shown["looked"] = status.looked.map(millis).into();
    shown["error"] = status.error.as_deref().map(plain).into();
    shown
}
