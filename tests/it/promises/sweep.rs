//! The sweep: kind of lock × call × fault × the frame with which the fault comes, and what is true after each.
//!
//! A cell is one call and the release of what it was granted. `k` counts the frames of its session since the call began, and grows
//! until a cell is over before its fault. One more combination is one more row here, not a scene.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use testbed::ledger::{Entry, Ledger};
use testbed::proxy::{Closing, Cut};
use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Acl, AuthId, Permission};
use zookeeper_recipes::{DistributedLock, Error, LockGuard, Options, Result};

use crate::recipes::*;
use crate::support::{World, frames_of, pass, soon, throttle};

/// The call, and who is ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// `lock` where nobody is.
    Free,
    /// The same in a session that was alone here last, whose create may be the grant.
    Counted,
    /// `lock` behind another session, which releases when the call waits.
    Behind,
    /// The same behind a holder of the same session.
    BehindItself,
    /// `lock` behind another session, which releases as soon as the node of the call is there.
    BehindAtOnce,
    /// `lock` right after a guard of the same session was dropped, which only the background releases.
    AfterADrop,
    /// `try_lock` where nobody is.
    Try,
    /// `try_lock` beside a holder.
    TryTaken,
    /// `try_lock_for` beside a holder that stays longer.
    TryForTaken,
}

/// How long `try_lock_for` waits: longer than a reconnect.
const LIMIT: Duration = Duration::from_secs(2);

/// How long each hold lasts, with somebody who waits for its loss.
const HOLD: Duration = Duration::from_millis(20);

/// How long the node and the watches of a call take to be there, and what its fault delays them.
const QUEUED: Duration = Duration::from_millis(200);

/// How long the servers refuse what changes the path.
const REFUSAL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection is cut where the name says, by this.
    Cut(Where, Closing),
    /// The call, or its release, is dropped.
    Dropped,
    /// Who is ahead drops its guard, in place of a release.
    HolderDropped,
    /// The servers end the session.
    SessionOver,
    /// Somebody deletes the youngest node of the session.
    Deleted,
    /// The k-th request is answered with the error of a server that throttles; it is done all the same.
    Throttled,
    /// The servers refuse for a while to create and to delete.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    BeforeRequest,
    AfterRequest,
    BeforeAnswer,
    AfterAnswer,
}

fn cuts(by: Closing) -> [Fault; 4] {
    use Where::*;
    [
        Fault::Cut(BeforeRequest, by),
        Fault::Cut(AfterRequest, by),
        Fault::Cut(BeforeAnswer, by),
        Fault::Cut(AfterAnswer, by),
    ]
}

const OTHERS: [Fault; 6] =
    [Fault::Dropped, Fault::HolderDropped, Fault::SessionOver, Fault::Deleted, Fault::Throttled, Fault::Refused];

impl Call {
    /// Whether somebody else holds the lock until the call has ended.
    fn is_refused(self) -> bool {
        matches!(self, Self::TryTaken | Self::TryForTaken)
    }

    /// Whether somebody releases when the call waits.
    fn is_behind(self) -> bool {
        matches!(self, Self::Behind | Self::BehindItself | Self::BehindAtOnce)
    }

    async fn of(self, lock: &Arc<dyn DistributedLock>) -> Outcome {
        match self {
            Self::Try | Self::TryTaken => lock.try_lock().await,
            Self::TryForTaken => lock.try_lock_for(LIMIT).await,
            _ => lock.lock().await.map(Some),
        }
    }

    /// Whether this is what a caller has to be told, if there was such a fault.
    fn may_end(self, fault: Fault, outcome: &Outcome) -> bool {
        match outcome {
            Ok(guard) => guard.is_none() == self.is_refused(),
            Err(Error::Evicted { .. }) => fault == Fault::Deleted,
            Err(Error::NoAuth { .. }) => fault == Fault::Refused,
            Err(_) => false,
        }
    }
}

impl Fault {
    /// Whether it can come beside this call.
    fn fits(self, call: Call) -> bool {
        self != Self::HolderDropped || call.is_behind()
    }

    /// Whether others may queue behind the call. A holder whose session or node somebody else has ended knows it some round trips
    /// later, when the next one has been granted the lock.
    fn spares_others(self) -> bool {
        !self.ends_holds() && self != Self::Refused
    }

    /// Whether a hold may be lost by it.
    fn ends_holds(self) -> bool {
        matches!(self, Self::SessionOver | Self::Deleted)
    }
}

type Outcome = Result<Option<Box<dyn LockGuard>>>;

