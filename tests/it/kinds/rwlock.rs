//! Readers share, writers do not, and all are admitted in order. A writer can be downgraded to a reader.

use std::time::Instant;

use futures_util::FutureExt;
use testbed::frames::{Kind, Op};
use testbed::ledger::Ledger;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use zookeeper_recipes::{Error, HoldState, Loss, Options, RwLock};

use crate::support::{BRIEF, ROUND_TRIP, TIMEOUT, World, at_every_frame, at_most, exact_or, hosts, polled, soon};

fn rwlock(world: &World) -> RwLock {
    RwLock::new(&world.session, &world.path).expect("a lock")
}

async fn other(world: &World) -> RwLock {
    RwLock::new(&world.other().await, &world.path).expect("a lock")
}

#[tokio::test]
async fn readers_share_and_exclude_writers() {
    let world = World::new().await;
    let (lock, other) = (rwlock(&world), other(&world).await);
    let one = lock.read().await.expect("held");
    let two = soon("another reader", other.read()).await.expect("held");
    assert!(other.try_write().await.expect("asked").is_none(), "readers hold");
    one.release().await.expect("released");
    assert!(lock.try_write().await.expect("asked").is_none(), "one reader still holds");
    two.release().await.expect("released");
    let writing = lock.try_write().await.expect("asked").expect("free");
    assert!(other.try_read().await.expect("asked").is_none(), "a writer holds");
    assert!(other.try_write().await.expect("asked").is_none(), "a writer holds");
    writing.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn readers_behind_a_writer_are_admitted_together_and_woken_once() {
    let world = World::new().await;
    let writing = other(&world).await.write().await.expect("held");
    let lock = rwlock(&world);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    world.wait_children(21).await;
    let watches = |requests: &[Request]| requests.iter().filter(|one| one.watch && one.answer.is_some()).count();
    soon("the watches", world.proxy.wait_until(|requests| watches(requests) >= 20)).await;
    world.proxy.reset();
    writing.release().await.expect("released");
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(soon("a reader", reader).await.expect("no panic").expect("held"));
    }
    // All hold at once. Each was woken once, listed once, alone or with others, and has no watch left.
    let woken =
        world.proxy.uncounted().into_iter().filter(|frame| matches!(frame.kind, Kind::Notification { .. }));
    assert_eq!(woken.count(), 1, "one notification for the whole session");
    let looks = world.count(Op::GetChildren2);
    assert!((1..=20).contains(&looks), "{looks}");
    assert_eq!(watches(&world.proxy.requests()), 0);
    drop(guards);
    world.wait_empty().await;
}

/// Changes of its data, that is, by a proclamation or a revocation.
#[tokio::test]
async fn readers_do_not_wake_when_the_writer_ahead_changes_and_prove_their_session_once() {
    const READERS: usize = 100;
    let timeout = 3 * BRIEF;
    let world = World::at(&hosts(), timeout).await;
    let writing = other(&world).await.write().await.expect("held");
    let lock = rwlock(&world);
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    world.wait_children(1 + READERS).await;
    // The shared proof is also a keep-alive.
    world.proxy.leave_out(|_| false);
    let watches = |requests: &[Request]| requests.iter().filter(|one| one.watch && one.answer.is_some()).count();
    soon("the watches", world.proxy.wait_until(|requests| watches(requests) >= READERS)).await;
    for change in 0..10 {
        world.admin.set_data(&writing.nodes()[0], &[change], None).await.expect("written");
    }
    // Until the proofs by their creates are long outdated.
    let early = tokio::time::timeout(timeout * 9 / 8, writing.lost()).await;
    assert!(early.is_err(), "a healthy hold is not lost");
    assert_eq!(watches(&world.proxy.requests()), READERS, "none has set its watch again");
    world.proxy.reset();
    writing.release().await.expect("released");
    for reader in readers {
        drop(soon("a reader", reader).await.expect("no panic").expect("held"));
    }
    let checks = world.count(Op::Multi);
    println!("{checks} checks for {READERS} readers");
    assert!(checks <= exact_or(1, READERS / 5), "{checks} checks for {READERS} readers");
    world.wait_empty().await;
}

#[tokio::test]
async fn downgrade_admits_readers_and_excludes_the_queued_writer() {
    let world = World::new().await;
    let lock = rwlock(&world);
    let writing = lock.write().await.expect("held");
    let (token, lost) = (writing.fencing_token(), writing.lost());
    let reader = other(&world).await.enqueue_read().await.expect("enqueued");
    let writer = other(&world).await.enqueue_write().await.expect("enqueued");
    let late = other(&world).await.enqueue_read().await.expect("enqueued");
    let reading = writing.downgrade().await.expect("a reader");
    assert_eq!((reading.fencing_token(), reading.state()), (token, HoldState::Held));
    let reader = soon("the reader right behind", reader).await.expect("held");
    let names = world.wait_children(4).await;
    let kinds: Vec<_> = lock.contenders().await.expect("listed").iter().map(|one| one.kind()).collect();
    let expected = [ContenderKind::Read, ContenderKind::Read, ContenderKind::Write, ContenderKind::Read];
    assert_eq!(kinds, expected, "{names:?}");
    let mut writer = std::pin::pin!(writer);
    assert!(futures_util::poll!(&mut writer).is_pending(), "two readers hold");
    reader.release().await.expect("released");
    // Long enough for it to watch its own node.
    let early = tokio::time::timeout(BRIEF / 2, lost).await;
    assert!(early.is_err(), "the change of the node is no loss");
    assert!(futures_util::poll!(&mut writer).is_pending(), "one reader holds");
    reading.release().await.expect("released");
    let writer = soon("the writer", writer).await.expect("held");
    assert!(writer.fencing_token() > token);
    writer.release().await.expect("released");
    soon("the late reader", late).await.expect("held").release().await.expect("released");
    world.wait_empty().await;
}

