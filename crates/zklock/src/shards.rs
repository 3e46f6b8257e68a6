//! Owns `zklock shards`: the members and shards of a group, as a table or as JSON.

mod change;
mod group;

use std::io::{self, Write};
use std::iter;

use serde_json::{Value, json};

use crate::cli::Shards;
use crate::connect::{close, connect};
use crate::exit::{Failure, USAGE};
use crate::json;
use crate::list::aligned;
use crate::messages::{count, report};
use crate::queue::{plain, span, utc};
use crate::shards::group::{Group, Member, Shard, State};
use crate::size;

/// The longest name in a table.
const NAME: usize = 40;

const OF_MEMBERS: [&str; 5] = ["MEMBER", "OWNS", "PLANNED", "SINCE", "STATE"];
const OF_SHARDS: [&str; 6] = ["SHARD", "STATE", "OWNER", "FOR", "PLANNED", "WHY"];

/// The columns that are left out on a narrow screen, the first one first.
const LEFT_OUT: [&str; 2] = ["SINCE", "FOR"];

pub(crate) async fn shards(given: &Shards) -> Result<u8, Failure> {
    if let Some(change) = &given.change {
        return change::change(change).await;
    }
    let path = given.path.as_deref().ok_or_else(|| Failure::new(USAGE, "give the path of a group"))?;
    let session = connect(&given.connection, None).await?;
    let group = Group::look(&session, path).await?;
    close(&session).await;
    let mut out = io::stdout().lock();
    if given.json {
        json::print(&mut out, &to_json(path, &group))?;
    } else {
        let shown =
            group.shards.iter().filter(|shard| given.all || shard.state != State::Owned || shard.pinned.is_some());
        let (members, shards) = (group.members.iter().map(of_member), shown.map(of_shard));
        print(&mut out, OF_MEMBERS, members.collect())?;
        let shards: Vec<_> = shards.collect();
        if !shards.is_empty() {
            writeln!(out)?;
            print(&mut out, OF_SHARDS, shards)?;
        }
        writeln!(out, "\n{}", summary(&group))?;
    }
    out.flush()?;
    group.warnings().into_iter().for_each(report);
    Ok(0)
}

fn print<const N: usize>(out: &mut impl Write, columns: [&str; N], rows: Vec<[String; N]>) -> io::Result<()> {
    let rows: Vec<_> = iter::once(columns.map(str::to_owned)).chain(rows).collect();
    out.write_all(aligned(&rows, &[], &LEFT_OUT, size::columns()).as_bytes())
}

fn of_member(member: &Member) -> [String; 5] {
    [
        plain(&member.name, NAME),
        member.owns.to_string(),
        member.planned.to_string(),
        member.since.map_or("-".to_owned(), utc),
        member.state().join(", "),
    ]
}

fn of_shard(shard: &Shard) -> [String; 6] {
    [
        shard.number.to_string(),
        shard.state.to_string(),
        shard.owner.as_deref().map_or("-".to_owned(), |owner| plain(owner, NAME)),
        shard.holds_for.map_or("-".to_owned(), span),
        shard.planned.as_deref().map_or("-".to_owned(), |planned| plain(planned, NAME)),
        shard.why.clone(),
    ]
}

/// How many shards are in which state.
fn summary(group: &Group) -> String {
    let states = [State::Owned, State::Moving, State::ToMove, State::Gone, State::Unassigned];
    let number = |state: &State| group.shards.iter().filter(|shard| shard.state == *state).count();
    let states = states.iter().map(|state| (state, number(state))).filter(|(_, number)| *number > 0);
    let states: Vec<_> = states.map(|(state, number)| format!("{number} {state}")).collect();
    format!("{}: {}", count(group.shards.len(), "shard", "shards"), states.join(", "))
}

fn to_json(path: &str, group: &Group) -> Value {
    let member = |member: &Member| {
        json!({
            "name": member.name,
            "owns": member.owns,
            "planned": member.planned,
            "drained": member.is_drained,
            "leaving": member.is_leaving,
            "since": member.since.map(utc),
            "session": member.session.map(|session| session.to_string()),
        })
    };
    let shard = |shard: &Shard| {
        json!({
            "shard": shard.number,
            "state": shard.state.to_string(),
            "owner": shard.owner,
            "token": shard.token,
            "for_s": shard.holds_for.map(|time| time.as_secs()),
            "planned": shard.planned,
            "pinned": shard.pinned,
            "waiters": shard.waiters,
            "why": shard.why,
        })
    };
    json!({
        "path": path,
        "plan_version": group.node.as_ref().map(|(_, version)| version),
        "warnings": group.warnings(),
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
        "shards": group.shards.iter().map(shard).collect::<Vec<_>>(),
    })
}