/// Who holds the lock when the call begins.
struct Ahead {
    guard: Box<dyn LockGuard>,
    entry: Entry,
}

/// The cells of a call.
struct Sweep {
    call: Call,
    world: World,
    /// How many nodes a holder has, and a holder and a waiter.
    held: usize,
    queued: usize,
    /// The lock of the session with the fault.
    ours: Arc<dyn DistributedLock>,
    /// Locks that exclude it, of the same session and of another one.
    beside: Arc<dyn DistributedLock>,
    other: Arc<dyn DistributedLock>,
    ledger: Ledger,
}

impl Sweep {
    async fn new(recipe: &Recipe, call: Call) -> Self {
        let world = World::of(recipe).await;
        world.make_path().await;
        let one_request = Options::new().with_one_request(call != Call::Free);
        let session = world.session.clone().with_lock_options(one_request);
        Self {
            call,
            held: (recipe.nodes)(0),
            queued: (recipe.nodes)(1),
            ours: (recipe.lock)(&session, &world.path),
            beside: (recipe.other)(&session, &world.path),
            other: (recipe.other)(&world.other().await, &world.path),
            ledger: Ledger::new(),
            world,
        }
    }

    /// Plays the cells of a fault, and returns how many there were.
    async fn play(&self, fault: Fault) -> usize {
        let mut k = 1;
        while self.cell(fault, k).await {
            k += 1;
        }
        self.ledger.assert_clean();
        k - 1
    }

    /// Whether the fault came before the cell was over.
    async fn cell(&self, fault: Fault, k: usize) -> bool {
        let cell = format!("{:?}, {fault:?} at {k}", self.call);
        let mut ahead = self.set().await;
        let token = ahead.as_ref().map(|ahead| ahead.guard.fencing_token().get());
        let proxy = &self.world.proxy;
        proxy.reset();
        if self.call == Call::AfterADrop {
            ahead = None;
        }
        let came = if self.call.is_behind() {
            let (came, dropped) =
                tokio::join!(self.struck(fault, k, token, &cell), self.turn(fault, k, ahead, &cell));
            came || dropped
        } else {
            let came = self.struck(fault, k, token, &cell).await;
            end(ahead).await;
            came
        };
        proxy.heal();
        proxy.rewrite_answers(|_, _| {});
        self.world.wait_empty().await;
        if !self.has_others(fault) {
            self.visit_of_another(&self.other, &cell).await;
            self.visit_of_another(&self.ours, &cell).await;
            self.world.wait_empty().await;
        }
        came
    }

    /// Whether two more queue behind the call. Else they come afterwards.
    fn has_others(&self, fault: Fault) -> bool {
        self.call.is_behind() && self.call != Call::BehindAtOnce && fault.spares_others()
    }

