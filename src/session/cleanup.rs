//! Owns the deletion of nodes until it is certain: of those that are released, and of those that were abandoned.
//!
//! 1. The delete is sent at once if there is a connection, also from a `Drop`; without one, as soon as there is one. The
//!    background takes over if the caller drops the future, after `T/8`, or if the first answer does not settle it.
//! 2. A create whose answer is known returned the node's name. One with an unknown outcome is searched for; see `search`.
//! 3. The end of the session ends the work: the server removes the nodes of a session with it.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::error::ZkError;
use crate::path::LockPath;
use crate::session::operations::{Creation, Refusal, leaves_doubt};
use crate::session::register::{OwnWatch, guid_of};
use crate::session::request::{Answer, Failure, SessionOver, is_certain};
use crate::session::search::search_twice;
use crate::session::server_session::{Lasting, ServerSession, Work};
use crate::session::shared::Names;
use crate::session::undisturbed::Alone;

/// How often a delete is sent again after an error that is not known.
const MAX_ODD: u32 = 50;

/// How a deletion ended, from best to worst.
#[derive(Clone, Debug)]
pub(crate) enum Deletion {
    /// The node was there, and we deleted it.
    Done,
    /// The first delete found no node: someone else deleted it.
    Absent,
    /// The session is over, and the node goes with it.
    SessionOver,
    /// The server does not let us.
    Refused {
        /// Where the node is.
        parent: String,
        error: ZkError,
    },
}

impl Deletion {
    fn badness(&self) -> usize {
        match self {
            Self::Done => 0,
            Self::Absent => 1,
            Self::SessionOver => 2,
            Self::Refused { .. } => 3,
        }
    }
}

/// Abandoned nodes, and the work that remains for them.
pub(super) struct Leftover {
    pub(super) nodes: Vec<LeftNode>,
    /// What to delete with them, where that leaves it empty.
    pub(super) removes: Vec<LockPath>,
    /// The answer to a create that is under way.
    pub(super) creating: Option<Answer<Creation>>,
    /// Whether a create had an unknown outcome.
    pub(super) uncertain: bool,
    /// What is known of the only node, if it was alone in its path when it was granted.
    pub(super) alone: Option<Alone>,
    /// Whether the lock is handed over to nodes of this session that follow the only one.
    pub(super) hands_over: bool,
}

/// A node that nobody wants any more, and that may be there.
pub(super) struct LeftNode {
    pub(super) parent: LockPath,
    pub(super) guid: Uuid,
    /// The path, if it is known to be there.
    pub(super) path: Option<String>,
    /// A watch on it, which the event of its deletion uses up.
    pub(super) _watch: Option<OwnWatch>,
}

/// The answers to the first deletes of known nodes.
type First = BoxFuture<'static, Vec<Result<(), Failure>>>;

/// A deletion that its caller waits for. The background takes over when it is dropped, lasts, or needs more than the first
/// answer: retries need timers, so they run on the session's runtime.
struct Releasing {
    unfinished: Arc<Unfinished>,
    end: oneshot::Receiver<Deletion>,
}

struct Unfinished {
    zk: Arc<ServerSession>,
    /// Nothing once it is done, or in the background.
    deletion: Mutex<Option<UnfinishedDeletion>>,
}

struct UnfinishedDeletion {
    left: Leftover,
    first: First,
    report: oneshot::Sender<Deletion>,
}

