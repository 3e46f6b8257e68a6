//! Owns [`Looks`]: when to look again at nodes of yours.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, select_all};
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher, SessionId};

use crate::driver::{Reservation, nonce};
use crate::error::Result;
use crate::machine::fallback_interval;
use crate::session::{Session, SessionState, fired};

/// The least time from one look to the next.
const TURN: Duration = Duration::from_millis(200);

/// The time from a look that was refused to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks at nodes of yours: after each event of a watch, in each new ZooKeeper session, and slowly without an event, from
/// [`Session::looks`].
///
/// An event is only a reason to look: what is there is what the look has read. Looks begin 200 ms apart at least, so other clients that
/// change the nodes all the time cost at most five looks a second. Without an event, which may be lost, the next look begins 20 to 30 s after
/// the last, and one second after a look that the servers have refused.
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
    _rooms: Vec<Option<Reservation>>,
    /// The ZooKeeper session that has answered the last look.
    id: SessionId,
    /// Each resolves with the event of a watch of the last look.
    events: Vec<BoxFuture<'static, ()>>,
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
        let rooms = paths.into_iter().map(|path| {
            let mut room = None;
            self.core().reserve_watch(&mut room, path, path).map(|_| room)
        });
        let (session, _rooms) = (self.clone(), rooms.collect::<Result<_>>()?);
        Ok(Looks { session, _rooms, id: SessionId(0), events: Vec::new(), next: None })
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
    /// After dropping the future the next look is due at once.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) or [`Error::SessionEnded`](crate::Error::SessionEnded) if the session is over.
    pub async fn look<T, R>(&mut self, look: impl Fn(Client) -> R + Send + Sync) -> Result<Result<T, ZkError>>
    where
        T: Send,
        R: Future<Output = Result<(T, Vec<OneshotWatcher>), ZkError>> + Send,
    {
        let began = Instant::now();
        (self.events, self.next) = (Vec::new(), None);
        let id = AtomicI64::new(0);
        let looked = self.session.request(Some(Duration::MAX), |client| {
            id.store(client.session_id().0, Ordering::Relaxed);
            look(client)
        });
        let looked = looked.await?;
        // Also of a look that was refused, or the next one would be due at once.
        self.id = SessionId(id.into_inner());
        let looked = looked.map(|(seen, watches)| {
            self.events = watches.into_iter().map(|watch| fired(watch).boxed()).collect();
            seen
        });
        let slow = if looked.is_ok() { Duration::from_micros(fallback_interval(nonce())) } else { PAUSE };
        self.next = Some((began + TURN, began + slow));
        Ok(looked)
    }

    /// Makes the next look due at this time at the latest, also without an event.
    pub fn look_by(&mut self, time: Instant) {
        if let Some((_, slow)) = &mut self.next {
            *slow = time.min(*slow);
        }
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
