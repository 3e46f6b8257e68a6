//! Lock paths: odd ones, missing ones, and parents that vanish.

use std::collections::BTreeSet;
use std::time::Duration;

use testbed::frames::Op;
use testbed::proxy::Verdict;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error as ZkError, Permission};
use zookeeper_recipes::{Error, LockProvider, Mutex, Options, Session};

use crate::support::{TIMEOUT, World, soon, tree};

#[tokio::test]
async fn odd_paths_are_refused_and_nothing_is_sent() {
    let world = World::new().await;
    world.proxy.reset();
    let long = format!("/{}", "x".repeat(1 << 20));
    for path in ["", "/", "relative", "//", "/a//b", "/a/", "/a/./b", "/a/../b", "/a\0b", "/a\u{1}", long.as_str()]
    {
        let error = Mutex::new(&world.session, path).expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { .. }), "{path:?}: {error:?}");
        assert!(world.session.lock_at(path).is_err());
    }
    let big = vec![b'x'; 1 << 20];
    let many = vec![Acl::new(Permission::ALL, AuthId::new("digest", "somebody:with-a-digest-of-28-chars")); 1_500];
    for (what, options) in [
        ("acls", Options::new().with_acls(Acls::new(&[]))),
        ("acls", Options::new().with_acls(Acls::new(&many))),
        ("identifier", Options::new().with_identifier(big)),
    ] {
        let error = Mutex::with_options(&world.session, "/a", options).expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { what: named, .. } if named == what), "{error:?}");
    }
    assert!(world.proxy.requests().is_empty());
}

