//! Public types and futures: `Send`, `Sync` and `'static`, as listed here.

use std::time::Duration;

use zookeeper_groups::{
    Members, Membership, Slot, Slots,
    members::{Member, MemberChanges},
};
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::job::{JobOutcome, JobRecord, JobSlot};
use zookeeper_recipes::multi_lock::MultiLockBuilder;
use zookeeper_recipes::rwlock::DowngradeError;
use zookeeper_recipes::session::SessionStates;
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::{
    Config, Contender, DistributedLock, Election, Error, FencingToken, Hold, HoldMonitor, HoldState, Job,
    Leadership, LockGuard, Loss, MultiLock, MultiLockGuard, Mutex, MutexGuard, Observer, Options, Owner,
    ReentrantMutex, ReentrantMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit,
    SemaphoreShare, Servers, Session, SharePermit, Waiting, blocking,
};

fn is_all<T: Send + Sync + Unpin + 'static + std::fmt::Debug>() {}
fn is_plain<T: Copy + Eq + std::hash::Hash>() {}
fn is_error<T: std::error::Error + Clone + Send + Sync + 'static>() {}
fn is_send<T: Send>(_: fn() -> T) {}
fn is_send_static<T: Send + 'static>(_: &T) {}

#[test]
fn types_can_be_shared_and_sent() {
    is_all::<Session>();
    is_all::<SessionStates>();
    is_all::<Servers>();
    is_all::<Mutex>();
    is_all::<MutexGuard>();
    is_all::<RwLock>();
    is_all::<RwLockReadGuard>();
    is_all::<RwLockWriteGuard>();
    is_all::<DowngradeError>();
    is_all::<Semaphore>();
    is_all::<SemaphorePermit>();
    is_all::<SemaphoreShare>();
    is_all::<SharePermit>();
    is_all::<Members>();
    is_all::<Membership>();
    is_all::<Member>();
    is_all::<MemberChanges>();
    is_all::<Slots>();
    is_all::<Slot>();
    is_all::<MultiLock>();
    is_all::<MultiLockBuilder>();
    is_all::<MultiLockGuard>();
    is_all::<ReentrantMutex>();
    is_all::<ReentrantMutexGuard>();
    is_all::<Owner>();
    is_all::<Election>();
    is_all::<Leadership>();
    is_all::<Job>();
    is_all::<JobOutcome<()>>();
    is_all::<JobSlot>();
    is_plain::<JobRecord>();
    is_all::<HoldMonitor>();
    is_all::<Observer>();
    is_all::<Waiting<MutexGuard>>();
    is_all::<Hold>();
    is_all::<Options>();
    is_all::<Config>();
    is_all::<Contender>();
    is_all::<Error>();
    is_all::<LocalSession>();
    is_all::<Box<dyn LockGuard>>();
    is_all::<blocking::Session>();
    is_all::<blocking::Mutex>();
    is_all::<blocking::MutexGuard>();
    is_all::<blocking::ReentrantMutex>();
    is_all::<blocking::ReentrantMutexGuard>();
    is_all::<blocking::RwLock>();
    is_all::<blocking::RwLockWriteGuard>();
    is_all::<blocking::Semaphore>();
    is_all::<blocking::SemaphorePermit>();
    is_all::<blocking::Election>();
    is_all::<blocking::Leadership>();
    is_all::<blocking::Term>();
    is_all::<blocking::Waiting<MutexGuard>>();
    is_plain::<ContenderKind>();
    is_plain::<FencingToken>();
    is_plain::<HoldState>();
    is_plain::<Loss>();
    is_plain::<Unanswered>();
    is_error::<Error>();
    is_error::<Loss>();
    is_send::<Box<dyn DistributedLock>>(|| unreachable!());
}

#[allow(dead_code, reason = "it only has to compile")]
fn futures_can_be_sent(session: &'static Session, mutex: &'static Mutex, guard: fn() -> &'static MutexGuard) {
    is_send_static(&Session::connect(""));
    is_send_static(&session.close());
    is_send_static(&session.drain(Duration::ZERO));
    is_send_static(&mutex.lock());
    is_send_static(&mutex.try_lock());
    is_send_static(&mutex.try_lock_for(Duration::ZERO));
    is_send_static(&mutex.enqueue());
    is_send_static(&mutex.contenders());
    is_send_static(&guard().lost());
    is_send_static(&guard().revoke_requested());
    is_send_static(&guard().changed());
    is_send_static(&guard().run_until_lost(async {}));
}

