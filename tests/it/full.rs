//! A session without room for another watch.

use std::time::Duration;

use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::proxy::Request;
use zookeeper_recipes::{Error, Mutex};

use crate::support::{World, children, hosts, soon};

/// What `Error::SessionFull` names.
const LIMIT: usize = 100 * 1024;
const NAME: usize = "/_c_".len() + 36 + "-lock-".len() + 10;

/// Long paths, so that few fill the session.
fn path(world: &World, letter: &str) -> String {
    format!("{}/{}", world.path, letter.repeat(850))
}

fn watches(request: &Request) -> bool {
    request.op == Op::GetData && request.watch && request.answer.is_some()
}

/// Who has to watch another node, because one ahead gave up, needs room again, which newcomers are waiting for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_do_not_take_the_room_of_those_in_line() {
    let world = World::at(&hosts(), Duration::from_secs(30)).await;
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
    let line = children(&world.admin, &here).await;
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
        // The one behind it goes on behind the one ahead of it; the first in the line is the holder.
        let moved = |request: &Request| watches(request) && request.path.ends_with(&line[gone]);
        soon("another watch", world.proxy.wait_for(moved)).await;
    }
    assert!(newcomers.iter().all(|task| !task.is_finished()), "refused, every time");
    newcomers.iter().for_each(|task| task.abort());
    assert!(old.iter().all(|task| !task.is_finished()), "in line, all of them");
    old.iter().for_each(|task| task.abort());
}
