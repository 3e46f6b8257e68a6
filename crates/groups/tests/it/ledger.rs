//! Owns [`Ledger`]: what members report about the shards that they serve, and whether two ever served the same one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use zookeeper_recipes::{HoldMonitor, HoldState};

#[derive(Clone)]
pub(crate) struct Ledger(Arc<watch::Sender<Book>>);

#[derive(Default)]
pub(crate) struct Book {
    shards: Vec<Entry>,
    /// Members that were stopped: they do not notice that they own nothing any more until they go on.
    stopped: BTreeSet<String>,
    faults: Vec<String>,
    moves: usize,
    grants: usize,
    /// How often a shard was served a little longer than it was owned, because the machine was late.
    late: usize,
    longest_gap: Duration,
}

#[derive(Clone, Default)]
struct Entry {
    owner: Option<(String, u64)>,
    /// The hold of the owner, if it is in this process.
    hold: Option<HoldMonitor>,
    last_owner: Option<String>,
    last_token: u64,
    ended: Option<Instant>,
}

/// A shard that is served. Dropping it ends that.
pub(crate) struct Service {
    ledger: Ledger,
    shard: usize,
    name: String,
    token: u64,
}

impl Ledger {
    pub(crate) fn new(count: u32) -> Self {
        let shards = vec![Entry::default(); count as usize];
        Self(Arc::new(watch::Sender::new(Book { shards, ..Book::default() })))
    }

    /// With a hold, its clock decides until when the shard was owned, and not when the machine came to drop the service.
    pub(crate) fn begin(&self, name: &str, number: u32, token: u64, hold: Option<HoldMonitor>) -> Service {
        self.0.send_modify(|book| {
            let Book { shards, stopped, faults, moves, grants, late, longest_gap } = book;
            let entry = &mut shards[number as usize];
            let is_lost = |hold: &HoldMonitor| matches!(hold.state(), HoldState::Lost(_));
            // The session of this member was expired by hand between the grant and this call. Another member may own the shard by
            // now, so a store refuses the older token.
            let was_late = stopped.contains(name) || hold.as_ref().is_some_and(is_lost);
            if token <= entry.last_token && was_late {
                *late += 1;
                return;
            }
            match &entry.owner {
                Some(_) if entry.hold.as_ref().is_some_and(is_lost) => *late += 1,
                Some((owner, _)) if !stopped.contains(owner) => {
                    faults.push(format!("{name} gets {number} while {owner} serves it"));
                }
                _ => {}
            }
            if token <= entry.last_token {
                faults.push(format!("{name} gets {number} with token {token} after {}", entry.last_token));
            }
            *grants += 1;
            *moves += usize::from(entry.last_owner.as_ref().is_some_and(|last| last != name));
            *longest_gap = (*longest_gap).max(entry.ended.map(|ended| ended.elapsed()).unwrap_or_default());
            *entry = Entry {
                owner: Some((name.to_owned(), token)),
                hold,
                last_owner: Some(name.to_owned()),
                last_token: token,
                ended: None,
            };
        });
        Service { ledger: self.clone(), shard: number as usize, name: name.to_owned(), token }
    }

    /// Excuses a member that is about to be stopped.
    pub(crate) fn stopped(&self, name: &str) {
        self.0.send_modify(|book| _ = book.stopped.insert(name.to_owned()));
    }

    pub(crate) fn goes_on(&self, name: &str) {
        self.0.send_modify(|book| _ = book.stopped.remove(name));
    }

