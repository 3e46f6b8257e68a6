//! The history of grants, which outlives the process.

use serde_json::Value;

use crate::support::{LOCK, Watch, World, binary};

fn grants(event: &Value) -> Vec<(String, bool, Value)> {
    let grants = event["grants"].as_array().expect("grants").iter();
    let of = |grant: &Value| (grant["identifier"].as_str().expect("text").to_owned(), grant["ended"].is_null());
    grants.map(|grant| (of(grant).0, of(grant).1, grant["ended"]["seen"].clone())).collect()
}

#[tokio::test]
async fn history_outlives_the_process_and_is_bounded() {
    let world = World::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.db");
    let mut command = binary(&world.hosts());
    command.arg("--history").arg(&file).args(["--keep", "3"]);
    let queue = format!("/queue?lock={LOCK}");
    let watch = Watch::run(&mut command).await;
    watch.event(&queue, |event| event["queue"].is_array()).await;
    for number in 0..6 {
        let identifier = format!("billing-{number}");
        let guard = world.lock_of(&identifier).lock().await.expect("held");
        watch.event(&queue, |event| event["queue"][0]["identifier"] == identifier.as_str()).await;
        guard.release().await.expect("released");
        watch.event(&queue, |event| event["queue"] == serde_json::json!([])).await;
    }
    let guard = world.lock_of("billing-6").lock().await.expect("held");
    let lasting = world.lock_at("/orders/8", "billing-8").lock().await.expect("held");
    let held = watch.event(&queue, |event| event["queue"][0]["identifier"] == "billing-6").await;
    assert_eq!(held["queue"][0]["granted"]["seen"], true);
    watch.event("/locks", |event| event["locks"].as_array().is_some_and(|locks| locks.len() == 2)).await;
    assert!(watch.terminate().await);

    // Nobody sees when this hold ends.
    guard.release().await.expect("released");
    let watch = Watch::run(&mut command).await;
    let event = watch.event(&queue, |event| event["queue"] == serde_json::json!([])).await;
    let expected = [("billing-6", false, false.into()), ("billing-5", false, true.into())];
    assert_eq!(
        grants(&event),
        expected.map(|(identifier, holds, seen): (&str, _, Value)| (identifier.to_owned(), holds, seen))
    );
    let list = watch.event("/locks", |event| event["is_complete"] == true).await;
    assert_eq!(list["locks"][0]["granted"]["seen"], true, "the hold that lasts began when it was seen before");
    assert!(watch.terminate().await);
    let database = rusqlite::Connection::open(&file).expect("a database");
    let count: u32 = database.query_row("SELECT count(*) FROM grants", [], |row| row.get(0)).expect("a count");
    assert_eq!(count, 3, "--keep");
    lasting.release().await.expect("released");
    world.session.close().await.expect("closed");
}
