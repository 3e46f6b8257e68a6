//! Owns the work of deleting: until it is certain, and behind a barrier where that is needed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use uuid::Uuid;

use crate::path::LockPath;
use crate::session::{Answer, Created, Entered, Failure, Link, LinkOver, Names, Refusal, Work};

/// How long after the first search a create of a lost connection may still come to be applied.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// How often a delete is sent again after an error that is not known.
const MAX_ODD: usize = 50;

/// How a deletion ended.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// The node was there, and we deleted it.
    Done,
    /// It was gone before we asked for the first time: someone else deleted it.
    Absent,
    /// The server does not let us.
    Refused {
        /// Where the node is.
        parent: String,
        error: zookeeper_client::Error,
    },
    /// The session is over, and the node goes with it.
    Over,
}

impl Deletion {
    /// Orders the ends of several deletions by how much they tell about all.
    pub(super) fn badness(&self) -> usize {
        match self {
            Self::Done => 0,
            Self::Absent => 1,
            Self::Over => 2,
            Self::Refused { .. } => 3,
        }
    }
}

/// Sends what deletes `paths`; of several, one transaction, which fails if one of them cannot be deleted. Then the others
/// are said to be unknown, and are deleted one by one.
pub(super) fn send_all(link: &Arc<Link>, paths: Vec<String>) -> Vec<Answer<()>> {
    if let [path] = &paths[..] {
        return vec![link.requests.delete(path)];
    }
    let (slots, answers): (Vec<_>, Vec<_>) = paths.iter().map(|_| Answer::deferred()).unzip();
    let all = link.requests.delete_all(paths);
    link.background(
        async move {
            let result = all.await;
            for (at, slot) in slots.into_iter().enumerate() {
                slot.put(match &result {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(Refusal { index, error })) if *index == at => Err(Failure::Refused(error.clone())),
                    Ok(Err(_)) => Err(Failure::Unknown),
                    Err(failure) => Err(failure.clone()),
                });
            }
        }
        .boxed(),
    );
    answers
}

/// Deletes `path`; `first` is the answer to a delete that is under way.
pub(super) async fn delete(link: &Link, path: &str, first: Option<Answer<()>>) -> Deletion {
    let mut answer = first;
    let (mut tried, mut odd) = (false, 0);
    loop {
        if let Some(answer) = answer.take() {
            match answer.await {
                Ok(()) => return Deletion::Done,
                Err(Failure::Refused(zookeeper_client::Error::NoNode)) if tried => {
                    return Deletion::Done;
                }
                Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return Deletion::Absent,
                Err(Failure::Refused(error)) if !Failure::is_certain(&error) && odd < MAX_ODD => {
                    (tried, odd) = (true, odd + 1);
                }
                Err(Failure::Refused(error)) => {
                    tracing::warn!(node = path, %error, "cannot delete a lock node; it stays until its session ends");
                    let parent = path.rsplit_once('/').map_or(path, |(parent, _)| parent).to_owned();
                    return Deletion::Refused { parent, error };
                }
                Err(Failure::Over) => return Deletion::Over,
                Err(Failure::Unknown) => tried = true,
            }
        }
        let ready = if tried { link.settled().await } else { link.connected().await };
        if ready.is_err() {
            return Deletion::Over;
        }
        answer = Some(link.requests.delete(path));
    }
}

/// Deletes `path` without anybody waiting for it, unless that is under way, or was refused less than a session timeout
/// ago: every listing that shows the node asks for this.
pub(crate) fn delete_in_background(link: &Arc<Link>, path: String) {
    if !link.begin_deletion(&path) {
        return;
    }
    let first = link.requests.is_connected().then(|| link.requests.delete(&path));
    let work = link.clone();
    link.background(
        async move {
            if let Deletion::Refused { .. } = delete(&work, &path, first).await {
                tokio::time::sleep(work.timeout()).await;
            }
            work.end_deletion(&path);
        }
        .boxed(),
    );
}

/// What may be left of a stake that was given up, beyond the node that it knew.
pub(super) struct Loose {
    pub(super) parent: LockPath,
    pub(super) guid: Uuid,
    /// The answer to a create that is under way.
    pub(super) create: Option<Answer<Created>>,
    /// Whether a create had an unknown outcome.
    pub(super) uncertain: bool,
    pub(super) entered: Option<Entered>,
}

/// Waits for the answers to creates that nobody wants any more, deletes what comes of them, and searches for what may
/// have come of those without an answer.
pub(super) async fn tidy(link: &Arc<Link>, loose: Vec<Loose>) {
    let (mut created, mut wanted, mut entered) = (Vec::new(), Vec::new(), Vec::new());
    for one in loose {
        let mut uncertain = one.uncertain;
        if let Some(create) = one.create {
            match create.await {
                Ok(node) => created.push(one.parent.child(&node.name)),
                Err(Failure::Refused(error)) => uncertain |= !Failure::is_certain(&error),
                Err(Failure::Unknown) => uncertain = true,
                Err(Failure::Over) => return,
            }
        }
        if uncertain {
            wanted.push((one.parent, one.guid));
        }
        entered.extend(one.entered);
    }
    keep(&mut entered, &delete_all(link, created).await);
    if wanted.is_empty() {
        return;
    }
    let Ok(refused) = search(link, &wanted).await else {
        return;
    };
    keep(&mut entered, &refused);
    if link.is_owned() {
        // What a second look finds is rare, and the end of a session of ours removes it, so closing need not wait for it.
        entered.clear();
    }
    tokio::time::sleep(SECOND_LOOK).await;
    if let Ok(refused) = search(link, &wanted).await {
        keep(&mut entered, &refused);
    }
}

