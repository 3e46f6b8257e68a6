//! Events that never arrive: a server sends none to a client whose access the node's current ACLs deny
//! (CVE-2024-23944). A node deleted in that state goes unnoticed.

use testbed::frames::Op;
use testbed::proxy::Request;
use zookeeper_recipes::zookeeper_client::{Acl, AuthId, Client, Permission};
use zookeeper_recipes::{Election, Loss, Semaphore};

use crate::support::{World, locking, soon};

/// Denies READ to everybody, and deletes the node.
async fn delete_without_event(admin: &Client, node: &str) {
    let unreadable = [Acl::new(Permission::WRITE | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    admin.set_acl(node, &unreadable, None).await.expect("denied");
    admin.delete(node, None).await.expect("deleted");
}

async fn watched(world: &World, what: impl Fn(&Request) -> bool) {
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some() && what(request)))
        .await;
}

#[tokio::test]
async fn waiter_acquires_when_its_predecessor_goes_without_an_event() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let waiting = locking(world.mutex());
    watched(&world, |_| true).await;
    delete_without_event(&world.admin, &ahead.nodes()[0]).await;
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
}

/// After a reconnect the node would show whose connection it is.
#[tokio::test]
async fn hold_whose_node_goes_without_an_event_is_lost() {
    for reconnects in [false, true] {
        let world = World::new().await;
        let guard = world.mutex().lock().await.expect("held");
        let lost = guard.lost();
        watched(&world, |_| true).await;
        delete_without_event(&world.admin, &guard.nodes()[0]).await;
        if reconnects {
            world.proxy.swallow_events();
            world.proxy.cut_now();
        }
        assert_eq!(soon("the loss", lost).await, Loss::Deleted);
    }
}

#[tokio::test]
async fn hold_that_may_not_read_its_node_learns_of_its_deletion() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let unreadable = [Acl::new(Permission::DELETE, AuthId::anyone())];
    world.admin.set_acl(&guard.nodes()[0], &unreadable, None).await.expect("denied");
    let lost = guard.lost();
    let refused =
        |request: &Request| request.op == Op::GetData && request.answer.is_some_and(|answer| answer.err != 0);
    soon("a refusal", world.proxy.wait_for(refused)).await;
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
}

#[tokio::test]
async fn caller_waiting_for_room_gets_a_permit_released_without_an_event() {
    let world = World::new().await;
    let semaphore = |session| Semaphore::new(session, &world.path, 1).expect("a semaphore");
    let other = world.other().await;
    let permit = semaphore(&other).acquire().await.expect("free");
    let waits = semaphore(&world.session);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    let leases = format!("{}/leases", world.path);
    watched(&world, |request| request.path == leases).await;
    world.proxy.swallow_events();
    permit.release().await.expect("released");
    let permit = soon("a permit", waiting).await.expect("no panic").expect("held");
    permit.release().await.expect("released");
}

#[tokio::test]
async fn observer_notices_a_leader_that_goes_without_an_event() {
    let world = World::new().await;
    let elections = [&world.session, &world.other().await].map(|session| Election::new(session, &world.path));
    let [observed, campaigned] = elections.map(|election| election.expect("an election"));
    let leads = campaigned.campaign().await.expect("leads");
    let mut observer = observed.observe();
    assert!(soon("a leader", observer.changed()).await.expect("seen").is_some());
    world.proxy.reset();
    let changed = tokio::spawn(async move { observer.changed().await });
    watched(&world, |_| true).await;
    delete_without_event(&world.admin, &leads.nodes()[0]).await;
    assert!(soon("the end of the term", changed).await.expect("no panic").expect("seen").is_none());
}

/// The node of a released lock may not be deleted, and its session knows that it does not count.
#[tokio::test]
async fn waiter_behind_an_undeletable_node_of_its_session_acquires() {
    let world = World::new().await;
    world.make_path().await;
    let [holds, waits] = [world.mutex(), world.mutex()];
    let guard = holds.lock().await.expect("held");
    let waiting = tokio::spawn(async move { waits.lock().await });
    watched(&world, |_| true).await;
    let undeletable = [Acl::new(Permission::READ | Permission::CREATE | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &undeletable, None).await.expect("restricted");
    guard.release().await.expect_err("not allowed");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect_err("not allowed");
    world.session.close().await.expect("closed");
    world.wait_empty().await;
}
