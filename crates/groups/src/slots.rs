//! [`Slots`]: numbers from 0 to *n* − 1, each with one holder at a time. You hold a [`Slot`] like a lock. A [`KeptSlot`] is held
//! for you in the background.

// 1. A number is the mutex at `<path>/<number>`, which provides exclusion, growing tokens, loss and release. This file decides
//    only which mutex to lock. A mistake here makes a claim slow, but never gives a number to two holders.
// 2. A *look* is one request that reads how many nodes each number's mutex has. A number without nodes is free. If two claims
//    choose the same number, one is second in the queue of its mutex. That claim leaves this queue at once, looks again, and
//    tries another free number.
// 3. `<path>/queue-<count>` is another mutex, the queue mutex. `claim` locks it if no number is free or other claims queue.
//    Only its holder waits for a number: this claim watches the numbers, takes one that becomes free, and releases the queue
//    mutex. So a release wakes one claim. Claims with another count use another queue mutex, because a holder waits only for
//    numbers below its own count.
// 4. No wait relies on an event alone: the holder of the queue mutex looks again every 20 to 30 s, and every second if it cannot
//    watch all numbers.

mod keep;
mod rest;

use std::collections::HashSet;
use std::ops::Deref;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, OneshotWatcher};
use zookeeper_recipes::{Contender, Error, Hold, Mutex, MutexGuard, Options, Result, Session, path};

use crate::request::{Found, LONGEST, invalid, read_all, refused};

pub use crate::slots::keep::KeptSlot;

/// The name of the queue mutex is this prefix, `-` and the count.
const QUEUE: &str = "queue";

/// The most bytes of the paths of all numbers together. One request reads all numbers, and the answer is larger than the request.
const MAX_BYTES: usize = 100 * 1024;

/// The most numbers that a waiting claim watches.
const MAX_WATCHED: u32 = 100;

/// The longest time from one look to the next for a waiting claim that does not watch all numbers.
const SOON: Duration = Duration::from_secs(1);

/// Numbers from 0 to *n* − 1, each with one holder at a time: worker ids, licences, partitions assigned by hand.
///
/// A number is held like a lock. Its guard, a [`Slot`], has a
/// [fencing token](zookeeper_recipes::HoldMonitor::fencing_token), reports a loss before the servers can give the number to
/// another process, and releases the number when dropped. Use the number in [`run_until_lost`](Hold::run_until_lost): after
/// a loss another process may have it. As with every lock, a paused process may use its number for a moment after another
/// process got it. Only a store that checks the token can prevent this.
///
/// Each number is the [`Mutex`] at `<path>/<number>`, so `zklock` lists and breaks it like any lock. The count is configured in
/// every client, and not stored, unless the clients [follow](Self::following) a number. A client with a smaller count claims only
/// numbers below its own count.
///
/// Curator has no such recipe. CURATOR-230 asks for one.
///
/// # Fairness
///
/// Waiting claims with the same count are served first come, first served, and a release wakes one of them.
/// [`try_claim`](Self::try_claim) does not queue: it may take a number that a waiting claim is about to take. A crashed claim at
/// the head of the queue blocks the queue for up to one session timeout, as a crashed waiter for a lock does.
///
/// # Cancel safety
///
/// Dropping the future of a claim leaves the queue, and releases the number in the background.
///
/// # Errors
///
/// Every claim may fail with the [errors of a `Mutex`](zookeeper_recipes::Mutex#errors).
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](zookeeper_recipes#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_groups::Slots;
///
/// let slot = Slots::new(&session, "/ids/orders", 1024)?.claim().await?;
/// println!("worker {} with token {}", slot.number(), slot.fencing_token());
/// slot.run_until_lost(async { /* makes ids with this number */ }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Slots {
    session: Session,
    path: String,
    counts: watch::Receiver<u32>,
    /// The count of a claim. While the claim waits, `counts` may change.
    count: u32,
    preferred: Option<u32>,
    rest: Option<Duration>,
    queue: Mutex,
}

