//! The stage of one run: servers, a store, contenders, and what comes out of it.

use std::net::SocketAddr;
use std::time::Duration;

use testbed::Wire;

use crate::Outcome;
use crate::actor::{Actor, Log};
use crate::event::{Event, What, now};
use crate::servers::clock::Clock;
use crate::store::{Counter, Store};
use crate::ways::mariadb_unique_row::TOO_OLD;
use crate::ways::mariadb_version::Versioned;
use crate::ways::{LEASE, Place, Way};
use crate::work::{Gate, Order};

/// Longer than anything takes that does not wait for a lock.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// How long contenders have to finish what nothing keeps them from, before they count as stuck.
const FINISH: Duration = Duration::from_secs(6);
/// The rounds of each of the other contenders.
const ROUNDS: usize = 3;
/// The error of a run that shows nothing. It can be tried again.
pub const TOO_SLOW: &str = "the machine was too slow: the lease ended by itself, or the server came back too late";
/// A wait beyond this is one that no lease explains.
pub const PATIENCE: Duration = Duration::from_secs(2 * LEASE.as_secs());

/// The stage of one run.
#[derive(Debug)]
pub struct Stage {
    /// What is played on it.
    pub way: &'static Way,
    /// The steps.
    pub log: Log,
    began: u64,
    place: Place,
    store: Store,
}

/// What came out of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcomes {
    /// Increments that were acknowledged and are not in the counter.
    pub lost: i64,
    /// Requests of the faulty holder that the store has refused for their token or version.
    pub late_refused: usize,
    /// Requests of other contenders, which did nothing wrong, that the store has refused.
    pub honest_refused: usize,
    /// Whether the faulty holder noticed the loss before it wrote.
    pub noticed: bool,
    /// How long the next grant to another contender came after it could be expected, if there was one.
    pub waited: Option<Duration>,
    /// From then to the end of the observation.
    pub observed: Duration,
    /// What was asked, if it was not whether updates are lost.
    pub property: Option<Property>,
    /// The steps, in nanoseconds since the run began.
    pub events: Vec<Event>,
}

/// A property of a way that a run has shown.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Property {
    /// In words.
    pub text: &'static str,
    /// Whether it holds up contenders that it should not.
    pub is_fault: bool,
}

impl Stage {
    /// Prepares a run on servers at these addresses.
    ///
    /// # Errors
    ///
    /// If the store cannot be started.
    pub async fn new(way: &'static Way, run: &str, addresses: Vec<SocketAddr>, java: &[String]) -> Outcome<Self> {
        let place = Place { addresses, lock: format!("lab-{run}"), java: java.to_vec() };
        Ok(Self { way, log: Log::default(), began: now(), place, store: Store::start().await? })
    }

    /// How long a stopped holder stays stopped: until the lock is free for the others, and they have done their rounds.
    pub fn pause(&self) -> Duration {
        self.lease() + Duration::from_secs(3)
    }

    /// After which time a lock that nobody renews is free; of a row this is when a job removes it.
    pub fn lease(&self) -> Duration {
        if self.way.job.is_some() { TOO_OLD } else { LEASE }
    }

    /// The store's address, for a wire.
    pub fn store(&self) -> SocketAddr {
        self.store.address()
    }

    /// The place of the lock.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The order of a contender that does some rounds.
    pub fn order(&self, rounds: usize, gate: Gate) -> Order {
        Order {
            way: self.way.id.to_owned(),
            place: self.place.clone(),
            store: (!self.way.optimistic).then(|| self.store.address()),
            rounds,
            tasks: 1,
            think: Duration::from_millis(2),
            gate,
            ..Order::default()
        }
    }

    /// Starts a contender, and waits until it is connected.
    ///
    /// # Errors
    ///
    /// If it does not connect.
    pub async fn enter(&self, name: &str, order: &Order, clock: Option<&Clock>) -> Outcome<Actor> {
        let actor = Actor::start(name, order, clock, &self.log)?;
        actor.wait(What::Ready, SOON).await?;
        Ok(actor)
    }

    /// Starts the contender that the fault will hit, with the lock behind these wires, and waits until it is at its gate.
    ///
    /// # Errors
    ///
    /// If it does not get there.
    pub async fn holder(&self, gate: Gate, wires: &[Wire]) -> Outcome<Actor> {
        let mut order = self.order(1, gate);
        if !wires.is_empty() {
            order.place.addresses = wires.iter().map(Wire::address).collect();
        }
        self.holder_of(&order, None).await
    }

    /// As [`holder`](Self::holder), with this order and clock.
    ///
    /// # Errors
    ///
    /// If it does not get to its gate.
    pub async fn holder_of(&self, order: &Order, clock: Option<&Clock>) -> Outcome<Actor> {
        let mut holder = self.enter("holder", order, clock).await?;
        holder.go()?;
        holder.wait(What::AtGate, SOON).await?;
        Ok(holder)
    }

    /// Starts two more contenders, which wait for the lock from now on.
    ///
    /// # Errors
    ///
    /// If they do not connect.
    pub async fn others(&self) -> Outcome<Vec<Actor>> {
        let mut others = self.connected_others().await?;
        self.start(&mut others).await?;
        Ok(others)
    }

