//! What operators see and do: they list holders and waiters, break locks and revoke them.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use testbed::frames::Op;
use testbed::proxy::{Closing, Cut, Request, Verdict};
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use zookeeper_recipes::{
    Contender, Election, Error, HoldState, Loss, MultiLock, Mutex, Options, Owner, ReentrantMutex, RwLock,
    Semaphore, Session, path,
};

use crate::family::{FAMILY, queue, turn};
use crate::support::{BRIEF, ROUND_TRIP, World, at_every_frame, make_paths, pass, soon, stall, wait_children};
use crate::warnings::Warnings;

const REVOKE: &[u8] = b"__REVOKE__";

fn node(contender: &Contender) -> String {
    format!("{}/{}", contender.path(), contender.name())
}

/// Whether a future stays pending, as far as is known by now.
async fn is_pending(future: impl Future) -> bool {
    let mut future = pin!(future);
    for _ in 0..20 {
        if futures_util::poll!(future.as_mut()).is_ready() {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[tokio::test]
async fn contenders_of_every_recipe_are_listed_with_their_properties() {
    for kin in &FAMILY {
        let world = World::new().await;
        let began = SystemTime::now();
        let (ahead, behind) = (kin.lock(&world.session, &world.path), world.other().await);
        assert!(ahead.contenders().await.expect("listed").is_empty(), "{}", kin.name);
        let guard = ahead.hold().await.expect("held");
        let waiting = queue(kin, &world, kin.rival(&behind, &world.path), guard.nodes().len()).await;
        let all = kin.lock(&world.other().await, &world.path).contenders().await.expect("listed");
        assert_eq!(all.len(), guard.nodes().len() + kin.waiting, "{}: {all:?}", kin.name);
        let mine: Vec<_> = all.iter().filter(|one| one.session_id() == world.session.id()).collect();
        assert_eq!(mine.iter().map(|one| node(one)).collect::<Vec<_>>(), guard.nodes(), "{}", kin.name);
        let least = mine.iter().map(|one| one.token()).min();
        assert_eq!(least, Some(guard.fencing_token()), "{}", kin.name);
        for one in &all {
            let session = if one.is_holder() { world.session.id() } else { behind.id() };
            assert_eq!(one.session_id(), session, "{}: {one:?}", kin.name);
            assert_eq!(one.identifier(), format!("in {session}").as_bytes(), "{}: {one:?}", kin.name);
            let (_, kind) = kin.queues.iter().find(|(queue, _)| one.path().ends_with(queue)).expect("a queue");
            // The rival of a reader is a writer.
            let kind = if kin.name == "reader" && !one.is_holder() { ContenderKind::Write } else { *kind };
            assert_eq!(one.kind(), kind, "{}: {one:?}", kin.name);
            let digits = &one.name()[one.name().len() - 10..];
            assert_eq!(one.sequence(), digits.parse::<i32>().expect("digits"), "{}: {one:?}", kin.name);
            // The server's clock ticks in milliseconds.
            let age = one.since() + Duration::from_millis(1);
            assert!(
                (began..=SystemTime::now() + Duration::from_millis(1)).contains(&age),
                "{}: {one:?}",
                kin.name
            );
            let stat = world.admin.check_stat(&node(one)).await.expect("asked").expect("there");
            assert_eq!(one.token().get(), stat.czxid, "{}: {one:?}", kin.name);
        }
        for (queue, _) in kin.queues {
            let inside: Vec<_> = all.iter().filter(|one| one.path().ends_with(queue)).collect();
            assert!(inside.is_sorted_by_key(|one| (!one.is_holder(), one.sequence())), "{}: {inside:?}", kin.name);
        }
        guard.release().await.expect("released");
        turn(kin, waiting).await.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn readers_ahead_of_the_first_writer_hold_together() {
    let world = World::new().await;
    let lock = RwLock::new(&world.session, &world.path).expect("a lock");
    let (one, other) = (lock.read().await.expect("held"), lock.read().await.expect("held"));
    let writer = lock.enqueue_write().await.expect("queued");
    let late = lock.enqueue_read().await.expect("queued");
    let all = lock.contenders().await.expect("listed");
    let seen: Vec<_> = all.iter().map(|one| (one.kind(), one.is_holder())).collect();
    let (read, write) = (ContenderKind::Read, ContenderKind::Write);
    assert_eq!(seen, [(read, true), (read, true), (write, false), (read, false)]);
    assert_eq!([node(&all[0]), node(&all[1])], [one.nodes()[0].clone(), other.nodes()[0].clone()]);
    // A downgraded writer holds together with the readers right behind it.
    drop((one, other));
    let writing = soon("a writer", writer).await.expect("held");
    let reading = writing.downgrade().await.expect("a reader");
    let all = lock.contenders().await.expect("listed");
    let seen: Vec<_> = all.iter().map(|one| (one.kind(), one.is_holder())).collect();
    assert_eq!(seen, [(read, true), (read, true)]);
    assert_eq!(node(&all[0]), reading.nodes()[0]);
    drop(late);
    reading.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn occupancy_is_counted_in_one_request_without_a_listing() {
    let world = World::new().await;
    let mutex = world.mutex();
    assert_eq!(mutex.occupancy().await.expect("counted"), 0, "on a path that does not exist");
    let held = mutex.lock().await.expect("held");
    let waiting = soon("a place", mutex.enqueue()).await.expect("queued");
    world.proxy.reset();
    assert_eq!(mutex.occupancy().await.expect("counted"), 2);
    let asked: Vec<_> = world.proxy.requests().into_iter().filter(|request| request.path == world.path).collect();
    assert_eq!(asked.iter().map(|request| request.op).collect::<Vec<_>>(), [Op::Exists]);
    drop((waiting, held));
    world.wait_empty().await;
}

#[tokio::test]
async fn permits_are_listed_one_by_one_and_counted() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 5).expect("a semaphore");
    assert_eq!(semaphore.available_permits().await.expect("counted"), 5, "on a path that does not exist");
    assert!(semaphore.holders().await.expect("listed").is_empty());
    let (three, one) = (semaphore.acquire_many(3).await.expect("held"), semaphore.acquire().await.expect("held"));
    assert_eq!(semaphore.available_permits().await.expect("counted"), 1);
    let held = semaphore.holders().await.expect("listed");
    let nodes: Vec<_> = three.nodes().iter().chain(one.nodes()).cloned().collect();
    assert_eq!(held.iter().map(node).collect::<Vec<_>>(), nodes, "the oldest first");
    assert!(held.iter().all(|one| one.is_holder() && one.kind() == ContenderKind::Lease));
    assert_eq!(held.iter().filter(|lease| lease.token() == three.fencing_token()).count(), 3);
    // The next caller, for two permits, has its turn and two leases. The caller behind it has no lease yet.
    let next = semaphore.enqueue(2).await.expect("queued");
    let last = semaphore.enqueue(1).await.expect("queued");
    assert_eq!(semaphore.available_permits().await.expect("counted"), 0);
    assert_eq!(semaphore.holders().await.expect("listed"), held);
    let all = semaphore.contenders().await.expect("listed");
    let waiting: Vec<_> = all.iter().filter(|one| !one.is_holder()).map(Contender::kind).collect();
    assert_eq!(waiting, [ContenderKind::Lease, ContenderKind::Lease, ContenderKind::Lock, ContenderKind::Lock]);
    assert_eq!(semaphore.occupancy().await.expect("counted"), all.len());
    three.release().await.expect("released");
    let next = soon("two permits", next).await.expect("held");
    let last = soon("the last", last).await.expect("held");
    assert_eq!(semaphore.holders().await.expect("listed").len(), 4);
    assert_eq!(semaphore.available_permits().await.expect("counted"), 1);
    let fifth = semaphore.acquire().await.expect("held");
    assert_eq!(semaphore.holders().await.expect("listed").len(), 5, "all of them");
    fifth.release().await.expect("released");
    // Another client may be configured with fewer.
    let fewer = Semaphore::new(&world.session, &world.path, 2).expect("a semaphore");
    assert_eq!(fewer.available_permits().await.expect("counted"), 0);
    for permit in [one, next, last] {
        permit.release().await.expect("released");
    }
    assert!(semaphore.contenders().await.expect("listed").is_empty());
}

#[tokio::test]
async fn holder_that_is_broken_learns_of_it_and_the_next_is_admitted() {
    for kin in &FAMILY {
        let world = World::new().await;
        let guard = kin.lock(&world.session, &world.path).hold().await.expect("held");
        let lost = guard.lost();
        let rival = kin.rival(&world.other().await, &world.path);
        let waiting = queue(kin, &world, rival, guard.nodes().len()).await;
        let operator = kin.lock(&world.other().await, &world.path);
        let all = operator.contenders().await.expect("listed");
        // The last of its nodes: if it has several, losing one loses all.
        let holder = all.iter().rfind(|one| one.is_holder()).expect("a holder");
        assert!(operator.break_lock(holder).await.expect("asked"), "{}", kin.name);
        assert!(!operator.break_lock(holder).await.expect("asked"), "{}: it is gone", kin.name);
        assert!(!operator.revoke(holder).await.expect("asked"), "{}: it is gone", kin.name);
        assert_eq!(soon("the loss", lost).await, Loss::Deleted, "{}", kin.name);
        assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Deleted))), "{}", kin.name);
        turn(kin, waiting).await.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

/// A persistent node of a foreign client, which no end of a session removes.
#[tokio::test]
async fn persistent_foreign_node_is_listed_and_can_be_broken() {
    for kin in &FAMILY {
        let world = World::new().await;
        let queues: Vec<_> = kin.queues.iter().map(|(queue, _)| format!("{}{queue}", world.path)).collect();
        make_paths(&world.admin, &queues).await;
        let (name, kind) = match kin.queues[0].1 {
            ContenderKind::Read | ContenderKind::Write => ("__WRIT__", ContenderKind::Write),
            ContenderKind::Latch => ("-latch-", ContenderKind::Latch),
            _ => ("-lock-", ContenderKind::Lock),
        };
        let prefix = format!("{}/_c_0123456789abcdef0123456789abcdef{name}", queues[0]);
        let persistent = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        let (_, number) = world.admin.create(&prefix, b"of old", &persistent).await.expect("created");
        let lock = kin.lock(&world.session, &world.path);
        assert!(lock.try_hold().await.expect("asked").is_none(), "{}: it is ahead", kin.name);
        let seen = lock.contenders().await.expect("listed");
        let [stranger] = seen.as_slice() else { panic!("{}: {seen:?}", kin.name) };
        assert_eq!(node(stranger), format!("{prefix}{number}"), "{}", kin.name);
        assert_eq!((stranger.kind(), stranger.identifier()), (kind, &b"of old"[..]), "{}", kin.name);
        assert_eq!(stranger.session_id().0, 0, "{}: it is of no session", kin.name);

        let waiting = kin.lock(&world.session, &world.path);
        let waiting = tokio::spawn(async move { waiting.hold().await });
        let queued = async { while lock.contenders().await.expect("listed").len() < 2 {} };
        soon(kin.name, queued).await;
        assert!(!waiting.is_finished(), "{}: it is ahead", kin.name);
        let operator = kin.lock(&world.other().await, &world.path);
        assert!(operator.break_lock(stranger).await.expect("asked"), "{}", kin.name);
        turn(kin, waiting).await.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn waiter_that_is_broken_is_evicted_or_queues_again() {
    for kin in &FAMILY {
        let world = World::new().await;
        let guard = kin.rival(&world.other().await, &world.path).hold().await.expect("held");
        let waiting = queue(kin, &world, kin.lock(&world.session, &world.path), guard.nodes().len()).await;
        let operator = kin.lock(&world.other().await, &world.path);
        let all = operator.contenders().await.expect("listed");
        let broken = all.iter().rfind(|one| !one.is_holder()).expect("a waiter");
        assert!(operator.break_lock(broken).await.expect("asked"), "{}", kin.name);
        guard.release().await.expect("released");
        let waited = soon(kin.name, waiting).await.expect("no panic");
        if kin.queues.len() > 1 && kin.name != "semaphore" {
            let guard = waited.expect(kin.name);
            assert!(!guard.nodes().contains(&node(broken)), "{}", kin.name);
            guard.release().await.expect("released");
        } else {
            match waited {
                Err(Error::Evicted { node: evicted }) => assert_eq!(evicted, node(broken), "{}", kin.name),
                other => panic!("{}: not evicted: {other:?}", kin.name),
            }
        }
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn waiter_that_loses_its_turn_for_permits_is_evicted_with_its_leases() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 1).expect("a semaphore");
    let permit = semaphore.acquire().await.expect("held");
    for kind in [ContenderKind::Lock, ContenderKind::Lease] {
        let waiting = {
            let semaphore = Semaphore::new(&world.other().await, &world.path, 1).expect("a semaphore");
            semaphore.enqueue(1).await.expect("queued")
        };
        let all = semaphore.contenders().await.expect("listed");
        let broken = all.iter().find(|one| !one.is_holder() && one.kind() == kind).expect("a waiter");
        assert!(semaphore.break_lock(broken).await.expect("asked"));
        let error = soon("an end", waiting).await.expect_err("evicted");
        assert!(matches!(&error, Error::Evicted { node: evicted } if *evicted == node(broken)), "{error:?}");
        let gone = async { while semaphore.contenders().await.expect("listed").len() > 1 {} };
        soon("the end of its other node", gone).await;
    }
    assert_eq!(permit.state(), HoldState::Held);
    permit.release().await.expect("released");
    assert!(semaphore.contenders().await.expect("listed").is_empty());
}

#[tokio::test]
async fn node_created_again_under_the_name_of_a_contender_is_not_touched() {
    // Once the hold notices its loss, it deletes the node by name.
    let world = World::new().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    let holder = mutex.contenders().await.expect("listed").remove(0);
    world.admin.delete(&node(&holder), None).await.expect("deleted");
    let open = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(&node(&holder), b"restored", &open).await.expect("created");
    assert!(!mutex.break_lock(&holder).await.expect("asked"));
    assert!(!mutex.revoke(&holder).await.expect("asked"));
    assert_eq!(world.admin.get_data(&node(&holder)).await.expect("there").0, b"restored");
    let made = mutex.contenders().await.expect("listed").remove(0);
    assert_eq!(made.name(), holder.name());
    assert_ne!(made, holder);
    assert!(mutex.break_lock(&made).await.expect("asked"), "the other contender of this name");
    drop(guard);
    world.wait_empty().await;
}

#[tokio::test]
async fn contender_of_another_lock_is_refused_and_nothing_is_sent() {
    let world = World::new().await;
    let elsewhere = Mutex::new(&world.session, &format!("{}-elsewhere", world.path)).expect("a mutex");
    let guard = elsewhere.lock().await.expect("held");
    let holder = elsewhere.contenders().await.expect("listed").remove(0);
    world.proxy.reset();
    for kin in &FAMILY {
        let lock = kin.lock(&world.session, &world.path);
        for error in [lock.break_lock(&holder).await, lock.revoke(&holder).await] {
            let error = error.expect_err("of another lock");
            assert!(matches!(error, Error::InvalidInput { what: "contender", .. }), "{}: {error:?}", kin.name);
            let text = error.to_string();
            assert!(text.contains(elsewhere_of(&holder)) && text.contains(&world.path), "{}: {text}", kin.name);
        }
    }
    assert!(world.proxy.requests().is_empty());
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
}

fn elsewhere_of(contender: &Contender) -> &str {
    contender.path()
}

#[tokio::test]
async fn breaking_a_lock_survives_a_cut_at_any_frame() {
    let world = World::new().await;
    let (holders, operator) = (world.other_mutex().await, world.mutex());
    for closing in [Closing::Fin, Closing::Reset] {
        world.proxy.close_by(closing);
        at_every_frame(&world.proxy, async |cut| {
            let guard = holders.lock().await.expect("held");
            let holder = holders.contenders().await.expect("listed").remove(0);
            let broken = soon("an answer", operator.break_lock(&holder)).await.expect("asked");
            assert!(broken, "{cut:?}: nobody else has deleted it");
            assert!(world.children().await.is_empty(), "{cut:?}");
            assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted, "{cut:?}");
        })
        .await;
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn contender_that_leaves_by_itself_was_neither_evicted_nor_revoked() {
    let world = World::new().await;
    let (holders, operator) = (world.other_mutex().await, world.mutex());
    for breaks in [true, false] {
        let guard = holders.lock().await.expect("held");
        let holder = holders.contenders().await.expect("listed").remove(0);
        world.proxy.reset();
        world.proxy.on_request(|request| if request.is_write() { Verdict::Hold } else { Verdict::Forward });
        let asked =
            async { if breaks { operator.break_lock(&holder).await } else { operator.revoke(&holder).await } };
        let leaves = async {
            // It has been seen, and the request to change it is under way.
            soon("the request", world.proxy.wait_for(Request::is_write)).await;
            guard.release().await.expect("released");
            world.proxy.heal();
        };
        let (asked, ()) = tokio::join!(soon("an answer", asked), leaves);
        assert_eq!(asked, Ok(false), "it has left before, breaks: {breaks}");
    }
}

#[tokio::test]
async fn revoking_a_lock_survives_a_cut_at_any_frame() {
    let world = World::new().await;
    let (holders, operator) = (world.other_mutex().await, world.mutex());
    at_every_frame(&world.proxy, async |cut| {
        let guard = holders.lock().await.expect("held");
        let holder = holders.contenders().await.expect("listed").remove(0);
        assert!(soon("an answer", operator.revoke(&holder)).await.expect("asked"), "{cut:?}");
        soon("the request", guard.revoke_requested()).await;
        guard.release().await.expect("still held");
    })
    .await;
    world.wait_empty().await;
}

#[tokio::test]
async fn lock_broken_at_the_end_of_the_operators_session_counts_as_broken() {
    let world = World::new().await;
    let guard = world.other_mutex().await.lock().await.expect("held");
    let operator = world.mutex();
    let holder = operator.contenders().await.expect("listed").remove(0);
    world.proxy.reset();
    // The second request is the delete: it is applied, and its answer is lost.
    world.proxy.cut(Cut::BeforeAnswer(2));
    let expire = async {
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
        world.expire().await;
    };
    let (broken, ()) = tokio::join!(soon("an answer", operator.break_lock(&holder)), expire);
    assert!(broken.expect("asked"), "nobody else has deleted it");
    world.wait_empty().await;
}

#[tokio::test]
async fn holder_of_every_recipe_learns_of_its_revocation_and_keeps_the_lock() {
    for kin in &FAMILY {
        let world = World::new().await;
        let lock = kin.lock(&world.session, &world.path);
        let operator = kin.lock(&world.other().await, &world.path);
        for nth in 0.. {
            let guard = lock.hold().await.expect("held");
            // Without the turn, which is about to be deleted.
            kin.wait_nodes(&world, guard.nodes().len()).await;
            let all = operator.contenders().await.expect("listed");
            // Any of its nodes can be revoked.
            let Some(holder) = all.get(nth) else { break };
            let (early, other) = (guard.revoke_requested(), guard.revoke_requested());
            assert!(is_pending(guard.revoke_requested()).await, "{}", kin.name);
            assert!(operator.revoke(holder).await.expect("asked"), "{}", kin.name);
            assert_eq!(world.admin.get_data(&node(holder)).await.expect("read").0, REVOKE, "{}", kin.name);
            soon(kin.name, early).await;
            soon(kin.name, guard.revoke_requested()).await;
            soon(kin.name, other).await;
            assert_eq!(guard.state(), HoldState::Held, "{}", kin.name);
            assert!(operator.revoke(holder).await.expect("asked"), "{}: once more", kin.name);
            guard.release().await.expect("still held");
        }
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn revoked_contender_of_every_recipe_is_listed_as_revoked_and_without_an_identifier() {
    for kin in &FAMILY {
        let world = World::new().await;
        let guard = kin.lock(&world.session, &world.path).hold().await.expect("held");
        let operator = kin.lock(&world.other().await, &world.path);
        let before = operator.contenders().await.expect("listed");
        assert!(operator.revoke(&before[0]).await.expect("asked"), "{}", kin.name);
        let after = operator.contenders().await.expect("listed");
        assert!(after[0].revoke_requested() && after[0].identifier().is_empty(), "{}: {after:?}", kin.name);
        assert_eq!(after[0].identifier_lossy(), "", "{}", kin.name);
        assert!(!format!("{after:?}").contains("__REVOKE__"), "{}: {after:?}", kin.name);
        assert_eq!(node(&after[0]), node(&before[0]), "{}", kin.name);
        assert_ne!(after[0], before[0], "{}: it has changed", kin.name);
        assert!(!before[0].revoke_requested(), "{}: as of that moment", kin.name);
        // The others are unchanged.
        assert_eq!(after[1..], before[1..], "{}", kin.name);
        // It listens from here on only.
        soon(kin.name, guard.revoke_requested()).await;
        // What was listed before is the same node.
        assert!(operator.revoke(&before[0]).await.expect("asked"), "{}", kin.name);
        assert!(operator.break_lock(&before[0]).await.expect("asked"), "{}", kin.name);
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted, "{}", kin.name);
        assert!(!operator.break_lock(&after[0]).await.expect("asked"), "{}: it is gone", kin.name);
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn revoked_waiter_learns_of_it_as_a_holder() {
    for kin in &FAMILY {
        let world = World::new().await;
        let (ahead, lock) = (kin.rival(&world.other().await, &world.path), kin.lock(&world.session, &world.path));
        let operator = kin.lock(&world.other().await, &world.path);
        for nth in 0..kin.waiting {
            let guard = ahead.hold().await.expect("held");
            let waiting = queue(kin, &world, lock.clone(), guard.nodes().len()).await;
            let all = operator.contenders().await.expect("listed");
            let waiter = all.iter().filter(|one| !one.is_holder()).nth(nth).expect("a waiter");
            assert!(operator.revoke(waiter).await.expect("asked"), "{}", kin.name);
            assert!(!waiting.is_finished(), "{}", kin.name);
            guard.release().await.expect("released");
            let guard = turn(kin, waiting).await;
            soon(&format!("{} as {waiter:?}", kin.name), guard.revoke_requested()).await;
            guard.release().await.expect("still held");
        }
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn request_to_a_waiter_is_forgotten_with_its_session() {
    let world = World::new().await;
    let ahead = Mutex::new(&world.other().await, &world.path).expect("valid").lock().await.expect("held");
    let waiting = world.mutex().enqueue().await.expect("queued");
    let before = world.own_watch(1).await;
    world.admin.set_data(&before, REVOKE, None).await.expect("asked");
    pass(10 * ROUND_TRIP).await;
    world.expire().await;
    world.wait_children(2).await;
    assert_ne!(world.own_watch(1).await, before);
    drop(ahead);
    let guard = soon("the lock", waiting).await.expect("held");
    let asked = tokio::time::timeout(10 * ROUND_TRIP, guard.revoke_requested()).await;
    assert!(asked.is_err(), "nobody has asked this session");
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn request_to_a_waiter_is_forgotten_when_it_queues_again_after_an_eviction() {
    let world = World::new().await;
    let members = ["a", "b"].map(|name| format!("{}/{name}", world.path));
    let other = MultiLock::new(&world.other().await, &members).expect("valid");
    let ahead = other.lock().await.expect("held");
    let lock = MultiLock::new(&world.session, &members).expect("valid");
    let waiting = tokio::spawn(async move { lock.lock().await });
    let queued = async || wait_children(&world.admin, &members[0], 2).await.swap_remove(1);
    let before = format!("{}/{}", members[0], queued().await);
    world.admin.set_data(&before, REVOKE, None).await.expect("asked");
    pass(10 * ROUND_TRIP).await;
    world.admin.delete(&before, None).await.expect("evicted");
    pass(10 * ROUND_TRIP).await;
    assert_ne!(format!("{}/{}", members[0], queued().await), before);
    drop(ahead);
    let guard = soon("the locks", waiting).await.expect("no panic").expect("held");
    let asked = tokio::time::timeout(10 * ROUND_TRIP, guard.revoke_requested()).await;
    assert!(asked.is_err(), "nobody has asked for the nodes that it has now");
    guard.release().await.expect("still held");
}

/// Its permit is free when its turn comes, so nothing but the turn has waited.
#[tokio::test]
async fn revoked_waiter_behind_turns_of_other_sessions_learns_of_it_with_its_permit() {
    let world = World::new().await;
    let of = |session: &Session| Semaphore::new(session, &world.path, 2).expect("a semaphore");
    let (one, other, third) = (world.other().await, world.other().await, world.other().await);
    let held = of(&one).acquire_many(2).await.expect("held");
    let first = of(&other).enqueue(2).await.expect("queued");
    let second = of(&third).enqueue(1).await.expect("queued");
    let last = of(&world.session).enqueue(1).await.expect("queued");
    let all = of(&one).contenders().await.expect("listed");
    assert!(of(&one).revoke(all.last().expect("the last")).await.expect("asked"));
    held.release().await.expect("released");
    soon("the first", first).await.expect("held").release().await.expect("released");
    let second = soon("the second", second).await.expect("held");
    let last = soon("the last", last).await.expect("held");
    soon("the request", last.revoke_requested()).await;
    last.release().await.expect("still held");
    second.release().await.expect("still held");
}

#[tokio::test]
async fn only_the_data_of_curators_revoker_is_a_revocation() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let requested = guard.revoke_requested();
    let node = &guard.nodes()[0];
    let has_read_node = |request: &Request| request.op == Op::GetData && request.watch && request.answer.is_some();
    // A first read that is under way may already see what is written next. No event follows then.
    soon("the first read", world.proxy.wait_for(has_read_node)).await;
    for data in [&b""[..], b"__REVOKE", b"__REVOKE__ ", b"__revoke__", &[0xff; 10]] {
        world.proxy.reset();
        world.admin.set_data(node, data, None).await.expect("written");
        soon("a read", world.proxy.wait_for(has_read_node)).await;
        assert!(is_pending(guard.revoke_requested()).await, "{data:?}");
    }
    world.admin.set_data(node, REVOKE, None).await.expect("written");
    soon("the request", requested).await;
    // It stays revoked, even if the data changes later.
    world.admin.set_data(node, b"never mind", None).await.expect("written");
    soon("the request", guard.revoke_requested()).await;
    guard.release().await.expect("still held");
    world.wait_empty().await;
}

#[tokio::test]
async fn revocation_reaches_the_holder_across_a_lost_connection() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let requested = guard.revoke_requested();
    world.proxy.wait_for(|request| request.watch && request.answer.is_some()).await;
    world.proxy.refuse();
    world.admin.set_data(&guard.nodes()[0], REVOKE, None).await.expect("written");
    world.proxy.heal();
    soon("the request", requested).await;
    guard.release().await.expect("still held");
    world.wait_empty().await;
}

#[tokio::test]
async fn every_guard_of_an_owner_learns_of_a_revocation() {
    let world = World::new().await;
    let (mutex, owner) = (ReentrantMutex::new(&world.session, &world.path).expect("a mutex"), Owner::new());
    let (outer, inner) = (mutex.lock(&owner).await.expect("held"), mutex.lock(&owner).await.expect("held"));
    let holder = mutex.contenders().await.expect("listed").remove(0);
    assert!(mutex.revoke(&holder).await.expect("asked"));
    soon("the outer guard", outer.revoke_requested()).await;
    soon("the inner guard", inner.revoke_requested()).await;
    outer.release().await.expect("released");
    soon("the remaining guard", inner.revoke_requested()).await;
    inner.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn revocation_is_not_reported_after_the_end_of_the_hold() {
    for releases in [true, false] {
        let world = World::new().await;
        let (mutex, guard) = (world.mutex(), world.mutex().lock().await.expect("held"));
        let (early, late) = (guard.revoke_requested(), guard.revoke_requested());
        world.admin.set_data(&guard.nodes()[0], REVOKE, None).await.expect("written");
        soon("the request", early).await;
        if releases {
            guard.release().await.expect("released");
        } else {
            world.expire().await;
            soon("the loss", guard.lost()).await;
            assert!(is_pending(guard.revoke_requested()).await, "it is lost");
        }
        assert!(is_pending(late).await, "there is nothing to release");
        let guard = soon("the next", mutex.lock()).await.expect("held");
        assert!(is_pending(guard.revoke_requested()).await, "another hold");
        guard.release().await.expect("released");
        world.wait_empty().await;
    }
}

/// The first look after a pause of the process is right.
#[tokio::test]
async fn revocation_is_not_reported_after_an_unnoticed_loss() {
    let world = World::new().await;
    let options = Options::new().with_stall_limit(Duration::from_secs(5));
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let (early, late) = (guard.revoke_requested(), guard.revoke_requested());
    world.admin.set_data(&guard.nodes()[0], REVOKE, None).await.expect("written");
    soon("the request", early).await;
    stall(guard.valid_for());
    assert!(futures_util::poll!(pin!(late)).is_pending(), "the hold was lost before");
    assert_eq!(guard.state(), HoldState::Lost(Loss::Stalled));
    drop(guard);
    world.wait_empty().await;
}

#[tokio::test]
async fn revocation_is_not_lost_when_the_leader_proclaims() {
    let world = World::new().await;
    let election = Election::new(&world.session, &world.path).expect("an election");
    let operator = Election::new(&world.other().await, &world.path).expect("an election");
    let term = election.campaign().await.expect("leads");
    let leader = operator.leader().await.expect("asked").expect("a leader");
    assert!(operator.revoke(&leader).await.expect("asked"));
    let leader = operator.leader().await.expect("asked").expect("a leader");
    assert!(leader.revoke_requested() && leader.identifier().is_empty(), "{leader:?}");
    // It has not read its node yet.
    term.proclaim("busy").await.expect("proclaimed");
    soon("the request", term.revoke_requested()).await;
    let leader = operator.leader().await.expect("asked").expect("a leader");
    assert_eq!((leader.identifier(), leader.revoke_requested()), (&b"busy"[..], false));
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn revocation_during_a_proclamation_is_not_overwritten() {
    let world = World::new().await;
    let election = Election::new(&world.session, &world.path).expect("an election");
    let term = election.campaign().await.expect("leads");
    let hold = |request: &Request| if request.op == Op::SetData { Verdict::Hold } else { Verdict::Forward };
    world.proxy.on_request(hold);
    let revoke = async {
        world.proxy.wait_for(|request| request.op == Op::SetData).await;
        world.admin.set_data(&term.nodes()[0], REVOKE, None).await.expect("written");
        world.let_pass();
    };
    let (proclaimed, ()) = soon("an answer", async { tokio::join!(term.proclaim("busy"), revoke) }).await;
    proclaimed.expect("proclaimed");
    soon("the request", term.revoke_requested()).await;
    assert_eq!(world.admin.get_data(&term.nodes()[0]).await.expect("read").0, b"busy");
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn revocation_is_not_lost_in_a_downgrade() {
    // Without a listener, a hold does not look at its node for an eighth of this.
    let world = World::new().await;
    let lock = RwLock::new(&world.session, &world.path).expect("a lock");
    let operator = RwLock::new(&world.other().await, &world.path).expect("a lock");
    // Before it has read its node, and after.
    for looks in [false, true] {
        let writing = lock.write().await.expect("held");
        let requested = looks.then(|| writing.revoke_requested());
        let writer = operator.contenders().await.expect("listed").remove(0);
        assert!(operator.revoke(&writer).await.expect("asked"));
        if let Some(requested) = requested {
            soon("the request", requested).await;
        }
        let reading = writing.downgrade().await.expect("a reader");
        soon("the request", reading.revoke_requested()).await;
        reading.release().await.expect("released");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn locks_work_without_write_and_only_revoking_and_proclaiming_need_it() {
    let world = World::new().await;
    let no_write = [Acl::new(Permission::READ | Permission::CREATE | Permission::DELETE, AuthId::anyone())];
    for kin in &FAMILY {
        let path = format!("{}/{}", world.path, kin.name.replace(' ', "-"));
        let options = Options::new().with_acls(Acls::new(&no_write));
        let lock = (kin.make)(&world.session, &path, options).expect(kin.name);
        let guard = lock.hold().await.expect("held");
        let holder = lock.contenders().await.expect("listed").remove(0);
        let error = lock.revoke(&holder).await.expect_err("it is a write");
        assert!(matches!(&error, Error::NoAuth { path } if *path == node(&holder)), "{}: {error:?}", kin.name);
        let text = error.to_string();
        assert!(text.contains("revoking and proclaiming WRITE"), "{text}");
        assert_eq!(guard.state(), HoldState::Held, "{}", kin.name);
        guard.release().await.expect("released");
        let guard = lock.hold().await.expect("held");
        let holder = lock.contenders().await.expect("listed").remove(0);
        assert!(lock.break_lock(&holder).await.expect("asked"), "{}", kin.name);
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted, "{}", kin.name);
    }
    let options = Options::new().with_acls(Acls::new(&no_write));
    let path = format!("{}/proclaims", world.path);
    let term = Election::with_options(&world.session, &path, options).expect("an election");
    let term = term.campaign().await.expect("leads");
    let error = term.proclaim("here").await.expect_err("it is a write");
    assert!(matches!(&error, Error::NoAuth { path } if *path == term.nodes()[0]), "{error:?}");
    assert_eq!(term.state(), HoldState::Held);
    term.resign().await.expect("resigned");
}

#[tokio::test]
async fn calls_of_operators_without_a_server_end_in_time() {
    let world = World::brief().await;
    let guard = world.mutex().lock().await.expect("held");
    let mutex = world.mutex();
    let holder = mutex.contenders().await.expect("listed").remove(0);
    let semaphore = Semaphore::new(&world.session, &world.path, 1).expect("a semaphore");
    let election = Election::new(&world.session, &world.path).expect("an election");
    world.proxy.black_hole();
    let answers = async {
        let (broken, revoked, listed) =
            tokio::join!(mutex.break_lock(&holder), mutex.revoke(&holder), mutex.contenders());
        [broken.err(), revoked.err(), listed.err()]
    };
    let looks = async {
        let (free, held, leader) =
            tokio::join!(semaphore.available_permits(), semaphore.holders(), election.leader());
        [free.err(), held.err(), leader.err()]
    };
    let (answers, looks) = soon("answers", async { tokio::join!(answers, looks) }).await;
    for error in answers.into_iter().chain(looks) {
        assert!(matches!(&error, Some(Error::Unavailable { after, .. }) if *after == BRIEF), "{error:?}");
    }
    world.proxy.heal();
    drop(guard);
    world.wait_empty().await;
}

#[tokio::test]
async fn locks_and_contenders_are_shown_on_one_line() {
    let world = World::new().await;
    let options = Options::new().with_identifier("billing-7");
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    assert_eq!(mutex.path(), world.path);
    assert_eq!(format!("{mutex:?}"), format!("Mutex {{ path: {:?}, .. }}", world.path));
    let guard = mutex.lock().await.expect("held");
    let contenders = mutex.contenders().await.expect("listed");
    let shown = contenders[0].to_string();
    assert!(shown.starts_with(&format!("billing-7 holds {}/", world.path)), "{shown}");
    assert!(shown.contains(&format!("(lock, token {}, session ", guard.fencing_token())), "{shown}");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn locks_of_a_parent_are_listed_and_their_keys_read_back() {
    let world = World::new().await;
    assert_eq!(world.session.children_of(&world.path).await.expect("asked"), [""; 0], "there is no container");
    let keys = ["", "order-17", "eu/west", "..", "🔒", "50%"];
    let mut guards = Vec::new();
    for key in keys {
        let path = format!("{}/{}", world.path, path::segment(key));
        guards.push(Mutex::new(&world.session, &path).expect("a mutex").lock().await.expect("held"));
    }
    let listed = world.session.children_of(&world.path).await.expect("listed");
    let names = listed.iter().map(|path| path.rsplit('/').next().expect("a name"));
    let mut found: Vec<_> = names.map(|name| path::key(name).expect("a key")).collect();
    found.sort_unstable();
    let mut sorted = keys;
    sorted.sort_unstable();
    assert_eq!(found, sorted);
    for spelled in ["%2f", "%", "a%4", "%FF", "%41"] {
        assert_eq!(path::key(spelled).is_some(), spelled == "%", "{spelled}");
    }
}

/// The request overwrites the identifier, so the log is where to find whom it was sent to.
#[tokio::test]
async fn changes_by_an_operator_are_logged_with_the_contender() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let mutex = world.other_mutex().await;
    let holder = mutex.contenders().await.expect("listed").remove(0);
    let events = Warnings::and_traces();
    let listening = events.listen();
    assert!(mutex.revoke(&holder).await.expect("asked"));
    assert!(mutex.break_lock(&holder).await.expect("asked"));
    assert!(!mutex.break_lock(&holder).await.expect("asked"), "it is gone");
    drop(listening);
    for what in ["asked a contender to release", "deleted the node of a contender"] {
        let logged = events.with(what);
        let has = |part: String| logged.iter().all(|text| text.contains(&part));
        assert_eq!(logged.len(), 1, "{what}: {logged:?}");
        assert!(has(holder.name().to_owned()) && has(holder.session_id().to_string()), "{logged:?}");
        assert!(has(holder.token().to_string()), "{logged:?}");
    }
}