/// A held number from [`Slots`]. Dropping it releases the number in the background.
///
/// It dereferences to the [`Hold`] on the number.
#[derive(Debug)]
#[must_use = "dropping the slot releases its number"]
pub struct Slot {
    guard: MutexGuard,
    number: u32,
    /// The node for the rest of the number, if numbers rest.
    rest: Option<String>,
}

/// What one request has read about all numbers.
struct Look {
    /// The numbers without nodes, ascending. If numbers rest, those that have rested longest come first.
    free: Vec<u32>,
    /// Whether claims queue for a number.
    is_queued: bool,
}

impl Slots {
    /// Creates a handle of the numbers below `count`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path, or if `count` is zero or too large: the paths of all numbers may
    /// have 100 KiB together, about 2,500 numbers at a path of 35 bytes.
    pub fn new(session: &Session, path: &str, count: u32) -> Result<Self> {
        Self::with_options(session, path, count, Options::new())
    }

    /// Creates a handle with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if an argument cannot be used.
    pub fn with_options(session: &Session, path: &str, count: u32, options: Options) -> Result<Self> {
        path::validate(path)?;
        let most = most_at(path, count);
        if count == 0 || count > most {
            return Err(invalid("count", format!("give 1 to about {most} at this path, not {count}")));
        }
        Self::following(session, path, watch::channel(count).1, options)
    }

    /// Creates a handle that takes its count from `counts`, for example from a [`SharedCount`](crate::SharedCount). Sends nothing.
    ///
    /// When the count changes, waiting claims queue again, behind the claims that already wait with the new count. Numbers beyond a
    /// smaller count stay with their holders, are not among the [`holders`](Self::holders), and nobody can claim them until the count
    /// grows. With zero, claims wait. A count that is too large for the path is reduced to the largest possible. After the sender is
    /// dropped, the last value stays.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` or `options` cannot be used.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use zookeeper_groups::{SharedCount, Slots};
    /// use zookeeper_recipes::Options;
    ///
    /// let licences = SharedCount::follow(&session, "/licences/count", 20).await?;
    /// let slots = Slots::following(&session, "/licences/cad", licences.watch(), Options::new())?;
    /// let licence = slots.claim().await?;
    /// # drop(licence);
    /// # Ok(())
    /// # }
    /// ```
    pub fn following(
        session: &Session,
        path: &str,
        counts: watch::Receiver<u32>,
        options: Options,
    ) -> Result<Self> {
        path::validate(path)?;
        let session = session.clone().with_lock_options(options);
        let count = reduced(path, &counts);
        let queue = queue(&session, path, count)?;
        Ok(Self { session, path: path.to_owned(), counts, count, preferred: None, rest: None, queue })
    }

    /// Lets a number rest: for this time after its holder has gone, no claim returns it. For ids that are made of a time and a number:
    /// choose a time by which no two clocks differ. All clients of a path must set the same time.
    ///
    /// After [`Slot::release`] the rest begins with the release. After a crash, a loss or a drop, and always for a [kept](Self::keep)
    /// number, it begins when the next claim takes the number, which is listed as its holder meanwhile. The servers' clock counts:
    /// after a change of their leader, a clock that is ahead shortens the rest by the difference. A number that was used before
    /// numbers rested does not rest once.
    ///
    /// A claim takes a number that was never used, or else the one that has rested longest, and ignores the
    /// [preferred](Self::with_preferred) one. Claims that meet may get others. If the number must still rest, `claim` waits, and
    /// [`try_claim`](Self::try_claim) returns `None`. Claims that wait for different numbers are not served in order.
    ///
    /// A claim costs two reads and a write more, and a second write for a first use or after a crash; a release costs one write. Each
    /// number that was used keeps a node, `rest-<number>`.
    #[must_use]
    pub fn with_rest(mut self, rest: Duration) -> Self {
        self.rest = Some(rest.min(LONGEST));
        self
    }

    /// Sets the preferred number. A claim takes it if it is free, and otherwise the lowest free number. Give the number that the
    /// process had last. A number that does not exist has no effect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(slots: zookeeper_groups::Slots) -> Result<(), zookeeper_recipes::Error> {
    /// let mut last = slots.claim().await?;
    /// loop {
    ///     println!("number {} until {}", last.number(), last.lost().await);
    ///     last = slots.clone().with_preferred(last.number()).claim().await?;
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn with_preferred(mut self, number: u32) -> Self {
        self.preferred = Some(number);
        self
    }

