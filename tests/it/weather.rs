//! Bad weather: permissions that are missing, servers that come and go.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use testbed::Server;
use testbed::frames::Op;
use testbed::ledger::Ledger;
use testbed::proxy::Verdict;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};
use zookeeper_recipes::{Election, Error, Loss, Mutex, Observer, Options, Session};

use crate::family::{FAMILY, queue, turn};
use crate::support::{TIMEOUT, World, children, connect_for, eye, soon, wait_children};

/// Makes the lock path with this permission alone, for anyone.
pub(crate) async fn restricted(world: &World, permission: Permission) {
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &open).await.expect("created");
    let acls = [Acl::new(permission, AuthId::anyone())];
    let mode = CreateMode::Persistent.with_acls(Acls::new(&acls));
    world.admin.create(&world.path, b"", &mode).await.expect("created");
}

#[tokio::test]
async fn missing_permission_surfaces_at_once() {
    for permission in [Permission::READ, Permission::CREATE, Permission::WRITE | Permission::ADMIN] {
        let world = World::new().await;
        restricted(&world, permission).await;
        world.proxy.reset();
        for error in [
            soon("a refusal", world.mutex().lock()).await.expect_err("not allowed"),
            soon("a refusal", world.mutex().try_lock()).await.expect_err("not allowed"),
        ] {
            assert!(matches!(&error, Error::NoAuth { path } if path.starts_with(&world.path)), "{error:?}");
        }
        assert!(world.proxy.requests().len() < 10, "no loop: {:?}", world.proxy.requests());
    }
}

#[tokio::test]
async fn missing_permission_to_make_the_path_surfaces_at_once() {
    let world = World::new().await;
    restricted(&world, Permission::READ).await;
    let path = format!("{}/deep/lock", world.path);
    let mutex = Mutex::new(&world.session, &path).expect("a mutex");
    world.proxy.reset();
    let error = soon("a refusal", mutex.lock()).await.expect_err("not allowed");
    assert!(matches!(&error, Error::NoAuth { path } if path.starts_with(&world.path)), "{error:?}");
    assert!(world.proxy.requests().len() < 15, "no loop: {:?}", world.proxy.requests());
}