impl Unfinished {
    fn take(&self) -> Option<UnfinishedDeletion> {
        self.deletion.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn finish(zk: Arc<ServerSession>, deletion: UnfinishedDeletion) {
        let UnfinishedDeletion { left, first, report } = deletion;
        let firsts = first.await;
        // Nobody may be waiting any more.
        let _ = report.send(clean_up(zk, left, firsts).await);
    }
}

impl Lasting for Unfinished {
    fn work(self: Arc<Self>) -> Work {
        match self.take() {
            Some(deletion) => Self::finish(self.zk.clone(), deletion).boxed(),
            None => ready(()).boxed(),
        }
    }
}

impl Future for Releasing {
    type Output = Deletion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Deletion> {
        let unfinished = self.unfinished.clone();
        let mut deletion = unfinished.deletion.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = &mut *deletion
            && let Poll::Ready(firsts) = waiting.first.poll_unpin(cx)
            && let Some(UnfinishedDeletion { left, report, .. }) = deletion.take()
        {
            if let Some(end) = left.conclude(&unfinished.zk, &firsts) {
                return Poll::Ready(end);
            }
            let deletion = UnfinishedDeletion { left, first: ready(firsts).boxed(), report };
            unfinished.zk.background(Unfinished::finish(unfinished.zk.clone(), deletion).boxed());
        }
        drop(deletion);
        // Polled in any case: the background may take over at any moment, and then wakes this task only by its report. Without
        // a background the session is over.
        self.end.poll_unpin(cx).map(|end| end.unwrap_or(Deletion::SessionOver))
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(deletion) = self.unfinished.take() {
            let zk = &self.unfinished.zk;
            zk.background(Unfinished::finish(zk.clone(), deletion).boxed());
        }
    }
}

/// Deletes what is left; the future returns how that ended for the worst of the known nodes. It need not be polled.
pub(super) fn release(
    zk: &Arc<ServerSession>,
    mut left: Leftover,
) -> impl Future<Output = Deletion> + Send + use<> {
    let paths = left.paths();
    let (report, end) = oneshot::channel();
    let unfinished = |deletion| Arc::new(Unfinished { zk: zk.clone(), deletion: Mutex::new(deletion) });
    if paths.is_empty() || !zk.is_connected() {
        left.nodes.iter().for_each(|node| zk.nodes.leave(node.guid, false));
        let deletion = UnfinishedDeletion { left, first: ready(Vec::new()).boxed(), report };
        zk.background(Unfinished::finish(zk.clone(), deletion).boxed());
        return Releasing { unfinished: unfinished(None), end };
    }
    let mut first = send(zk, &paths);
    remove_empty(zk, &left);
    left.nodes.iter().for_each(|node| zk.nodes.leave(node.guid, left.hands_over));
    if let (Some(alone), [node]) = (left.alone.take(), &left.nodes[..]) {
        let (report, deleted) = oneshot::channel();
        first = first
            .inspect(|answers| {
                if matches!(answers[..], [Ok(())]) {
                    // Nobody may have asked for the lock again.
                    let _ = report.send(());
                }
            })
            .boxed();
        zk.released_alone(node.parent.clone(), alone, deleted);
    }
    let unfinished = unfinished(Some(UnfinishedDeletion { left, first, report }));
    let lasting: Weak<Unfinished> = Arc::downgrade(&unfinished);
    zk.background_if_it_lasts(lasting);
    Releasing { unfinished, end }
}

/// Sends the deletes of paths that are to go when they are empty. They fail, as they should, while others are in the queue.
fn remove_empty(zk: &ServerSession, left: &Leftover) {
    if zk.is_connected() {
        left.removes.iter().for_each(|path| drop(zk.delete(path.as_str(), None)));
    }
}

impl Leftover {
    fn paths(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| node.path.clone()).collect()
    }

    /// How it ended, if the first answers show that nothing is left.
    fn conclude(&self, zk: &ServerSession, firsts: &[Result<(), Failure>]) -> Option<Deletion> {
        let end = match firsts {
            [Err(Failure::Refused(ZkError::NoNode))] => Deletion::Absent,
            firsts if firsts.iter().all(Result::is_ok) => Deletion::Done,
            _ => return None,
        };
        if self.uncertain || self.creating.is_some() {
            return None;
        }
        self.nodes.iter().for_each(|node| zk.nodes.gone(node.guid));
        Some(end)
    }
}

async fn clean_up(zk: Arc<ServerSession>, mut left: Leftover, firsts: Vec<Result<(), Failure>>) -> Deletion {
    if let Some(creating) = left.creating.take() {
        let creation = creating.await;
        left.uncertain |= leaves_doubt(&creation);
        match creation {
            Ok(Ok(created)) => {
                let nodes = left.nodes.iter_mut().zip(created);
                nodes.for_each(|(node, created)| node.path = Some(created.path));
            }
            Err(Failure::SessionOver) => return Deletion::SessionOver,
            Ok(Err(_)) | Err(Failure::Refused(_) | Failure::Unknown) => {}
        }
    }
    let known = left.nodes.iter().filter(|node| node.path.is_some());
    let ends = delete_all(&zk, &left.paths(), firsts).await;
    remove_empty(&zk, &left);
    for (node, end) in known.zip(&ends) {
        if let Deletion::Refused { .. } = end {
            zk.nodes.stays(node.guid);
        }
    }
    if left.uncertain {
        let wanted = left.nodes.into_iter().map(|node| (node.parent, node.guid)).collect();
        zk.clone().background(search_twice(zk.clone(), wanted).boxed());
    } else {
        left.nodes.iter().for_each(|node| zk.nodes.gone(node.guid));
    }
    ends.into_iter().max_by_key(Deletion::badness).unwrap_or(Deletion::Done)
}