    /// The path whose children are the numbers.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many numbers there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        reduced(&self.path, &self.counts)
    }

    /// Claims a number: the [preferred](Self::with_preferred) one, or the lowest that is free. Waits as long as all are taken. If
    /// several claims meet, this one may get another free number. For a limit, use `tokio::time::timeout`.
    ///
    /// If a number is free and no claim queues, a claim costs one read of all numbers and an uncontended [`Mutex`]. The first
    /// claim in the queue watches the numbers below 100. If there are more, it reads all numbers every second.
    ///
    /// A lost connection is not an error. When the session expires, the claim queues again at the tail in the renewed session.
    ///
    /// # Examples
    ///
    /// See [`Slots`].
    pub async fn claim(&self) -> Result<Slot> {
        let mut counts = self.counts.clone();
        loop {
            let count = *counts.borrow_and_update();
            let now = self.at(self.count())?;
            tokio::select! {
                biased;
                slot = now.claim_rested() => return slot,
                Ok(_) = counts.wait_for(|now| *now != count) => {}
            }
        }
    }

    /// Returns a handle for claims with this count.
    fn at(&self, count: u32) -> Result<Self> {
        if count == self.count {
            return Ok(self.clone());
        }
        Ok(Self { count, queue: queue(&self.session, &self.path, count)?, ..self.clone() })
    }

    async fn claim_rested(&self) -> Result<Slot> {
        loop {
            let slot = self.claim_any().await?;
            if self.has_rested(&slot, true).await? {
                return Ok(slot);
            }
        }
    }

    async fn claim_any(&self) -> Result<Slot> {
        loop {
            let look = self.look().await?;
            if !look.is_queued
                && let Some(slot) = self.take_one(self.choose(&look.free)).await?
            {
                return Ok(slot);
            }
            let turn = self.queue.lock().await?;
            if let Some(slot) = self.claim_as_first(turn).await? {
                return Ok(slot);
            }
        }
    }

    async fn has_rested(&self, slot: &Slot, waits: bool) -> Result<bool> {
        match (self.rest, &slot.rest) {
            (Some(rest), Some(path)) => rest::has_rested(&self.session, (&slot.guard, path), rest, waits).await,
            _ => Ok(true),
        }
    }

    /// Holds a number in the background, for as long as the returned value lives. After a loss, and in each new session, the
    /// background task claims again, and prefers the number that it lost. A process that starts again gets the lowest free number,
    /// unless it gives its last one to [`with_preferred`](Self::with_preferred). If numbers [rest](Self::with_rest), no number is
    /// preferred. See [`KeptSlot`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use = "dropping it releases the number"]
    pub fn keep(&self) -> KeptSlot {
        KeptSlot::new(self.clone())
    }

    /// Claims a number without waiting for other claims: `None` if all are taken.
    ///
    /// The call waits for the servers, for up to one session timeout.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(slots: zookeeper_groups::Slots) -> Result<(), zookeeper_recipes::Error> {
    /// match slots.try_claim().await? {
    ///     Some(slot) => println!("licence {}", slot.number()),
    ///     None => println!("all {} licences are in use", slots.count()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_claim(&self) -> Result<Option<Slot>> {
        let claim = async {
            let now = self.at(self.count())?;
            let look = now.look().await?;
            let is_any = look.is_queued && now.rest.is_none();
            let first = if is_any { any(&look.free) } else { now.choose(&look.free) };
            let Some(slot) = now.take_one(first).await? else { return Ok(None) };
            Ok(now.has_rested(&slot, false).await?.then_some(slot))
        };
        self.session.within(None, claim).await
    }

    /// Lists the taken numbers in order, each with its holder. The connected server answers from its own state, which may be
    /// behind the other servers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Mutex::contenders`](zookeeper_recipes::Mutex::contenders).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(slots: zookeeper_groups::Slots) -> Result<(), zookeeper_recipes::Error> {
    /// for (number, holder) in slots.holders().await? {
    ///     println!("{number}: {holder}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<(u32, Contender)>> {
        let now = self.at(self.count())?;
        let free: HashSet<u32> = self.session.within(None, now.look()).await?.free.into_iter().collect();
        let listed = (0..now.count).filter(|number| !free.contains(number)).map(async |number| {
            let contenders = self.mutex(number)?.contenders().await?;
            let holder = contenders.into_iter().find(Contender::is_holder);
            Ok::<_, Error>(holder.map(|holder| (number, holder)))
        });
        Ok(try_join_all(listed).await?.into_iter().flatten().collect())
    }

    /// Locks this number, or else another free number. `None` if no number is free, or none was given.
    async fn take_one(&self, mut number: Option<u32>) -> Result<Option<Slot>> {
        let mut is_first = true;
        while let Some(wanted) = number {
            let ahead = match self.take(wanted).await? {
                Ok(slot) => return Ok(Some(slot)),
                Err(ahead) => ahead,
            };
            // Other claims that did not get this number choose again now, too. Each was at another position in its queue. They
            // choose by their positions, so they choose different numbers. Those that rest come last.
            let free = self.look().await?.free;
            let is_by_place = std::mem::take(&mut is_first) || self.rest.is_some();
            let by_place = free.get(ahead.saturating_sub(1)).filter(|_| is_by_place);
            number = by_place.copied().or_else(|| any(&free));
        }
        Ok(None)
    }

    /// Waits for a number as the holder of the queue mutex. `None` if that mutex is lost or revoked.
    async fn claim_as_first(&self, turn: MutexGuard) -> Result<Option<Slot>> {
        loop {
            let number = tokio::select! {
                _ = turn.ended() => return Ok(None),
                () = turn.revoke_requested() => return Ok(None),
                number = self.freed() => number?,
            };
            // A `try_claim`, or a claim that looked before we queued, may have taken this number.
            if let Ok(slot) = self.take(number).await? {
                return Ok(Some(slot));
            }
        }
    }

    /// Waits for a free number.
    async fn freed(&self) -> Result<u32> {
        let watched: Vec<_> = (0..self.count.min(MAX_WATCHED)).map(|number| self.path_of(number)).collect();
        let room = self.session.looks(watched.iter().map(String::as_str)).ok();
        let watched = if room.is_some() { &*watched } else { &[] };
        let mut looks = room.map_or_else(|| self.session.looks([]), Ok)?;
        loop {
            if let Some(number) = self.choose(&self.look().await?.free) {
                return Ok(number);
            }
            // The next look sees a release from before these watches are set. A later release fires a watch.
            looks.due().await;
            let set = looks.look(|client| watch_all(client, watched)).await?;
            let set = set.map_err(|error| refused("watch", &self.path, error))?;
            if set < self.count as usize {
                looks.look_by(Instant::now() + SOON);
            }
        }
    }

    /// Locks a number without waiting for other contenders. Otherwise the inner error is the number of contenders ahead; 0 if
    /// the lock was lost at once.
    async fn take(&self, number: u32) -> Result<Result<Slot, usize>> {
        let mutex = self.mutex(number)?;
        let claimed = async {
            let waiting = mutex.enqueue().await?;
            let ahead = waiting.position();
            if ahead > 0 {
                return Ok(Err(ahead));
            }
            let rest = self.rest.map(|_| self.rest_of(number));
            Ok(waiting.now_or_never().transpose()?.map(|guard| Slot { guard, number, rest }).ok_or(0))
        };
        match claimed.await {
            Err(Error::Lost(_)) => Ok(Err(0)),
            claimed => claimed,
        }
    }

    /// The preferred number if it is free, otherwise the lowest free one.
    fn choose(&self, free: &[u32]) -> Option<u32> {
        let preferred = self.preferred.filter(|number| self.rest.is_none() && free.contains(number));
        preferred.or_else(|| free.first().copied())
    }

    fn mutex(&self, number: u32) -> Result<Mutex> {
        Mutex::new(&self.session, &self.path_of(number))
    }

    fn path_of(&self, number: u32) -> String {
        format!("{}/{number}", self.path)
    }

    fn rest_of(&self, number: u32) -> String {
        format!("{}/rest-{number}", self.path)
    }

    /// Reads which numbers are free, and whether claims queue, in one request. If numbers rest, also how long, in another one.
    async fn look(&self) -> Result<Look> {
        let numbers = (0..self.count).map(|number| self.path_of(number));
        let paths: Vec<_> = numbers.chain([self.queue.path().to_owned()]).collect();
        let answers = read_all(&self.session, Some(Duration::MAX), paths.len(), &paths).await?;
        let occupied = |answer: Result<Found>| Ok(answer?.is_some_and(|(_, stat)| stat.num_children > 0));
        let mut occupied = answers.into_iter().map(occupied).collect::<Result<Vec<_>>>()?;
        let is_queued = occupied.pop().unwrap_or_default();
        let free = (0..self.count).zip(occupied).filter(|(_, is_occupied)| !is_occupied);
        let mut free: Vec<u32> = free.map(|(number, _)| number).collect();
        if self.rest.is_some() {
            let paths: Vec<_> = free.iter().map(|number| self.rest_of(*number)).collect();
            let found = read_all(&self.session, Some(Duration::MAX), paths.len().max(1), &paths).await?;
            let since =
                found.into_iter().map(|found| Ok(rest::rests_since(&found?))).collect::<Result<Vec<_>>>()?;
            let mut order: Vec<_> = since.into_iter().zip(free).collect();
            order.sort_unstable();
            free = order.into_iter().map(|(_, number)| number).collect();
        }
        Ok(Look { free, is_queued })
    }
}

