//! Owns [`Looks`]: when to look again at nodes of yours.

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

/// The least time from one look to the next.
const TURN: Duration = Duration::from_millis(200);

/// The time from a look that has set no watch to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks at nodes of yours: after each event of a watch, in each new ZooKeeper session, and slowly without an event, from
/// [`Session::looks`].
///
/// An event is only a reason to look: what is there is what the look has read. Looks begin 200 ms apart at least, so other clients that
/// change the nodes all the time cost at most five looks a second. Without an event, which may be lost, the next look begins 20 to 30 s after
/// the last, and one second after a look that has set no watch, such as one that the servers have refused.
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
    /// The ZooKeeper session that has answered the last look.
    id: SessionId,
    /// Each resolves with the event of a watch of the last look.
    events: Vec<Shared<BoxFuture<'static, ()>>>,
    /// When the next look may begin, and when it begins without an event. `None` before the first look.
    next: Option<(Instant, Instant)>,
}

impl Session {
    /// Begins looks at nodes of yours; see [`Looks`]. `paths`: the nodes that are watched. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::SessionFull`](crate::Error::SessionFull) if the session has no room for these watches.
    pub fn looks<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Result<Looks> {
        self.looks_with(paths.into_iter().map(str::len))
    }

    /// Begins looks with a watch on a node that is made by this crate, at this path.
    pub(crate) fn looks_at_child_of(&self, path: &str) -> Result<Looks> {
        self.looks_with([longest_child(path)].into_iter())
    }

    fn looks_with(&self, bytes: impl Iterator<Item = usize>) -> Result<Looks> {
        let (session, _room) = (self.clone(), self.core().reserve_watches(bytes)?);
        Ok(Looks { session, _room, id: SessionId(0), events: Vec::new(), next: None })
    }
}

impl Looks {
    /// Waits until it is time for the next look. The first one is due at once, and so is one in a session that is closed, which returns
    /// the error.
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
        // What has fired is not polled again.
        self.events.clear();
        self.next = Some((turn, turn));
        sleep_until(turn).await;
        self.next = None;
    }

    /// Looks: `look` sends requests, and returns what it has read and the watches that it has set. It is repeated until a server has
    /// answered, as by [`Session::request`]. Returns what it has read, or the error with which the servers refuse it.
    ///
    /// # Cancel safety
    ///
    /// After dropping the future the next look is due as soon as it may begin.
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

    /// As [`look`](Self::look), with several requests that are tried again one by one.
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

    /// Makes the next look due at this time at the latest, also without an event.
    pub fn look_by(&mut self, time: Instant) {
        if let Some((_, slow)) = &mut self.next {
            *slow = time.min(*slow);
        }
    }

    /// Returns whether a watch of the last look would report a change as soon as the servers send it: it was set in the present session,
    /// which is connected, and has not fired.
    pub(crate) fn stands(&self) -> bool {
        let has_fired = |event: &Shared<_>| event.clone().now_or_never().is_some();
        self.session.id() == self.id
            && self.session.state().is_connected()
            && !self.events.is_empty()
            && !self.events.iter().any(has_fired)
    }

    /// Returns the ZooKeeper session that has answered the last look. Before the first look it is 0.
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
