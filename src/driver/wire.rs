//! Turns the machine's requests ([`Ask`]) into requests of the client, and the answers into outcomes. The first poll of an
//! [`Answer`] sends the request. If an `Ask` takes several requests, that poll sends those that need no earlier answer.

mod create;

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, TryFutureExt};
use zookeeper_client::{Client, CreateMode, MultiWriteError, MultiWriteResult, MultiWriter, OneshotWatcher, Stat};

use crate::driver::draft::Draft;
use crate::driver::names::{self, Czxids, Paths, Texts};
use crate::driver::wire::create::Create;
use crate::error::{Error, ZkError};
use crate::locked::locked;
use crate::machine::{Ask, Name, Outcome, Path};
use crate::options::REVOKE;

/// The largest request that we send, in bytes. By default a server takes 1 MiB (`jute.maxbuffer`), headers included.
pub(crate) const MAX_REQUEST_BYTES: usize = 1_000_000;

/// The `action` of the `Error::Client` that a create returns when the servers throttle it.
const THROTTLED: &str = "create a node (the servers throttle it, or the session has too many) under";

/// The answer to a request: the outcome for the machine, and values for the driver and the caller.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) outcome: Outcome,
    pub(super) watcher: Option<OneshotWatcher>,
    pub(super) texts: Option<Texts>,
    /// Whether the data of our own node ask for its release.
    pub(super) asks_back: bool,
    /// The error for the caller, in case this answer ends the call.
    pub(super) refusal: Option<Error>,
    /// Whether the server has throttled the request.
    pub(super) is_throttled: bool,
    pub(super) runtime_is_gone: bool,
}

impl From<Outcome> for Answered {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, ..Self::default() }
    }
}

impl Answered {
    /// Returns the answer to a failed request. `refusal` makes the error for the caller, in case the failure ends the call.
    fn failed(error: ZkError, refusal: impl FnOnce(ZkError) -> Error) -> Self {
        let answered = Self::unanswered(error.clone());
        let is_over =
            answered.is_throttled || matches!(answered.outcome, Outcome::Refused | Outcome::UnknownError);
        Self { refusal: is_over.then(|| refusal(error)), ..answered }
    }

    /// Returns the answer to a failed request, without an error for the caller.
    fn unanswered(error: ZkError) -> Self {
        let (is_throttled, runtime_is_gone) = (error == ZkError::Throttled, runtime_is_gone(&error));
        Self { is_throttled, runtime_is_gone, ..failed(&error).into() }
    }

    fn refused(refusal: Error) -> Self {
        Self { refusal: Some(refusal), ..Outcome::Refused.into() }
    }
}

pub(super) type Answer = BoxFuture<'static, Answered>;

/// Returns the outcome of a request that failed with `error`.
fn failed(error: &ZkError) -> Outcome {
    match error {
        ZkError::NoNode => Outcome::NoNode,
        ZkError::NodeExists
        | ZkError::NoAuth
        | ZkError::BadVersion
        | ZkError::InvalidAcl
        | ZkError::Unimplemented
        | ZkError::NoChildrenForEphemerals
        | ZkError::NotEmpty
        | ZkError::QuotaExceeded
        | ZkError::BadArguments(_) => Outcome::Refused,
        ZkError::UnexpectedErrorCode(_) => Outcome::UnknownError,
        // After a connection error or an undecodable answer, a write may have been done. After an error of a read-only
        // server, a retry may help. The end of the session shows in the client's state.
        _ => Outcome::Unknown,
    }
}

/// Whether the request was refused. Otherwise the request may have been done, or may still be. An error code that the client
/// does not know counts as a refusal.
pub(crate) fn is_refusal(error: &ZkError) -> bool {
    failed(error) != Outcome::Unknown
}

/// Whether this is the error of a client whose runtime is gone. Such a client takes no requests, and its state never
/// changes.
pub(crate) fn runtime_is_gone(error: &ZkError) -> bool {
    matches!(error, ZkError::UnexpectedError(text) if text.starts_with("expect error state"))
}

/// Returns the name of a request in metrics.
pub(super) fn name(ask: &Ask) -> &'static str {
    match ask {
        Ask::Create { .. } => "create",
        Ask::Replace { .. } => "replace",
        Ask::Delete { nodes, .. } if nodes.len() > 1 => "delete_many",
        Ask::Delete { .. } => "delete",
        Ask::List { watches: true, .. } | Ask::Watch { .. } => "watch_children",
        Ask::List { .. } => "list",
        Ask::WatchOwn { .. } => "watch_data",
        Ask::ListOwn => "list_ephemerals",
        Ask::Read => "stat",
        Ask::Barrier { .. } | Ask::Confirm { .. } | Ask::Check => "check",
    }
}