/// Returns how many numbers a path may have, if they are as long as this one.
fn most_at(path: &str, number: u32) -> u32 {
    let longest = path.len() + 1 + number.to_string().len();
    u32::try_from(MAX_BYTES / longest).unwrap_or(u32::MAX)
}

/// Returns the count, or the most that the path may have.
fn reduced(path: &str, counts: &watch::Receiver<u32>) -> u32 {
    let count = *counts.borrow();
    count.min(most_at(path, count))
}

/// Creates the queue mutex of claims with this count.
fn queue(session: &Session, path: &str, count: u32) -> Result<Mutex> {
    // The user's stall limit applies to numbers, not to the queue mutex.
    let unlimited = Options::new().with_stall_limit(Duration::MAX);
    Mutex::with_options(session, &format!("{path}/{QUEUE}-{count}"), unlimited)
}

/// Watches the children of those paths that exist. Returns how many are watched.
async fn watch_all(client: Client, paths: &[String]) -> Result<(usize, Vec<OneshotWatcher>), ZkError> {
    let watches = paths.iter().map(async |path| match client.get_and_watch_children(path).await {
        Ok((_, _, watch)) => Ok(Some(watch)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(error),
    });
    let watches: Vec<_> = try_join_all(watches).await?.into_iter().flatten().collect();
    Ok((watches.len(), watches))
}

/// One of these numbers, at random. `None` if there are none.
fn any(free: &[u32]) -> Option<u32> {
    let random = usize::from_ne_bytes(Uuid::new_v4().into_bytes()[..size_of::<usize>()].try_into().ok()?);
    (!free.is_empty()).then(|| free[random % free.len()])
}

impl Slot {
    /// The number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the guard of the number's mutex, for functions that take any [`LockGuard`](zookeeper_recipes::LockGuard). If numbers
    /// rest, this one then begins to rest with the next claim.
    #[must_use = "dropping it releases the number"]
    pub fn into_guard(self) -> MutexGuard {
        self.guard
    }

    /// Releases the number, and waits until the servers have confirmed the release. See [`MutexGuard::release`]. If numbers
    /// [rest](Slots::with_rest), this one begins to rest now, before its monitors show the end: stop using it first.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release goes on in the background. The rest of the number may then begin later.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`].
    pub async fn release(self) -> Result<()> {
        if let Some(path) = &self.rest {
            // If that fails, the number begins to rest with the next claim.
            rest::begin(&self.guard, path).await;
        }
        self.guard.release().await
    }
}

impl Deref for Slot {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.guard
    }
}
