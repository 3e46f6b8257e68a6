//! Monitors, which show a hold and do not hold it.

use std::future::pending;
use std::time::Duration;

use testbed::frames::Op;
use zookeeper_recipes::{HoldMonitor, HoldState, Loss};

use crate::support::{World, connect, soon, until};
use crate::warnings::Warnings;

fn is_plain<T: Clone + Send + Sync + 'static>(_: &T) {}

#[tokio::test]
async fn monitor_shows_the_hold_and_its_release() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let monitor = guard.monitor();
    is_plain(&monitor);
    assert_eq!((monitor.path(), monitor.fencing_token()), (guard.path(), guard.fencing_token()));
    assert_eq!(monitor.state(), HoldState::Held);
    assert!(monitor.valid_for() > Duration::ZERO);
    assert_eq!(monitor.run_until_lost(async { 7 }).await, Ok(7));
    let works = tokio::spawn(async move { monitor.run_until_lost(pending::<()>()).await });
    let (ended, monitor) = (guard.ended(), guard.monitor());
    guard.release().await.expect("released");
    assert_eq!(soon("the end", ended).await, HoldState::Released);
    assert_eq!(soon("the work", works).await.expect("no panic"), Err(HoldState::Released));
    assert_eq!((monitor.state(), monitor.valid_for()), (HoldState::Released, Duration::ZERO));
    assert_eq!(soon("the end", monitor.ended()).await, HoldState::Released);
    world.wait_empty().await;
}

#[tokio::test]
async fn monitor_shows_the_loss() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let (monitor, ended) = (guard.monitor(), guard.ended());
    world.expire().await;
    assert_eq!(soon("the end", ended).await, HoldState::Lost(Loss::Expired));
    assert_eq!(soon("the loss", monitor.lost()).await, Loss::Expired);
    assert_eq!(monitor.state(), HoldState::Lost(Loss::Expired));
    assert_eq!(monitor.run_until_lost(pending::<()>()).await, Err(HoldState::Lost(Loss::Expired)));
    drop(guard);
    assert_eq!(monitor.state(), HoldState::Lost(Loss::Expired), "the first end counts");
}

#[tokio::test]
async fn monitor_keeps_neither_the_lock_nor_the_session() {
    let world = World::new().await;
    let session = connect(&world.proxy.hosts()).await;
    let monitor: HoldMonitor = {
        let mutex = zookeeper_recipes::Mutex::new(&session, &world.path).expect("a mutex");
        let guard = mutex.lock().await.expect("held");
        guard.monitor()
    };
    world.wait_empty().await;
    assert_eq!(monitor.state(), HoldState::Released);
    drop(session);
    soon("the end of the session", world.proxy.wait_for(|request| request.op == Op::CloseSession)).await;
}

#[tokio::test]
async fn lost_hold_is_logged_once_and_a_released_one_is_not() {
    let world = World::new().await;
    let warnings = Warnings::new();
    let _listening = warnings.listen();
    let mutex = world.mutex();
    mutex.lock().await.expect("held").release().await.expect("released");
    let guard = mutex.lock().await.expect("held");
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    guard.release().await.expect_err("lost");
    until("a warning", || warnings.count("lock is lost") > 0).await;
    world.session.close().await.expect("closed");
    assert_eq!(warnings.count("lock is lost"), 1);
    let hold = format!("lock is lost path={} token=", world.path);
    assert_eq!(warnings.count(&hold), 1, "{hold}");
}

/// An operator needs to know of the session, and of how many locks it has cost.
#[tokio::test]
async fn holds_of_a_session_that_are_lost_together_are_one_warning() {
    const HOLDS: usize = 20;
    for (expires, loss, cause) in [(true, Loss::Expired, "expired"), (false, Loss::TrustEnded, "trust_ended")] {
        let world = World::brief().await;
        let id = world.session.id();
        let warnings = Warnings::new();
        let _listening = warnings.listen();
        let mut guards = Vec::new();
        for number in 0..HOLDS {
            let mutex = zookeeper_recipes::Mutex::new(&world.session, &format!("{}-{number}", world.path));
            guards.push(mutex.expect("a mutex").lock().await.expect("held"));
        }
        if expires {
            world.expire().await
        } else {
            world.proxy.black_hole()
        }
        for guard in &guards {
            assert_eq!(soon("the loss", guard.lost()).await, loss);
            assert_eq!(guard.state(), HoldState::Lost(loss));
        }
        until("a warning", || warnings.count("locks of a session are lost") > 0).await;
        assert_eq!(warnings.count("lock is lost"), 0);
        let all = warnings.with("locks of a session are lost");
        let wanted = format!("session={id} count={HOLDS} loss={loss}");
        assert!(all.len() == 1 && all[0].contains(&wanted) && all[0].contains(cause), "{all:?}, not {wanted}");
    }
}