/// Builds the request for `ask`. The first poll of the answer sends it. `czxid`: the czxid of the acquisition's nodes, 0 if
/// unknown.
pub(super) fn send(client: &Arc<Client>, paths: &mut Paths, ask: &Ask, draft: &Arc<Draft>, czxid: i64) -> Answer {
    let (client, draft) = (Arc::clone(client), Arc::clone(draft));
    let texts = |paths: &Paths, nodes: &[(Path, Name)]| -> Vec<String> {
        nodes.iter().map(|(path, name)| names::own(&paths.text(*path), *name)).collect()
    };
    match ask {
        Ask::Create { guid, spec, counts, creates_parents, .. } => {
            paths.nonce = names::nonce(*guid);
            let turns = spec.admission.turn().map(|path| paths.text(*path));
            let create = Create::new(client, *guid, (*counts, turns), draft);
            if *creates_parents { create.with_parents().boxed() } else { create.without_parents().boxed() }
        }
        Ask::List { path, watches, .. } => {
            let (czxids, path) = (paths.czxids(*path), paths.text(*path));
            List { client, path, watches: *watches, czxids, nonce: paths.nonce }.run().boxed()
        }
        Ask::Barrier { path, .. } => {
            let checked = check(client, vec![paths.text(*path).to_string()]);
            checked
                .map(|answered| match answered.outcome {
                    outcome @ (Outcome::Done | Outcome::NoNode) => outcome.into(),
                    // Any other answer may come from one server alone, without a quorum.
                    _ => Answered { runtime_is_gone: answered.runtime_is_gone, ..Outcome::Unknown.into() },
                })
                .boxed()
        }
        Ask::Check => check(client, vec!["/".to_owned()]).boxed(),
        Ask::Confirm { nodes, .. } => check(client, texts(paths, nodes)).boxed(),
        Ask::Watch { path, name, .. } => match paths.node(*path, *name) {
            Some(node) => {
                let (node, czxids, name) = (node.join("/"), paths.czxids(*path), *name);
                async move { watch(&client, &node, name, &czxids).await }.boxed()
            }
            // The last listing does not show the node.
            None => std::future::ready(Outcome::NoNode.into()).boxed(),
        },
        Ask::WatchOwn { path, name, .. } => {
            let node = names::own(&paths.text(*path), *name);
            async move {
                match client.get_and_watch_data(&node).await {
                    // A server never assigns our name twice, but a person may have created a node of this name.
                    Ok((_, stat, _)) if !is_own(&client, &stat, czxid) => Outcome::Exists.into(),
                    Ok((data, stat, watcher)) => {
                        Answered { watcher: Some(watcher), asks_back: data == REVOKE, ..there(&stat).into() }
                    }
                    Err(error) => Answered::unanswered(error),
                }
            }
            .boxed()
        }
        Ask::Delete { nodes, .. } => {
            let nodes = texts(paths, nodes);
            async move { delete(&client, &nodes, &draft).await }.boxed()
        }
        Ask::Replace { path, name, guid, .. } => {
            let reader = name.reader(*guid);
            let path = paths.text(*path);
            let (writer, text) = (names::own(&path, *name), names::own(&path, reader));
            async move { replace(&client, &path, &text, reader, &writer, &draft).await }.boxed()
        }
        Ask::ListOwn => async move { list_own(&client).await }.boxed(),
        Ask::Read => {
            let read = async move { client.check_stat("/").await };
            read.map(|answer| answer.map_or_else(Answered::unanswered, |_| Outcome::Done.into())).boxed()
        }
    }
}

/// Whether a stat belongs to the node that this session created.
fn is_own(client: &Client, stat: &Stat, czxid: i64) -> bool {
    stat.ephemeral_owner == client.session_id().0 && (czxid == 0 || stat.czxid == czxid)
}

fn there(stat: &Stat) -> Outcome {
    Outcome::Stat { owner: stat.ephemeral_owner.cast_unsigned() }
}

/// The result of a transaction. The inner error is a refusal: of the operation with this index, or of the whole transaction.
/// After an outer error, the transaction may have been done, or may still be.
type Parts = Result<Result<Vec<MultiWriteResult>, (Option<usize>, ZkError)>, ZkError>;

fn parts(result: Result<Vec<MultiWriteResult>, MultiWriteError>) -> Parts {
    let (part, error) = match result {
        Ok(results) => return Ok(Ok(results)),
        Err(MultiWriteError::OperationFailed { index, source }) => (Some(index), source),
        Err(MultiWriteError::RequestFailed { source }) => (None, source),
    };
    // The error of an operation may be `SessionExpired`, because the session is checked with each operation. That is no refusal.
    if is_refusal(&error) { Ok(Err((part, error))) } else { Err(error) }
}

