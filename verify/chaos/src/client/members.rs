//! Members of a group: who joins, leaves and changes its data, and what each process sees.

use std::time::Duration;

use futures_util::future::join;
use tokio::time::timeout;
use zookeeper_groups::{Members, Membership, members::Member};
use zookeeper_recipes::Error;

use super::{Phase, Result, Worker};
use crate::line::What;
use crate::workload::{MEMBERS, path};

/// Belongs to the group under the name of the client: with pauses while there are faults, and all the time after that.
pub(super) async fn belong(mut worker: Worker) -> Result {
    let members = Members::new(&worker.session, &path(MEMBERS))?;
    let name = worker.client().to_owned();
    while !worker.should_stop() {
        let joined = match worker.random.bool() {
            true => members.join(&name, worker.name.as_bytes()).await,
            false => join_when_free(&mut worker, &members, &name).await,
        };
        let member = match joined {
            Ok(member) => member,
            Err(Error::NameTaken { .. } | Error::Unavailable { .. }) => {
                let time = worker.up_to(0.05);
                worker.pause(time, Phase::Stop).await;
                continue;
            }
            Err(_) if worker.should_stop() => break,
            Err(error) => {
                worker.wrong(format!("cannot join: {error:?}"));
                break;
            }
        };
        for change in 0..worker.random.u32(0..4) {
            let time = worker.up_to(1.0);
            worker.pause(time, Phase::Calm).await;
            let data = format!("{} {change}", worker.name);
            set(&mut worker, &member, &data).await;
        }
        let time = worker.up_to(2.0);
        worker.pause(time, Phase::Calm).await;
        if *worker.phase.borrow() != Phase::Storm {
            worker.pause(Duration::MAX, Phase::Stop).await;
        }
        leave(&mut worker, member).await;
    }
    Ok(())
}

/// Joins, unless the client is to end before.
async fn join_when_free(worker: &mut Worker, members: &Members, name: &str) -> Result<Membership, Error> {
    let mut phase = worker.phase.clone();
    tokio::select! {
        joined = members.join_when_free(name, worker.name.as_bytes()) => joined,
        _ = phase.wait_for(|phase| *phase == Phase::Stop) => Err(Error::Closed),
    }
}

async fn set(worker: &mut Worker, member: &Membership, data: &str) {
    let mut phase = worker.phase.clone();
    tokio::select! {
        set = member.set(data.as_bytes()) => match set {
            Ok(()) => {}
            Err(error) => worker.wrong(format!("cannot change the data of a member: {error:?}")),
        },
        _ = phase.wait_for(|phase| *phase == Phase::Stop) => {}
    }
}

/// Leaves, or just drops the membership.
async fn leave(worker: &mut Worker, member: Membership) {
    if worker.random.u8(..3) == 0 {
        return drop(member);
    }
    match member.leave().await {
        Ok(()) | Err(Error::Unavailable { .. }) => {}
        Err(error) => worker.wrong(format!("cannot leave: {error:?}")),
    }
}

/// Lets two memberships of the session want the same name while there are faults: no node may belong to both.
pub(super) async fn twins(mut worker: Worker) -> Result {
    let members = Members::new(&worker.session, &path(MEMBERS))?;
    let name = format!("{}-twins", worker.client());
    while *worker.phase.borrow() == Phase::Storm {
        let limit = worker.up_to(2.0);
        let [one, other] = [(); 2].map(|()| join_soon(&worker, &members, &name, limit));
        let both: [Option<Membership>; 2] = join(one, other).await.into();
        if let [Some(one), Some(other)] = &both
            && let (Some(mine), Some(its)) = (one.generation(), other.generation())
            && mine == its
        {
            worker.wrong(format!("two memberships have the node {mine} of {name}"));
        }
        let time = worker.up_to(0.5);
        worker.pause(time, Phase::Calm).await;
        for member in both.into_iter().flatten() {
            leave(&mut worker, member).await;
        }
    }
    Ok(())
}

/// Joins within this time, and only while there are faults.
async fn join_soon(worker: &Worker, members: &Members, name: &str, limit: Duration) -> Option<Membership> {
    let mut phase = worker.phase.clone();
    tokio::select! {
        joined = timeout(limit, members.join_when_free(name, b"")) => joined.ok()?.ok(),
        _ = phase.wait_for(|phase| *phase != Phase::Storm) => None,
    }
}

/// Follows the members, and records every set.
pub(super) async fn observe(worker: Worker) -> Result {
    let members = Members::new(&worker.session, &path(MEMBERS))?;
    let (mut changes, mut phase) = (members.changes(), worker.phase.clone());
    loop {
        let seen = tokio::select! {
            seen = changes.changed() => seen,
            _ = phase.wait_for(|phase| *phase == Phase::Stop) => return Ok(()),
        };
        match seen {
            Ok(members) => worker.note(What::Seen { members: members.iter().map(describe).collect() }),
            Err(error) => worker.wrong(format!("cannot see the members: {error:?}")),
        }
    }
}

fn describe(member: &Member) -> String {
    described(member.name(), member.generation(), member.data())
}

/// A member of a recorded set.
pub(crate) fn described(name: &str, generation: u64, data: &[u8]) -> String {
    format!("{name} {generation} {}", String::from_utf8_lossy(data))
}
