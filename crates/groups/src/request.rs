//! Helpers for requests, shared by the recipes of this crate.

use std::time::Duration;

use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, MultiReadResult};
use zookeeper_recipes::{Error, Result, path};

/// The longest time of a setting: no process lives longer, and a longer time could overflow the clock.
pub(crate) const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Reads the data and the stats of several nodes in one request.
pub(crate) async fn read_all(
    client: Client,
    paths: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<MultiReadResult>, ZkError> {
    let mut reader = client.new_multi_reader();
    paths.into_iter().try_for_each(|path| reader.add_get_data(path.as_ref()))?;
    reader.commit().await
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