#[allow(dead_code, reason = "it only has to compile")]
fn futures_of_the_other_recipes_can_be_sent(
    rwlock: &'static RwLock,
    semaphore: &'static Semaphore,
    multi_lock: &'static MultiLock,
    (reentrant, owner): (&'static ReentrantMutex, &'static Owner),
    election: &'static Election,
    contender: &'static Contender,
    job: &'static Job,
) {
    is_send_static(&rwlock.read());
    is_send_static(&rwlock.try_write_for(Duration::ZERO));
    is_send_static(&semaphore.acquire_many(2));
    is_send_static(&semaphore.available_permits());
    is_send_static(&multi_lock.lock());
    is_send_static(&reentrant.lock(owner));
    is_send_static(&reentrant.try_lock(owner));
    is_send_static(&reentrant.try_lock_for(owner, Duration::ZERO));
    is_send_static(&election.campaign());
    is_send_static(&election.leader());
    is_send_static(&election.break_lock(contender));
    is_send_static(&election.revoke(contender));
    is_send_static(&election.run(async |_| {}));
    is_send_static(&election.run_until(async {}, async |_| {}));
    is_send_static(&job.run("1", async |_: HoldMonitor| Ok::<_, Error>(())));
}

#[allow(dead_code, reason = "it only has to compile")]
fn futures_of_groups_and_slots_can_be_sent(
    members: &'static Members,
    membership: &'static Membership,
    slots: &'static Slots,
) {
    is_send_static(&members.join("name", b""));
    is_send_static(&members.join_when_free("name", b""));
    is_send_static(&members.members());
    is_send_static(&membership.joined());
    is_send_static(&membership.set(b""));
    is_send_static(&slots.claim());
    is_send_static(&slots.try_claim());
    is_send_static(&slots.holders());
}

#[allow(dead_code, reason = "it only has to compile")]
fn consuming_futures_can_be_sent(
    mut observer: Observer,
    leadership: Leadership,
    writer: RwLockWriteGuard,
    waiting: Waiting<MutexGuard>,
    (mut changes, membership, slot): (MemberChanges, Membership, Slot),
) {
    fn is_send<T: Send>(_: T) {}
    is_send(waiting);
    is_send(writer.downgrade());
    is_send(observer.changed());
    is_send(changes.changed());
    is_send(changes.wait_for(|members| members.is_empty()));
    is_send(membership.leave());
    is_send(slot.release());
    is_send(leadership.proclaim("x"));
    is_send(leadership.resign());
}

#[allow(dead_code, reason = "it only has to compile")]
fn a_loss_signal_outlives_its_guard(guard: MutexGuard) -> impl Future<Output = Loss> + Send + 'static {
    let lost = guard.lost();
    let release: std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> = Box::pin(guard.release());
    drop(release);
    lost
}

#[test]
fn error_texts_name_what_and_where() {
    let unavailable = |after, why| {
        Error::Unavailable { hosts: "zk1:2181".to_owned(), after, why, failures: Vec::new() }.to_string()
    };
    let servers = unavailable(Duration::from_secs(6), Unanswered::Servers);
    assert_eq!(servers, "no answer from zk1:2181 within 6.0s: not connected");
    let limit = unavailable(Duration::from_micros(100), Unanswered::TimeLimit);
    assert_eq!(limit, "no answer from zk1:2181 within 100.0µs: the time limit passed first");
    let lost = Error::from(Loss::Deleted);
    assert_eq!(lost.to_string(), "lock was lost before it was released");
    let source = std::error::Error::source(&lost).expect("the loss");
    assert_eq!(source.to_string(), "node was deleted");
}

#[test]
fn documentation_is_built_with_every_feature_that_needs_no_library() {
    let manifest = include_str!("../../../Cargo.toml");
    let section = |name: &str| {
        let from = manifest.find(&format!("\n[{name}]\n")).unwrap_or_else(|| panic!("no [{name}]"));
        let lines = manifest[from..].lines().skip(2);
        lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#')).collect::<Vec<_>>()
    };
    let features = section("features").into_iter().filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
    let wanted: Vec<_> = features.filter(|name| !["default", "sasl-gssapi"].contains(name)).collect();
    assert_eq!(section("package.metadata.docs.rs")[0], format!("features = {wanted:?}"));
}

#[test]
fn errors_have_kinds_and_are_equal_to_themselves() {
    let lost = Error::Lost(Loss::Expired);
    assert_eq!((lost.kind(), lost.is_transient()), ("lost", true));
    assert_eq!((Error::Closed.kind(), Error::Closed.is_transient()), ("closed", false));
    assert!(!Error::Lost(Loss::Closed).is_transient(), "the session is closed");
    assert_ne!(lost, Error::Lost(Loss::Deleted));
}

#[test]
fn states_and_kinds_display_as_words() {
    let states = [HoldState::Held, HoldState::Suspended, HoldState::Lost(Loss::Deleted), HoldState::Released];
    assert_eq!(states.map(|state| state.to_string()), ["held", "suspended", "lost: node was deleted", "released"]);
    assert_eq!(format!("{:<8}{}", ContenderKind::Read, ContenderKind::Lease), "reader  permit");
}
