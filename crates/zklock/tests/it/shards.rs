//! `zklock shards`: what it shows of a group, and each change of the plan node.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::frames::Op;
use testbed::proxy::{Proxy, Verdict};
use tokio::task::JoinHandle;
use zookeeper_groups::Shards;
use zookeeper_groups::tools::{Plan, Rules};
use zookeeper_recipes::{Servers, Session};

use crate::support::{PATIENCE, World, code, hosts, stderr, stdout, until, zklock};

const DOCUMENT: &str = include_str!("../../../../docs/zklock.md");
const COUNT: u32 = 24;
const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

struct Member {
    session: Session,
    shards: Shards,
    running: JoinHandle<Result<(), zookeeper_recipes::Error>>,
}

/// A member that gives a shard away only when it is asked to.
async fn member(world: &World, name: &str) -> Member {
    let servers = Servers::new(&hosts()).with_session_timeout(Duration::from_secs(4));
    let session = Session::connect(servers).await.expect("connects");
    let shards = Shards::builder(&world.path, COUNT).name(name).grace(Duration::from_secs(30));
    let shards = shards.settling_time(Duration::from_millis(300)).build(&session).expect("valid settings");
    let running = tokio::spawn(shards.run(async |shard| shard.revoke_requested().await));
    Member { session, shards, running }
}

async fn members(world: &World, names: &[&str]) -> Vec<Member> {
    let mut members = Vec::new();
    for name in names {
        members.push(member(world, name).await);
    }
    members
}

/// What is shown; null before the first member has joined.
fn shown(world: &World) -> Value {
    let done = zklock(["shards", "--json", &world.path]);
    match code(&done) {
        Some(0) => serde_json::from_slice(&done.get_output().stdout).expect("JSON"),
        _ => Value::Null,
    }
}

/// The owners of all shards.
fn owners(shown: &Value) -> Vec<Option<&str>> {
    shown["shards"].as_array().into_iter().flatten().map(|shard| shard["owner"].as_str()).collect()
}

/// What is shown when all shards are owned as planned.
async fn settled(world: &World, names: &[&str], rules: &str) -> Value {
    let rules = Rules::parse(rules.as_bytes()).expect("rules");
    let plan = Plan::with_rules(COUNT, names.iter().copied(), &rules);
    let planned: Vec<_> = (0..COUNT).map(|shard| plan.owner(shard)).collect();
    until("owned as planned", || {
        let shown = shown(world);
        (owners(&shown) == planned).then_some(shown)
    })
    .await
}

/// Changes the plan node, and returns what is printed.
fn change(world: &World, arguments: &[&str]) -> String {
    let arguments = [&["shards", arguments[0], &world.path], &arguments[1..]].concat();
    let done = zklock(&arguments);
    assert_eq!((code(&done), stderr(&done)), (Some(0), String::new()), "{arguments:?}");
    stdout(&done)
}

async fn node(world: &World) -> String {
    let client = world.session.client().expect("a client");
    let (data, _) = client.get_data(&format!("{}/plan", world.path)).await.expect("read");
    String::from_utf8(data).expect("a text")
}