/// Without a listener for the loss, a hold watches its node only after an eighth of the session timeout.
#[tokio::test]
async fn loss_of_a_downgraded_hold_is_noticed_at_once_for_earlier_listeners() {
    let world = World::new().await;
    let writing = rwlock(&world).write().await.expect("held");
    let lost = writing.lost();
    // The listener makes it watch the writer's node.
    world.proxy.wait_for(|request| request.watch && request.answer.is_some()).await;
    let reading = writing.downgrade().await.expect("a reader");
    world.admin.delete(&reading.nodes()[0], None).await.expect("deleted");
    let deleted = Instant::now();
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
    assert!(deleted.elapsed() <= at_most(ROUND_TRIP), "{:?}", deleted.elapsed());
    assert!(matches!(reading.release().await, Err(Error::Lost(Loss::Deleted))));
    world.wait_empty().await;
}

#[tokio::test]
async fn downgrade_survives_a_cut_at_any_frame() {
    let world = World::new().await;
    let (lock, other) = (rwlock(&world), other(&world).await);
    let ledger = Ledger::new();
    at_every_frame(&world.proxy, async |cut| {
        let writing = soon("a lock", lock.write()).await.expect("held");
        let token = writing.fencing_token();
        let entry = ledger.enter("the first writer", token.get());
        let waiting = other.enqueue_write().await.expect("enqueued");
        let reading = soon("a downgrade", writing.downgrade()).await.expect("a reader");
        assert_eq!(reading.fencing_token(), token, "{cut:?}");
        world.wait_children(2).await;
        entry.leave();
        soon("a release", reading.release()).await.expect("released");
        let writer = soon("the writer", waiting).await.expect("held");
        ledger.enter("the next writer", writer.fencing_token().get()).leave();
        writer.release().await.expect("released");
        world.wait_empty().await;
    })
    .await;
    ledger.assert_clean();
}

#[tokio::test]
async fn downgrade_dropped_at_any_poll_releases_the_lock() {
    let world = World::new().await;
    let lock = rwlock(&world);
    for polls in 0.. {
        let writing = lock.write().await.expect("held");
        let lost = writing.lost();
        let done = soon("polls", polled(polls, writing.downgrade())).await.is_some();
        world.wait_empty().await;
        assert!(tokio::time::timeout(BRIEF / 100, lost).await.is_err(), "it was released, not lost");
        if done {
            assert!(polls > 1, "something was cancelled");
            break;
        }
    }
    soon("another", lock.write()).await.expect("held").release().await.expect("released");
}

#[tokio::test]
async fn downgrade_of_a_lost_lock_returns_the_lost_guard() {
    for loss in [Loss::Deleted, Loss::Expired, Loss::Closed, Loss::TrustEnded, Loss::Stalled] {
        let world = if loss == Loss::TrustEnded { World::brief().await } else { World::new().await };
        let limit = if loss == Loss::Stalled { BRIEF / 5 } else { 10 * TIMEOUT };
        let options = Options::new().with_stall_limit(limit);
        let lock = RwLock::with_options(&world.session, &world.path, options).expect("a lock");
        let writing = lock.write().await.expect("held");
        match loss {
            Loss::Deleted => world.admin.delete(&writing.nodes()[0], None).await.expect("deleted"),
            Loss::Closed => world.session.close().await.expect("closed"),
            // Nobody answers the downgrade.
            Loss::TrustEnded => world.proxy.black_hole(),
            _ => {
                if loss == Loss::Expired {
                    world.expire().await;
                }
                assert_eq!(soon("the loss", writing.lost()).await, loss);
            }
        }
        let error = soon("the loss", writing.downgrade()).await.expect_err("it is lost");
        assert_eq!((&error.source, error.guard.state()), (&Error::Lost(loss), HoldState::Lost(loss)));
        world.proxy.heal();
        assert_eq!(error.guard.release().await, Err(Error::Lost(loss)));
        world.wait_empty().await;
    }
}