    /// Starts two more contenders, which do nothing but connect.
    ///
    /// # Errors
    ///
    /// If they do not connect.
    pub async fn connected_others(&self) -> Outcome<Vec<Actor>> {
        let mut others = Vec::new();
        for name in ["second", "third"] {
            others.push(self.enter(name, &self.order(ROUNDS, Gate::None), None).await?);
        }
        Ok(others)
    }

    /// Lets them wait for the lock.
    ///
    /// # Errors
    ///
    /// If they have ended.
    pub async fn start(&self, others: &mut [Actor]) -> Outcome {
        for other in others {
            other.go()?;
            other.wait(What::Requested, SOON).await?;
        }
        Ok(())
    }

    /// How long the others can be watched until a lease which nobody renews might end by itself: for so long at most.
    ///
    /// # Errors
    ///
    /// [`TOO_SLOW`] if that is not long enough.
    pub fn within_lease(&self, limit: Duration) -> Outcome<Duration> {
        if !self.way.expires() {
            return Ok(limit);
        }
        let events = self.log.events();
        let granted = events.iter().find(|event| event.contender == "holder" && event.what == What::Granted);
        let held = granted.map_or(LEASE, |granted| Duration::from_nanos(now().saturating_sub(granted.at)));
        let left = (LEASE * 4 / 5).saturating_sub(held).min(limit);
        if left < LEASE / 8 { Err(TOO_SLOW.into()) } else { Ok(left) }
    }

    /// Checks that a lease which nobody renews was not over by itself when the holder wrote.
    ///
    /// # Errors
    ///
    /// [`TOO_SLOW`] if it was.
    pub fn wrote_within_lease(&self, outcomes: &Outcomes) -> Outcome {
        if self.way.expires() && wrote_late(&outcomes.events) { Err(TOO_SLOW.into()) } else { Ok(()) }
    }

    /// Waits until the others have done all their rounds, for this long at most.
    pub async fn settle(&self, limit: Duration) -> bool {
        let done = |events: &[Event], name| {
            events.iter().any(|event| event.contender == name && event.what == What::Done)
        };
        self.log.wait(limit, |events| done(events, "second") && done(events, "third")).await
    }

    /// Lets everything that nothing hinders come to its end, and counts. A grant was due at this time.
    ///
    /// # Errors
    ///
    /// If the counter cannot be read.
    pub async fn finish(&self, due: u64) -> Outcome<Outcomes> {
        let all_done = |events: &[Event]| {
            let has = |name: &str, what| events.iter().any(|event| event.contender == name && event.what == what);
            let ready = events.iter().filter(|event| event.what == What::Ready);
            ready.into_iter().all(|event| has(&event.contender, What::Done))
        };
        self.log.wait(FINISH, all_done).await;
        self.count(due).await
    }

    /// Counts increments, and the wait since a grant was due.
    ///
    /// # Errors
    ///
    /// If the counter cannot be read.
    pub async fn count(&self, due: u64) -> Outcome<Outcomes> {
        let observed = Duration::from_nanos(now() - due);
        let mut events = self.log.events();
        let count = |what| events.iter().filter(|event| event.what == what).count();
        let acknowledged = i64::try_from(count(What::Written))?;
        let lost = if self.way.optimistic {
            let value = Versioned::connect(&self.place).await?.read(None).await?;
            acknowledged - value.ok_or("there is no counter")?
        } else {
            // A late write is acknowledged to nobody, and counts nevertheless: what it writes over was.
            self.store.state().writes.max(acknowledged) - self.store.state().value
        };
        let is_other = |event: &&Event| ["second", "third"].contains(&event.contender.as_str());
        let refusals = |event: &&Event| matches!(event.what, What::Conflict | What::Refused);
        let honest_refused = events.iter().filter(is_other).filter(refusals).count();
        // The store also counts a late write, whose answer no contender waits for.
        let all_refused = count(What::Conflict) + usize::try_from(self.store.state().refused)?;
        let late_refused = all_refused.saturating_sub(honest_refused);
        let noticed = count(What::Noticed) > 0;
        let granted = events.iter().filter(is_other).find(|event| event.what == What::Granted);
        let waited = granted.map(|event| Duration::from_nanos(event.at.saturating_sub(due)));
        for event in &mut events {
            event.at = event.at.saturating_sub(self.began);
        }
        let lost = lost.max(0);
        Ok(Outcomes { lost, late_refused, honest_refused, noticed, waited, observed, property: None, events })
    }
}

/// Whether the holder wrote later than a lease after its grant.
fn wrote_late(events: &[Event]) -> bool {
    let at =
        |what| events.iter().find(|event| event.contender == "holder" && event.what == what).map(|event| event.at);
    let held = at(What::Granted).zip(at(What::Written)).map(|(granted, written)| written.saturating_sub(granted));
    held.is_some_and(|held| Duration::from_nanos(held) >= LEASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_after_the_lease_is_late() {
        let event = |at: Duration, what| Event {
            at: at.as_nanos() as u64,
            contender: "holder".to_owned(),
            ..Event::now(0, what)
        };
        let granted = event(Duration::from_secs(1), What::Granted);
        for (written, late) in [(LEASE, false), (LEASE + Duration::from_secs(1), true)] {
            assert_eq!(wrote_late(&[granted.clone(), event(written, What::Written)]), late, "{written:?}");
        }
        assert!(!wrote_late(&[granted]), "it did not write");
    }
}
