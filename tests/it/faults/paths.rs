//! Lock paths: invalid ones, missing ones, and parents that are deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use testbed::frames::Op;
use testbed::proxy::{Cut, Verdict};
use zookeeper_groups::KeptNode;
use zookeeper_recipes::options::Parents;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error as ZkError, Permission};
use zookeeper_recipes::{Error, Mutex, Options, Servers, Session};

use crate::support::{BRIEF, TIMEOUT, World, connect, locking, remove_path, soon, stat_until, tree};

#[tokio::test]
async fn invalid_hosts_and_connectors_are_refused() {
    for hosts in [
        "",
        " ",
        ",",
        "host:port",
        ":2181",
        "host:2181/chroot/",
        "host:2181,,host:2182",
        "host:2181, ,host:2182",
        "host:2181,",
        "host:2181//a",
        "host:0",
        "/chroot",
        "host/chroot,host:2182",
        "ho st:2181",
        "host: 2181",
        "host:2181 host:2182",
        "host:2181;host:2182",
        "http://host:2181,host:2182",
        "tcp+tls:// host:2181",
        "host:2181 /chroot",
        "host:2181/\u{1f600}",
        "host:2181/zookeeper/locks",
    ] {
        let error = soon("a refusal", Session::connect(hosts)).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { what: "hosts", .. }), "{hosts:?}: {error:?}");
        assert!(error.to_string().contains("it should look like host:2181,host:2181/chroot"), "{error}");
    }
}

#[tokio::test]
async fn white_space_around_hosts_is_ignored() {
    let world = World::new().await;
    let (host, dead) = (world.proxy.hosts(), "127.0.0.1:1");
    for hosts in [
        format!(" {host}"),
        format!("{host}\n"),
        format!("{dead}, {host}"),
        format!("\t{host} ,{dead} "),
        format!("{dead}, tcp://{host}/ "),
    ] {
        let servers = Servers::new(&hosts).with_session_timeout(TIMEOUT);
        let session = Session::connect(servers).await;
        let session = session.unwrap_or_else(|error| panic!("{hosts:?}: {error}"));
        session.close().await.expect("closed");
    }
}

#[tokio::test]
async fn timeouts_that_the_client_cannot_represent_are_refused() {
    let world = World::new().await;
    let longest = Duration::from_millis(i32::MAX as u64);
    for timeout in [
        Duration::MAX,
        Duration::MAX / 2,
        Duration::from_secs(u64::MAX / 1_000),
        longest + Duration::from_millis(1),
        Duration::from_millis(7),
        Duration::from_nanos(1),
    ] {
        let servers = Servers::new(&world.hosts).with_session_timeout(timeout);
        let error = Session::connect(servers).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { what: "session timeout", .. }), "{timeout:?}: {error:?}");
        assert!(error.to_string().contains(&format!("the client cannot carry {timeout:?}; give ")), "{error}");
    }
    // Zero stands for the default.
    for timeout in [longest, Duration::ZERO] {
        let servers = Servers::new(&world.hosts).with_session_timeout(timeout);
        let session = Session::connect(servers).await.expect("connects");
        session.close().await.expect("closed");
    }
}

#[tokio::test]
async fn paths_that_the_server_accepts_can_be_locked() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    for segment in ["ü", "a b", "-lock-0000000001", "%", &zookeeper_recipes::path::segment("a/../b\0")] {
        let mutex = Mutex::new(&world.session, &format!("{root}/{segment}")).expect("a mutex");
        let guard = soon(segment, mutex.lock()).await.expect("held");
        guard.release().await.expect("released");
    }
}

/// Characters of all ranges, with the first and the last of each.
fn sample_of_characters() -> Vec<char> {
    let boundaries = [
        0x0, 0x1f, 0x20, 0x2e, 0x2f, 0x30, 0x7e, 0x7f, 0x9f, 0xa0, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xf8ff, 0xf900,
        0xffef, 0xfff0, 0xffff, 0x1_0000, 0x1_f600, 0x2_0bb7, 0x10_0000, 0x10_ffff,
    ];
    let all =
        boundaries.into_iter().chain((0x80..0x1_0000).step_by(127)).chain((0x1_0000..0x11_0000).step_by(4093));
    all.filter_map(char::from_u32).collect()
}

#[tokio::test]
async fn lock_paths_allow_the_characters_that_the_server_accepts() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.mkdir(&world.path, &open).await.expect("created");
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    for c in sample_of_characters().into_iter().filter(|&c| c != '/') {
        let path = format!("{root}/lock/a{c}");
        let allowed = Mutex::new(&world.session, &path).is_ok();
        let accepted = match world.admin.create(&path, b"", &ephemeral).await {
            Ok(_) => true,
            Err(ZkError::BadArguments(_)) => false,
            Err(error) => panic!("{c:?}: {error}"),
        };
        assert_eq!(allowed, accepted, "{c:?}");
    }
}