fn whole(result: Result<Vec<MultiWriteResult>, ZkError>) -> Parts {
    parts(result.map_err(|source| MultiWriteError::RequestFailed { source }))
}

/// Sends a transaction of the operations that `add` puts into it. The call sends the transaction, not the first poll.
fn transact<'a>(
    client: &'a Client,
    add: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), ZkError>,
) -> BoxFuture<'a, Parts> {
    let mut writer = client.new_multi_writer();
    let committed = add(&mut writer).map(|()| writer.commit());
    async move {
        match committed {
            Ok(committed) => parts(committed.await),
            Err(error) => whole(Err(error)),
        }
    }
    .boxed()
}

/// Asks a quorum whether all nodes exist, by a transaction of checks.
async fn check(client: Arc<Client>, nodes: Vec<String>) -> Answered {
    let refusal = |error| Error::refused("check", nodes.first().map_or("/", String::as_str), error);
    let mut rest = nodes.as_slice();
    while !rest.is_empty() {
        let sent = transact(&client, |writer| rest.iter().try_for_each(|node| writer.add_check_version(node, -1)));
        match sent.await {
            Ok(Ok(_)) => break,
            Ok(Err((Some(index), ZkError::NoNode))) => {
                let evicted = rest.get(index).map(|node| Error::Evicted { node: node.clone() });
                return Answered { refusal: evicted, ..Outcome::NoNode.into() };
            }
            // A quorum has refused the check of this node, for lack of READ, so the node exists. The later nodes were not
            // checked.
            Ok(Err((Some(index), _))) => rest = rest.get(index + 1..).unwrap_or_default(),
            // A server may refuse the whole transaction by itself, which proves nothing about the nodes.
            Ok(Err((None, error))) => {
                return Answered { outcome: Outcome::Refused, ..Answered::failed(error, refusal) };
            }
            Err(error) => return Answered::failed(error, refusal),
        }
    }
    Outcome::Done.into()
}

/// Watches the children of a contender's node. The node has no children, so the watch fires when the node is deleted, not
/// when its data change.
async fn watch(client: &Client, node: &str, name: Name, czxids: &Czxids) -> Answered {
    match client.get_and_watch_children(node).await {
        Ok((_, stat, watcher)) => {
            let known = locked(czxids).get_mut(&name).map(|known| std::mem::replace(known, stat.czxid));
            if known.is_some_and(|known| known != stat.czxid) {
                // Near the wrap of the counter, a name may be assigned again, to a younger node.
                return Outcome::NoNode.into();
            }
            Answered { watcher: Some(watcher), ..there(&stat).into() }
        }
        Err(error) => Answered::unanswered(error),
    }
}

/// Deletes nodes, and then the paths of `draft.removes`. The delete of a path fails, as it should, while the path has children.
async fn delete(client: &Client, nodes: &[String], draft: &Draft) -> Answered {
    let deleted = match nodes {
        [node] => client.delete(node, None).map_ok(|()| Vec::new()).map(whole).left_future(),
        nodes => transact(client, |writer| nodes.iter().try_for_each(|node| writer.add_delete(node, None)))
            .right_future(),
    };
    // The call sends a delete, not the poll. So dropping the future only discards the answer.
    draft.removes.iter().for_each(|path| drop(client.delete(path.as_str(), None)));
    let (part, error) = match deleted.await {
        Ok(Ok(_)) => return Outcome::Done.into(),
        Ok(Err(refused)) => refused,
        Err(error) => (None, error),
    };
    let node = nodes.get(part.unwrap_or_default()).map_or("/", String::as_str);
    let parent = node.rsplit_once('/').map_or(node, |(parent, _)| parent);
    Answered::failed(error, |error| Error::refused("delete a node of", parent, error))
}

/// Replaces a writer's node by a reader's. The delete checks the version, so that data written to the writer's node, such as a
/// revocation request, are read first.
async fn replace(client: &Client, path: &str, text: &str, reader: Name, writer: &str, draft: &Draft) -> Answered {
    let mode = CreateMode::Ephemeral.with_acls(draft.options.acls());
    // The version of a node whose data were never changed.
    let (mut version, mut asks_back) = (0, false);
    let refusal = |error| Error::refused("change the node of", path, error);
    let answered: Answered = loop {
        let sent = transact(client, |add| {
            add.add_create(text, draft.options.identifier(), &mode)?;
            add.add_delete(writer, Some(version))
        });
        match sent.await {
            Ok(Ok(results)) => break replaced(results, reader).into(),
            // An earlier attempt created the node, or another session did.
            Ok(Err((Some(0), ZkError::NodeExists))) => match client.check_stat(text).await {
                Ok(Some(stat)) if stat.ephemeral_owner == client.session_id().0 => break Outcome::Exists.into(),
                Ok(_) => break Outcome::NoNode.into(),
                Err(error) if failed(&error) == Outcome::Unknown => break Answered::failed(error, refusal),
                Err(_) => break Outcome::NoNode.into(),
            },
            Ok(Err((_, ZkError::BadVersion))) => match client.get_data(writer).await {
                Ok((data, stat)) => (version, asks_back) = (stat.version, asks_back || data == REVOKE),
                Err(error) => break Answered::failed(error, refusal),
            },
            Ok(Err((_, error))) | Err(error) => break Answered::failed(error, refusal),
        }
    };
    Answered { asks_back, ..answered }
}