    /// A lock and its release by somebody whom the fault has left alone.
    fn visit_of_another(&self, lock: &Arc<dyn DistributedLock>, cell: &str) -> BoxFuture<'static, ()> {
        let (lock, ledger, who) = (lock.clone(), self.ledger.clone(), format!("{cell}: another"));
        Box::pin(async move {
            let guard = soon(&who, lock.lock()).await.expect("held");
            let entry = ledger.enter(who, guard.fencing_token().get());
            tokio::task::yield_now().await;
            end(Some(Ahead { guard, entry })).await;
        })
    }

    /// Takes the lock for who is ahead.
    async fn set(&self) -> Option<Ahead> {
        let lock = match self.call {
            Call::Free | Call::Try => return None,
            Call::Counted => {
                // The first listing shows nobody else, and no data.
                self.ours.lock().await.expect("free").release().await.expect("released");
                return None;
            }
            Call::BehindItself | Call::AfterADrop => &self.beside,
            Call::Behind | Call::BehindAtOnce | Call::TryTaken | Call::TryForTaken => &self.other,
        };
        let guard = lock.lock().await.expect("free");
        let entry = self.ledger.enter("who is ahead", guard.fencing_token().get());
        Some(Ahead { guard, entry })
    }

    /// Lets two more queue behind the call, and releases what is ahead. Whether that was dropped by its fault.
    async fn turn(&self, fault: Fault, k: usize, ahead: Option<Ahead>, cell: &str) -> bool {
        let Some(Ahead { guard, entry }) = ahead else { return false };
        let proxy = &self.world.proxy;
        let until = async {
            match self.call {
                _ if fault == Fault::HolderDropped => proxy.wait_until(|all| frames_of(all) >= k).await,
                Call::BehindAtOnce => drop(self.world.wait_children(self.queued).await),
                _ => drop(guard.lost().await),
            }
        };
        let is_dropped = timeout(QUEUED, until).await.is_ok() && fault == Fault::HolderDropped;
        let others = if self.has_others(fault) {
            [&self.beside, &self.other].map(|lock| tokio::spawn(self.visit_of_another(lock, cell))).into()
        } else {
            Vec::new()
        };
        if !others.is_empty() && !is_dropped {
            // They queue.
            let _ = timeout(QUEUED, guard.lost()).await;
        }
        match is_dropped {
            true => drop((entry, guard)),
            false => end(Some(Ahead { guard, entry })).await,
        }
        for other in others {
            other.await.expect("no panic");
        }
        is_dropped
    }

    /// Plays the call and its release with a fault. Whether the fault came.
    async fn struck(&self, fault: Fault, k: usize, ahead: Option<i64>, cell: &str) -> bool {
        let proxy = &self.world.proxy;
        match fault {
            Fault::Cut(at, closing) => {
                proxy.close_by(closing);
                proxy.cut(match at {
                    Where::BeforeRequest => Cut::BeforeRequest(k),
                    Where::AfterRequest => Cut::AfterRequest(k),
                    Where::BeforeAnswer => Cut::BeforeAnswer(k),
                    Where::AfterAnswer => Cut::AfterAnswer(k),
                });
            }
            Fault::Throttled => throttle(proxy, move |request| request.number == k),
            Fault::HolderDropped => {
                self.visit(fault, cell).await;
                return false;
            }
            _ => {
                let visit = self.visit(fault, cell);
                tokio::pin!(visit);
                let came = tokio::select! {
                    biased;
                    () = proxy.wait_until(|all| frames_of(all) >= k) => true,
                    () = &mut visit => false,
                };
                if came && fault != Fault::Dropped {
                    tokio::join!(self.strike(fault, ahead), visit);
                }
                return came;
            }
        }
        self.visit(fault, cell).await;
        proxy.requests().len() >= k
    }

    /// Lets the fault come. `ahead`: the token of who is ahead.
    async fn strike(&self, fault: Fault, ahead: Option<i64>) {
        let (world, admin) = (&self.world, &self.world.admin);
        match fault {
            Fault::SessionOver => world.expire().await,
            Fault::Deleted => {
                // A holder whose node is deleted holds until it knows, also beside the next one.
                let of_call = |(made, _): &(i64, String)| ahead.is_none_or(|ahead| *made > ahead);
                if let Some((_, node)) = self.own_nodes().await.into_iter().filter(of_call).max() {
                    let _ = admin.delete(&node, None).await;
                }
            }
            Fault::Refused => {
                let closed = [Acl::new(Permission::READ | Permission::ADMIN, AuthId::anyone())];
                let open = [Acl::new(Permission::ALL, AuthId::anyone())];
                for acls in [closed, open] {
                    for dir in &world.dirs {
                        admin.set_acl(dir, &acls, None).await.expect("changed");
                    }
                    pass(REFUSAL).await;
                }
            }
            Fault::Cut(..) | Fault::Dropped | Fault::HolderDropped | Fault::Throttled => {}
        }
    }

    /// The nodes of the session, with the transaction that made each.
    async fn own_nodes(&self) -> Vec<(i64, String)> {
        let (admin, session) = (&self.world.admin, self.world.session.id().0);
        let mut found = Vec::new();
        for dir in &self.world.dirs {
            for name in admin.list_children(dir).await.expect("listed") {
                let node = format!("{dir}/{name}");
                match admin.check_stat(&node).await.expect("asked") {
                    Some(stat) if stat.ephemeral_owner == session => found.push((stat.czxid, node)),
                    _ => {}
                }
            }
        }
        found
    }

    /// The call and its release.
    async fn visit(&self, fault: Fault, cell: &str) {
        let outcome = soon(cell, self.call.of(&self.ours)).await;
        let told = outcome.as_ref().map(|guard| guard.as_ref().map(|guard| guard.fencing_token()));
        assert!(self.call.may_end(fault, &outcome), "{cell}: {told:?}");
        let Ok(Some(guard)) = outcome else { return };
        let entry = self.ledger.enter(cell, guard.fencing_token().get());
        let lost = timeout(HOLD, guard.lost()).await.ok();
        drop(entry);
        assert!(lost.is_none() || fault.ends_holds(), "{cell}: {lost:?}");
        let nodes = self.own_nodes().await;
        match soon(cell, guard.release()).await {
            // Nobody is told that a node was released which somebody else has deleted.
            Ok(()) => assert!(lost.is_none() && nodes.len() >= self.held, "{cell}: {lost:?}, {nodes:?}"),
            Err(Error::Lost(loss)) => assert!(fault.ends_holds(), "{cell}: {loss:?}"),
            // It is deleted as soon as the servers permit it.
            Err(Error::NoAuth { .. }) if fault == Fault::Refused => {}
            Err(error) => panic!("{cell}: {error}"),
        }
    }
}

