//! Helpers for requests, shared by the recipes of this crate.

use std::time::Duration;

use zookeeper_recipes::options::Parents;
use zookeeper_recipes::zookeeper_client::{
    Client, CreateMode, Error as ZkError, MultiReadResult, OneshotWatcher, Stat,
};
use zookeeper_recipes::{Error, Options, Result, Session, path};

/// The longest time of a setting: no process lives longer, and a longer time could overflow the clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The most bytes of the paths in one request.
const MOST_BYTES: usize = 512 * 1024;

/// The data and the stat of a node. `None` if it does not exist.
pub(crate) type Found = Option<(Vec<u8>, Stat)>;

/// Reads these nodes, at most `most` in one request. Each request may take as long as `limit`, or else one session timeout.
/// Returns an answer for each node.
pub(crate) async fn read_all(
    session: &Session,
    limit: Option<Duration>,
    most: usize,
    paths: &[String],
) -> Result<Vec<Result<Found>>> {
    let longest = paths.iter().map(|path| path.len() + 16).max().unwrap_or(1);
    let mut found = Vec::with_capacity(paths.len());
    for burst in paths.chunks((MOST_BYTES / longest).clamp(1, most)) {
        let read = session.request(limit, |client| async move {
            let mut reader = client.new_multi_reader();
            burst.iter().try_for_each(|path| reader.add_get_data(path))?;
            reader.commit().await
        });
        let answers = read.await?.map_err(|error| refused("read", &burst[0], error))?;
        found.extend(burst.iter().zip(answers).map(|(path, answer)| match answer {
            MultiReadResult::Data { data, stat } => Ok(Some((data, stat))),
            MultiReadResult::Error { err } if err != ZkError::NoNode => Err(refused("read", path, err)),
            _ => Ok(None),
        }));
    }
    Ok(found)
}

/// Reads a node, and watches it, whether it exists or not.
pub(crate) async fn read_and_watch(client: Client, path: &str) -> Result<(Found, Vec<OneshotWatcher>), ZkError> {
    let (stat, watch) = client.check_and_watch_stat(path).await?;
    let found = match stat {
        Some(_) => client.get_data(path).await,
        None => Err(ZkError::NoNode),
    };
    match found {
        Ok(found) => Ok((Some(found), vec![watch])),
        Err(ZkError::NoNode) => Ok((None, vec![watch])),
        Err(error) => Err(error),
    }
}

/// Creates a node. If its parent is missing, creates the missing ancestors first, unless the options forbid it.
pub(crate) async fn create(
    client: &Client,
    options: &Options,
    path: &str,
    data: &[u8],
    mode: CreateMode,
) -> Result<(), ZkError> {
    let own = &mode.with_acls(options.acls());
    let parents = match options.parents() {
        Parents::Persistent => Some(CreateMode::Persistent),
        Parents::Container => Some(CreateMode::Container),
        _ => None,
    };
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    match (client.create(path, data, own).await, parents) {
        (Err(ZkError::NoNode), Some(mode)) if !parent.is_empty() => {
            client.mkdir(parent, &mode.with_acls(options.parent_acls())).await?;
            client.create(path, data, own).await.map(drop)
        }
        (created, _) => created.map(drop),
    }
}

/// Writes the data of a node, and creates the node if it does not exist.
pub(crate) async fn put(client: &Client, options: &Options, path: &str, data: &[u8]) -> Result<(), ZkError> {
    match client.set_data(path, data, None).await {
        Err(ZkError::NoNode) => match create(client, options, path, data, CreateMode::Persistent).await {
            Err(ZkError::NodeExists) => client.set_data(path, data, None).await.map(drop),
            created => created,
        },
        set => set.map(drop),
    }
}

/// The error for an invalid argument.
pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Error {
    Error::InvalidInput { what, reason: reason.into() }
}

/// The error for a request that the servers refuse.
pub(crate) fn refused(action: &'static str, path: &str, source: ZkError) -> Error {
    let path = path.to_owned();
    match source {
        ZkError::NoAuth => Error::NoAuth { path },
        source => Error::Client { action, path, source },
    }
}

pub(crate) fn is_over(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::SessionEnded { .. })
}

/// Fails if this path is invalid, or belongs to the servers.
pub(crate) fn validate_path(path: &str) -> Result<()> {
    if path == "/zookeeper" || path.starts_with("/zookeeper/") {
        return Err(invalid("path", format!("{path:?} belongs to the servers; give another one")));
    }
    path::validate(path)
}

/// Fails if the data of a node is too long.
pub(crate) fn validate_data(data: &[u8], most: usize) -> Result<()> {
    if data.len() <= most {
        return Ok(());
    }
    Err(invalid("data", format!("it has {} bytes; {most} are the most", data.len())))
}
