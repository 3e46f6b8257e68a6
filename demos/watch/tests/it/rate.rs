//! How much the looks ask of the servers.

use testbed::proxy::{Op, Proxy};

use crate::chromium::Chromium;
use crate::layout::{looks_well, rows};
use crate::support::{Watch, World, soon};

const CONTENDERS: usize = 300;

/// The default of `--rate`.
const RATE: f64 = 200.0;

#[tokio::test]
async fn requests_a_second_are_bounded_however_long_the_queue_is() {
    let world = World::new().await;
    let lock = world.lock_of("billing-7");
    let mut places = Vec::new();
    for _ in 0..CONTENDERS {
        places.push(lock.enqueue().await.expect("queued"));
    }
    let proxy = Proxy::start(&world.server).await.expect("a proxy");
    proxy.leave_out(|request| !matches!(request.op, Op::GetChildren | Op::GetChildren2 | Op::GetData));
    let watch = Watch::start(&format!("{}{}", proxy.hosts(), world.chroot)).await;
    // Open, so that it is looked at as often as may be.
    let mut chromium = Chromium::open(&watch.page()).await;
    rows(&mut chromium, CONTENDERS).await;
    soon("three looks", proxy.wait_for_requests(4 * CONTENDERS)).await;
    let requests = proxy.requests();
    let (first, last) = (requests[0].arrived, requests[requests.len() - 1].arrived);
    // A look sends its requests together, and two lists before.
    let together = CONTENDERS + 2;
    let allowed = together as f64 + RATE * last.duration_since(first).as_secs_f64();
    let found = requests.len();
    assert!(found as f64 <= allowed, "{found} requests in {:?}", last.duration_since(first));
    eprintln!("{found} requests in {:?}", last.duration_since(first));
    looks_well(&mut chromium, "many").await;
    assert_eq!(chromium.close().await, [""; 0], "complaints of the page");
    assert!(watch.terminate().await);
    drop(places);
    world.session.close().await.expect("closed");
}