/// Sends what deletes `paths`; of several, one transaction, which fails if one of them cannot be deleted. Then the others
/// count as unknown.
pub(super) fn send(zk: &ServerSession, paths: &[String]) -> First {
    if let [path] = paths {
        return zk.delete(path, None).map(|answer| vec![answer]).boxed();
    }
    let count = paths.len();
    let of_one = |answer: &Result<Result<(), Refusal>, Failure>, at| match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Refusal { index, error })) if *index == at => Err(Failure::Refused(error.clone())),
        Ok(Err(_)) => Err(Failure::Unknown),
        Err(failure) => Err(failure.clone()),
    };
    zk.delete_all(paths.to_vec()).map(move |answer| (0..count).map(|at| of_one(&answer, at)).collect()).boxed()
}

/// Deletes `paths` one by one; `firsts` are the answers to deletes that were sent before, if any were.
pub(super) async fn delete_all(
    zk: &ServerSession,
    paths: &[String],
    firsts: Vec<Result<(), Failure>>,
) -> Vec<Deletion> {
    let firsts = firsts.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    join_all(paths.iter().zip(firsts).map(|(path, first)| delete(zk, path, first))).await
}

/// Deletes `path`; `first` is the answer to a delete that was sent before.
async fn delete(zk: &ServerSession, path: &str, mut first: Option<Result<(), Failure>>) -> Deletion {
    match first {
        // What is known need not wait for a connection.
        Some(Ok(())) => return Deletion::Done,
        Some(Err(Failure::Refused(ZkError::NoNode))) => return Deletion::Absent,
        _ => {}
    }
    let (mut sent, mut odd) = (0_usize, 0);
    loop {
        let deleted = zk.retry(|| {
            sent += 1;
            match first.take() {
                Some(answer) => ready(answer).left_future(),
                None => zk.delete(path, None).right_future(),
            }
        });
        match deleted.await {
            Ok(Ok(())) => return Deletion::Done,
            Ok(Err(ZkError::NoNode)) if sent > 1 => return Deletion::Done,
            Ok(Err(ZkError::NoNode)) => return Deletion::Absent,
            Ok(Err(error)) if !is_certain(&error) && odd < MAX_ODD => {
                odd += 1;
                if zk.reconnected(odd).await.is_err() {
                    return Deletion::SessionOver;
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(node = path, %error, "cannot delete a lock node; it stays until its session ends");
                let parent = path.rsplit_once('/').map_or(path, |(parent, _)| parent).to_owned();
                return Deletion::Refused { parent, error };
            }
            Err(SessionOver) => return Deletion::SessionOver,
        }
    }
}

/// Deletes the node `name` under `parent`, whose guid is one of ours, in the background; unless that is under way, or was
/// refused less than a session timeout ago.
pub(crate) fn delete_in_background(zk: &Arc<ServerSession>, parent: &LockPath, name: &str) {
    let Some(guid) = guid_of(name).filter(|guid| zk.nodes.begin_deletion(*guid, name)) else {
        return;
    };
    let (path, name) = (parent.child(name), name.to_owned());
    let first = zk.is_connected().then(|| zk.delete(&path, None));
    let work = zk.clone();
    zk.background(
        async move {
            let first = match first {
                Some(answer) => Some(answer.await),
                None => None,
            };
            if let Deletion::Refused { .. } = delete(&work, &path, first).await {
                tokio::time::sleep(work.timeout()).await;
            }
            work.nodes.end_deletion(guid, &name);
        }
        .boxed(),
    );
}

/// Deletes the abandoned nodes that a listing of `path` shows.
pub(crate) fn delete_abandoned(zk: &Arc<ServerSession>, path: &LockPath, names: &Names) {
    names.abandoned().iter().for_each(|name| delete_in_background(zk, path, name));
}