#[tokio::test]
async fn refused_downgrade_leaves_the_writer_unchanged() {
    let world = World::new().await;
    let options = Options::new().with_identifier("writer");
    let lock = RwLock::with_options(&world.session, &world.path, options).expect("a lock");
    let writing = lock.write().await.expect("held");
    let (token, nodes) = (writing.fencing_token(), writing.nodes().to_vec());
    let no_create = [Acl::new(Permission::READ | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &no_create, None).await.expect("set");
    let error = writing.downgrade().await.expect_err("may not create");
    assert!(matches!(error.source, Error::NoAuth { .. }), "{:?}", error.source);
    assert_eq!(error.guard.state(), HoldState::Held);
    assert_eq!((error.guard.fencing_token(), error.guard.nodes()), (token, &nodes[..]));
    world.wait_children(1).await;
    world.admin.set_acl(&world.path, &Acls::anyone_all(), None).await.expect("set");
    let reading = error.guard.downgrade().await.expect("a reader, now");
    // It watches the new node.
    let lost = reading.lost();
    world.admin.delete(&reading.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
    world.wait_empty().await;
}

#[tokio::test]
async fn writer_whose_node_nobody_may_read_can_be_downgraded() {
    let world = World::new().await;
    let other = other(&world).await;
    // The path can be listed, and is not removed between two locks.
    world.make_path().await;
    let no_read = [Acl::new(Permission::CREATE | Permission::WRITE | Permission::DELETE, AuthId::anyone())];
    let options = Options::new().with_acls(Acls::new(&no_read));
    let lock = RwLock::with_options(&world.session, &world.path, options).expect("a lock");
    let writing = lock.write().await.expect("held");
    let token = writing.fencing_token();
    let reading = writing.downgrade().await.expect("a reader");
    assert_eq!((reading.state(), reading.fencing_token()), (HoldState::Held, token));
    let beside = other.try_read().await.expect("asked").expect("readers share");
    beside.release().await.expect("released");
    reading.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn downgrade_does_not_adopt_the_node_of_another_session() {
    let world = World::new().await;
    let writing = rwlock(&world).write().await.expect("held");
    let old = writing.nodes()[0].clone();
    world.proxy.reset();
    let changes = |request: &Request| request.op == Op::Multi && request.parts.len() > 1;
    world.proxy.on_request(move |request| if changes(request) { Verdict::Hold } else { Verdict::Forward });
    let changing = tokio::spawn(writing.downgrade());
    let request = soon("the change", world.proxy.wait_for(changes)).await;
    let new = &request.parts[0].1;
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(new, b"", &ephemeral).await.expect("created");
    world.let_pass();
    let error = soon("an end", changing).await.expect("no panic").expect_err("its name is in use");
    assert!(matches!(error.source, Error::Lost(Loss::Deleted)), "{:?}", error.source);
    assert_eq!(error.guard.state(), HoldState::Lost(Loss::Deleted));
    let left = world.wait_children(1).await.remove(0);
    assert_eq!(format!("{}/{left}", world.path), *new, "its own node was {old}");
    world.admin.delete(new, None).await.expect("deleted");
    world.wait_empty().await;
}

/// Asked for between the last look at the writer's node and its change.
#[tokio::test]
async fn revocation_that_reaches_the_servers_before_the_downgrade_is_not_lost_in_it() {
    let world = World::new().await;
    let operator = other(&world).await;
    let writing = rwlock(&world).write().await.expect("held");
    let changes = |one: &Request| one.parts.iter().any(|(op, _)| *op == Op::Delete);
    world.proxy.on_request(move |one| if changes(one) { Verdict::Hold } else { Verdict::Forward });
    let downgrading = tokio::spawn(writing.downgrade());
    soon("the change", world.proxy.wait_for(changes)).await;
    let writer = operator.contenders().await.expect("listed").remove(0);
    assert!(operator.revoke(&writer).await.expect("asked"));
    world.let_pass();
    let reading = soon("the downgrade", downgrading).await.expect("no panic").expect("a reader");
    assert!(reading.revoke_requested().now_or_never().is_some(), "the request was deleted unseen");
    reading.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn reader_waits_for_older_nodes_of_mutexes() {
    let world = World::with_path().await;
    let held = world.other_mutex().await.lock().await.expect("held");
    let lock = rwlock(&world);
    assert!(lock.try_read().await.expect("asked").is_none(), "a mutex holds");
    let reader = soon("its place", lock.enqueue_read()).await.expect("enqueued");
    assert_eq!(reader.position(), 1);
    held.release().await.expect("released");
    soon("a turn", reader).await.expect("held").release().await.expect("released");

    // A writer of kazoo, whose number is the next.
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let guid = "0123456789abcdef0123456789abcdef";
    let prefix = format!("{}/{guid}__lock__", world.path);
    let (_, number) = world.admin.create(&prefix, b"kazoo", &ephemeral).await.expect("created");
    assert!(lock.try_read().await.expect("asked").is_none(), "a writer of kazoo holds");
    let reader = soon("its place", lock.enqueue_read()).await.expect("enqueued");
    assert_eq!(reader.position(), 1);
    world.admin.delete(&format!("{prefix}{number}"), None).await.expect("deleted");
    soon("a turn", reader).await.expect("held").release().await.expect("released");
}