#[tokio::test]
async fn connection_that_never_lets_a_create_through_is_no_error() {
    let world = World::new().await;
    world.make_path().await;
    let cuts = AtomicUsize::new(0);
    world.proxy.on_request(move |request| match request.op {
        Op::Create2 if cuts.fetch_add(1, Ordering::Relaxed) < 80 => Verdict::Cut,
        _ => Verdict::Forward,
    });
    let guard = soon("the eighty-first", world.mutex().lock()).await.expect("held");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn release_without_the_permission_to_delete_says_so() {
    let world = World::new().await;
    restricted(&world, Permission::READ | Permission::CREATE).await;
    let guard = world.mutex().lock().await.expect("held");
    let error = soon("a refusal", guard.release()).await.expect_err("not allowed");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    world.session.close().await.expect("closed");
    world.wait_empty().await;
}

#[tokio::test]
async fn ancestor_that_may_not_be_written_is_no_obstacle() {
    let world = World::new().await;
    let root = world.path.rsplit_once('/').expect("two levels").0;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(root, b"", &open).await.expect("created");
    world.admin.create(&world.path, b"", &open).await.expect("created");
    let lock = format!("{}/lock", world.path);
    world.admin.set_acl(root, Acls::anyone_read().as_ref(), None).await.expect("restricted");
    let mutex = Mutex::new(&world.session, &lock).expect("a mutex");
    let guard = soon("a lock", mutex.lock()).await.expect("only its own parent matters");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn credentials_of_the_connector_open_what_they_protect() {
    let world = World::new().await;
    let connector = Client::connector().with_session_timeout(TIMEOUT).with_auth("digest", b"user:secret");
    let session = Session::connect_with(connector, &world.hosts).await.expect("connects");
    let session = session.with_options(Options::new().with_acls(Acls::creator_all()).with_identifier("the owner"));
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    assert!(matches!(world.mutex().try_lock().await, Err(Error::NoAuth { .. })), "a stranger is refused");
    assert_eq!(mutex.contenders().await.expect("listed")[0].identifier(), b"the owner");
    guard.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_restarted_while_twenty_wait() {
    let mut server = Server::start().await.expect("a server");
    let session = connect_for(&server.hosts(), TIMEOUT * 3).await;
    let other = connect_for(&server.hosts(), TIMEOUT * 3).await;
    let admin = Client::connect(&server.hosts()).await.expect("connects");
    let (ledger, path) = (Ledger::new(), "/weather");
    let guard = Mutex::new(&session, path).expect("a mutex").lock().await.expect("held");
    let entry = ledger.enter("the first", guard.fencing_token().get());
    let waiters: Vec<_> = (0..20)
        .map(|waiter| {
            let mutex = Mutex::new(if waiter % 2 == 0 { &session } else { &other }, path).expect("a mutex");
            let ledger = ledger.clone();
            tokio::spawn(async move {
                let guard = mutex.lock().await.expect("held");
                ledger.enter(format!("waiter {waiter}"), guard.fencing_token().get()).leave();
                guard.release().await.expect("released");
            })
        })
        .collect();
    wait_children(&admin, path, 21).await;
    server.kill();
    server.restart().await.expect("a server");
    // A hold survives a restart within its trust; released, or lost and given up, the first one makes room.
    entry.leave();
    let _ = soon("the release", guard.release()).await;
    for waiter in waiters {
        soon("a waiter", waiter).await.expect("no panic");
    }
    ledger.assert_clean();
    assert_eq!(ledger.grants().len(), 21);
    let admin = Client::connect(&server.hosts()).await.expect("connects");
    wait_children(&admin, path, 0).await;
    session.close().await.expect("closed");
    other.close().await.expect("closed");
}

/// Whoever is connected has seen transactions that such servers do not know, and is turned away until its session is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_come_back_empty_take_all_holds_away_and_grant_all_again() {
    let mut server = Server::start().await.expect("a server");
    let before = FAMILY.iter().map(async |kin| {
        let mut world = World::at(&server.hosts(), TIMEOUT).await;
        world.path = format!("/{}", kin.name.replace(' ', "-"));
        let lock = kin.lock(&world.session, &world.path);
        let guard = lock.hold().await.expect("held");
        let rival = kin.rival(&world.other().await, &world.path);
        let waiting = queue(kin, &world, rival, guard.nodes().len()).await;
        (kin, world.path.clone(), world, lock, guard, waiting)
    });
    let before = join_all(before).await;
    server.restart_empty().await.expect("a server");
    let admin = eye(&server.hosts()).await;
    let after = before.into_iter().map(async |(kin, path, _world, lock, guard, waiting)| {
        assert_eq!(soon(kin.name, guard.lost()).await, Loss::Expired, "{}", kin.name);
        let error = guard.give_up().await.expect_err("lost");
        assert!(matches!(error, Error::Lost(Loss::Expired)), "{}: {error:?}", kin.name);
        let next = turn(kin, waiting).await;
        // On a busy machine it may have been lost since; that is not what this is about.
        let given_up = next.give_up().await;
        assert!(matches!(given_up, Ok(()) | Err(Error::Lost(_))), "{}: {given_up:?}", kin.name);
        let again = soon(kin.name, lock.hold()).await.expect("held");
        let given_up = again.give_up().await;
        assert!(matches!(given_up, Ok(()) | Err(Error::Lost(_))), "{}: {given_up:?}", kin.name);
        for (line, _) in kin.lines {
            wait_children(&admin, &format!("{path}{line}"), 0).await;
        }
    });
    join_all(after).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn election_goes_on_on_servers_that_come_back_empty() {
    let mut server = Server::start().await.expect("a server");
    let (stands, looks) =
        (connect_for(&server.hosts(), 2 * TIMEOUT).await, connect_for(&server.hosts(), 2 * TIMEOUT).await);
    let election = |session: &Session| Election::new(session, "/leader").expect("an election");
    let (standing, mut observer) = (election(&stands), election(&looks).observe());
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (ends, end) = tokio::sync::watch::channel(false);
    let led = tokio::spawn(async move {
        standing
            .lead(|term| {
                let mut end = end.clone();
                begins.send(term.nodes()[0].clone()).expect("heard");
                async move {
                    let _ = end.wait_for(|end| *end).await;
                    match term.resign().await {
                        Ok(()) => ControlFlow::Break(()),
                        Err(_) => ControlFlow::Continue(()),
                    }
                }
            })
            .await
    });
    let led_by = async |observer: &mut Observer, node: &str| {
        while observer.changed().await.expect("observed").is_none_or(|leader| !node.ends_with(leader.name())) {}
    };
    let first = soon("a term", begun.recv()).await.expect("leads");
    soon("a leader", led_by(&mut observer, &first)).await;
    server.restart_empty().await.expect("a server");
    let second = soon("a term after the loss", begun.recv()).await.expect("leads");
    assert_ne!(first, second);
    soon("the leader", led_by(&mut observer, &second)).await;
    ends.send_replace(true);
    soon("the end", led).await.expect("no panic").expect("led");
}

#[tokio::test]
async fn large_node_that_closes_the_connection_each_time_comes_to_an_end() {
    let world = World::new().await;
    let bystander = world.other_mutex().await;
    let large = Options::new().with_identifier(vec![b'x'; 60 * 1024]);
    let mutex = Mutex::with_options(&world.session, &world.path, large).expect("a mutex");
    world.make_path().await;
    // What a server does whose jute.maxbuffer is smaller than the request.
    world.proxy.on_request(|request| match request.op {
        Op::Create2 => Verdict::Cut,
        _ => Verdict::Forward,
    });
    world.proxy.reset();
    let error = soon("an end", mutex.lock()).await.expect_err("it is never taken");
    assert!(matches!(&error, Error::Client { path, .. } if *path == world.path), "{error:?}");
    assert!(error.to_string().contains("jute.maxbuffer"), "{error}");
    assert!((2..30).contains(&world.count(Op::Create2)), "sent {} times", world.count(Op::Create2));
    world.proxy.on_request(|_| Verdict::Forward);
    bystander.lock().await.expect("nothing is left").release().await.expect("released");
    mutex.lock().await.expect("held, on servers that take it").release().await.expect("released");
}

/// They are there to the end of the session, when each adds to the transaction that removes them.
#[tokio::test]
async fn nodes_that_may_not_be_deleted_fill_the_session() {
    let mut world = World::new().await;
    world.path = format!("{}/{}", world.path.rsplit_once('/').expect("two levels").0, "x".repeat(15_000));
    restricted(&world, Permission::READ | Permission::CREATE).await;
    let mutex = world.mutex();
    let full = async {
        loop {
            match mutex.lock().await {
                Ok(guard) => drop(guard.release().await.expect_err("not allowed")),
                Err(error) => break error,
            }
        }
    };
    let error = soon("an end", full).await;
    assert!(matches!(error, Error::SessionFull { what: "nodes", .. }), "{error:?}");
    let left = children(&world.admin, &world.path).await.len();
    assert!((60..62).contains(&left), "{left} nodes of 15 KB");
    soon("the end", world.session.close()).await.expect("closed");
}