async fn write_node(world: &World, text: &str) {
    let client = world.session.client().expect("a client");
    client.set_data(&format!("{}/plan", world.path), text.as_bytes(), None).await.expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_the_plan_node_moves_shards_and_its_opposite_moves_them_back() {
    let world = World::new().await;
    let _members = members(&world, &THREE).await;
    let before = settled(&world, &THREE, "").await;
    let pinned = owners(&before).iter().position(|owner| *owner == Some(THREE[0])).expect("a shard").to_string();
    for (there, done, back, undone, rules) in [
        (
            &["drain", "orders-2"][..],
            "orders-2 is drained",
            &["undrain", "orders-2"][..],
            "orders-2 is not drained any more",
            "drain orders-2",
        ),
        (
            &["pin", &pinned, "orders-1"],
            "is pinned to orders-1",
            &["unpin", &pinned],
            "is not pinned any more",
            &format!("pin {pinned} orders-1"),
        ),
    ] {
        assert!(change(&world, there).contains(done));
        let rules = format!("version 1\n{rules}\n");
        assert_eq!(node(&world).await, rules);
        let shown = settled(&world, &THREE, &rules).await;
        let member = |name: &str| {
            shown["members"]
                .as_array()
                .expect("members")
                .iter()
                .find(|one| one["name"] == name)
                .expect(name)
                .clone()
        };
        assert_eq!(member("orders-2")["drained"], json!(there[0] == "drain"));
        assert_eq!(
            shown["shards"][pinned.parse::<usize>().expect("a number")]["pinned"],
            json!((there[0] == "pin").then_some("orders-1"))
        );
        assert!(change(&world, back).contains(undone));
        settled(&world, &THREE, "").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_has_members_and_what_is_not_as_usual_and_all_shards_if_wanted() {
    let world = World::new().await;
    let members = members(&world, &THREE[..2]).await;
    settled(&world, &THREE[..2], "").await;
    change(&world, &["pin", "7", "orders-1"]);
    settled(&world, &THREE[..2], "version 1\npin 7 orders-1").await;
    let table = stdout(&zklock(["shards", &world.path]));
    let rows: Vec<Vec<_>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["MEMBER", "OWNS", "PLANNED", "SINCE", "STATE"], "{table}");
    let owns = members[0].shards.owned().len().to_string();
    assert_eq!(rows[1][..3], ["orders-0", owns.as_str(), owns.as_str()], "{table}");
    assert_eq!(rows[4], ["SHARD", "STATE", "OWNER", "FOR", "PLANNED", "WHY"], "{table}");
    assert_eq!((rows[5][0], rows[5][1], rows[5][2]), ("7", "owned", "orders-1"), "{table}");
    assert!(table.contains("pinned to orders-1\n") && table.ends_with("\n24 shards: 24 owned\n"), "{table}");
    assert_eq!(table.lines().count(), 8, "{table}");
    assert_eq!(stdout(&zklock(["shards", "-a", &world.path])).lines().count(), 31);
}

/// Its process is killed: its session lives for a while, and then its shards wait for the grace.
#[tokio::test(flavor = "multi_thread")]
async fn shards_without_an_owner_have_their_reason() {
    let world = World::new().await;
    let mut members = members(&world, &THREE[..2]).await;
    let before = settled(&world, &THREE[..2], "").await;
    let of_second: Vec<_> = (0..).zip(owners(&before)).filter(|(_, owner)| *owner == Some(THREE[1])).collect();
    let first = of_second[0].0;
    let second = members.pop().expect("two");
    second.shards.stop();
    second.running.await.expect("no panic").expect("no error");
    second.session.close().await.expect("closed");
    let shown = until("it has gone", || {
        let shown = shown(&world);
        (shown["shards"][first]["state"] == "no owner").then_some(shown)
    })
    .await;
    let shard = &shown["shards"][first];
    assert_eq!((&shard["owner"], &shard["planned"]), (&Value::Null, &json!("orders-0")));
    assert!(shard["why"].as_str().is_some_and(|why| why.contains("members wait out the grace")), "{shard}");
    let table = stdout(&zklock(["shards", &world.path]));
    assert!(table.contains(&format!("{} no owner", of_second.len())), "{table}");
    // Another process has the lock of a shard.
    let other =
        zookeeper_recipes::Mutex::new(&world.session, &format!("{}/{first}", world.path)).expect("a mutex");
    let _guard = other.lock().await.expect("held");
    let shard = self::shown(&world)["shards"][first].clone();
    assert_eq!(shard["state"], "owner gone");
    assert!(shard["why"].as_str().is_some_and(|why| why.contains("is not in the group")), "{shard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_in_the_node_is_shown_and_changed_by_nobody() {
    let world = World::new().await;
    let _members = members(&world, &THREE[..1]).await;
    settled(&world, &THREE[..1], "").await;
    change(&world, &["pin", "2", "orders-0"]);
    write_node(&world, "version 1\ndrian orders-0\n").await;
    let done = zklock(["shards", &world.path]);
    assert_eq!(code(&done), Some(0));
    let why = "line 2: \"drian orders-0\" is no rule";
    assert!(
        stderr(&done).contains("the plan node cannot be used: ") && stderr(&done).contains(why),
        "{}",
        stderr(&done)
    );
    write_node(&world, "version 1\npin 99 orders-0\n").await;
    let done = zklock(["shards", &world.path]);
    assert!(stderr(&done).contains("a pin is of shard 99, and there are 24"), "{}", stderr(&done));
    let done = zklock(["shards", "drain", &world.path, "orders-0"]);
    assert_eq!(code(&done), Some(70), "{}", stderr(&done));
    assert!(stderr(&done).contains("the members, which ignore it: a pin is of shard 99"), "{}", stderr(&done));
    // So it can be corrected.
    assert!(change(&world, &["unpin", "99"]).contains("shard 99 is not pinned any more"));
    write_node(&world, "version 1\ndrian orders-0\n").await;
    let done = zklock(["shards", "drain", &world.path, "orders-0"]);
    assert_eq!(code(&done), Some(70), "{}", stderr(&done));
    assert!(
        stderr(&done).contains(why) && stderr(&done).contains("correct it by hand, or delete it"),
        "{}",
        stderr(&done)
    );
    assert_eq!(node(&world).await, "version 1\ndrian orders-0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_of_the_node_stay() {
    let world = World::new().await;
    let _members = members(&world, &THREE[..1]).await;
    settled(&world, &THREE[..1], "").await;
    change(&world, &["pin", "3", "orders-0"]);
    write_node(&world, "version 1\n# until Monday\npin 3 orders-0\n").await;
    change(&world, &["pin", "4", "orders-0"]);
    assert_eq!(node(&world).await, "version 1\n# until Monday\npin 3 orders-0\npin 4 orders-0\n");
}

/// Each is a compare-and-set of the whole node.
#[tokio::test(flavor = "multi_thread")]
async fn changes_at_the_same_time_all_count() {
    let world = World::new().await;
    let _members = members(&world, &THREE[..1]).await;
    settled(&world, &THREE[..1], "").await;
    let shards: Vec<_> = (0..6).map(|shard: u32| shard.to_string()).collect();
    let pins = shards.iter().map(|shard| {
        let arguments = ["shards", "pin", &world.path, shard, "orders-0"].map(str::to_owned);
        tokio::task::spawn_blocking(move || code(&zklock(arguments)))
    });
    for pin in pins.collect::<Vec<_>>() {
        assert_eq!(pin.await.expect("no panic"), Some(0));
    }
    let mut lines: Vec<_> = node(&world).await.lines().map(str::to_owned).collect();
    lines.sort();
    let mut expected: Vec<_> = shards.iter().map(|shard| format!("pin {shard} orders-0")).collect();
    expected.push("version 1".to_owned());
    assert_eq!(lines, expected);
}

/// Its own write is refused, because the version is another by then, and the rule is there.
#[tokio::test(flavor = "multi_thread")]
async fn change_that_somebody_else_makes_first_changes_nothing() {
    let world = World::new().await;
    let _members = members(&world, &THREE[..1]).await;
    settled(&world, &THREE[..1], "").await;
    change(&world, &["pin", "2", "orders-0"]);
    let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
    proxy.on_request(|one| if one.op == Op::SetData { Verdict::Hold } else { Verdict::Forward });
    let arguments = ["shards", "pin", "--hosts", &proxy.hosts(), &world.path, "3", "orders-0"].map(str::to_owned);
    let changing = tokio::task::spawn_blocking(move || zklock(arguments));
    let written = proxy.wait_for(|one| one.op == Op::SetData);
    _ = tokio::time::timeout(PATIENCE, written).await.expect("a write");
    write_node(&world, "version 1\npin 3 orders-0\n").await;
    proxy.on_request(|_| Verdict::Forward);
    proxy.heal();
    let done = changing.await.expect("no panic");
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
    assert_eq!(stderr(&done), "zklock: nothing was changed: shard 3 is pinned to orders-0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_cannot_be_meant_are_refused_or_warned_of() {
    let world = World::new().await;
    let done = zklock(["shards", &world.path]);
    assert_eq!(code(&done), Some(1), "{}", stderr(&done));
    assert!(stderr(&done).contains("is no group of shards"), "{}", stderr(&done));
    let done = zklock(["shards", "drain", &world.path, "orders-0"]);
    assert_eq!(code(&done), Some(1), "{}", stderr(&done));
    let _members = members(&world, &THREE[..2]).await;
    settled(&world, &THREE[..2], "").await;
    let path = world.path.as_str();
    for (arguments, expected, reason) in [
        (&["pin", path, "24", "orders-0"][..], 64, "there is no shard 24: the group has 24, from 0 on"),
        (&["drain", path, ""], 64, "is empty, or begins or ends with a space"),
        (&["undrain", path, "orders-0"], 1, "nothing was changed: orders-0 is not drained"),
        (&["unpin", path, "3"], 1, "nothing was changed: shard 3 is not pinned"),
        (&["pin", path, "3", "orders-7"], 0, "orders-7 is not in the group now"),
        (&["pin", path, "3", "orders-7"], 0, "nothing was changed: shard 3 is pinned to orders-7"),
        (&["drain", path, "orders-0"], 0, ""),
        (&["pin", path, "4", "orders-0"], 0, "orders-0 is drained, so the pin does not count"),
        (&["drain", path, "orders-1"], 0, "all members are drained, so no drain counts"),
    ] {
        let done = zklock([&["shards"], arguments].concat());
        assert_eq!(code(&done), Some(expected), "{arguments:?}: {}", stderr(&done));
        assert!(stderr(&done).contains(reason), "{arguments:?}: {}", stderr(&done));
    }
    let done = zklock(["shards", "undrain", "--json", path, "orders-0"]);
    let answer: Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    assert_eq!(answer, json!({ "changed": true, "plan_version": 4, "warnings": [] }));
    let shown = settled(&world, &THREE[..2], &node(&world).await).await;
    assert!(
        shown["shards"][3]["why"].as_str().is_some_and(|why| why.contains("orders-7, which is not in the group"))
    );
    let names: BTreeMap<_, _> = shown["members"]
        .as_array()
        .expect("members")
        .iter()
        .map(|one| (one["name"].as_str(), &one["since"]))
        .collect();
    assert_eq!(names[&Some("orders-7")], &Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_shards_are_documented() {
    let world = World::new().await;
    let _members = members(&world, &THREE[..1]).await;
    let shown = settled(&world, &THREE[..1], "").await;
    let (_, section) = DOCUMENT.split_once("\n## `zklock shards --json`\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("an end");
    for fields in [&shown, &shown["members"][0], &shown["shards"][0]] {
        for field in fields.as_object().expect("an object").keys() {
            assert!(section.contains(&format!("`{field}`")), "{field}");
        }
    }
}
