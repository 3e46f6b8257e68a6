//! Events that never come: a server sends none to whom the ACLs of the moment deny the node (CVE-2024-23944), and what
//! has been taken out of reach that way is gone unheard.

use testbed::frames::Op;
use testbed::proxy::Request;
use zookeeper_recipes::zookeeper_client::{Acl, AuthId, Client, Permission};
use zookeeper_recipes::{Election, Loss, Semaphore};

use crate::support::{World, soon};

/// Takes READ from everybody, and deletes the node.
async fn delete_unheard(admin: &Client, node: &str) {
    let unreadable = [Acl::new(Permission::WRITE | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    admin.set_acl(node, &unreadable, None).await.expect("taken away");
    admin.delete(node, None).await.expect("deleted");
}

async fn watched(world: &World, what: impl Fn(&Request) -> bool) {
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some() && what(request)))
        .await;
}

#[tokio::test]
async fn waiter_whose_predecessor_goes_unheard_takes_its_turn() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let mutex = world.mutex();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    watched(&world, |_| true).await;
    delete_unheard(&world.admin, &ahead.nodes()[0]).await;
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn hold_whose_node_goes_unheard_is_lost() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let lost = guard.lost();
    watched(&world, |_| true).await;
    delete_unheard(&world.admin, &guard.nodes()[0]).await;
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
}

#[tokio::test]
async fn hold_that_may_not_read_its_node_hears_of_its_end() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let unreadable = [Acl::new(Permission::DELETE, AuthId::anyone())];
    world.admin.set_acl(&guard.nodes()[0], &unreadable, None).await.expect("taken away");
    let lost = guard.lost();
    let refused =
        |request: &Request| request.op == Op::GetData && request.answer.is_some_and(|answer| answer.err != 0);
    soon("a refusal", world.proxy.wait_for(refused)).await;
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
}

#[tokio::test]
async fn caller_waiting_for_room_gets_a_permit_that_is_given_back_unheard() {
    let world = World::new().await;
    let semaphore = |session| Semaphore::new(session, &world.path, 1).expect("a semaphore");
    let other = world.other().await;
    let permit = semaphore(&other).acquire().await.expect("free");
    let waits = semaphore(&world.session);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    let leases = format!("{}/leases", world.path);
    watched(&world, |request| request.path == leases).await;
    let open = [Acl::new(Permission::ALL, AuthId::anyone())];
    let unreadable = [Acl::new(
        Permission::WRITE | Permission::CREATE | Permission::DELETE | Permission::ADMIN,
        AuthId::anyone(),
    )];
    world.admin.set_acl(&leases, &unreadable, None).await.expect("taken away");
    permit.release().await.expect("released");
    world.admin.set_acl(&leases, &open, None).await.expect("given back");
    let permit = soon("a permit", waiting).await.expect("no panic").expect("held");
    permit.release().await.expect("released");
}

#[tokio::test]
async fn observer_sees_a_leader_that_goes_unheard() {
    let world = World::new().await;
    let elections = [&world.session, &world.other().await].map(|session| Election::new(session, &world.path));
    let [observed, stood] = elections.map(|election| election.expect("an election"));
    let leads = stood.campaign().await.expect("leads");
    let mut observer = observed.observe();
    assert!(soon("a leader", observer.changed()).await.expect("seen").is_some());
    world.proxy.reset();
    let changed = tokio::spawn(async move { observer.changed().await });
    watched(&world, |_| true).await;
    delete_unheard(&world.admin, &leads.nodes()[0]).await;
    assert!(soon("the end of the term", changed).await.expect("no panic").expect("seen").is_none());
}