#[tokio::test]
async fn any_character_can_be_escaped() {
    let world = World::new().await;
    for c in sample_of_characters() {
        let path = format!("{}/{}", world.path, zookeeper_recipes::path::segment(&format!("order-{c}")));
        Mutex::new(&world.session, &path).unwrap_or_else(|error| panic!("{c:?}: {error}"));
        if c as u32 > 0xffff || c.is_control() {
            assert!(path.is_ascii(), "{path}");
        }
    }
    let path = format!("{}/{}", world.path, zookeeper_recipes::path::segment("order-\u{1f600}"));
    let guard =
        Mutex::new(&world.session, &path).expect("a mutex").try_lock().await.expect("asked").expect("free");
    assert!(guard.path().ends_with("/order-%F0%9F%98%80"), "{}", guard.path());
    guard.release().await.expect("released");
}

#[tokio::test]
async fn missing_parents_become_persistent_nodes_on_request() {
    let world = World::new().await;
    let path = format!("{}/a/b", world.path);
    let options = Options::new().with_parents(Parents::Persistent);
    let mutex = Mutex::with_options(&world.session, &path, options).expect("a mutex");
    mutex.lock().await.expect("held").release().await.expect("released");
    for parent in [&path, path.trim_end_matches("/b"), &world.path] {
        let stat = world.admin.check_stat(parent).await.expect("asked").expect("there");
        assert_eq!(stat.ephemeral_owner, 0, "{parent}");
    }
}

#[tokio::test]
async fn missing_parents_are_an_error_where_they_must_exist() {
    let world = World::new().await;
    let options = Options::new().with_parents(Parents::MustExist);
    let session = world.session.clone().with_lock_options(options);
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    for tried in [mutex.lock().await.map(Some), mutex.try_lock().await] {
        let error = tried.expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { what: "lock path", .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("{:?} does not exist", world.path)), "{error}");
    }
    let member = KeptNode::keep(&session, &format!("{}/member", world.path), b"").expect("an argument");
    let error = soon("the error", member.created()).await.expect_err("refused");
    assert!(matches!(error, Error::InvalidInput { what: "path", .. }), "{error:?}");
    drop(member);
    assert_eq!(world.admin.check_stat(&world.path).await.expect("asked"), None, "nothing is created");
    world.make_path().await;
    mutex.lock().await.expect("held").release().await.expect("released");
}

