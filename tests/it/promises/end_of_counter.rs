//! The end of the servers' 32-bit counter, where numbers repeat, jump between both ends, and start again.
//!
//! The random workloads that cross the end are in the tests of scale.

#[cfg(not(virtual_time))]
mod beyond;
mod crowd;
#[cfg(feature = "scenes")]
mod in_queue;
#[cfg(feature = "scenes")]
mod same_name;
#[cfg(feature = "scenes")]
mod ways;

use futures_util::future::join_all;
use testbed::frames::Op;
use zookeeper_recipes::{Error, HoldState, Mutex, RwLock};

use crate::counter::{PATH, number, server};
use crate::support::{TIMEOUT, World, children, connect, soon, wait_children};

#[tokio::test]
async fn contenders_are_listed_in_the_order_of_their_creation() {
    let server = server(&[PATH.to_owned()], i32::MAX - 2).await;
    let hosts = server.hosts();
    let sessions = join_all((0..10).map(|_| connect(&hosts))).await;
    let mutexes = sessions.iter().map(|session| Mutex::new(session, PATH).expect("a mutex"));
    let places = join_all(mutexes.map(|mutex| async move { mutex.enqueue().await })).await;
    let places: Vec<_> = places.into_iter().map(|place| place.expect("a place")).collect();
    let contenders = Mutex::new(&sessions[0], PATH).expect("a mutex").contenders().await.expect("listed");
    let tokens: Vec<_> = contenders.iter().map(|contender| contender.token()).collect();
    assert!(tokens.len() == places.len() && tokens.is_sorted(), "{contenders:?}");
    assert!(contenders.iter().any(|contender| contender.sequence() == i32::MAX - 2), "{contenders:?}");
    assert!(contenders.iter().any(|contender| contender.sequence() == i32::MAX), "{contenders:?}");
}

#[tokio::test]
async fn downgrade_is_refused_at_the_end_and_returns_the_write_guard() {
    let server = server(&[PATH.to_owned()], i32::MAX - 1).await;
    let world = World::at(&server.hosts(), TIMEOUT).await;
    let lock = RwLock::new(&world.session, PATH).expect("a lock");
    let other = RwLock::new(&world.other().await, PATH).expect("a lock");
    // The last number that has a place of its own.
    let reading = lock.write().await.expect("held").downgrade().await.expect("a reader");
    reading.release().await.expect("released");

    let writing = lock.write().await.expect("held");
    let waiting = other.enqueue_write().await.expect("a place");
    let before = children(&world.admin, PATH).await;
    assert!(before.iter().all(|name| number(name) == i32::MAX || number(name) < 0), "{before:?}");
    let (token, nodes) = (writing.fencing_token(), writing.nodes().to_vec());
    world.proxy.reset();
    let refused = writing.downgrade().await.expect_err("no place for a reader");
    assert!(matches!(refused.source, Error::InvalidInput { .. }), "{:?}", refused.source);
    assert!(world.proxy.requests().iter().all(|request| !request.parts.iter().any(|(op, _)| *op != Op::Check)));

    let writing = refused.guard;
    assert_eq!((writing.state(), writing.fencing_token()), (HoldState::Held, token));
    assert_eq!((writing.nodes(), children(&world.admin, PATH).await), (&*nodes, before));
    assert!(other.try_read().await.expect("asked").is_none(), "a writer holds");
    writing.release().await.expect("released");
    soon("the next writer", waiting).await.expect("held").release().await.expect("released");
    wait_children(&world.admin, PATH, 0).await;
}
