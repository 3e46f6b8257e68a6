//! Adverse conditions: missing permissions, and servers that restart.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use testbed::Server;
use testbed::frames::Op;
use testbed::ledger::Ledger;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use zookeeper_recipes::{Election, Error, Loss, Mutex, Observer, Options, Servers, Session};

use crate::family::{FAMILY, queue, turn};
use crate::support::{BRIEF, TIMEOUT, World, admin_client, children, connect_for, soon, until, wait_children};
use crate::warnings::Warnings;

#[tokio::test]
async fn missing_permission_is_returned_at_once() {
    for permission in [Permission::READ, Permission::CREATE, Permission::WRITE | Permission::ADMIN] {
        let world = World::new().await;
        world.restrict(permission).await;
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
async fn missing_permission_to_create_the_path_is_returned_at_once() {
    let world = World::new().await;
    world.restrict(Permission::READ).await;
    let path = format!("{}/deep/lock", world.path);
    let mutex = Mutex::new(&world.session, &path).expect("a mutex");
    world.proxy.reset();
    let error = soon("a refusal", mutex.lock()).await.expect_err("not allowed");
    assert!(matches!(&error, Error::NoAuth { path } if path.starts_with(&world.path)), "{error:?}");
    assert!(world.proxy.requests().len() < 15, "no loop: {:?}", world.proxy.requests());
}

#[tokio::test]
async fn create_that_is_cut_again_and_again_is_no_error() {
    let world = World::new().await;
    world.make_path().await;
    // A server that has answered a create knows creates.
    world.mutex().lock().await.expect("held").release().await.expect("released");
    let cuts = AtomicUsize::new(0);
    world.proxy.on_request(move |request| match request.op {
        Op::Create2 if cuts.fetch_add(1, Ordering::Relaxed) < 30 => Verdict::Cut,
        _ => Verdict::Forward,
    });
    let guard = soon("the thirty-first", world.mutex().lock()).await.expect("held");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn release_without_the_permission_to_delete_returns_no_auth() {
    let world = World::new().await;
    world.restrict(Permission::READ | Permission::CREATE).await;
    let guard = world.mutex().lock().await.expect("held");
    let error = soon("a refusal", guard.release()).await.expect_err("not allowed");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    world.session.close().await.expect("closed");
    world.wait_empty().await;
}

#[tokio::test]
async fn read_only_ancestor_does_not_prevent_a_lock() {
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
async fn credentials_of_the_connector_open_protected_nodes() {
    let world = World::new().await;
    let servers = Servers::new(&world.hosts).with_session_timeout(TIMEOUT).with_auth("digest", b"user:secret");
    let session = Session::connect(servers).await.expect("connects");
    let session =
        session.with_lock_options(Options::new().with_acls(Acls::creator_all()).with_identifier("the owner"));
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    assert!(matches!(world.mutex().try_lock().await, Err(Error::NoAuth { .. })), "a stranger is refused");
    assert_eq!(mutex.contenders().await.expect("listed")[0].identifier(), b"the owner");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn twenty_waiters_acquire_after_a_restart_of_the_server() {
    let mut server = Server::start().await.expect("a server");
    let session = connect_for(&server.hosts(), BRIEF * 3).await;
    let other = connect_for(&server.hosts(), BRIEF * 3).await;
    let admin = admin_client(&server.hosts()).await;
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
    // A hold survives a restart within its trust. Released or lost, it deletes its node in either case.
    entry.leave();
    let _ = soon("the release", guard.release()).await;
    for waiter in waiters {
        soon("a waiter", waiter).await.expect("no panic");
    }
    ledger.assert_clean();
    assert_eq!(ledger.grants().len(), 21);
    let admin = admin_client(&server.hosts()).await;
    wait_children(&admin, path, 0).await;
    session.close().await.expect("closed");
    other.close().await.expect("closed");
}

/// Connected clients have seen transactions that such servers do not know, and are refused until their sessions have
/// ended.
#[tokio::test]
async fn servers_that_restart_empty_end_all_holds_and_grant_again() {
    let mut server = Server::start().await.expect("a server");
    let before = FAMILY.iter().map(async |kin| {
        let mut world = World::at(&server.hosts(), BRIEF).await;
        world.path = format!("/{}", kin.name.replace(' ', "-"));
        let lock = kin.lock(&world.session, &world.path);
        let guard = lock.hold().await.expect("held");
        let rival = kin.rival(&world.other().await, &world.path);
        let waiting = queue(kin, &world, rival, guard.nodes().len()).await;
        (kin, world.path.clone(), world, lock, guard, waiting)
    });
    let before = join_all(before).await;
    server.restart_empty().await.expect("a server");
    let admin = admin_client(&server.hosts()).await;
    let after = before.into_iter().map(async |(kin, path, _world, lock, guard, waiting)| {
        let loss = soon(kin.name, guard.lost()).await;
        assert!(matches!(loss, Loss::Expired | Loss::TrustEnded), "{}: {loss:?}", kin.name);
        assert_eq!(guard.release().await, Err(Error::Lost(loss)), "{}", kin.name);
        turn(kin, waiting).await.release().await.expect(kin.name);
        soon(kin.name, lock.hold()).await.expect("held").release().await.expect(kin.name);
        for (queue, _) in kin.queues {
            wait_children(&admin, &format!("{path}{queue}"), 0).await;
        }
    });
    join_all(after).await;
}

#[tokio::test]
async fn election_continues_on_servers_that_restart_empty() {
    let mut server = Server::start().await.expect("a server");
    let (stands, looks) =
        (connect_for(&server.hosts(), 2 * BRIEF).await, connect_for(&server.hosts(), 2 * BRIEF).await);
    let election = |session: &Session| Election::new(session, "/leader").expect("an election");
    let (standing, mut observer) = (election(&stands), election(&looks).observe());
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let leads = tokio::spawn(standing.run(move |term| {
        begins.send(term.fencing_token()).expect("received");
        async move { term.revoke_requested().await }
    }));
    let led_by = async |observer: &mut Observer, token| {
        while observer.changed().await.expect("observed").is_none_or(|leader| leader.token() != token) {}
    };
    let first = soon("a term", begun.recv()).await.expect("leads");
    soon("a leader", led_by(&mut observer, first)).await;
    server.restart_empty().await.expect("a server");
    let second = soon("a term after the loss", begun.recv()).await.expect("leads");
    soon("the leader", led_by(&mut observer, second)).await;
    stands.close().await.expect("closed");
    soon("the end", leads).await.expect("no panic").expect("it is no error");
}

#[tokio::test]
async fn create_that_always_closes_the_connection_is_sent_again_while_the_call_lives() {
    let world = World::new().await;
    let bystander = world.other_mutex().await;
    let large = Options::new().with_identifier(vec![b'x'; 60 * 1024]);
    let mutex = Mutex::with_options(&world.session, &world.path, large).expect("a mutex");
    world.make_path().await;
    // As a server does whose jute.maxbuffer is smaller than the request, alone or in the transaction that also counts.
    let creates = |one: &Request| one.op == Op::Create2 || one.parts.iter().any(|(op, _)| *op == Op::Create2);
    world.proxy.on_request(move |one| if creates(one) { Verdict::Cut } else { Verdict::Forward });
    world.proxy.reset();
    let ended = soon("an end", mutex.try_lock_for(TIMEOUT)).await;
    assert!(matches!(ended, Ok(None) | Err(Error::Unavailable { .. })), "{ended:?}");
    let sent = world.proxy.requests().iter().filter(|one| creates(one)).count();
    assert!((20..=130).contains(&sent), "once or twice a second: {sent} times");
    world.proxy.on_request(|_| Verdict::Forward);
    bystander.lock().await.expect("nothing is left").release().await.expect("released");
    mutex.lock().await.expect("held, on servers that accept it").release().await.expect("released");
}

/// They stay until the end of the session, and each enlarges the transaction that removes them.
#[tokio::test]
async fn nodes_that_may_not_be_deleted_fill_the_session() {
    let mut world = World::new().await;
    world.path = format!("{}/{}", world.path.rsplit_once('/').expect("two levels").0, "x".repeat(15_000));
    world.restrict(Permission::READ | Permission::CREATE).await;
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

/// DELETE is missing while a guard and a waiter are dropped. The right comes back, and nobody asks for their nodes.
#[tokio::test]
async fn node_whose_delete_was_refused_goes_when_the_right_is_back() {
    let world = World::new().await;
    world.restrict(Permission::READ | Permission::CREATE | Permission::ADMIN).await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    let waiter = mutex.enqueue().await.expect("queued");
    let warnings = Warnings::new();
    let listening = warnings.listen();
    drop((guard, waiter));
    until("two refusals", || warnings.count("cannot delete a lock node") == 2).await;
    world.wait_children(2).await;
    let all = [Acl::new(Permission::ALL, AuthId::anyone())];
    world.admin.set_acl(&world.path, &all, None).await.expect("opened");
    drop(soon("a lock of another session", world.other_mutex().await.lock()).await.expect("held"));
    drop(listening);
    assert_eq!(warnings.count("cannot delete a lock node"), 2, "each node is in the log once");
}
