//! What operators see and do: list, break, revoke.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use testbed::{Ensemble, Server};
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Contender, Mutex, Options, RwLock, Semaphore};

use crate::support::{World, binary, code, stderr, stdout, zklock};

/// The forms of what is printed for programs.
const DOCUMENT: &str = include_str!("../../../../docs/zklock.md");

#[tokio::test(flavor = "multi_thread")]
async fn list_shows_holders_then_waiters() {
    let world = World::new().await;
    let rw = RwLock::new(&world.session, &world.path).expect("a lock");
    let _readings = (rw.read().await.expect("held"), rw.read().await.expect("held"));
    let mut writer = world.start(&["-x", "--identifier", "billing-7"], &["true"]);
    world.contenders("a waiter", |all| all.len() == 3).await;
    let done = zklock(["list", &world.path]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
    let table = stdout(&done);
    let columns: Vec<Vec<_>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(
        columns[0],
        ["POS", "STATE", "FOR", "KIND", "TOKEN", "SESSION", "SINCE", "HEARD", "ADDRESS", "IDENTIFIER", "NODE"]
    );
    let begins: Vec<_> = columns[1..].iter().map(|row| [row[0], row[1], row[3]].join(" ")).collect();
    assert_eq!(begins, ["0 holds reader", "0 holds reader", "1 waits writer"], "{table}");
    assert_eq!(columns[3][11], "billing-7");
    drop(_readings);
    assert_eq!(writer.end().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_json_for_programs() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let done = zklock(["list", "--json", &world.path]);
    let all: Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    let one = &all[0];
    assert_eq!(one["position"], 0);
    assert_eq!(one["holds"], true);
    assert_eq!(one["kind"], "lock");
    assert_eq!(one["token"], guard.fencing_token().get());
    assert_eq!(one["session"], world.session.id().to_string());
    assert_eq!(one["revoke_requested"], false);
    let node = one["node"].as_str().expect("a text");
    assert_eq!([format!("{}/{node}", world.path)], guard.nodes());
    assert!(one["since"].as_str().is_some_and(|since| since.starts_with("20") && since.ends_with('Z')));
    guard.release().await.expect("released");
    let done = zklock(["list", "--json", &world.path]);
    assert_eq!(stdout(&done), "[]\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_a_path_with_locks_below_names_one() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let parent = world.path.rsplit_once('/').expect("a parent").0;
    let done = zklock(["list", parent]);
    assert_eq!((code(&done), stdout(&done).as_str()), (Some(0), ""));
    let expected =
        format!("zklock: nobody holds or waits for {parent}; below it: 1 lock path, such as {}\n", world.path);
    assert_eq!(stderr(&done), expected);
    let done = zklock(["list", "/no/such/path"]);
    assert_eq!(
        (code(&done), stderr(&done)),
        (Some(0), "zklock: nobody holds or waits for /no/such/path\n".to_owned())
    );
    // A number alone is no name of a contender.
    let numbered = Mutex::new(&world.session, &format!("{parent}/0000000042")).expect("a mutex");
    let _guard = numbered.lock().await.expect("held");
    let done = zklock(["list", parent]);
    assert!(stderr(&done).contains("below it: 2 lock paths"), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn identifier_cannot_steer_the_terminal() {
    let world = World::new().await;
    let evil = format!("\x1b[2J\r\n\u{9b}{}", "x".repeat(60_000));
    let options = Options::new().with_identifier(&evil);
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let _guard = mutex.lock().await.expect("held");
    let table = stdout(&zklock(["list", &world.path]));
    assert_eq!(table.lines().count(), 2, "{table:?}");
    assert!(!table.contains(['\x1b', '\r', '\u{9b}']), "{table:?}");
    assert!(table.lines().all(|row| row.chars().count() < 300), "{table:?}");
    let json: Value = serde_json::from_str(&stdout(&zklock(["list", "--json", &world.path]))).expect("JSON");
    assert_eq!(json[0]["identifier"], evil);
}

#[tokio::test(flavor = "multi_thread")]
async fn break_removes_the_node_that_was_meant() {
    let world = World::new().await;
    let other = World::at(&crate::support::hosts()).await;
    let _guard = world.mutex().lock().await.expect("held");
    let second = Mutex::new(&other.session, &world.path).expect("a mutex");
    for by in ["token", "node", "path"] {
        let waiting = second.enqueue().await.expect("queued");
        let all = world.contenders("a waiter", |all| all.len() == 2).await;
        let node = match by {
            "token" => all[1].token().to_string(),
            "node" => all[1].name().to_owned(),
            _ => format!("{}/{}", all[1].path(), all[1].name()),
        };
        let done = zklock(["break", "-y", &world.path, &node]);
        assert_eq!(code(&done), Some(0), "{by}: {}", stderr(&done));
        let shown = stdout(&done);
        assert!(shown.contains(all[1].name()) && shown.ends_with("removed\n"), "{by}: {shown}");
        let left = world.contenders("it is gone", |all| all.len() == 1).await;
        assert!(left[0].is_holder(), "{by}: the holder stays");
        drop(waiting);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn break_that_nobody_confirms_changes_nothing() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let node = world.mutex().contenders().await.expect("listed")[0].name().to_owned();
    let done = zklock(["break", &world.path, &node]);
    assert_eq!(code(&done), Some(64), "{}", stdout(&done));
    assert!(stderr(&done).contains("--yes"), "{}", stderr(&done));
    assert_eq!(world.mutex().contenders().await.expect("listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn kazoos_nodes_beside_others_are_warned_of() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let warning = format!("{} has nodes of kazoo (__lock__) beside others", world.path);
    assert_eq!(stderr(&zklock(["list", &world.path])), "");
    assert!(!stdout(&zklock(["doctor", &world.path])).contains(&warning));
    // As a plain kazoo Lock, which would hold now.
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let node = format!("{}/{}__lock__", world.path, uuid::Uuid::new_v4().simple());
    let client = world.session.client().expect("a client");
    client.create(&node, b"kazoo", &options).await.expect("created");
    let listed = zklock(["list", &world.path]);
    assert!(stdout(&listed).contains(" waits "), "{}", stdout(&listed));
    assert!(stderr(&listed).contains(&warning), "{}", stderr(&listed));
    let report = stdout(&zklock(["doctor", &world.path]));
    assert!(report.contains(&format!("note  {warning}")), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_is_not_there_changes_nothing() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let node = world.mutex().contenders().await.expect("listed")[0].name().to_owned();
    for missing in ["1", "no-such-node", "", "/", &node[1..], &format!("{node}/x"), "*"] {
        for action in [&["break", "--yes"][..], &["revoke"]] {
            let done = zklock(action.iter().chain(&[world.path.as_str(), missing]));
            assert_eq!(code(&done), Some(1), "{action:?} {missing:?}: {}", stderr(&done));
        }
    }
    assert_eq!(world.mutex().contenders().await.expect("listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_of_a_semaphore_is_listed_and_broken() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 2).expect("a semaphore");
    let permits = semaphore.acquire_many(2).await.expect("held");
    let mut waiter = world.start(&["-N", "2"], &["true"]);
    let all = crate::support::until("a waiter", || {
        let done = zklock(["list", "--json", "-N", "2", &world.path]);
        let all: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
        let waits = all.as_array().is_some_and(|all| all.iter().any(|one| one["position"] == 1));
        waits.then_some(all)
    })
    .await;
    let node = all[0]["node"].as_str().expect("a text");
    assert!(node.starts_with("leases/"), "{all}");
    // Both permits are of one transaction.
    let token = all[0]["token"].to_string();
    let done = zklock(["break", "-y", &world.path, &token]);
    assert_eq!(code(&done), Some(64), "{}: {}", stdout(&done), stderr(&done));
    let done = zklock(["break", "-y", &world.path, node]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
    assert_eq!(waiter.end().await.code(), Some(0), "it has the slot");
    drop(permits);
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_are_waited_for_are_not_those_of_a_lock() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let done = zklock(["wait", "-N", "3", "-w", "0", &world.path]);
    assert_eq!(code(&done), Some(1), "a run with -N would be refused: {}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn contender_that_was_asked_to_release_is_shown() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let token = world.mutex().contenders().await.expect("listed")[0].token().to_string();
    assert_eq!(code(&zklock(["revoke", &world.path, &token])), Some(0));
    let all = world.mutex().contenders().await.expect("listed");
    assert!(all.iter().all(Contender::revoke_requested));
    let done = Command::new(binary()).args(["list", &world.path]).output().expect("listed");
    assert!(String::from_utf8_lossy(&done.stdout).contains(" holds,asked "), "{done:?}");
}

/// The entries of `zklock list --json`, once they are as they should be.
async fn listed(path: &str, what: &str, are: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    crate::support::until(what, || {
        let done = zklock(["list", "--json", path]);
        let all: Vec<Value> = serde_json::from_str(&stdout(&done)).expect("an array");
        are(&all).then_some(all)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_holder_and_dead_waiter_look_different() {
    let world = World::new().await;
    let holder = world.holder(&["--session", "20"]).await;
    let waiter = world.start(&["--session", "20"], &["true"]);
    world.contenders("a waiter", |all| all.len() == 2).await;
    let all = listed(&world.path, "both are heard", |all| all.len() == 2).await;
    for one in &all {
        assert_eq!((&one["connected"], &one["session_timeout_ms"]), (&json!(true), &json!(20_000)), "{all:?}");
        assert!(one["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{all:?}");
        assert!(one["heard_ms"].as_u64().is_some_and(|ms| ms < 20_000), "{all:?}");
        assert!(one["for_s"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{all:?}");
    }
    holder.signal(Signal::STOP);
    waiter.signal(Signal::KILL);
    // A client that runs is heard at least every 8 s of a session of 20 s.
    let silent = |all: &[Value]| all[0]["heard_ms"].as_u64() > Some(8500) && all[1]["connected"] == json!(false);
    let all = listed(&world.path, "both are silent", silent).await;
    assert_eq!((&all[0]["connected"], &all[1]["address"]), (&json!(true), &Value::Null), "{all:?}");
    let table = stdout(&zklock(["list", &world.path]));
    let rows: Vec<_> = table.lines().collect();
    assert!(rows[1].contains(" of 20s ") && rows[2].contains("no connection"), "{table}");
    holder.signal(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_show_no_connections_are_named() {
    let server = Server::builder().config("4lw.commands.whitelist", "srvr,conf").start().await.expect("a server");
    let world = World::at(&server.hosts()).await;
    let _guard = world.mutex().lock().await.expect("held");
    let done = zklock(["list", "--hosts", &server.hosts(), &world.path]);
    assert!(!stdout(&done).contains("ADDRESS"), "{}", stdout(&done));
    assert!(stderr(&done).contains("allow 4lw.commands.whitelist=cons"), "{}", stderr(&done));
    let done = zklock(["list", "--json", "--hosts", &server.hosts(), &world.path]);
    let all: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    assert_eq!((&all[0]["connected"], &all[0]["heard_ms"]), (&Value::Null, &Value::Null), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_those_of_all_servers() {
    let ensemble = Ensemble::start(3).await.expect("an ensemble");
    let hosts = ensemble.hosts();
    let world = World::at(&ensemble.server(2).hosts()).await;
    let _guard = world.mutex().lock().await.expect("held");
    // Each of them is the first once, which the session of the command may be at.
    for first in 0..3 {
        let mut list: Vec<_> = hosts.split(',').collect();
        list.rotate_left(first);
        let done = zklock(["list", "--json", "--hosts", &list.join(","), &world.path]);
        let all: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
        assert_eq!(all[0]["connected"], json!(true), "{all}");
        assert!(all[0]["heard_ms"].as_u64().is_some_and(|ms| ms < 20_000), "{all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_a_session_is_explained() {
    let world = World::new().await;
    let client = world.session.client().expect("a client");
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(&world.path, &persistent).await.expect("created");
    let node = format!("{}/_c_{}-lock-0000000000", world.path, uuid::Uuid::new_v4());
    client.create(&node, b"restored", &persistent).await.expect("created");
    let done = zklock(["list", &world.path]);
    assert!(stdout(&done).contains(" none "), "{}", stdout(&done));
    let why = "belongs to no session (0x0): it was created by hand";
    assert!(stderr(&done).contains(why) && stderr(&done).contains("zklock break"), "{}", stderr(&done));
    let parent = world.path.rsplit_once('/').expect("a parent").0;
    let done = zklock(["ls", parent, "--search", &world.path]);
    assert!(stderr(&done).contains(why), "{}", stderr(&done));
    // Nobody would hear it.
    let token = world.mutex().contenders().await.expect("listed")[0].token().to_string();
    let done = zklock(["revoke", &world.path, &token]);
    assert!(code(&done) == Some(1) && stderr(&done).contains("nobody was asked"), "{}", stderr(&done));
    let all = listed(&world.path, "it is listed", |all| all.len() == 1).await;
    assert_eq!(all[0]["identifier"], json!("restored"));
    assert!(all[0]["warning"].as_str().is_some_and(|warning| warning.contains(why)), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_contender_are_documented() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let node = format!("{}/{}__lock__", world.path, uuid::Uuid::new_v4().simple());
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    world.session.client().expect("a client").create(&node, b"kazoo", &options).await.expect("created");
    let all = listed(&world.path, "both are listed", |all| all.len() == 2).await;
    for field in all[0].as_object().expect("an object").keys() {
        let row = format!("| `{field}` |");
        let shared = format!("`{field}`,");
        assert!(DOCUMENT.contains(&row) || DOCUMENT.contains(&shared), "{field}");
    }
    assert_eq!(all[0]["warning"], Value::Null, "{all:?}");
    assert!(all[1]["warning"].as_str().is_some_and(|text| text.contains("nodes of kazoo")), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_contender_is_named_before_and_after() {
    let world = World::new().await;
    let options = Options::new().with_identifier("billing-7");
    let _guard =
        Mutex::with_options(&world.session, &world.path, options).expect("a mutex").lock().await.expect("held");
    let token = world.mutex().contenders().await.expect("listed")[0].token().to_string();
    let done = zklock(["revoke", &world.path, &token]);
    let asked = format!("asked billing-7 (session {}, 127.0.0.1:", world.session.id());
    assert!(stdout(&done).contains(&asked), "{}", stdout(&done));
    let table = stdout(&zklock(["list", &world.path]));
    assert!(table.contains("(overwritten by a request to release)") && table.contains(" 127.0.0.1:"), "{table}");
    let done = world.run(&["-n"], &["true"]);
    let busy = format!("is busy: session {}, which was asked to release, holds it", world.session.id());
    assert!(stderr(&done).contains(&busy), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_locks_below_a_path_are_listed() {
    let world = World::new().await;
    let parent = world.path.rsplit_once('/').expect("a parent").0;
    let options = Options::new().with_identifier("billing-7");
    let deep = format!("{parent}/orders/7");
    let _deep = Mutex::with_options(&world.session, &deep, options).expect("a mutex").lock().await.expect("held");
    let _held = world.mutex().lock().await.expect("held");
    let slots = format!("{parent}/slots");
    let semaphore = Semaphore::new(&world.session, &slots, 2).expect("a semaphore");
    let _permits = semaphore.acquire_many(2).await.expect("held");
    let free = Mutex::new(&world.session, &format!("{parent}/free")).expect("a mutex");
    free.lock().await.expect("held").release().await.expect("released");
    let _waiters = [world.start(&[], &["true"]), world.start(&["--identifier", "shop-3"], &["true"])];
    world.contenders("waiters", |all| all.len() == 3).await;

    let done = zklock(["ls", parent]);
    let rows: Vec<Vec<_>> =
        stdout(&done).lines().map(|row| row.split_whitespace().map(str::to_owned).collect()).collect();
    assert_eq!(rows[0], ["HOLDERS", "FOR", "WAITERS", "LONGEST", "HOLDER", "PATH"]);
    let found: Vec<_> = rows[1..].iter().map(|row| (row[0].as_str(), row[2].as_str(), row[5].as_str())).collect();
    let expected = [("1", "2", world.path.as_str()), ("1", "0", deep.as_str()), ("2", "0", slots.as_str())];
    assert_eq!(found, expected, "{}{}", stdout(&done), stderr(&done));
    assert_eq!((rows[2][3].as_str(), rows[2][4].as_str()), ("-", "billing-7"), "{rows:?}");

    let paths = |options: &[&str]| -> Vec<String> {
        let done = zklock(["ls", "--json", parent].iter().chain(options));
        let all: Vec<Value> = serde_json::from_str(&stdout(&done)).expect("an array");
        for field in all.iter().flat_map(|one| one.as_object().expect("an object").keys()) {
            assert!(DOCUMENT.contains(&format!("`{field}`")), "{field}");
        }
        all.iter().map(|one| one["path"].as_str().expect("a text").to_owned()).collect()
    };
    assert_eq!(paths(&["--search", "billing"]), [deep.as_str()]);
    assert_eq!(paths(&["--search", "shop-3"]), [world.path.as_str()], "of a waiter");
    assert_eq!(paths(&["--search", "/slots"]), [slots.as_str()]);
    assert_eq!(paths(&["--sort", "waiters"])[0], world.path);
    assert_eq!(paths(&["--sort", "wait"])[0], world.path);
    assert_eq!(paths(&["--sort", "held"])[0], deep);
    let done = zklock(["ls", "--search", "no such", parent]);
    assert_eq!((code(&done), stdout(&done).as_str()), (Some(0), ""), "{}", stderr(&done));
    assert!(stdout(&zklock(["ls", "/"])).contains(&deep), "all of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_may_not_be_looked_at_are_counted() {
    let world = World::new().await;
    let parent = world.path.rsplit_once('/').expect("a parent").0;
    let _held = world.mutex().lock().await.expect("held");
    let client = world.session.client().expect("a client");
    client.auth("digest", b"alice:wonder").await.expect("known");
    let closed = CreateMode::Persistent.with_acls(Acls::creator_all());
    client.create(&format!("{parent}/closed"), b"", &closed).await.expect("created");
    let done = zklock(["ls", parent]);
    assert_eq!(stdout(&done).lines().count(), 2, "{}", stdout(&done));
    assert!(stderr(&done).contains("1 node is not shown"), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_number_is_set_and_shown() {
    let world = World::new().await;
    let shown = zklock(["count", &world.path]);
    assert_eq!((code(&shown), stdout(&shown)), (Some(1), String::new()));
    assert!(stderr(&shown).contains("each service counts with its own"), "{}", stderr(&shown));
    let set = zklock(["count", &world.path, "25"]);
    assert_eq!(code(&set), Some(0), "{}", stderr(&set));
    for done in [set, zklock(["count", &world.path])] {
        let shown = stdout(&done);
        assert!(shown.starts_with("25\tset by ") && shown.ends_with("s ago\n"), "{shown}");
        assert!(!shown.contains("somebody"), "{shown}");
    }
    assert_eq!(code(&zklock(["count", &world.path, "4294967295"])), Some(64));
    let client = world.session.client().expect("connected");
    client.set_data(&world.path, b"x", None).await.expect("set");
    let wrong = zklock(["count", &world.path]);
    assert_eq!(code(&wrong), Some(64), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("zklock count"), "{}", stderr(&wrong));
}
