//! Neighbours that may write to a lock path and mean no good. They can keep a lock from us: SECURITY.md has what each can do.
//! They cannot make two of us hold it, nor make us panic, run hot or fill our memory.

use std::time::{Duration, Instant};

use testbed::frames::Op;
use testbed::proxy::{Answer, Request, Verdict};
use zookeeper_recipes::job::JobOutcome;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};
use zookeeper_recipes::{Contender, Election, Error, HoldState, Job, Mutex};

use crate::family::FAMILY;
use crate::support::{BRIEF, ROUND_TRIP, World, at_most, locking, make_paths, soon};

/// A name may be as long as a request that creates it: a server takes requests of up to a megabyte.
const MEGABYTE: usize = 1_000_000;

async fn plant(admin: &Client, path: &str, data: &[u8]) {
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.create(path, data, &open).await.expect("created");
}

fn is_answered_listing(request: &Request) -> bool {
    matches!(request.op, Op::GetChildren | Op::GetChildren2) && matches!(request.answer, Some(Answer { .. }))
}

#[tokio::test]
async fn waiter_behind_a_name_of_a_megabyte_looks_now_and_then() {
    let world = World::brief().await;
    world.make_path().await;
    let name = format!("{}-lock-0000000000", "x".repeat(MEGABYTE));
    let node = format!("{}/{name}", world.path);
    plant(&world.admin, &node, b"").await;
    assert!(world.mutex().try_lock().await.expect("asked").is_none());
    assert_eq!(world.mutex().contenders().await.expect("listed")[0].name(), name);
    world.proxy.reset();
    let began = Instant::now();
    let mut waiting = locking(world.mutex());
    let looks = 5;
    let looked = world.proxy.wait_until(|all| all.iter().filter(|one| is_answered_listing(one)).count() >= looks);
    tokio::select! {
        ended = &mut waiting => panic!("it does not wait: {:?}", ended.expect("no panic").err()),
        () = soon("its looks", looked) => {}
    }
    // The first look is at once, and another may follow it at once.
    let least = BRIEF / 3 * u32::try_from(looks - 2).expect("a small number");
    let took = began.elapsed();
    assert!(took >= least && took <= at_most(least + BRIEF / 3 + 5 * ROUND_TRIP), "{looks} looks within {took:?}");
    world.admin.delete(&node, None).await.expect("deleted");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn long_name_of_a_stranger_takes_no_room_from_our_other_locks() {
    let world = World::brief().await;
    // Each nearly fills what a session may watch.
    let roots: Vec<_> = (0..3).map(|number| format!("{}/{number}", world.path)).collect();
    make_paths(&world.admin, &roots).await;
    let mut waiters = Vec::new();
    for root in &roots {
        let node = format!("{root}/{}-lock-0000000000", "x".repeat(95_000));
        plant(&world.admin, &node, b"").await;
        waiters.push((node, locking(Mutex::new(&world.session, root).expect("a mutex"))));
    }
    let all_wait = async {
        for root in &roots {
            crate::support::wait_children(&world.admin, root, 2).await;
        }
    };
    soon("all in their queues", all_wait).await;
    // Behind a holder of another session, so that it needs a watch.
    let path = format!("{}/{}", world.path, "y".repeat(8_000));
    let guard = Mutex::new(&world.other().await, &path).expect("a mutex").lock().await.expect("held");
    let behind = locking(Mutex::new(&world.session, &path).expect("a mutex"));
    crate::support::wait_children(&world.admin, &path, 2).await;
    guard.release().await.expect("released");
    soon("a lock elsewhere", behind)
        .await
        .expect("no panic")
        .expect("there is room")
        .release()
        .await
        .expect("released");
    for (node, waiter) in waiters {
        world.admin.delete(&node, None).await.expect("deleted");
        let guard = soon("its turn", waiter).await.expect("no panic").expect("held");
        guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn observer_sees_a_leader_with_a_name_of_a_megabyte_and_the_next_one() {
    let world = World::new().await;
    world.make_path().await;
    let name = format!("{}-latch-0000000000", "x".repeat(MEGABYTE));
    let node = format!("{}/{name}", world.path);
    plant(&world.admin, &node, b"a stranger").await;
    let election = Election::new(&world.session, &world.path).expect("an election");
    let mut observer = election.observe();
    let seen = soon("the stranger", observer.changed()).await.expect("seen");
    assert_eq!(seen.as_ref().map(Contender::identifier), Some(&b"a stranger"[..]));
    world.admin.delete(&node, None).await.expect("deleted");
    assert_eq!(soon("nobody", observer.changed()).await.expect("seen"), None);
}

#[tokio::test]
async fn numbers_that_no_server_gives_out_are_nobodys() {
    let world = World::new().await;
    world.make_path().await;
    for number in [
        "4294967296",
        "2147483648",
        "-2147483649",
        "9999999999",
        "-9999999999",
        "00000000000",
        "+000000001",
        "-000000000",
        "-0000000005",
    ] {
        plant(&world.admin, &format!("{}/x-lock-{number}", world.path), b"").await;
    }
    for kin in FAMILY.iter().filter(|kin| kin.queues[0].0.is_empty()) {
        let lock = kin.lock(&world.session, &world.path);
        let guard = soon(kin.name, lock.try_hold()).await.expect("asked").expect(kin.name);
        guard.release().await.expect("released");
        assert!(lock.contenders().await.expect("listed").is_empty(), "{}", kin.name);
    }
}

#[tokio::test]
async fn characters_that_break_a_row_cannot_be_in_a_name_and_are_escaped_in_an_identifier() {
    let world = World::new().await;
    world.make_path().await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for c in ['\0', '\n', '\r', '\u{1b}', '\u{7f}', '\u{9b}'] {
        let node = format!("{}/{c}-lock-0000000000", world.path);
        let error = world.admin.create(&node, b"", &open).await.expect_err("no server takes it");
        assert!(matches!(error, ZkError::BadArguments(_)), "{c:?}: {error:?}");
    }
    // Servers take these, which terminals show as something else.
    let name = "\u{202e}\u{2028}-lock-0000000000";
    let identifier = b"\x1b[2Jnobody\nbilling holds /lock\xff";
    plant(&world.admin, &format!("{}/{name}", world.path), identifier).await;
    let contenders = world.mutex().contenders().await.expect("listed");
    assert_eq!(
        (contenders[0].name(), contenders[0].identifier()),
        (name, &identifier[..]),
        "the values as they are"
    );
    let row = contenders[0].to_string();
    assert!(!row.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c)), "{row:?}");
    assert!(row.starts_with(r"\u{1b}[2Jnobody\nbilling holds /lock"), "{row}");
}

/// The node of `guard`'s or a waiter's guid, with the lowest number.
fn double_of(node: &str) -> String {
    let (head, _) = node.split_at(node.len() - "0123456789".len());
    format!("{head}-000000001")
}

#[tokio::test]
async fn our_guid_in_the_name_of_a_stranger_is_a_stranger() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let next = locking(world.other_mutex().await);
    world.wait_children(2).await;
    let double = double_of(&guard.nodes()[0]);
    plant(&world.admin, &double, b"").await;
    assert_eq!(guard.state(), HoldState::Held);
    // To others it is a contender, and to us: it is older than all.
    assert!(world.mutex().try_lock().await.expect("asked").is_none());
    assert!(world.other_mutex().await.try_lock().await.expect("asked").is_none());
    guard.release().await.expect("released");
    // A session deletes what carries the guid of a node that it has given up; until then the other may wait for it.
    assert!(world.mutex().try_lock_for(Duration::ZERO).await.is_ok());
    soon("the next", next).await.expect("no panic").expect("held").release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn our_guid_in_the_name_of_a_stranger_is_not_taken_for_our_lost_create() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.reset();
    world.proxy.on_request(|request| match request.op {
        Op::Create | Op::Create2 => Verdict::Hold,
        _ => Verdict::Forward,
    });
    let lock = locking(world.mutex());
    let create = soon("the create", world.proxy.wait_for(|request| request.op == Op::Create2)).await;
    // It is lost with its connection, and a stranger has read the guid.
    plant(&world.admin, &format!("{}0000000000", create.path), b"").await;
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.cut_now();
    world.proxy.heal();
    let guard = soon("the lock", lock).await.expect("no panic").expect("held");
    let (_, stat) = world.admin.get_data(&guard.nodes()[0]).await.expect("there");
    assert_eq!(stat.ephemeral_owner, world.session.id().0, "it holds by its own node");
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn name_older_than_the_holders_takes_no_lock_from_it_and_keeps_all_others_waiting() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let nodes = |numbers: [&str; 3]| numbers.map(|number| format!("{}/other-lock-{number}", world.path));
    let older = nodes(["-1073741824", "-000000002", "-000000001"]);
    // As far ahead as numbers go.
    let younger = nodes(["1073741823", "2147483647", "-2147483648"]);
    for node in older.iter().chain(&younger) {
        plant(&world.admin, node, b"").await;
    }
    assert_eq!(guard.state(), HoldState::Held);
    let behind = locking(world.other_mutex().await);
    world.wait_children(2 + older.len() + younger.len()).await;
    let mut writer = guard.check_writer().expect("held");
    writer.add_set_data(&world.path, b"by the holder", None).expect("fits");
    writer.commit().await.expect("it holds the lock");
    let token = guard.fencing_token();
    guard.release().await.expect("released");
    assert!(world.mutex().try_lock().await.expect("asked").is_none(), "the strangers are ahead");
    for node in &older {
        assert!(!behind.is_finished());
        world.admin.delete(node, None).await.expect("deleted");
    }
    let guard = soon("its turn", behind).await.expect("no panic").expect("held");
    assert!(token < guard.fencing_token());
    guard.release().await.expect("released");
    for node in &younger {
        world.admin.delete(node, None).await.expect("deleted");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn data_of_a_megabyte_in_every_node_is_read_once_a_change() {
    let world = World::new().await;
    let big = vec![b'x'; MEGABYTE];
    let guard = world.mutex().lock().await.expect("held");
    // It watches its node from now on.
    let mut asked = Box::pin(guard.revoke_requested());
    let is_read = |request: &Request| request.op == Op::GetData && request.answer.is_some();
    let reads = |requests: &[Request]| requests.iter().filter(|request| is_read(request)).count();
    let writes = 8;
    for written in 0..writes {
        tokio::select! {
            () = &mut asked => panic!("nobody has asked"),
            () = soon("a look at its node", world.proxy.wait_until(|all| reads(all) > written)) => {}
        }
        world.admin.set_data(&guard.nodes()[0], &big, None).await.expect("written");
    }
    assert_eq!(guard.state(), HoldState::Held);
    assert!(reads(&world.proxy.requests()) <= 2 * writes, "{:?}", world.proxy.requests());
    plant(&world.admin, &format!("{}/x-lock-0000000009", world.path), &big).await;
    let contenders = world.other_mutex().await.contenders().await.expect("listed");
    assert!(contenders.iter().all(|one| one.identifier().len() == MEGABYTE), "{contenders:?}");
    assert!(world.mutex().break_lock(&contenders[1]).await.expect("asked"));
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn record_of_a_stranger_keeps_a_job_from_running_and_never_panics() {
    let world = World::new().await;
    let record = format!("{}/record", world.path);
    let job = Job::new(&world.session, &world.path).expect("a job");
    let run = async |slot: &str| job.run(slot, |_| async { Ok::<_, Error>(()) }).await.expect("an outcome");
    make_paths(&world.admin, std::slice::from_ref(&record)).await;
    for (data, runs) in [
        (&b""[..], true),
        (b"\n", true),
        (b"\n\xff\xfe", true),
        (b"\0\n", true),
        (b"\xff\xff\xff", false),
        (b"\xff\n\xff", false),
        (&vec![0xf4; MEGABYTE], false),
    ] {
        world.admin.set_data(&record, data, None).await.expect("written");
        let outcome = soon("an outcome", run("2026-11-22T02:00Z")).await;
        let has_run = matches!(outcome, JobOutcome::Ran(()));
        assert_eq!(has_run, runs, "{:?}", &data[..data.len().min(9)]);
    }
}

#[tokio::test]
async fn node_that_no_session_owns_is_waited_for_until_somebody_deletes_it() {
    let world = World::new().await;
    world.make_path().await;
    plant(&world.admin, &format!("{}/x-lock--000000001", world.path), b"for ever").await;
    let waiter = locking(world.mutex());
    world.wait_children(2).await;
    // One behind it is nobody's obstacle.
    plant(&world.admin, &format!("{}/x-lock-0000000009", world.path), b"for ever").await;
    let contenders = world.mutex().contenders().await.expect("listed");
    let (first, last) = (&contenders[0], &contenders[2]);
    assert_eq!((first.session_id().0, first.is_holder(), last.session_id().0), (0, true, 0), "{contenders:?}");
    assert!(!waiter.is_finished());
    assert!(world.mutex().break_lock(first).await.expect("asked"));
    let guard = soon("its turn", waiter).await.expect("no panic").expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
    assert!(world.mutex().break_lock(last).await.expect("asked"));
    world.wait_empty().await;
}

#[tokio::test]
async fn node_with_children_cannot_be_broken_and_each_child_costs_a_look() {
    let world = World::new().await;
    world.make_path().await;
    let node = format!("{}/x-lock--000000001", world.path);
    plant(&world.admin, &node, b"").await;
    let waiter = locking(world.mutex());
    let looks = |requests: &[Request]| {
        requests.iter().filter(|one| one.watch && one.path == node && one.answer.is_some()).count()
    };
    let children = 10;
    for child in 0..children {
        // Our watch is one on children.
        soon("a look", world.proxy.wait_until(|all| looks(all) > child)).await;
        plant(&world.admin, &format!("{node}/{child}"), b"").await;
    }
    soon("a look", world.proxy.wait_until(|all| looks(all) > children)).await;
    assert_eq!(looks(&world.proxy.requests()), children + 1, "{:?}", world.proxy.requests());
    let contenders = world.mutex().contenders().await.expect("listed");
    let error = world.mutex().break_lock(&contenders[0]).await.expect_err("it has children");
    assert!(matches!(&error, Error::Client { source: ZkError::NotEmpty, path, .. } if *path == node), "{error:?}");
    for child in 0..children {
        world.admin.delete(&format!("{node}/{child}"), None).await.expect("deleted");
    }
    assert!(world.mutex().break_lock(&contenders[0]).await.expect("asked"));
    soon("its turn", waiter).await.expect("no panic").expect("held").release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn revocations_by_strangers_cost_a_read_each_and_take_no_lock() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let next = locking(world.other_mutex().await);
    let waiter = world.wait_children(2).await.remove(1);
    let mut asked = Box::pin(guard.revoke_requested());
    let is_read = |request: &Request| request.op == Op::GetData && request.answer.is_some();
    let reads = |requests: &[Request]| requests.iter().filter(|request| is_read(request)).count();
    let writes = 20;
    for written in 0..writes {
        tokio::select! {
            () = &mut asked, if written == 0 => panic!("nobody has asked"),
            () = soon("a look at its node", world.proxy.wait_until(|all| reads(all) > written)) => {}
        }
        world.admin.set_data(&guard.nodes()[0], b"__REVOKE__", None).await.expect("written");
        world.admin.set_data(&format!("{}/{waiter}", world.path), b"__REVOKE__", None).await.expect("written");
    }
    soon("the request", asked).await;
    assert!(reads(&world.proxy.requests()) <= 2 * writes, "{:?}", world.proxy.requests());
    // It is a request: the holder decides.
    assert_eq!(guard.state(), HoldState::Held);
    assert!(!next.is_finished());
    guard.release().await.expect("released");
    let guard = soon("its turn", next).await.expect("no panic").expect("held");
    soon("the request", guard.revoke_requested()).await;
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[test]
fn what_was_tried_is_in_the_table() {
    let security = include_str!("../../../SECURITY.md");
    let tests = [include_str!("hostile.rs"), include_str!("../../apart/scale/strangers.rs")];
    for line in tests.into_iter().flat_map(str::lines) {
        if let Some((name, _)) = line.strip_prefix("async fn ").and_then(|rest| rest.split_once("() {")) {
            assert!(security.contains(&format!("`{name}`")), "SECURITY.md does not have {name}");
        }
    }
}
