//! Owns [`Group`]: the members, the plan node and the locks of a group of shards at one moment, and what they mean for each shard.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use zookeeper_groups::Members;
use zookeeper_groups::tools::{Announcement, Plan, Rules};
use zookeeper_recipes::zookeeper_client::{Error as ZkError, SessionId};
use zookeeper_recipes::{Contender, Error, Mutex, Session};

use crate::exit::{Failure, NO};
use crate::queue::plain;

/// How many locks are looked at at once.
const BURST: usize = 64;

/// A group of shards.
pub(crate) struct Group {
    pub(crate) members: Vec<Member>,
    pub(crate) shards: Vec<Shard>,
    /// The rules of the plan node, or why it cannot be used, and the version of the node.
    pub(crate) node: Option<(Result<Rules, Error>, i32)>,
    /// Whether members differ in the number of shards.
    differs: bool,
}

/// A member, or a name that has a rule and is no member.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) owns: usize,
    pub(crate) planned: usize,
    pub(crate) is_drained: bool,
    pub(crate) is_leaving: bool,
    /// When it joined; `None` if it is not in the group.
    pub(crate) since: Option<SystemTime>,
    pub(crate) session: Option<SessionId>,
}

/// What a shard is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// By its planned owner.
    Owned,
    /// The planned owner waits for its lock.
    Moving,
    /// The planned owner does not wait for its lock yet.
    ToMove,
    /// Its owner is not in the group.
    Gone,
    Unassigned,
}

/// A shard, and why it is as it is.
pub(crate) struct Shard {
    pub(crate) number: u32,
    pub(crate) state: State,
    pub(crate) owner: Option<String>,
    pub(crate) token: Option<i64>,
    pub(crate) holds_for: Option<Duration>,
    pub(crate) planned: Option<String>,
    pub(crate) pinned: Option<String>,
    pub(crate) waiters: Vec<String>,
    pub(crate) why: String,
}

/// A node of a shard's lock.
struct Place {
    name: String,
    is_in_group: bool,
    token: i64,
    since: SystemTime,
}

impl Group {
    pub(crate) async fn look(session: &Session, path: &str) -> Result<Self, Failure> {
        let (present, count, differs) = members(session, path).await?;
        let node = read(session, path).await?;
        let usable = |data: &[u8]| {
            let rules = Rules::parse(data)?;
            if present.is_empty() { Ok(rules) } else { rules.check(count).map(|()| rules) }
        };
        let node = node.map(|(data, version)| (usable(&data), version));
        let rules = node.as_ref().and_then(|(rules, _)| rules.as_ref().ok()).cloned().unwrap_or_default();
        let names = present.values().filter(|member| !member.is_leaving).map(|member| member.name.clone());
        let plan = Plan::with_rules(count, names, &rules);
        let of_sessions: BTreeMap<_, _> =
            present.values().filter_map(|member| Some((member.session?.0, member.name.as_str()))).collect();
        let looks = (0..count).map(|shard| look(session, path, shard, &of_sessions));
        let places: Vec<Vec<Place>> = stream::iter(looks).buffered(BURST).try_collect().await?;
        let shards: Vec<_> =
            (0..).zip(&places).map(|(number, places)| shard(number, places, &plan, &rules, &present)).collect();
        let mut members = present;
        let others = shards.iter().filter_map(|shard| shard.owner.as_deref()).chain(rules.names());
        for name in others {
            members.entry(name.to_owned()).or_insert_with(|| Member::absent(name));
        }
        for member in members.values_mut() {
            member.owns = shards.iter().filter(|shard| shard.owner.as_ref() == Some(&member.name)).count();
            member.planned = shards.iter().filter(|shard| shard.planned.as_ref() == Some(&member.name)).count();
            member.is_drained = rules.is_drained(&member.name);
        }
        Ok(Self { members: members.into_values().collect(), shards, node, differs })
    }

    /// What to know of the group.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let present: Vec<_> = self.members.iter().filter(|member| member.since.is_some()).collect();
        if let Some((Err(error), _)) = &self.node {
            warnings.push(format!(
                "the plan node cannot be used: {}; each member keeps the last rules that it could use, and the plan shown here has none",
                reason(error)
            ));
        }
        if self.differs {
            warnings.push("members differ in the number of shards; the largest is shown".to_owned());
        }
        if present.is_empty() {
            warnings.push("the group has no members".to_owned());
        } else if present.iter().all(|member| member.is_drained) {
            warnings.push("all members are drained, so no drain counts".to_owned());
        }
        warnings
    }
}

