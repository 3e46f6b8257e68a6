//! Owns the changes of the plan node: each is a compare-and-set of the whole node, which is tried again if another change came first.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;
use zookeeper_groups::tools::Rules;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error as ZkError, Permission};
use zookeeper_recipes::{Error, Session};

use crate::cli::{Connection, EndOfChange, ShardsChange};
use crate::connect::{close, connect, has_identity};
use crate::exit::{Failure, NO, OTHER, USAGE};
use crate::json;
use crate::messages::report;
use crate::queue::plain;
use crate::shards::group::{Member, members, plan_node, read, reason};

/// How often a change is tried that others come before.
const ATTEMPTS: usize = 20;

/// How a change has ended.
struct Ended {
    is_changed: bool,
    /// The version of the node.
    version: Option<i32>,
    rules: Rules,
}

pub(crate) async fn change(change: &ShardsChange) -> Result<u8, Failure> {
    let (path, end) = parts(change);
    let session = connect(&end.connection, None).await?;
    let (members, count, _) = members(&session, path).await?;
    if let ShardsChange::Pin(pin) = change
        && count > 0
        && pin.shard >= count
    {
        let message = format!("there is no shard {}: the group has {count}, from 0 on", pin.shard);
        return Err(Failure::new(USAGE, message));
    }
    let ended = write(&session, path, count, change, &end.connection).await;
    close(&session).await;
    let ended = ended?;
    let warnings = warnings(change, &ended, &members);
    let mut out = io::stdout().lock();
    if end.json {
        let answer = json!({ "changed": ended.is_changed, "plan_version": ended.version, "warnings": warnings });
        json::print(&mut out, &answer)?;
    } else if ended.is_changed {
        writeln!(out, "{}", done(change))?;
    }
    out.flush()?;
    if !ended.is_changed {
        report(format_args!("nothing was changed: {}", already(change)));
    }
    warnings.into_iter().for_each(report);
    let was_missing = matches!(change, ShardsChange::Undrain(_) | ShardsChange::Unpin(_)) && !ended.is_changed;
    Ok(if was_missing { NO } else { 0 })
}

fn parts(change: &ShardsChange) -> (&str, &EndOfChange) {
    match change {
        ShardsChange::Drain(of) | ShardsChange::Undrain(of) => (&of.path, &of.end),
        ShardsChange::Pin(of) => (&of.path, &of.end),
        ShardsChange::Unpin(of) => (&of.path, &of.end),
    }
}

fn apply(change: &ShardsChange, rules: &mut Rules) -> Result<bool, Failure> {
    let changed = match change {
        ShardsChange::Drain(of) => rules.drain(&of.name),
        ShardsChange::Undrain(of) => Ok(rules.undrain(&of.name)),
        ShardsChange::Pin(of) => rules.pin(of.shard, &of.name),
        ShardsChange::Unpin(of) => Ok(rules.unpin(of.shard)),
    };
    changed.map_err(|error| Failure::new(USAGE, reason(&error)))
}

async fn write(
    session: &Session,
    path: &str,
    count: u32,
    change: &ShardsChange,
    connection: &Connection,
) -> Result<Ended, Failure> {
    let node = plan_node(path);
    // The answer to a write was lost. If it was done, the next look finds its rule.
    let mut is_in_doubt = false;
    for _ in 0..ATTEMPTS {
        let found = read(session, path).await?;
        let rules = found.as_ref().map_or(Ok(Rules::default()), |(data, _)| Rules::parse(data));
        let mut rules = rules.map_err(|error| {
            let reason = reason(&error);
            Failure::new(OTHER, format!("{node} cannot be used: {reason}; correct it by hand, or delete it"))
        })?;
        let version = found.map(|(_, version)| version);
        if !apply(change, &mut rules)? {
            return Ok(Ended { is_changed: is_in_doubt, version, rules });
        }
        if count > 0
            && let Err(error) = rules.check(count)
        {
            let message = format!("{node} cannot be used by the members, which ignore it: {}", reason(&error));
            return Err(Failure::new(OTHER, format!("{message}; correct it by hand, or with `unpin`")));
        }
        let text = rules.to_string();
        let client = session.client().ok_or(Error::Closed)?;
        let written = match version {
            Some(version) => client.set_data(&node, text.as_bytes(), Some(version)).await.map(|stat| stat.version),
            None => {
                let acls = acls(connection)?;
                let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
                client.create(&node, text.as_bytes(), &options).await.map(|_| 0)
            }
        };
        match written {
            Ok(version) => return Ok(Ended { is_changed: true, version: Some(version), rules }),
            Err(ZkError::ConnectionLoss) => is_in_doubt = true,
            Err(ZkError::BadVersion | ZkError::NodeExists | ZkError::NoNode) => {}
            Err(ZkError::NoAuth) => return Err(Error::NoAuth { path: node }.into()),
            Err(source) => return Err(Error::Client { action: "write", path: node, source }.into()),
        }
    }
    Err(Failure::new(OTHER, format!("{node} is changed all the time by others; try again")))
}

/// Everybody may read the node, and only the one who has created it with credentials may change it.
fn acls(connection: &Connection) -> Result<Vec<Acl>, Failure> {
    Ok(match has_identity(connection)? {
        true => vec![Acl::new(Permission::ALL, AuthId::authed()), Acl::new(Permission::READ, AuthId::anyone())],
        false => Acls::anyone_all().to_vec(),
    })
}

/// What is not as the user may think.
fn warnings(change: &ShardsChange, ended: &Ended, members: &BTreeMap<String, Member>) -> Vec<String> {
    let (name, rules) = (
        match change {
            ShardsChange::Drain(of) | ShardsChange::Undrain(of) => Some(&of.name),
            ShardsChange::Pin(of) => Some(&of.name),
            ShardsChange::Unpin(_) => None,
        },
        &ended.rules,
    );
    let mut warnings = Vec::new();
    if let Some(name) = name.filter(|name| !members.contains_key(*name)) {
        warnings.push(format!("{} is not in the group now", plain(name, 60)));
    } else if let ShardsChange::Pin(of) = change
        && rules.is_drained(&of.name)
    {
        warnings.push(format!("{} is drained, so the pin does not count", plain(&of.name, 60)));
    }
    let mut names = members.keys().peekable();
    if names.peek().is_some() && names.all(|name| rules.is_drained(name)) {
        warnings.push("all members are drained, so no drain counts".to_owned());
    }
    warnings
}

fn done(change: &ShardsChange) -> String {
    match change {
        ShardsChange::Drain(of) => format!("{} is drained", plain(&of.name, 60)),
        ShardsChange::Undrain(of) => format!("{} is not drained any more", plain(&of.name, 60)),
        ShardsChange::Pin(of) => format!("shard {} is pinned to {}", of.shard, plain(&of.name, 60)),
        ShardsChange::Unpin(of) => format!("shard {} is not pinned any more", of.shard),
    }
}

fn already(change: &ShardsChange) -> String {
    match change {
        ShardsChange::Undrain(of) => format!("{} is not drained", plain(&of.name, 60)),
        ShardsChange::Unpin(of) => format!("shard {} is not pinned", of.shard),
        change => done(change),
    }
}
