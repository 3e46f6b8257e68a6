//! A session without room for another watch.

use futures_util::future::{join_all, try_join_all};
use testbed::proxy::Request;
use zookeeper_recipes::{Error, MultiLock, Mutex};

use crate::support::{UNHURRIED, World, children, hosts, soon};

/// The limit in `Error::SessionFull`.
const LIMIT: usize = 100 * 1024;
const NAME: usize = "/_c_".len() + 36 + "-lock-".len() + 10;

/// Long paths, so that few fill the session.
fn path(world: &World, letter: &str) -> String {
    format!("{}/{}", world.path, letter.repeat(850))
}

fn watches(request: &Request) -> bool {
    request.watch && request.answer.is_some()
}

/// A waiter whose predecessor cancels watches another node. It needs room again, which newcomers compete for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_do_not_take_the_room_of_queued_waiters() {
    let world = World::at(&hosts(), UNHURRIED).await;
    let (here, elsewhere) = (path(&world, "x"), path(&world, "y"));
    let other = world.other().await;
    let locks = [&here, &elsewhere].map(|path| Mutex::new(&other, path).expect("a mutex"));
    let _held = join_all(locks.iter().map(async |lock| lock.lock().await.expect("free"))).await;

    let mut old = Vec::new();
    for _ in 0..LIMIT / (here.len() + NAME) {
        world.proxy.reset();
        let mutex = Mutex::new(&world.session, &here).expect("a mutex");
        old.push(tokio::spawn(async move { mutex.lock().await.map(drop) }));
        soon("a watch", world.proxy.wait_for(watches)).await;
    }
    let queue = children(&world.admin, &here).await;
    let newcomers = (0..16).map(|_| {
        let mutex = Mutex::new(&world.session, &elsewhere).expect("a mutex");
        tokio::spawn(async move {
            loop {
                let error = mutex.lock().await.expect_err("there is no room to wait");
                assert!(matches!(error, Error::SessionFull { what: "watches", limit: LIMIT }), "{error:?}");
            }
        })
    });
    let newcomers: Vec<_> = newcomers.collect();
    for gone in [60, 40, 20] {
        world.proxy.reset();
        old.remove(gone).abort();
        // The waiter behind it now watches the node ahead of it; the first in the queue is the holder.
        let moved = |request: &Request| watches(request) && request.path.ends_with(&queue[gone]);
        soon("another watch", world.proxy.wait_for(moved)).await;
    }
    assert!(newcomers.iter().all(|task| !task.is_finished()), "refused, every time");
    newcomers.iter().for_each(|task| task.abort());
    assert!(old.iter().all(|task| !task.is_finished()), "all of them are queued");
    old.iter().for_each(|task| task.abort());
}

/// A waiter in several queues with paths of different lengths reserves room for the longest from the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_move_to_a_longer_path_are_not_refused() {
    let world = World::at(&hosts(), UNHURRIED).await;
    let other = world.other().await;
    let near = format!("{}/near", world.path);
    let far = |number: usize| format!("{}/{}{number:03}", world.path, "y".repeat(700));
    let many = LIMIT / (far(0).len() + NAME + "-__WRIT__".len() - "-lock-".len());
    let all: Vec<_> = (0..=many).map(far).collect();
    let held = Mutex::new(&other, &near).expect("a mutex").lock().await.expect("free");
    let far_held = MultiLock::new(&other, &all).expect("a lock").lock().await.expect("free");
    let lock = |far: &String| MultiLock::builder(&world.session).read(&near).write(far).build().expect("a lock");
    let wait = |far: &String| {
        let lock = lock(far);
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    let waiting: Vec<_> = all[..many].iter().map(wait).collect();
    let until = async |path: &str| {
        let watching = |request: &&Request| watches(request) && request.path.starts_with(path);
        world.proxy.wait_until(|requests| requests.iter().filter(watching).count() >= many).await
    };
    soon("watches in the near queue", until(&near)).await;
    let error = soon("a refusal", lock(&all[many]).lock()).await.expect_err("no room for another");
    assert!(matches!(error, Error::SessionFull { what: "watches", limit: LIMIT }), "{error:?}");
    held.release().await.expect("released");
    soon("watches in the far queues", until(&format!("{}/yyy", world.path))).await;
    far_held.release().await.expect("released");
    for done in soon("all", try_join_all(waiting)).await.expect("no panic") {
        done.expect("held");
    }
}
