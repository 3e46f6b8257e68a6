//! Owns [`SharedCount`]: a number that is stored in a node of the servers, for all processes.

use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::AbortHandle;
use zookeeper_recipes::session::Looks;
use zookeeper_recipes::zookeeper_client::Error as ZkError;
use zookeeper_recipes::{Result, Session};

use crate::request::{Found, invalid, put, read_and_watch, refused, validate_path};

/// A number stored in a node of the servers, which all processes follow and any may change: how many permits a
/// [`Semaphore`](zookeeper_recipes::Semaphore::following) has, or how many numbers [`Slots`](crate::Slots::following) have.
///
/// Compatible with Curator's `SharedCount`, so a Java process with an `InterProcessSemaphoreV2` can follow the same number. The data is
/// a big-endian 32-bit integer, followed by the identifier of the process that has set it. Use a node for this alone, no lock path, and
/// set it only with this type, `zklock` or Curator.
///
/// Each process, the one that sets the number included, sees a change on its own: within a few round trips, and at most every 200 ms.
/// Until then it uses the number before. If an event is lost, that takes up to 30 s.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](zookeeper_recipes#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_groups::SharedCount;
/// use zookeeper_recipes::{Options, Semaphore};
///
/// // 10 until somebody sets another number, for example with `zklock count /limits/geocoder/count 25`.
/// let count = SharedCount::follow(&session, "/limits/geocoder/count", 10).await?;
/// let api = Semaphore::following(&session, "/limits/geocoder", count.watch(), Options::new())?;
/// let permit = api.acquire().await?;
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the following"]
pub struct SharedCount {
    session: Session,
    path: String,
    count: watch::Receiver<u32>,
    task: AbortHandle,
}

/// A number, who has set it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetCount {
    /// The number.
    pub count: u32,
    /// The [identifier](zookeeper_recipes::Options::with_identifier) of the process that has set it. Empty if that was Curator.
    pub by: Vec<u8>,
    /// When it was set, by the servers' clock.
    pub at: SystemTime,
}

impl SharedCount {
    /// Reads the number at `path`, and follows it until this value is dropped. The number is `default` while there is no node.
    ///
    /// If the data is no number later, or may not be read, the last number stays, and a warning is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) if `path` cannot be used, or its data is no number.
    /// [`Error::SessionFull`](zookeeper_recipes::Error::SessionFull) if the session has no room for a watch.
    /// [`Error::Unavailable`](zookeeper_recipes::Error::Unavailable) if no server answered within one session timeout. Otherwise
    /// the servers' error, or the end of the session.
    pub async fn follow(session: &Session, path: &str, default: u32) -> Result<Self> {
        validate_path(path)?;
        let mut looks = session.looks([path])?;
        let first = session.within(None, look(&mut looks, path)).await??;
        let count = watch::Sender::new(first.map_or(default, |set| set.count));
        let (session, path, receiver) = (session.clone(), path.to_owned(), count.subscribe());
        let task = tokio::spawn(follow(looks, path.clone(), default, count)).abort_handle();
        Ok(Self { session, path, count: receiver, task })
    }

    /// Returns the number, as far as this process knows.
    #[must_use]
    pub fn get(&self) -> u32 {
        *self.count.borrow()
    }

    /// Returns a receiver of the newest number. After this value is dropped, it keeps the last one.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u32> {
        let mut view = self.count.clone();
        view.mark_unchanged();
        view
    }

    /// Sets the number for all processes. Creates the node if it does not exist, and overwrites any data. The last write
    /// wins.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the number may be set or not.
    ///
    /// # Errors
    ///
    /// As [`set_at`](Self::set_at).
    pub async fn set(&self, count: u32) -> Result<()> {
        Self::set_at(&self.session, &self.path, count).await
    }

    /// Sets the number at a path without following it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) if `path` cannot be used, or `count` is larger than
    /// `i32::MAX`, or looks like a text. [`Error::Unavailable`](zookeeper_recipes::Error::Unavailable) if no server answered
    /// within one session timeout. Otherwise the servers' error, or the end of the session.
    pub async fn set_at(session: &Session, path: &str, count: u32) -> Result<()> {
        validate_path(path)?;
        let number = i32::try_from(count);
        let number = number.ok().filter(|number| !is_text(&number.to_be_bytes()));
        let reason = || format!("{count} is too large, or looks like a text; give at most {}", 0x00ff_ffff);
        let number = number.ok_or_else(|| invalid("count", reason()))?;
        let options = session.lock_options();
        let data = &[&number.to_be_bytes(), options.identifier()].concat();
        let set = session.request(None, |client| async move { put(&client, options, path, data).await });
        set.await?.map_err(|error| refused("set the number at", path, error))
    }

    /// Reads the number at a path, and who has set it when. `None` if there is no node. The connected server answers, which may be
    /// behind the others.
    ///
    /// # Errors
    ///
    /// As [`follow`](Self::follow), without `SessionFull`.
    pub async fn read_at(session: &Session, path: &str) -> Result<Option<SetCount>> {
        validate_path(path)?;
        let read = session.request(None, |client| async move {
            match client.get_data(path).await {
                Err(ZkError::NoNode) => Ok(None),
                read => read.map(Some),
            }
        });
        parse(path, read.await?)
    }
}

impl Drop for SharedCount {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns whether the bytes of a number are those of a text: `1000` would be read as 825,241,648.
fn is_text(bytes: &[u8; 4]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Follows the number until the session is over.
async fn follow(mut looks: Looks, path: String, default: u32, count: watch::Sender<u32>) {
    let mut last_error = None;
    loop {
        looks.due().await;
        match look(&mut looks, &path).await {
            Ok(Ok(set)) => {
                let now = set.map_or(default, |set| set.count);
                count.send_if_modified(|count| std::mem::replace(count, now) != now);
                last_error = None;
            }
            Ok(Err(error)) if last_error.as_ref() == Some(&error) => {}
            Ok(Err(error)) => {
                tracing::warn!(path, %error, "cannot read a shared number; the last one counts");
                last_error = Some(error);
            }
            Err(_) => return,
        }
    }
}

/// Reads and watches the node. The outer error says that the session is over.
async fn look(looks: &mut Looks, path: &str) -> Result<Result<Option<SetCount>>> {
    Ok(parse(path, looks.look(|client| read_and_watch(client, path)).await?))
}

fn parse(path: &str, found: Result<Found, ZkError>) -> Result<Option<SetCount>> {
    let Some((data, stat)) = found.map_err(|error| refused("read", path, error))? else { return Ok(None) };
    let number = data.split_first_chunk().filter(|(first, _)| !is_text(first)).and_then(|(count, by)| {
        let count = u32::try_from(i32::from_be_bytes(*count)).ok()?;
        Some((count, by.to_vec()))
    });
    let (count, by) = number.ok_or_else(|| {
        let reason =
            format!("the data of {path:?} is no number of this kind; if nothing else uses the node, set one with `zklock count`");
        invalid("path", reason)
    })?;
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(stat.mtime.try_into().unwrap_or(0));
    Ok(Some(SetCount { count, by, at }))
}
