//! The epoch before fencing tokens, for servers whose transaction numbers have fallen.

use testbed::Server;
use zookeeper_recipes::{Contender, Mutex, Options};

use crate::family::{FAMILY, queue, turn};
use crate::support::{BRIEF, World, connect, connect_for, soon};
use crate::warnings::Warnings;

/// The smallest number of a transaction that leaves no room for an epoch.
const NO_ROOM: i64 = 1 << 55;
const PATH: &str = "/epochs/lock";

fn epoch(number: u8) -> Options {
    Options::new().with_token_epoch(number)
}

#[tokio::test]
async fn token_of_a_raised_epoch_is_larger_than_all_before_the_data_was_wiped() {
    let mut server = Server::start().await.expect("a server");
    let session = connect(&server.hosts()).await.with_lock_options(epoch(1));
    let mutex = Mutex::new(&session, PATH).expect("a mutex");
    let mut before = mutex.lock().await.expect("held").fencing_token();
    for _ in 0..20 {
        before = before.max(mutex.lock().await.expect("held").fencing_token());
    }
    server.restart_empty().await.expect("a server without data");
    let session = connect(&server.hosts()).await.with_lock_options(epoch(2));
    let after = Mutex::new(&session, PATH).expect("a mutex").lock().await.expect("held").fencing_token();
    assert!(after > before, "{after} (epoch {}) after {before} (epoch {})", after.epoch(), before.epoch());
}

#[tokio::test]
async fn epoch_stands_before_the_transaction_in_every_token() {
    for kin in &FAMILY {
        let world = World::new().await;
        let session = world.session.clone().with_lock_options(epoch(7));
        let lock = kin.lock(&session, &world.path);
        let guard = lock.hold().await.expect("held");
        let created = world.admin.check_stat(&guard.nodes()[0]).await.expect("asked").expect("there").czxid;
        assert_eq!(guard.fencing_token().get(), 7 * NO_ROOM + created, "{}", kin.name);
        assert_eq!(guard.monitor().fencing_token(), guard.fencing_token(), "{}", kin.name);
        for one in lock.contenders().await.expect("listed") {
            let node = format!("{}/{}", one.path(), one.name());
            let created = world.admin.check_stat(&node).await.expect("asked").expect("there").czxid;
            assert_eq!(one.token().get(), 7 * NO_ROOM + created, "{}: {one:?}", kin.name);
        }
        guard.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn epoch_of_a_lock_is_laid_over_that_of_its_session() {
    let world = World::new().await;
    let session = world.session.clone().with_lock_options(epoch(1)).with_lock_options(Options::new());
    let mutex = Mutex::with_options(&session, &world.path, Options::new()).expect("a mutex");
    assert_eq!(mutex.lock().await.expect("held").fencing_token().epoch(), 1);
    let mutex = Mutex::with_options(&session, &world.path, epoch(2)).expect("a mutex");
    assert_eq!(mutex.lock().await.expect("held").fencing_token().epoch(), 2);
    world.wait_empty().await;
}

/// The tool of an operator need not know the epoch.
#[tokio::test]
async fn contender_seen_in_one_epoch_is_broken_in_another() {
    for kin in &FAMILY {
        let world = World::new().await;
        let tool = kin.lock(&world.other().await, &world.path);
        let in_epoch = kin.lock(&world.session.clone().with_lock_options(epoch(7)), &world.path);
        let guard = in_epoch.hold().await.expect("held");
        let seen = tool.contenders().await.expect("listed");
        let next = queue(kin, &world, kin.rival(&world.other().await, &world.path), guard.nodes().len()).await;
        // A semaphore may be giving its turn up still, which is no node of the hold.
        let nodes = |seen: Vec<Contender>| {
            let is_held = |one: &Contender| guard.nodes().contains(&format!("{}/{}", one.path(), one.name()));
            let held: Vec<_> = seen.into_iter().filter(is_held).collect();
            assert_eq!(held.len(), guard.nodes().len(), "{}", kin.name);
            held
        };
        for one in &nodes(seen) {
            assert!(in_epoch.revoke(one).await.expect("asked"), "{}: {one:?}", kin.name);
        }
        for (at, one) in nodes(in_epoch.contenders().await.expect("listed")).iter().enumerate() {
            let is_broken = tool.break_lock(one).await.expect("asked");
            // A hold that learns that one of its nodes is gone deletes the others.
            assert!(is_broken || at > 0, "{}: {one:?}", kin.name);
        }
        turn(kin, next).await.release().await.expect("released");
        drop(guard);
        kin.wait_empty(&world).await;
    }
}

/// Of a session that lives on while the servers get older data.
#[tokio::test]
async fn tokens_that_fall_are_warned_of_and_counted_once() {
    let mut server = Server::start().await.expect("a server");
    let session = connect_for(&server.hosts(), BRIEF).await;
    let other = connect(&server.hosts()).await;
    let mutex = Mutex::new(&session, PATH).expect("a mutex");
    for _ in 0..20 {
        mutex.lock().await.expect("held").release().await.expect("released");
    }
    // A waiter that is older than other grants of the session has the smaller token, and no data has changed.
    let held = Mutex::new(&other, PATH).expect("a mutex").lock().await.expect("held");
    let waiting = mutex.enqueue().await.expect("queued");
    let newer = Mutex::new(&session, "/epochs/other").expect("a mutex").lock().await.expect("held");
    held.release().await.expect("released");
    let older = soon("the grant", waiting).await.expect("held");
    assert!(older.fencing_token() < newer.fencing_token());
    drop((older, newer));

    let warnings = Warnings::new();
    let _listening = warnings.listen();
    server.restart_empty().await.expect("a server without data");
    for _ in 0..3 {
        let guard = soon("a grant in a renewed session", mutex.lock()).await.expect("held");
        guard.release().await.expect("released");
    }
    let warned = warnings.with("tokens have fallen");
    assert!(warned.len() == 1 && warned[0].contains(PATH), "{warned:?}");
}