#[tokio::test]
async fn missing_parents_become_containers() {
    let world = World::new().await;
    let path = format!("{}/deep/down", world.path);
    let mutex = Mutex::new(&world.session, &path).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    guard.release().await.expect("released");
    let requests = world.proxy.requests();
    // The largest request, which creates all of them, is the one that succeeded.
    let parts = requests.iter().map(|request| &request.parts).max_by_key(|parts| parts.len()).expect("a request");
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let containers = [root, &world.path, &format!("{}/deep", world.path), &path];
    let containers = containers.map(|path| (Op::CreateContainer, path.to_owned()));
    // Together with the node, or the server would never remove them.
    let [created @ .., (Op::Create2, node)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!(created, containers);
    assert!(node.starts_with(&format!("{path}/_c_")), "{node}");
}

#[tokio::test]
async fn path_removal_deletes_the_path_after_the_last_release() {
    let world = World::new().await;
    let options = Options::new().with_path_removal(true);
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let waiting = locking(world.other_mutex().await);
    world.wait_children(2).await;
    guard.release().await.expect("released");
    let guard = soon("the waiter", waiting).await.expect("no panic").expect("held, and its parent is there");
    guard.release().await.expect("released");
    drop(mutex.lock().await.expect("held"));
    removed(&world).await;
}

async fn removed(world: &World) {
    stat_until(&world.admin, &world.path, |stat| stat.is_none()).await;
}

#[tokio::test]
async fn path_removal_survives_a_lost_connection_and_a_dropped_future() {
    let world = World::new().await;
    let options = Options::new().with_path_removal(true);
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    world.proxy.reset();
    world.proxy.cut(Cut::BeforeRequest(1));
    guard.release().await.expect("released");
    assert!(world.proxy.cut_fired());
    removed(&world).await;

    // Dropped while the creates are under way.
    world.proxy.on_request(|request| if request.op == Op::Multi { Verdict::Hold } else { Verdict::Forward });
    let lock = tokio::spawn(async move { mutex.lock().await });
    soon("the creates", world.proxy.wait_for(|request| request.op == Op::Multi)).await;
    lock.abort();
    world.let_pass();
    soon("the delete", world.proxy.wait_for(|request| request.op == Op::Delete && request.answer.is_some())).await;
    removed(&world).await;
}

#[tokio::test]
async fn tokens_grow_when_the_path_is_created_again() {
    let world = World::new().await;
    let mut last = None;
    for _ in 0..3 {
        let guard = world.mutex().lock().await.expect("held");
        assert!(guard.nodes()[0].ends_with("-lock-0000000000"), "{:?}", guard.nodes());
        assert!(last < Some(guard.fencing_token()));
        last = Some(guard.fencing_token());
        guard.release().await.expect("released");
        remove_path(&world.admin, &world.path).await;
    }
}

/// Deletes the lock path and its parent if they are empty. Returns whether one was not.
async fn delete_parents(world: &World) -> bool {
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

/// Deletes the parents just before the k-th request, for every k.
#[tokio::test]
async fn parents_may_be_deleted_between_any_two_requests() {
    let world = World::new().await;
    let attempts = [("lock", false, 4), ("lock", true, 5), ("try_lock", false, 4), ("try_lock", true, 4)];
    for (attempt, is_new, least) in attempts {
        for k in 1.. {
            delete_parents(&world).await;
            // A session that has not seen the path lists it with its create. One that has counts.
            let new = if is_new { Some(connect(&world.proxy.hosts()).await) } else { None };
            world.proxy.reset();
            world.proxy.on_request(move |one| if one.number == k { Verdict::Hold } else { Verdict::Forward });
            let mutex = Mutex::new(new.as_ref().unwrap_or(&world.session), &world.path).expect("a mutex");
            let mut acquire = tokio::spawn(async move {
                match attempt {
                    "lock" => mutex.lock().await.map(Some),
                    _ => mutex.try_lock().await,
                }
            });
            // Unless it needs fewer.
            let early = soon("a request or the end", async {
                tokio::select! {
                    _ = world.proxy.wait_for(|request| request.number == k) => None,
                    guard = &mut acquire => Some(guard),
                }
            })
            .await;
            let held_up = early.is_none();
            let refused = delete_parents(&world).await;
            world.let_pass();
            let guard = match early {
                Some(guard) => guard,
                None => soon("an acquire", acquire).await,
            };
            let guard = guard.expect("no panic").expect("held").expect("free");
            guard.release().await.expect("released");
            world.wait_empty().await;
            if !held_up {
                assert!(refused, "the hold keeps them");
                assert!(k > least, "{attempt}, of a new session: {is_new}: {k} requests");
                break;
            }
        }
    }
}

#[tokio::test]
async fn deleted_chroot_is_reported() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &open).await.expect("created");
    let session = connect(&format!("{}{root}", world.proxy.hosts())).await;
    world.admin.delete(root, None).await.expect("deleted");
    let before = session.id();
    world.expire_that_of(&session).await;
    let mutex = Mutex::new(&session, "/lock").expect("a mutex");
    // A renewal does not fail: the chroot may be created again.
    for error in [
        soon("a refusal", mutex.lock()).await.expect_err("no chroot"),
        soon("a refusal", mutex.try_lock()).await.expect_err("no chroot"),
    ] {
        assert!(error.to_string().contains("chroot"), "{error}");
        assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    }
    assert_ne!(session.id(), before);
    world.admin.create(root, b"", &open).await.expect("created");
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    guard.release().await.expect("released");
    session.close().await.expect("closed");
}

#[tokio::test]
async fn chroot_that_may_not_be_read_is_accepted() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let inside = format!("{root}/inside");
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &open).await.expect("created");
    world.admin.create(&inside, b"", &open).await.expect("created");
    let nobody = [Acl::new(Permission::NONE, AuthId::anyone())];
    world.admin.set_acl(&inside, &nobody, None).await.expect("set");
    world.admin.set_acl(root, &nobody, None).await.expect("set");
    let session = connect(&format!("{}{inside}", world.hosts)).await;
    session.close().await.expect("closed");
}

#[tokio::test]
async fn connection_lost_during_the_chroot_check_is_no_error() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &open).await.expect("created");
    for cut in [Cut::BeforeRequest(1), Cut::AfterRequest(1), Cut::BeforeAnswer(1)] {
        world.proxy.reset();
        world.proxy.cut(cut);
        let session = connect(&format!("{}{root}", world.proxy.hosts())).await;
        assert!(world.proxy.cut_fired());
        session.close().await.expect("closed");
    }
}

#[tokio::test]
async fn connect_times_out_when_the_chroot_check_is_not_answered() {
    let world = World::new().await;
    world.proxy.reset();
    world.proxy.on_request(|_| Verdict::Hold);
    let hosts = format!("{}/chroot", world.proxy.hosts());
    let servers = Servers::new(&hosts).with_session_timeout(BRIEF);
    let error = soon("an end", Session::connect(servers)).await.expect_err("nobody answers");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
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
    let mut writer = guard.check_writer().expect("held");
    writer.add_create("/data", b"", &open).expect("fits");
    writer.commit().await.expect("the lock is held");
    guard.release().await.expect("released");
    // Inside the chroot this name does not belong to the servers.
    let guard = Mutex::new(&session, "/zookeeper").expect("a mutex").lock().await.expect("held");
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
