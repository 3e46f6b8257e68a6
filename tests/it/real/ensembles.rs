//! Ensembles that restart.

use testbed::{Ensemble, next_look};
use zookeeper_recipes::{HoldState, Loss, Semaphore, Session};

use crate::support::{BRIEF, connect, connect_for, soon, wait_children};

/// Sessions that outlive the restart of the servers keep their permits and places. The others lose them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_correct_after_a_restart_of_the_whole_ensemble() {
    let mut ensemble = Ensemble::start(3).await.expect("servers");
    let hosts = ensemble.hosts();
    let path = "/permits";
    let of = |session: &Session| Semaphore::new(session, path, 3).expect("a semaphore");
    let (patient, hasty, waits) = (connect(&hosts).await, connect_for(&hosts, BRIEF).await, connect(&hosts).await);
    let (kept, lost) =
        (of(&patient).acquire().await.expect("held"), of(&hasty).acquire_many(2).await.expect("held"));
    // A turn that is not yet deleted would be ahead.
    let admin = waits.client().expect("a client");
    wait_children(&admin, "/permits/locks", 0).await;
    drop(admin);
    let place = of(&waits).enqueue(3).await.expect("enqueued");
    assert_eq!(place.position(), 3, "all are in use");
    let mut waiting = tokio::spawn(place);

    (0..ensemble.len()).for_each(|server| ensemble.server_mut(server).kill());
    assert_eq!(soon("the loss", lost.lost()).await, Loss::TrustEnded);
    // At once: the client may be back only after twice the outage.
    ensemble.restart().await.expect("settled again");

    assert!(!waiting.is_finished(), "one is in use");
    soon("a release", kept.release()).await.expect("it was held all the time");
    let all = soon("all three", &mut waiting).await.expect("no panic").expect("held");
    assert_eq!((all.count(), lost.state()), (3, HoldState::Lost(Loss::TrustEnded)));
    assert!(soon("a look", of(&patient).try_acquire()).await.expect("asked").is_none(), "all are in use");
    all.release().await.expect("released");
    // It may be lost again in a stall, so its release may fail.
    drop(soon("all three", of(&hasty).acquire_many(3)).await.expect("held in the renewed session"));
    soon("all permits", async {
        while of(&patient).available_permits().await.expect("counted") < 3 {
            next_look().await;
        }
    })
    .await;
}
