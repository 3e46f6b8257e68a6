//! When the next look at nodes of one's own is due.

use std::time::{Duration, Instant};

use zookeeper_recipes::zookeeper_client::Error as ZkError;

use crate::support::{World, renewed, soon};

#[tokio::test]
async fn look_that_was_refused_is_repeated_a_second_later_also_in_a_new_session() {
    let world = World::new().await;
    let (path, mut looks) = (&world.path, world.session.looks([&*world.path]).expect("there is room"));
    let mut look = async || {
        soon("its turn", looks.due()).await;
        let began = Instant::now();
        let seen = looks.look(|client| async move {
            let (_, _, watch) = client.get_and_watch_data(path).await?;
            Ok(((), vec![watch]))
        });
        assert_eq!(seen.await.expect("it is answered"), Err(ZkError::NoNode));
        (began, looks.session_id())
    };
    let (_, first) = look().await;
    world.expire().await;
    renewed(&world.session, first).await;
    let (began, second) = look().await;
    assert_ne!(second, first);
    let (again, _) = look().await;
    assert!(again - began >= Duration::from_millis(990), "after {:?}", again - began);
}