impl Member {
    fn absent(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            owns: 0,
            planned: 0,
            is_drained: false,
            is_leaving: false,
            since: None,
            session: None,
        }
    }

    /// What is not as usual.
    pub(crate) fn state(&self) -> Vec<&'static str> {
        let states = [
            (self.is_drained, "drained"),
            (self.is_leaving, "leaving"),
            (self.since.is_none(), "not in the group"),
        ];
        states.into_iter().filter_map(|(is_so, state)| is_so.then_some(state)).collect()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "owned",
            Self::Moving => "moving",
            Self::ToMove => "to move",
            Self::Gone => "owner gone",
            Self::Unassigned => "no owner",
        })
    }
}

/// The reason of an error of input.
pub(crate) fn reason(error: &Error) -> String {
    match error {
        Error::InvalidInput { reason, .. } => reason.clone(),
        error => error.to_string(),
    }
}

/// The path of the plan node.
pub(crate) fn plan_node(path: &str) -> String {
    format!("{path}/plan")
}

/// Reads the members of a group by their names, the number of its shards, and whether members differ in it.
pub(crate) async fn members(
    session: &Session,
    path: &str,
) -> Result<(BTreeMap<String, Member>, u32, bool), Failure> {
    let folder = format!("{path}/members");
    let exists = session.request(None, |client| {
        let folder = folder.clone();
        async move { client.check_stat(&folder).await }
    });
    let exists = exists.await?.map_err(|source| Error::Client { action: "read", path: folder.clone(), source })?;
    if exists.is_none() {
        let message =
            format!("{path} is no group of shards: there is no {folder}, which its first member creates");
        return Err(Failure::new(NO, message));
    }
    let (mut members, mut counts) = (BTreeMap::new(), Vec::new());
    for member in Members::new(session, &folder)?.members().await? {
        let announced = Announcement::parse(member.data());
        counts.extend(announced.as_ref().map(Announcement::count));
        let name = member.name().to_owned();
        let member = Member {
            is_leaving: announced.is_some_and(|announced| announced.is_leaving()),
            since: Some(member.since()),
            session: Some(member.session_id()),
            ..Member::absent(&name)
        };
        members.insert(name, member);
    }
    let differs = counts.windows(2).any(|two| two[0] != two[1]);
    Ok((members, counts.into_iter().max().unwrap_or_default(), differs))
}

/// Reads the plan node with its version.
pub(crate) async fn read(session: &Session, path: &str) -> Result<Option<(Vec<u8>, i32)>, Failure> {
    let node = plan_node(path);
    let read = session.request(None, |client| {
        let node = node.clone();
        async move { client.get_data(&node).await }
    });
    match read.await? {
        Ok((data, stat)) => Ok(Some((data, stat.version))),
        Err(ZkError::NoNode) => Ok(None),
        Err(ZkError::NoAuth) => Err(Error::NoAuth { path: node }.into()),
        Err(source) => Err(Error::Client { action: "read", path: node, source }.into()),
    }
}

/// Looks at the lock of a shard. A request to release overwrites the name in a node, so the session comes first.
async fn look(
    session: &Session,
    path: &str,
    shard: u32,
    of_sessions: &BTreeMap<i64, &str>,
) -> Result<Vec<Place>, Failure> {
    let contenders = Mutex::new(session, &format!("{path}/{shard}"))?.contenders().await?;
    let place = |contender: &Contender| {
        let member = of_sessions.get(&contender.session_id().0);
        let identifier = contender.identifier_lossy();
        let name = match member {
            Some(member) => (*member).to_owned(),
            None if identifier.is_empty() => format!("session {}", contender.session_id()),
            None => identifier.into_owned(),
        };
        Place { name, is_in_group: member.is_some(), token: contender.token().get(), since: contender.since() }
    };
    Ok(contenders.iter().map(place).collect())
}