/// Releases what was ahead, whose session may be over.
async fn end(ahead: Option<Ahead>) {
    if let Some(Ahead { guard, entry }) = ahead {
        drop(entry);
        match guard.release().await {
            Ok(()) | Err(Error::Lost(_) | Error::NoAuth { .. }) => {}
            Err(error) => panic!("who is ahead: {error}"),
        }
    }
}

/// Plays all faults, with these cuts.
async fn sweep(recipe: &Recipe, call: Call, cuts: &[Fault]) {
    cells(recipe, call, cuts).await;
    cells(recipe, call, &OTHERS).await;
}

async fn cells(recipe: &Recipe, call: Call, faults: &[Fault]) {
    for fault in faults.iter().filter(|fault| fault.fits(call)) {
        let cells = Sweep::new(recipe, call).await.play(*fault).await;
        println!("{call:?}, {fault:?}: {cells} cells");
        assert!(cells > 0, "{call:?}, {fault:?}: no fault came");
    }
}

macro_rules! sweeps {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            /// On real servers, too.
            #[cfg(not(virtual_time))]
            #[tokio::test]
            async fn lock_behind_another_session_and_a_cut() {
                cells(&$of, Call::BehindAtOnce, &cuts(Closing::Fin)).await;
            }

            #[cfg(feature = "scenes")]
            #[tokio::test]
            async fn free() {
                sweep(&$of, Call::Free, &cuts(Closing::Fin)).await;
            }

            #[cfg(feature = "scenes")]
            #[tokio::test]
            async fn behind() {
                sweep(&$of, Call::Behind, &cuts(Closing::Fin)).await;
            }
        }
    )*};
}

for_all_recipes!(sweeps);
sweeps! { both => BOTH; }

/// The other calls, for the kinds whose nodes or whose order differ; those of several nodes, which take longest, with fewer faults.
#[cfg(feature = "scenes")]
mod calls {
    use super::*;

    macro_rules! calls {
        ($($call:ident: $of_call:ident),*) => {$(
            mod $call {
                use super::*;

                #[tokio::test]
                async fn mutex() {
                    sweep(&MUTEX, Call::$of_call, &[cuts(Closing::Fin), cuts(Closing::Reset)].concat()).await;
                }

                #[tokio::test]
                async fn reader() {
                    sweep(&READER, Call::$of_call, &cuts(Closing::Fin)).await;
                }

                #[tokio::test]
                async fn semaphore() {
                    cells(&SEMAPHORE, Call::$of_call, &cuts(Closing::Fin)).await;
                    cells(&SEMAPHORE, Call::$of_call, &OTHERS[..2]).await;
                }

                #[tokio::test]
                async fn multi_lock() {
                    cells(&MULTI_LOCK, Call::$of_call, &cuts(Closing::Fin)).await;
                    cells(&MULTI_LOCK, Call::$of_call, &OTHERS[..2]).await;
                }
            }
        )*};
    }

    calls! {
        counted: Counted, behind_itself: BehindItself, behind_at_once: BehindAtOnce, after_a_drop: AfterADrop, try_lock: Try,
        try_lock_that_is_taken: TryTaken, try_lock_for_that_is_taken: TryForTaken
    }
}

/// Without it, a sweep could go round the ways that it is for. Whether a call waits after [`QUEUED`] is exact in virtual time alone.
#[cfg(virtual_time)]
#[tokio::test]
async fn each_call_is_granted_in_its_way() {
    let ways = crate::ways::Ways::new();
    let _listens = ways.listen();
    let expected = [
        (Call::Free, "Listed"),
        (Call::Counted, "Counted"),
        (Call::Behind, "Deleted"),
        (Call::BehindItself, "HandedOver"),
    ];
    for (call, way) in expected {
        let sweep = Sweep::new(&MUTEX, call).await;
        // The second cell is in a session that was not alone here last, as all but the first of a sweep are.
        for k in [1_000, 1_001] {
            let cell = format!("{call:?}, {:?} at {k}", Fault::Dropped);
            sweep.cell(Fault::Dropped, k).await;
            let grants = sweep.ledger.grants();
            let ours = grants.iter().rev().find(|grant| *grant.who == *cell).expect("granted");
            assert!(ways.has(ours.token, way), "{cell}: {}", ways.summary());
        }
    }
}
