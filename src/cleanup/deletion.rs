//! Owns the work of deleting: until it is certain, and behind a barrier where that is needed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use uuid::Uuid;

use crate::path::LockPath;
use crate::session::{Answer, Created, Failure, Link, LinkOver, Refusal, Reserved};

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
    Refused(zookeeper_client::Error),
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
            Self::Refused(_) => 3,
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
                    return Deletion::Refused(error);
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

/// Deletes `path` without anybody waiting for it.
pub(crate) fn delete_in_background(link: &Arc<Link>, path: String) {
    let first = link.requests.is_connected().then(|| link.requests.delete(&path));
    let work = link.clone();
    link.background(async move { drop(delete(&work, &path, first).await) }.boxed());
}

/// Waits for the answer to a create that nobody wants any more, and deletes what came of it.
pub(super) async fn delete_created(
    link: &Arc<Link>,
    parent: &LockPath,
    guid: Uuid,
    create: Answer<Created>,
    uncertain: bool,
    reserved: Option<Reserved>,
) {
    let mut uncertain = uncertain;
    match create.await {
        Ok(created) => {
            delete(link, &parent.child(&created.name), None).await;
        }
        Err(Failure::Refused(error)) => uncertain |= !Failure::is_certain(&error),
        Err(Failure::Unknown) => uncertain = true,
        Err(Failure::Over) => return,
    }
    if uncertain {
        search_twice(link, parent, guid, reserved).await;
    }
}

/// Searches for the nodes of a place with an uncertain create, now and a little later, and deletes them.
pub(super) async fn search_twice(link: &Arc<Link>, parent: &LockPath, guid: Uuid, reserved: Option<Reserved>) {
    let searched = search(link, parent, guid).await;
    // What a second look finds is rare, and the end of a session of ours removes it, so closing need not wait for it.
    let _reserved = reserved.filter(|_| !link.is_owned());
    if searched.is_ok() {
        tokio::time::sleep(SECOND_LOOK).await;
        let _ = search(link, parent, guid).await;
    }
}

async fn search(link: &Arc<Link>, parent: &LockPath, guid: Uuid) -> Result<(), LinkOver> {
    for name in find(link, parent, guid).await? {
        delete(link, &parent.child(&name), None).await;
    }
    Ok(())
}

/// The children of `parent` with our `guid`, as of now. See [`find_all`].
pub(crate) async fn find(link: &Arc<Link>, parent: &LockPath, guid: Uuid) -> Result<Vec<String>, LinkOver> {
    Ok(find_all(link, &[(parent.clone(), guid)]).await?.swap_remove(0))
}

/// The children of each parent with the guid beside it, as of now: behind a barrier, so that nothing sent before is
/// missed.
pub(crate) async fn find_all(link: &Arc<Link>, wanted: &[(LockPath, Uuid)]) -> Result<Vec<Vec<String>>, LinkOver> {
    link.connected().await?;
    'again: loop {
        let (check, barrier) = Answer::deferred();
        let (slots, listings): (Vec<_>, Vec<_>) = wanted.iter().map(|_| Answer::deferred()).unzip();
        let parents: Vec<_> = wanted.iter().map(|(parent, _)| parent.clone()).collect();
        link.burst(move |requests| {
            let mut answers = vec![check.fill(requests.check(parents[0].as_str()))];
            let lists = slots.into_iter().zip(&parents);
            answers.extend(lists.map(|(slot, parent)| slot.fill(requests.list(parent.as_str()))));
            answers
        });
        let barrier = barrier.await;
        let mut found = Vec::new();
        for (listing, (parent, guid)) in listings.into_iter().zip(wanted) {
            match (&barrier, listing.await) {
                (Err(Failure::Over), _) | (_, Err(Failure::Over)) => return Err(LinkOver),
                (Ok(_), Ok(names)) => found.push(find_guid(&names, *guid)),
                // Without a parent there is no child.
                (Ok(_), Err(Failure::Refused(zookeeper_client::Error::NoNode))) => found.push(Vec::new()),
                (Ok(_) | Err(Failure::Refused(_)), Err(Failure::Refused(error))) => {
                    tracing::warn!(path = %parent, %error, "cannot look for a lock node that may have been left");
                    found.push(Vec::new());
                }
                (Err(_), _) | (_, Err(Failure::Unknown)) => {
                    link.settled().await?;
                    continue 'again;
                }
            }
        }
        return Ok(found);
    }
}

/// The names that carry `guid`.
pub(crate) fn find_guid(names: &[String], guid: Uuid) -> Vec<String> {
    let prefix = format!("_c_{guid}");
    names.iter().filter(|name| name.starts_with(&prefix)).cloned().collect()
}
