//! Owns [`Looks`], which decides when to read a user's nodes again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, pending, select_all};
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher, SessionId};

use crate::driver::{Reservation, longest_child, nonce};
use crate::error::Result;
use crate::machine::fallback_interval;
use crate::session::{Interrupt, Session, SessionState, Zk, fired};

/// The least time between the beginnings of two looks in one ZooKeeper session.
const TURN: Duration = Duration::from_millis(200);

/// The time between the beginnings of two looks, if the first has set no watch.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads nodes of yours again, in *looks*: after each event of a watch, in each new ZooKeeper session, and now and then
/// without an event. Made by [`Session::looks`].
///
/// An event is only a reason to look: the state of the nodes is what the look reads. Looks in one ZooKeeper session begin
/// at least 200 ms apart, so nodes that change all the time cost at most five looks a second.
///
/// An event may be lost. So without an event, the next look begins 20 to 30 s after the last. It begins one second after a
/// look that set no watch, for example because the servers refused the request.
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// let path = "/config/limits";
/// let mut looks = session.looks([path])?;
/// loop {
///     looks.due().await;
///     let look = looks.look(|client| async move {
///         let (data, _, watch) = client.get_and_watch_data(path).await?;
///         Ok((data, vec![watch]))
///     });
///     println!("{} bytes", look.await??.len());
/// }
/// # }
/// ```
pub struct Looks {
    session: Session,
    _room: Option<Reservation>,
    /// The ZooKeeper session that has answered the last look; 0 before the first answer.
    id: SessionId,
    /// The watches of the last look. Each resolves with its event. `Shared` makes them `Sync`.
    events: Vec<Shared<BoxFuture<'static, ()>>>,
    /// When the next look may begin, and when it is due even without an event. `None` if it is due now.
    next: Option<(Instant, Instant)>,
}

impl Session {
    /// Returns [`Looks`] at nodes of yours. `paths`: the nodes that the looks will watch. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::SessionFull`](crate::Error::SessionFull) if the session has no room for these watches.
    pub fn looks<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Result<Looks> {
        self.looks_with(paths.into_iter().map(str::len))
    }

    /// Returns looks that watch one child of `path`, with a name as long as those of this crate's nodes.
    pub(crate) fn looks_at_child_of(&self, path: &str) -> Result<Looks> {
        self.looks_with([longest_child(path)].into_iter())
    }

    fn looks_with(&self, bytes: impl Iterator<Item = usize>) -> Result<Looks> {
        let (session, _room) = (self.clone(), self.core().reserve_watches(bytes)?);
        Ok(Looks { session, _room, id: SessionId(0), events: Vec::new(), next: None })
    }
}

impl Looks {
    /// Waits until it is time for the next look. The first look is due at once. In a closed session, a look is also due at
    /// once, and returns the error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn due(&mut self) {
        let Some((turn, slow)) = self.next else { return };
        let mut states = self.session.states();
        let (session, id) = (&self.session, self.id);
        let is_over = |state| {
            use SessionState::{Closing, Ended, Refused, Renewing};
            (id.0 != 0 && session.id() != id) || matches!(state, Renewing | Refused | Closing | Ended)
        };
        let events = &mut self.events;
        let event =
            async { if events.is_empty() { pending().await } else { select_all(events.iter_mut()).await.0 } };
        tokio::select! {
            () = event => {}
            () = sleep_until(slow) => {}
            _ = states.wait_for(is_over) => return self.next = None,
        }
        // The future of an event must not be polled again after it has resolved.
        self.events.clear();
        self.next = Some((turn, turn));
        sleep_until(turn).await;
        self.next = None;
    }

    /// Calls `look`, which sends requests and returns their results, with the watches that it has set. Retries `look` until a
    /// server has answered, as [`Session::request`] does. Returns the results, or the error with which the servers refuse a
    /// request.
    ///
    /// # Cancel safety
    ///
    /// After dropping the future, the next look is due 200 ms after this one began.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) or [`Error::SessionEnded`](crate::Error::SessionEnded) if the session is over.
    pub async fn look<T, R>(&mut self, look: impl Fn(Client) -> R + Send + Sync) -> Result<Result<T, ZkError>>
    where
        T: Send,
        R: Future<Output = Result<(T, Vec<OneshotWatcher>), ZkError>> + Send,
    {
        let look = &look;
        let looked = self.attempt(|zk| async move {
            Ok(match zk.retry("user", || look(zk.client())).await? {
                Ok((seen, watches)) => (Ok(seen), watches),
                Err(error) => (Err(error), Vec::new()),
            })
        });
        looked.await
    }

    /// Does the same as [`look`](Self::look), but `make` retries its requests one by one.
    pub(crate) async fn attempt<T, W, R>(&mut self, make: impl Fn(Zk) -> R + Send + Sync) -> Result<T>
    where
        W: IntoIterator<Item = OneshotWatcher>,
        R: Future<Output = Result<(T, W), Interrupt>> + Send,
    {
        let began = Instant::now();
        (self.events, self.next) = (Vec::new(), Some((began + TURN, began + TURN)));
        let make = &make;
        let looked = self.session.attempt(|zk| async move { Ok((zk.id(), make(zk).await?)) });
        let (id, (seen, watches)) = looked.await?;
        self.id = id;
        let fired = |watch| fired(watch, Arc::clone(self.session.core())).boxed().shared();
        self.events = watches.into_iter().map(fired).collect();
        let slow = if self.events.is_empty() { PAUSE } else { Duration::from_micros(fallback_interval(nonce())) };
        self.next = Some((began + TURN, began + slow));
        Ok(seen)
    }

    /// Makes the next look due at this time at the latest, even without an event.
    pub fn look_by(&mut self, time: Instant) {
        if let Some((_, slow)) = &mut self.next {
            *slow = time.min(*slow);
        }
    }

    /// Returns the ZooKeeper session that has answered the last look. The id is 0 before the first answer.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.id
    }
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").field("session_id", &self.id).finish_non_exhaustive()
    }
}