#[tokio::test]
async fn odd_hosts_and_connectors_are_refused() {
    for hosts in ["", "host:port", ":2181", "host:2181/chroot/", "host:2181,,host:2182", "host:2181//a", "host:0"]
    {
        let error = soon("a refusal", Session::connect(hosts)).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { what: "hosts", .. }), "{hosts:?}: {error:?}");
    }
    let world = World::new().await;
    let old = world.session.client().session().clone();
    for connector in [
        Client::connector().with_session(old),
        Client::connector().with_detached(),
        Client::connector().with_readonly(true),
    ] {
        let error = Session::connect_with(connector, &world.hosts).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { what: "connector", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn paths_that_the_server_takes_can_be_locked() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    for segment in ["ü", "a b", "-lock-0000000001", "%", &zookeeper_recipes::path::segment("a/../b\0")] {
        let mutex = Mutex::new(&world.session, &format!("{root}/{segment}")).expect("a mutex");
        let guard = soon(segment, mutex.lock()).await.expect("held");
        guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn missing_parents_become_containers() {
    let world = World::new().await;
    let path = format!("{}/deep/down", world.path);
    let mutex = Mutex::new(&world.session, &path).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    guard.release().await.expect("released");
    let requests = world.proxy.requests();
    // The one that was done is the one that makes all of them.
    let parts = requests.iter().map(|request| &request.parts).max_by_key(|parts| parts.len()).expect("a request");
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let containers = [root, &world.path, &format!("{}/deep", world.path), &path];
    let containers = containers.map(|path| (Op::CreateContainer, path.to_owned()));
    // With the node in them, or the server would never remove them.
    let [made @ .., (Op::Create2, node)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!(made, containers);
    assert!(node.starts_with(&format!("{path}/_c_")), "{node}");
}

#[tokio::test]
async fn path_removal_takes_the_path_along() {
    let world = World::new().await;
    let options = Options::new().with_path_removal(true);
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let other = world.other_mutex().await;
    let waiting = tokio::spawn(async move { other.lock().await });
    world.wait_children(2).await;
    guard.release().await.expect("released");
    let guard = soon("the waiter", waiting).await.expect("no panic").expect("held, and its parent is there");
    guard.release().await.expect("released");
    drop(mutex.lock().await.expect("held"));
    let gone = async {
        while let (Some(_), watcher) = world.admin.check_and_watch_stat(&world.path).await.expect("asked") {
            watcher.changed().await;
        }
    };
    soon("the removal", gone).await;
}

#[tokio::test]
async fn tokens_grow_when_the_path_is_made_anew() {
    let world = World::new().await;
    let mut last = None;
    for _ in 0..3 {
        let guard = world.mutex().lock().await.expect("held");
        assert!(guard.nodes()[0].ends_with("-lock-0000000000"), "{:?}", guard.nodes());
        assert!(last < Some(guard.fencing_token()));
        last = Some(guard.fencing_token());
        guard.release().await.expect("released");
        world.admin.delete(&world.path, None).await.expect("deleted");
    }
}

/// Deletes the lock path and its parent, if they are empty. Tells whether they were not.
async fn vanish(world: &World) -> bool {
    let parent = world.path.rsplit_once('/').expect("two levels").0;
    let mut refused = false;
    for path in [world.path.as_str(), parent] {
        match world.admin.delete(path, None).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(ZkError::NotEmpty) => refused = true,
            Err(error) => panic!("{error}"),
        }
    }
    refused
}

/// Makes the parents vanish just before the k-th request, for every k.
#[tokio::test]
async fn parents_may_vanish_between_any_two_requests() {
    let world = World::new().await;
    for (attempt, least) in [("lock", 6), ("try_lock", 7)] {
        for k in 1.. {
            vanish(&world).await;
            world.proxy.reset();
            world.proxy.on_request(move |request| match request.number == k {
                true => Verdict::Hold,
                false => Verdict::Forward,
            });
            let mutex = world.mutex();
            let acquire = tokio::spawn(async move {
                match attempt {
                    "lock" => mutex.lock().await.map(Some),
                    _ => mutex.try_lock().await,
                }
            });
            let held_up = world.proxy.wait_for(|request| request.number == k);
            let held_up = tokio::time::timeout(Duration::from_millis(500), held_up).await.is_ok();
            let refused = vanish(&world).await;
            world.proxy.on_request(|_| Verdict::Forward);
            world.proxy.heal();
            let guard = soon("an acquire", acquire).await.expect("no panic").expect("held").expect("free");
            guard.release().await.expect("released");
            world.wait_empty().await;
            if !held_up {
                assert!(refused, "the hold keeps them");
                assert!(k > least, "{attempt}: {k} requests");
                break;
            }
        }
    }
}

#[tokio::test]
async fn chroot_that_does_not_exist_is_named() {
    let world = World::new().await;
    let connector = Client::connector().with_session_timeout(TIMEOUT);
    let session =
        Session::connect_with(connector, &format!("{}/no/such/chroot", world.hosts)).await.expect("connects");
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    for error in [
        soon("a refusal", mutex.lock()).await.expect_err("no chroot"),
        soon("a refusal", mutex.try_lock()).await.expect_err("no chroot"),
    ] {
        assert!(error.to_string().contains("chroot"), "{error}");
        assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    }
    assert!(world.admin.check_stat("/no").await.expect("asked").is_none(), "nothing was made");
    session.close().await.expect("closed");
}

#[tokio::test]
async fn chroot_is_the_root_of_lock_paths() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &open).await.expect("created");
    let session = Session::connect(&format!("{}{root}", world.hosts)).await.expect("connects");
    let mutex = Mutex::new(&session, "/lock").expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    assert_eq!(guard.path(), "/lock");
    assert!(guard.nodes()[0].starts_with("/lock/_c_"));
    world.wait_children(1).await;
    assert_eq!(mutex.contenders().await.expect("listed").len(), 1);
    let mut writer = guard.check_writer();
    writer.add_create("/data", b"", &open).expect("fits");
    writer.commit().await.expect("the lock is held");
    guard.release().await.expect("released");
    session.close().await.expect("closed");
    world.wait_empty().await;
}

#[tokio::test]
async fn ephemeral_parent_is_refused() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &ephemeral).await.expect("created");
    for path in [root.to_owned(), world.path.clone()] {
        let mutex = Mutex::new(&world.session, &path).expect("a mutex");
        let error = soon("a refusal", mutex.lock()).await.expect_err("no children");
        assert!(
            matches!(error, Error::InvalidInput { .. }) && error.to_string().contains("ephemeral"),
            "{error:?}"
        );
        assert_eq!(tree(&world.admin, root).await, BTreeSet::new());
    }
}
