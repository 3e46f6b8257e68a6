//! Servers with a property that the simulation does not have.

use testbed::Server;
use zookeeper_recipes::{Error, Options};

use crate::family::FAMILY;
use crate::support::{TIMEOUT, World, soon, wait_children};

/// The smallest number of a transaction that leaves no room for an epoch in a token.
const NO_ROOM_FOR_AN_EPOCH: i64 = 1 << 55;

#[tokio::test]
async fn number_that_leaves_no_room_for_the_epoch_grants_nothing_and_leaves_no_node() {
    let server = Server::builder().last_transaction(NO_ROOM_FOR_AN_EPOCH - 1).start().await.expect("a server");
    for kin in &FAMILY {
        let world = World::at(&server.hosts(), TIMEOUT).await;
        let lock = (kin.make)(&world.session, &world.path, Options::new().with_token_epoch(1)).expect("a lock");
        let error = soon("an answer", lock.hold()).await.expect_err("no token");
        assert!(matches!(error, Error::InvalidInput { what: "token_epoch", .. }), "{}: {error:?}", kin.name);
        kin.wait_empty(&world).await;
    }
}

/// Nothing stands above the number then, so it may have all bits; the next epoch is above the one that it looks like.
#[tokio::test]
async fn any_number_of_a_transaction_is_a_token_without_an_epoch() {
    let server = Server::builder().last_transaction(NO_ROOM_FOR_AN_EPOCH - 1).start().await.expect("a server");
    let world = World::at(&server.hosts(), TIMEOUT).await;
    let guard = world.mutex().lock().await.expect("held");
    let created = world.admin.check_stat(&guard.nodes()[0]).await.expect("asked").expect("there").czxid;
    assert_eq!((guard.fencing_token().get(), guard.fencing_token().epoch()), (created, 1));
    guard.release().await.expect("released");
    wait_children(&world.admin, &world.path, 0).await;
}