fn replaced(results: Vec<MultiWriteResult>, reader: Name) -> Outcome {
    let stat = results.into_iter().find_map(|result| match result {
        MultiWriteResult::Create { stat, .. } if !stat.is_invalid() => Some(stat),
        _ => None,
    });
    let owner = stat.map(|stat| stat.ephemeral_owner.cast_unsigned()).filter(|owner| *owner != 0);
    Outcome::Created { names: [reader].into(), czxid: stat.map_or(0, |stat| stat.czxid), owner, counted: None }
}

/// Lists the ephemeral nodes of the connection's session, and keeps those with the names of contenders.
async fn list_own(client: &Client) -> Answered {
    // With a chroot, the client fails if the session has a node outside the chroot.
    let client = client.clone().chroot("/").unwrap_or_else(|unchanged| unchanged);
    match client.list_ephemerals("/").await {
        Ok(nodes) => {
            let names = nodes.iter().filter_map(|node| names::parse(node.rsplit_once('/')?.1));
            Outcome::Names { names: names.collect(), other_children: 0, has_no_data: false }.into()
        }
        Err(error) => Answered::unanswered(error),
    }
}

/// A listing of a lock path.
struct List {
    client: Arc<Client>,
    path: Arc<str>,
    watches: bool,
    czxids: Czxids,
    nonce: u64,
}

impl List {
    async fn run(self) -> Answered {
        let answer = if self.watches {
            let answer = self.client.get_and_watch_children(&self.path).await;
            answer.map(|(children, stat, watcher)| (children, stat.data_length == 0, Some(watcher)))
        } else {
            let answer = self.client.get_children(&self.path).await;
            answer.map(|(children, stat)| (children, stat.data_length == 0, None))
        };
        let (children, has_no_data, watcher) = match answer {
            Ok(found) => found,
            Err(error) => return Answered::failed(error, |error| Error::refused("list", &self.path, error)),
        };
        let all = children.len();
        let mut contenders: Vec<(Name, String)> = Vec::with_capacity(all);
        contenders.extend(children.into_iter().filter_map(|text| Some((names::parse(&text)?, text))));
        let other_children = u32::try_from(all - contenders.len()).unwrap_or(u32::MAX);
        if contenders.iter().any(|(name, _)| name.is_near_wrap())
            && let Err(failed) = self.read_czxids(&mut contenders).await
        {
            return *failed;
        }
        let texts = Texts::new(contenders, &locked(&self.czxids));
        let outcome = Outcome::Names { names: texts.names(), other_children, has_no_data };
        Answered { watcher, texts: Some(texts), ..outcome.into() }
    }

    /// Reads the czxids on which the queue order depends, unless they are known. Removes contenders whose nodes are gone.
    async fn read_czxids(&self, contenders: &mut Vec<(Name, String)>) -> Result<(), Box<Answered>> {
        let names: Vec<Name> = contenders.iter().map(|(name, _)| *name).collect();
        let needs = names::needs_czxid(&names, self.nonce);
        let unknown: Vec<(Name, String)> = {
            let known = locked(&self.czxids);
            let is_unknown = |(name, _): &&(Name, String)| needs(*name) && !known.contains_key(name);
            contenders
                .iter()
                .filter(is_unknown)
                .map(|(name, text)| (*name, format!("{}/{text}", self.path)))
                .collect()
        };
        let stats: Vec<_> = unknown.iter().map(|(_, node)| self.client.check_stat(node)).collect();
        let stats = join_all(stats).await;
        let mut known = locked(&self.czxids);
        for ((name, node), stat) in unknown.into_iter().zip(stats) {
            match stat {
                Ok(Some(stat)) => drop(known.insert(name, stat.czxid)),
                Ok(None) => contenders.retain(|(listed, _)| *listed != name),
                Err(error) => {
                    let refusal = |error| Error::refused("look at", &node, error);
                    return Err(Box::new(Answered::failed(error, refusal)));
                }
            }
        }
        // Our own nodes may be newer than this listing, so their czxids are kept.
        let listed: HashSet<Name> = contenders.iter().map(|(name, _)| *name).collect();
        known.retain(|name, _| listed.contains(name) || names::nonce(name.guid) == self.nonce);
        Ok(())
    }
}