/// What the nodes of its lock, the plan and the rules mean for a shard.
fn shard(number: u32, places: &[Place], plan: &Plan, rules: &Rules, members: &BTreeMap<String, Member>) -> Shard {
    let (owner, planned, pinned) = (places.first(), plan.owner(number), rules.pinned(number));
    let short = |name: &str| plain(name, 60);
    let waits = |name: &str| places.iter().skip(1).any(|place| place.name == name);
    let (state, why) = match (owner, planned) {
        (None, None) => (State::Unassigned, "the group has no member that could own it".to_owned()),
        (None, Some(planned)) => {
            let planned = short(planned);
            let why = "has not queued: members wait out the grace of one that has gone, the change is new, its function returns each time (see its log), or it hangs";
            (State::Unassigned, format!("{planned} {why}"))
        }
        (Some(owner), _) if !owner.is_in_group => {
            let why = "is not in the group: it has crashed or is cut off, and its session has not ended";
            (State::Gone, format!("{} {why}", short(&owner.name)))
        }
        (Some(owner), Some(planned)) if owner.name == planned => (State::Owned, String::new()),
        (Some(owner), Some(planned)) if waits(planned) => {
            (State::Moving, format!("{} waits for {} to end", short(planned), short(&owner.name)))
        }
        (Some(owner), planned) => {
            let planned = planned.map_or_else(|| "another member".to_owned(), short);
            (State::ToMove, format!("{planned} has not queued yet; {} goes on until it has", short(&owner.name)))
        }
    };
    let mut notes = Vec::new();
    match owner.and_then(|owner| members.get(&owner.name)).filter(|_| state != State::Owned) {
        Some(owner) if rules.is_drained(&owner.name) => notes.push("its owner is drained".to_owned()),
        Some(owner) if owner.is_leaving => notes.push("its owner leaves".to_owned()),
        _ => {}
    }
    if let Some(pinned) = pinned {
        let why = match members.contains_key(pinned) {
            _ if planned == Some(pinned) => "",
            true => ", which gets no shards, so the pin does not count",
            false => ", which is not in the group, so the pin does not count",
        };
        notes.push(format!("pinned to {}{why}", short(pinned)));
    }
    notes.extend(Some(why).filter(|why| !why.is_empty()));
    Shard {
        number,
        state,
        owner: owner.map(|owner| owner.name.clone()),
        token: owner.map(|owner| owner.token),
        holds_for: owner.map(|owner| SystemTime::now().duration_since(owner.since).unwrap_or_default()),
        planned: planned.map(str::to_owned),
        pinned: pinned.map(str::to_owned),
        waiters: places.iter().skip(1).map(|place| place.name.clone()).collect(),
        why: notes.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// The state of shard 0 whose lock has these nodes, and why. `a`, `b` and `c` are in the group, and `c` leaves.
    fn state(places: &[&str], rules: &str) -> (State, String) {
        let rules = Rules::parse(format!("version 1\n{rules}").as_bytes()).unwrap();
        let member =
            |name: &str| Member { is_leaving: name == "c", since: Some(UNIX_EPOCH), ..Member::absent(name) };
        let members: BTreeMap<_, _> = ["a", "b", "c"].map(|name| (name.to_owned(), member(name))).into();
        let place = |name: &&str| Place {
            name: (*name).to_owned(),
            is_in_group: members.contains_key(*name),
            token: 1,
            since: UNIX_EPOCH,
        };
        let places: Vec<_> = places.iter().map(place).collect();
        let shard = shard(0, &places, &Plan::with_rules(8, ["a", "b"], &rules), &rules, &members);
        (shard.state, shard.why)
    }

    #[test]
    fn each_state_has_its_reason() {
        for (places, rules, expected, why) in [
            (&["a"][..], "pin 0 a", State::Owned, "pinned to a"),
            (&["a", "b"], "pin 0 b", State::Moving, "pinned to b; b waits for a to end"),
            (&["a"], "pin 0 b", State::ToMove, "pinned to b; b has not queued yet; a goes on until it has"),
            (&["a", "b"], "drain a", State::Moving, "its owner is drained; b waits for a to end"),
            (&["c", "a"], "pin 0 a", State::Moving, "its owner leaves; pinned to a; a waits for c to end"),
            (&["z", "a"], "drain b", State::Gone, "z is not in the group: it has crashed or is cut off"),
            (&[], "drain b", State::Unassigned, "a has not queued: members wait out the grace"),
            (
                &["a"],
                "drain b\npin 0 z",
                State::Owned,
                "pinned to z, which is not in the group, so the pin does not count",
            ),
            (
                &["a"],
                "drain b\npin 0 b",
                State::Owned,
                "pinned to b, which gets no shards, so the pin does not count",
            ),
            (&["a"], "drain b", State::Owned, ""),
        ] {
            let (state, found) = state(places, rules);
            assert!(state == expected && found.starts_with(why), "{places:?} {rules:?}: {state}, {found}");
            assert!(!why.is_empty() || found.is_empty(), "{found}");
        }
    }
}
