//! Numbers that a node of the servers has for all processes.

use std::time::{Duration, SystemTime};

use zookeeper_groups::SharedCount;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, Options};

use crate::support::{World, soon, until};
use crate::warnings::Warnings;

#[tokio::test]
async fn number_is_followed_by_all_and_says_who_has_set_it() {
    let world = World::new().await;
    let path = format!("{}/limits/count", world.path);
    let there = world.other().await.with_lock_options(Options::new().with_identifier("operator"));
    let [here, there] = [&world.session, &there].map(|session| SharedCount::follow(session, &path, 3));
    let (here, there) = (here.await.expect("followed"), there.await.expect("followed"));
    assert_eq!((here.get(), there.get()), (3, 3), "there is no node yet");
    assert_eq!(SharedCount::read_at(&world.session, &path).await, Ok(None));
    let mut watch = here.watch();
    for count in [25, 0, i32::MAX as u32] {
        there.set(count).await.expect("set");
        soon("the number", watch.wait_for(|seen| *seen == count)).await.expect("followed");
        until("the number of the other", || there.get() == count).await;
    }
    let set = SharedCount::read_at(&world.session, &path).await.expect("read").expect("a node");
    assert_eq!((set.count, &*set.by), (i32::MAX as u32, &b"operator"[..]));
    let age = SystemTime::now().duration_since(set.at).unwrap_or_default();
    assert!(age < Duration::from_secs(300), "{age:?}");
    let error = there.set(i32::MAX as u32 + 1).await.expect_err("too large");
    assert!(matches!(error, Error::InvalidInput { what: "count", .. }), "{error:?}");
    world.admin.delete(&path, None).await.expect("deleted");
    soon("the default", watch.wait_for(|seen| *seen == 3)).await.expect("followed");
}

/// Curator's `SharedCount` writes four bytes.
#[tokio::test]
async fn data_of_others_is_a_number_or_leaves_the_last_one() {
    let world = World::with_path().await;
    let path = format!("{}/count", world.path);
    let (warnings, open) =
        (Warnings::of("zookeeper_groups"), CreateMode::Persistent.with_acls(Acls::anyone_all()));
    let _listens = warnings.listen();
    world.admin.create(&path, &[0, 0, 1, 2], &open).await.expect("created");
    let count = SharedCount::follow(&world.session, &path, 1).await.expect("followed");
    assert_eq!(count.get(), 258);
    let set = SharedCount::read_at(&world.session, &path).await.expect("read").expect("a node");
    assert_eq!((set.count, &*set.by), (258, &b""[..]));
    for wrong in [&[0, 1, 2][..], &[255; 4], b"1000", b"max=7", b"100\n"] {
        world.admin.set_data(&path, wrong, None).await.expect("set");
        until("a warning", || warnings.count("cannot read a shared number") == 1).await;
        let error = SharedCount::follow(&world.session, &path, 1).await.expect_err("no number");
        assert!(matches!(error, Error::InvalidInput { what: "path", .. }), "{error:?}");
        assert_eq!(count.get(), 258);
    }
    count.set(4).await.expect("set");
    until("the number", || count.get() == 4).await;
    let mut watch = count.watch();
    drop(count);
    assert!(soon("the end", watch.changed()).await.is_err() && *watch.borrow() == 4);
}