/// Keeps those entered whose nodes could not be deleted.
fn keep(entered: &mut Vec<Entered>, refused: &[String]) {
    let stay = entered.extract_if(.., |one| refused.iter().any(|path| path.contains(&one.guid().to_string())));
    stay.for_each(Entered::stays);
}

/// Deletes what a session has left when it is closed.
pub(super) fn sweep(link: Arc<Link>, left: Vec<(LockPath, Uuid)>) -> Work {
    async move {
        // The end of a session of ours removes what a second look would find; a given one goes on.
        if search(&link, &left).await.is_ok() && !link.is_owned() {
            tokio::time::sleep(SECOND_LOOK).await;
            let _ = search(&link, &left).await;
        }
    }
    .boxed()
}

/// Deletes the nodes with these guids; returns those that cannot be deleted.
async fn search(link: &Arc<Link>, wanted: &[(LockPath, Uuid)]) -> Result<Vec<String>, LinkOver> {
    let found = find_all(link, wanted).await?;
    let nodes = wanted.iter().zip(found).flat_map(|((parent, _), names)| {
        let node = |name: String| parent.child(&name);
        names.into_iter().map(node).collect::<Vec<_>>()
    });
    Ok(delete_all(link, nodes.collect()).await)
}

/// Deletes these nodes; returns those that cannot be deleted.
async fn delete_all(link: &Arc<Link>, paths: Vec<String>) -> Vec<String> {
    if paths.is_empty() || link.connected().await.is_err() {
        return Vec::new();
    }
    let firsts = send_all(link, paths.clone());
    let ends = join_all(paths.iter().zip(firsts).map(|(path, first)| delete(link, path, Some(first)))).await;
    let refused = paths.into_iter().zip(ends).filter(|(_, end)| matches!(end, Deletion::Refused { .. }));
    refused.map(|(path, _)| path).collect()
}

/// The children of each parent with the guid beside it, as of now: behind a barrier, so that nothing sent before is
/// missed. The listings may be shared with other searches, as they are never sent before the barrier.
pub(crate) async fn find_all(link: &Arc<Link>, wanted: &[(LockPath, Uuid)]) -> Result<Vec<Vec<String>>, LinkOver> {
    link.connected().await?;
    'again: loop {
        let (check, barrier) = Answer::deferred();
        // Many may have one parent, which is listed once.
        let parents: HashSet<_> = wanted.iter().map(|(parent, _)| parent.clone()).collect();
        let (slots, listings): (Vec<_>, Vec<_>) = parents.iter().map(|_| Answer::deferred()).unzip();
        let paths: Vec<_> = parents.iter().cloned().collect();
        let asking = link.clone();
        link.burst(move |requests| {
            let first = paths.first().map(|path| check.fill(requests.check(path.as_str())));
            let lists = slots.into_iter().zip(&paths);
            let lists = lists.filter_map(|(slot, path)| asking.list(path, None, slot));
            first.into_iter().chain(lists).collect()
        });
        let barrier = barrier.await;
        let mut names = HashMap::new();
        for (parent, listing) in parents.into_iter().zip(listings) {
            match (&barrier, listing.await) {
                (Err(Failure::Over), _) | (_, Err(Failure::Over)) => return Err(LinkOver),
                (Ok(_), Ok(listed)) => drop(names.insert(parent, listed)),
                // Without a parent there is no child.
                (Ok(_), Err(Failure::Refused(zookeeper_client::Error::NoNode))) => {}
                (Ok(_) | Err(Failure::Refused(_)), Err(Failure::Refused(error))) => {
                    tracing::warn!(path = parent.as_str(), %error, "cannot look for a lock node that may have been left");
                }
                (Err(_), _) | (_, Err(Failure::Unknown)) => {
                    link.settled().await?;
                    continue 'again;
                }
            }
        }
        let found = wanted.iter().map(|(parent, guid)| {
            let names = names.get(parent).map_or(&[][..], |names: &Names| names.as_slice());
            find_guid(names, *guid)
        });
        return Ok(found.collect());
    }
}

/// The names that carry `guid`, and a number: what else does is none of ours.
pub(crate) fn find_guid(names: &[String], guid: Uuid) -> Vec<String> {
    let prefix = format!("_c_{guid}");
    let is_numbered = |rest: &str| {
        let digits = rest.bytes().rev().take(9);
        digits.len() == 9 && digits.clone().all(|byte| byte.is_ascii_digit())
    };
    names.iter().filter(|name| name.strip_prefix(&prefix).is_some_and(is_numbered)).cloned().collect()
}