    /// Waits until this is so.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut(&Book) -> bool) {
        let mut book = self.0.subscribe();
        let met = tokio::time::timeout(Duration::from_secs(60), book.wait_for(|book| is_so(book))).await;
        let orphans = || self.read(Book::orphans);
        met.unwrap_or_else(|_| panic!("timed out: {what}; {} shards have no owner", orphans())).expect("a ledger");
    }

    /// Waits until this is so, for as long as `limit`.
    pub(crate) async fn is_so_within(&self, limit: Duration, mut is_so: impl FnMut(&Book) -> bool) -> bool {
        let mut book = self.0.subscribe();
        tokio::time::timeout(limit, book.wait_for(|book| is_so(book))).await.is_ok()
    }

    /// Fails the test if a shard moves within this time.
    pub(crate) async fn nothing_moves(&self, time: Duration) {
        let (mut book, before) = (self.0.subscribe(), self.moves());
        let moved = tokio::time::timeout(time, book.wait_for(|book| book.moves > before)).await;
        assert!(moved.is_err(), "a shard has moved");
    }

    /// Forgets the moves and gaps so far.
    pub(crate) fn count_again(&self) {
        self.0.send_modify(|book| {
            (book.moves, book.grants, book.longest_gap) = Default::default();
            book.shards.iter_mut().for_each(|entry| entry.ended = None);
        });
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Book) -> T) -> T {
        read(&self.0.borrow())
    }

    pub(crate) fn moves(&self) -> usize {
        self.read(|book| book.moves)
    }

    pub(crate) fn grants(&self) -> usize {
        self.read(|book| book.grants)
    }

    pub(crate) fn late(&self) -> usize {
        self.read(|book| book.late)
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.read(|book| book.faults.clone())
    }

    pub(crate) fn longest_gap(&self) -> Duration {
        self.read(|book| book.longest_gap)
    }

    /// Fails the test if two members served a shard at once, or a member served it with an old token.
    pub(crate) fn judge(&self) {
        self.read(|book| assert!(book.faults.is_empty(), "{:#?}", book.faults));
    }
}

impl Book {
    pub(crate) fn owner(&self, shard: u32) -> Option<&str> {
        self.shards[shard as usize].owner.as_ref().map(|(name, _)| name.as_str())
    }

    pub(crate) fn owned_by(&self, name: &str) -> Vec<u32> {
        (0..)
            .zip(&self.shards)
            .filter(|(shard, _)| self.owner(*shard) == Some(name))
            .map(|(shard, _)| shard)
            .collect()
    }

    /// The shards without an owner.
    pub(crate) fn orphans(&self) -> usize {
        self.shards.iter().filter(|entry| entry.owner.is_none()).count()
    }
}

impl Service {
    /// A step of the work, such as a write: only the owner with the newest token may do one.
    pub(crate) fn step(&self) {
        let (shard, name, token) = (self.shard, &self.name, self.token);
        if let Some(newest) = self.newer() {
            let fault = format!("{name} works on {shard} with token {token} after {newest}");
            self.ledger.0.send_modify(|book| book.faults.push(fault));
        }
    }

    /// The token of a later owner, if there is one by now. A store refuses a write then.
    pub(crate) fn newer(&self) -> Option<u64> {
        let newest = self.ledger.read(|book| book.shards[self.shard].last_token);
        (newest > self.token).then_some(newest)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ledger.0.send_modify(|book| {
            let entry = &mut book.shards[self.shard];
            if entry.owner.as_ref().is_some_and(|(_, token)| *token == self.token) {
                (entry.owner, entry.hold, entry.ended) = (None, None, Some(Instant::now()));
            }
        });
    }
}

/// A member whose session was expired by hand may begin with a grant that is not its own any more. Every other one is a fault.
#[test]
fn only_an_excused_member_may_begin_late() {
    let ledger = Ledger::new(1);
    let _owner = ledger.begin("b", 0, 2, None);
    ledger.stopped("a");
    drop(ledger.begin("a", 0, 1, None));
    assert_eq!((ledger.late(), ledger.faults()), (1, vec![]));
    assert_eq!(ledger.read(|book| book.owner(0).map(str::to_owned)).as_deref(), Some("b"));
    ledger.goes_on("a");
    drop(ledger.begin("a", 0, 1, None));
    assert_eq!(ledger.faults(), ["a gets 0 while b serves it", "a gets 0 with token 1 after 2"]);
}
