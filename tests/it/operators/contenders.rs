//! A lock as operators and stores see it: its contenders, and writes that need the hold.

use std::time::{Duration, SystemTime};

use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::zookeeper_client::{Acls, CheckWriteError, CreateMode};
use zookeeper_recipes::{Election, Mutex, Options};

use crate::support::{World, locking, soon};

#[tokio::test]
async fn contenders_are_listed_holder_first() {
    let world = World::new().await;
    assert!(world.mutex().contenders().await.expect("listed").is_empty(), "none, on a path that does not exist");
    let guard = world.mutex().lock().await.expect("held");
    let other = world.other().await;
    let waiting = locking(
        Mutex::with_options(&other, &world.path, Options::new().with_identifier("billing-7")).expect("a mutex"),
    );
    let names = world.wait_children(2).await;
    // Other nodes are not listed.
    let stranger = format!("{}/readme", world.path);
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(&stranger, b"", &open).await.expect("created");
    let contenders = world.mutex().contenders().await.expect("listed");
    assert_eq!(contenders.iter().map(|one| one.name().to_owned()).collect::<Vec<_>>(), names);
    assert_eq!(contenders.iter().map(|one| one.is_holder()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(contenders[0].token(), guard.fencing_token());
    assert_eq!(contenders[0].session_id(), world.session.id());
    assert_eq!(contenders[1].session_id(), other.id());
    assert_eq!(contenders[1].identifier(), b"billing-7");
    assert_eq!(contenders[1].sequence(), contenders[0].sequence() + 1);
    let identifier = String::from_utf8(contenders[0].identifier().to_vec()).expect("text");
    let (process, random) = identifier.rsplit_once('-').expect("a random part");
    assert!(process.ends_with(&format!("/{}", std::process::id())), "host and process: {identifier}");
    assert!(random.len() == 8 && random.bytes().all(|digit| digit.is_ascii_hexdigit()), "{identifier}");
    let age = SystemTime::now().duration_since(contenders[0].since()).unwrap_or_default();
    assert!(age < Duration::from_secs(600), "{age:?}");
    world.admin.delete(&stranger, None).await.expect("deleted");
    guard.release().await.expect("released");
    let guard = soon("the waiter", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn foreign_contenders_are_respected() {
    let world = World::new().await;
    world.make_path().await;
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for name in ["_c_0123456789abcdef0123456789abcdef-lock-", "0123456789abcdef0123456789abcdef__lock__"] {
        let prefix = format!("{}/{name}", world.path);
        let (_, sequence) = world.admin.create(&prefix, b"10.0.0.1", &ephemeral).await.expect("created");
        assert!(world.mutex().try_lock().await.expect("asked").is_none(), "{name} is ahead");
        let waiting = locking(world.mutex());
        world.wait_children(2).await;
        world.admin.delete(&format!("{prefix}{sequence}"), None).await.expect("deleted");
        let guard = soon("our turn", waiting).await.expect("no panic").expect("held");
        guard.release().await.expect("released");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn mutex_and_election_on_one_path_exclude_each_other() {
    let world = World::new().await;
    let (mutex, election) =
        (world.mutex(), Election::new(&world.other().await, &world.path).expect("an election"));
    let guard = mutex.lock().await.expect("held");
    assert!(election.try_campaign().await.expect("asked").is_none(), "the mutex is held");
    let candidate = election.enqueue().await.expect("enqueued");
    let last = mutex.enqueue().await.expect("enqueued");
    assert_eq!((candidate.position(), last.position()), (1, 2));
    for seen in [mutex.contenders().await.expect("listed"), election.contenders().await.expect("listed")] {
        let seen: Vec<_> = seen.iter().map(|one| (one.kind(), one.is_holder())).collect();
        assert_eq!(
            seen,
            [(ContenderKind::Lock, true), (ContenderKind::Latch, false), (ContenderKind::Lock, false)]
        );
    }
    let token = guard.fencing_token();
    guard.release().await.expect("released");
    let term = soon("the term", candidate).await.expect("leads");
    assert!(mutex.try_lock().await.expect("asked").is_none(), "somebody leads");
    assert!(token < term.fencing_token());
    let token = term.fencing_token();
    term.resign().await.expect("resigned");
    let guard = soon("the mutex", last).await.expect("held");
    assert!(token < guard.fencing_token());
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn foreign_nodes_do_not_block_a_lock() {
    let world = World::new().await;
    world.make_path().await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for name in ["readme", "x-lock-1", "leases", "ü", "-lock-00000000001"] {
        world.admin.create(&format!("{}/{name}", world.path), b"", &open).await.expect("created");
    }
    let guard = world.mutex().try_lock().await.expect("asked").expect("free");
    guard.release().await.expect("released");
    let guard = soon("our turn", world.mutex().lock()).await.expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn checked_writes_fail_when_the_lock_is_gone() {
    // The hold does not look at its node so soon.
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let data = format!("{}-data", world.path);
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut writer = guard.check_writer().expect("held");
    writer.add_create(&data, b"1", &open).expect("fits");
    writer.commit().await.expect("the lock is held");
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    let mut writer = guard.check_writer().expect("held");
    writer.add_set_data(&data, b"2", None).expect("fits");
    let error = writer.commit().await.expect_err("the lock is gone");
    assert!(matches!(error, CheckWriteError::CheckFailed { .. }), "{error:?}");
    assert_eq!(world.admin.get_data(&data).await.expect("read").0, b"1");
}
