//! Adverse conditions: missing permissions, and servers that restart.

use std::time::Duration;

use futures_util::future::join_all;
use testbed::Server;
use testbed::frames::Op;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::{Acl, AuthId, Permission};
use zookeeper_recipes::{Error, Loss, Mutex, Options};

use crate::family::{FAMILY, queue, turn};
use crate::support::{BRIEF, TIMEOUT, World, admin_client, children, pass, soon, until, wait_children};
use crate::warnings::Warnings;

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
    // They are tried again, and refused again.
    pass(Duration::from_secs(31)).await;
    let all = [Acl::new(Permission::ALL, AuthId::anyone())];
    world.admin.set_acl(&world.path, &all, None).await.expect("opened");
    drop(soon("a lock of another session", world.other_mutex().await.lock()).await.expect("held"));
    drop(listening);
    assert_eq!(warnings.count("cannot delete a lock node"), 2, "each node is in the log once");
}
