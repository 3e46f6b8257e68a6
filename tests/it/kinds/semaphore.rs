//! A semaphore never grants more permits than it has. It grants them in order, and all permits of a caller at once.

use testbed::frames::Op;
use testbed::ledger::Ledger;
use testbed::proxy::{Cut, Request, Verdict};
use tokio::sync::{Barrier, watch};
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Options, Semaphore, Session};

use crate::support::{World, connect, locking, make_paths, promptly, soon, stat_until, until};

const PERMITS: u32 = 7;

fn semaphore(world: &World, permits: u32) -> Semaphore {
    Semaphore::new(&world.session, &world.path, permits).expect("a semaphore")
}

async fn other(world: &World, permits: u32) -> Semaphore {
    Semaphore::new(&world.other().await, &world.path, permits).expect("a semaphore")
}

/// Creates its paths as persistent nodes, so that a test does not count their creation.
async fn make_path(world: &World) {
    make_paths(&world.admin, &["locks", "leases"].map(|folder| format!("{}/{folder}", world.path))).await;
}

async fn wait_counts(world: &World, turns: usize, leases: usize) {
    crate::support::wait_children(&world.admin, &format!("{}/locks", world.path), turns).await;
    crate::support::wait_children(&world.admin, &format!("{}/leases", world.path), leases).await;
}

#[tokio::test]
async fn all_permits_can_be_held_at_once() {
    let world = World::new().await;
    let ledger = Ledger::with_capacity_limit(PERMITS);
    // Nobody releases before all permits are in use.
    let all = Barrier::new(PERMITS as usize);
    let workers = (0..3 * PERMITS).map(async |worker| {
        let semaphore = other(&world, PERMITS).await;
        let permit = semaphore.acquire().await.expect("held");
        let entry = ledger.enter(format!("worker {worker}"), permit.fencing_token().get());
        all.wait().await;
        entry.leave();
        permit.release().await.expect("released");
    });
    soon("three times all permits", futures_util::future::join_all(workers)).await;
    ledger.assert_clean();
    assert_eq!(ledger.grants().len(), 3 * PERMITS as usize);
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn number_of_permits_changes_while_callers_wait() {
    let world = World::new().await;
    let (limit, permits) = watch::channel(1);
    let follow = |session: &Session| {
        Semaphore::following(session, &world.path, permits.clone(), Options::new()).expect("a semaphore")
    };
    let (here, there) = (follow(&world.session), follow(&world.other().await));
    let first = here.acquire().await.expect("held");
    let mut waiting = Vec::new();
    for (turns, semaphore) in [&there, &here, &here, &there].into_iter().enumerate() {
        let semaphore = semaphore.clone();
        waiting.push(tokio::spawn(async move { semaphore.acquire().await }));
        wait_counts(&world, turns + 1, 2).await;
    }
    let mut waiting = waiting.into_iter();
    let mut next = async || {
        let granted = promptly("the next", waiting.next().expect("one more")).await;
        granted.expect("no panic").expect("held")
    };
    limit.send_replace(3);
    let two = [next().await, next().await];
    wait_counts(&world, 2, 4).await;
    assert_eq!((here.permits(), there.available_permits().await), (3, Ok(0)));
    assert!(matches!(here.acquire_many(4).await, Err(Error::InvalidInput { .. })));
    // Those in use stay in use, and two of them come back before there is room.
    limit.send_replace(2);
    first.release().await.expect("still held");
    wait_counts(&world, 2, 3).await;
    assert!(here.try_acquire().await.expect("asked").is_none());
    drop(two);
    let two = [next().await, next().await];
    wait_counts(&world, 0, 2).await;
    drop((limit, two));
    wait_counts(&world, 0, 0).await;
    assert_eq!(here.acquire_many(2).await.expect("the last number counts").count(), 2);
}

#[tokio::test]
async fn fewer_permits_count_for_a_caller_that_waits_for_its_turn() {
    let world = World::new().await;
    make_path(&world).await;
    let (limit, permits) = watch::channel(2);
    let semaphore =
        Semaphore::following(&world.session, &world.path, permits, Options::new()).expect("a semaphore");
    let both = semaphore.acquire_many(2).await.expect("held");
    let wait = || {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.acquire().await })
    };
    let first = wait();
    wait_counts(&world, 1, 3).await;
    let second = wait();
    wait_counts(&world, 2, 3).await;
    limit.send_replace(1);
    both.release().await.expect("released");
    let first = soon("the first", first).await.expect("no panic").expect("held");
    // It has its turn now, and waits with a node for its permit.
    wait_counts(&world, 1, 2).await;
    assert!(!second.is_finished());
    first.release().await.expect("released");
    drop(soon("the second", second).await.expect("no panic").expect("held"));
}

/// A session that was cut off when the number changed counts with the new one.
#[tokio::test]
async fn number_of_permits_changes_during_an_outage() {
    let world = World::new().await;
    let (limit, permits) = watch::channel(0);
    let semaphore =
        Semaphore::following(&world.session, &world.path, permits, Options::new()).expect("a semaphore");
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    wait_counts(&world, 1, 1).await;
    world.proxy.cut_now();
    limit.send_replace(1);
    drop(promptly("the permit", waiting).await.expect("no panic").expect("held"));
}

#[tokio::test]
async fn caller_for_many_is_not_overtaken_by_callers_for_one() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 3);
    let held = semaphore.acquire().await.expect("held");
    let many = other(&world, 3).await;
    let many = tokio::spawn(async move { many.acquire_many(3).await });
    wait_counts(&world, 1, 4).await;
    let one = other(&world, 3).await;
    assert!(one.try_acquire().await.expect("asked").is_none(), "somebody is ahead");
    let one = tokio::spawn(async move { one.acquire().await });
    wait_counts(&world, 2, 4).await;
    assert_eq!(semaphore.available_permits().await.expect("asked"), 0, "the two free ones are reserved");
    held.release().await.expect("released");
    let many = soon("all three", many).await.expect("no panic").expect("held");
    assert!(!one.is_finished(), "all three are in use");
    assert_eq!(semaphore.holders().await.expect("listed").len(), 3);
    many.release().await.expect("released");
    soon("the one", one).await.expect("no panic").expect("held").release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

/// As in Curator, which counts all children.
#[tokio::test]
async fn foreign_child_counts_as_a_lease() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 2);
    let held = semaphore.acquire().await.expect("held");
    wait_counts(&world, 0, 1).await;
    let stranger = format!("{}/leases/readme", world.path);
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(&stranger, b"", &open).await.expect("created");
    assert_eq!(semaphore.available_permits().await.expect("asked"), 0);
    world.proxy.reset();
    assert!(semaphore.try_acquire().await.expect("asked").is_none(), "there is no room");
    assert!(!world.proxy.requests().iter().any(Request::is_write), "it only reads");
    let waiting = semaphore.enqueue(1).await.expect("enqueued");
    assert_eq!(waiting.position(), 1, "one has to be released");
    let holders = semaphore.holders().await.expect("listed");
    assert_eq!(holders.iter().map(|one| one.token()).collect::<Vec<_>>(), [held.fencing_token()]);
    world.admin.delete(&stranger, None).await.expect("deleted");
    soon("room", waiting).await.expect("held").release().await.expect("released");
    held.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn try_for_more_than_are_free_writes_nothing() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 3);
    let held = semaphore.acquire().await.expect("held");
    wait_counts(&world, 0, 1).await;
    world.proxy.reset();
    assert!(semaphore.try_acquire_many(3).await.expect("asked").is_none());
    let ops: Vec<_> = world.proxy.requests().iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::GetChildren2], "a look at the leases");
    let two = semaphore.try_acquire_many(2).await.expect("asked").expect("two are free");
    two.release().await.expect("released");
    held.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn try_waits_for_a_caller_that_is_about_to_get_another_permit() {
    let world = World::new().await;
    let first = semaphore(&world, 3);
    let patient = connect(&world.hosts).await;
    let second = Semaphore::new(&patient, &world.path, 3).expect("a semaphore");
    make_path(&world).await;
    // It has its permit, and has not deleted its turn yet.
    let turn = format!("{}/locks/", world.path);
    let deletes_turn = move |request: &Request| request.op == Op::Delete && request.path.starts_with(&turn);
    world.proxy.on_request(move |request| if deletes_turn(request) { Verdict::Hold } else { Verdict::Forward });
    let one = first.acquire().await.expect("held");
    let other = tokio::spawn(async move { second.try_acquire().await });
    wait_counts(&world, 2, 1).await;
    assert!(!other.is_finished(), "it waits for its turn");
    world.let_pass();
    let other = soon("an answer", other).await.expect("no panic").expect("asked").expect("two are free");
    other.release().await.expect("released");
    one.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn try_does_not_wait_long_for_an_abandoned_turn() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 2);
    make_path(&world).await;
    let turn = format!("{}/locks/_c_0123456789abcdef0123456789abcdef-lock-0000000000", world.path);
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(&turn, b"", &ephemeral).await.expect("created");
    assert!(semaphore.try_acquire().await.expect("asked").is_none(), "somebody is ahead");
    wait_counts(&world, 1, 0).await;
    world.admin.delete(&turn, None).await.expect("deleted");
    let permit = semaphore.try_acquire().await.expect("asked").expect("free");
    permit.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn any_deleted_lease_of_a_waiter_is_reported() {
    let world = World::new().await;
    let held = other(&world, 2).await.acquire().await.expect("held");
    wait_counts(&world, 0, 1).await;
    for which in [0, 1] {
        let waiting = semaphore(&world, 2).enqueue(2).await.expect("enqueued");
        wait_counts(&world, 1, 3).await;
        let all = semaphore(&world, 2).contenders().await.expect("listed");
        let mine = |one: &&zookeeper_recipes::Contender| {
            one.path().ends_with("/leases") && one.session_id() == world.session.id()
        };
        let lease = all.iter().filter(mine).nth(which).expect("a lease");
        let lease = format!("{}/{}", lease.path(), lease.name());
        world.admin.delete(&lease, None).await.expect("deleted");
        let error = soon("the eviction", waiting).await.expect_err("one is gone");
        assert!(matches!(&error, Error::Evicted { node } if *node == lease), "{error:?}");
        wait_counts(&world, 0, 1).await;
    }
    held.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn leases_partly_deleted_after_a_lost_answer_are_all_created_again() {
    for which in [0, 1] {
        // In a session of its own: clean-up searches again a second after a lost answer, which would be counted.
        let world = World::new().await;
        let semaphore = semaphore(&world, 2);
        make_path(&world).await;
        let leases = format!("{}/leases", world.path);
        // A turn, a listing, and the leases, whose answer is lost. Later requests are held.
        world.proxy.reset();
        world.proxy.cut(Cut::BeforeAnswer(3));
        let later = |request: &Request| request.number > 3;
        world.proxy.on_request(move |request| if later(request) { Verdict::Hold } else { Verdict::Forward });
        let acquiring = semaphore.clone();
        let acquiring = tokio::spawn(async move { acquiring.acquire_many(2).await });
        let made = crate::support::wait_children(&world.admin, &leases, 2).await;
        until("the cut", || world.proxy.cut_fired()).await;
        world.admin.delete(&format!("{leases}/{}", made[which]), None).await.expect("deleted");
        world.let_pass();
        let permit = soon("both", acquiring).await.expect("no panic").expect("held");
        assert_eq!(permit.count(), 2);
        assert!(!permit.nodes().iter().any(|node| made.iter().any(|name| node.ends_with(name))));
        permit.release().await.expect("released");
        wait_counts(&world, 0, 0).await;
    }
}

/// A server that lags behind may still list a deleted node.
#[tokio::test]
async fn released_permit_that_appears_again_blocks_nobody() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 1);
    let permit = semaphore.acquire().await.expect("held");
    let old = permit.nodes()[0].clone();
    permit.release().await.expect("released");
    let held = other(&world, 1).await.acquire().await.expect("held");
    wait_counts(&world, 0, 1).await;
    // Between its listing of the leases and its watch on them, one is deleted and another created.
    let leases = format!("{}/leases", world.path);
    let watches = move |request: &Request| request.watch && request.path == leases;
    let held_up = watches.clone();
    world.proxy.reset();
    world.proxy.on_request(move |request| if held_up(request) { Verdict::Hold } else { Verdict::Forward });
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    soon("the watch", world.proxy.wait_for(watches)).await;
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(&old, b"", &ephemeral).await.expect("created");
    held.release().await.expect("released");
    world.let_pass();
    soon("room", waiting).await.expect("no panic").expect("held").release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn thousand_permits_are_searched_for_in_few_requests() {
    let world = World::new().await;
    let count = 1_000;
    let semaphore = semaphore(&world, count);
    make_path(&world).await;
    world.proxy.reset();
    // A turn, a listing, and the leases, whose answer is lost.
    world.proxy.cut(Cut::BeforeAnswer(3));
    let permit = soon("all", semaphore.acquire_many(count)).await.expect("held");
    assert!(world.proxy.cut_fired());
    assert_eq!(permit.count(), count);
    wait_counts(&world, 0, count as usize).await;
    permit.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
    // All that were abandoned are searched for together, behind a write, and deleted together; and once more a second later.
    let write = [(Op::Check, format!("{}/leases", world.path))];
    let searches = |requests: &[Request]| requests.iter().filter(|one| one.parts == write).count();
    soon("another search", world.proxy.wait_until(|requests| searches(requests) >= 2)).await;
    let requests = world.proxy.requests().len();
    println!("{requests} requests");
    assert!(requests < 40, "{requests} requests");
}

#[tokio::test]
async fn hold_of_thousands_looks_for_its_unwatched_nodes_in_one_request() {
    let world = World::brief().await;
    let count = 2_000;
    let semaphore = semaphore(&world, count);
    let permit = soon("all", semaphore.acquire_many(count)).await.expect("held");
    world.proxy.reset();
    let lost = permit.lost();
    let asked = |request: &Request| request.op == Op::GetEphemerals && request.answer.is_some();
    // By its first look it watches as many as it ever will.
    soon("a look", world.proxy.wait_for(asked)).await;
    world.proxy.reset();
    soon("another look", world.proxy.wait_for(asked)).await;
    let requests = world.proxy.requests().len();
    assert!(requests < 10, "{requests} requests");
    assert_eq!(permit.state(), HoldState::Held);
    let unwatched = permit.nodes().last().expect("a node");
    world.admin.delete(unwatched, None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
    wait_counts(&world, 0, 0).await;
}

async fn wait_gone(world: &World) {
    stat_until(&world.admin, &world.path, |stat| stat.is_none()).await;
}

#[tokio::test]
async fn path_removal_deletes_all_paths_of_a_semaphore() {
    let world = World::new().await;
    let options = Options::new().with_path_removal(true);
    let semaphore = Semaphore::with_options(&world.session, &world.path, 3, options).expect("a semaphore");
    let (one, two) = (semaphore.acquire().await.expect("held"), semaphore.acquire_many(2).await.expect("held"));
    one.release().await.expect("released");
    wait_counts(&world, 0, 2).await;
    two.release().await.expect("released");
    wait_gone(&world).await;
    drop(semaphore.acquire_many(3).await.expect("held"));
    wait_gone(&world).await;
}

#[tokio::test]
async fn path_removal_costs_nothing_while_somebody_holds() {
    let removing = Options::new().with_path_removal(true);
    let mut costs = Vec::new();
    for options in [Options::new(), removing] {
        let world = World::new().await;
        make_path(&world).await;
        let semaphore = Semaphore::with_options(&world.session, &world.path, 3, options).expect("a semaphore");
        let one = semaphore.acquire().await.expect("held");
        wait_counts(&world, 0, 1).await;
        world.proxy.reset();
        let two = semaphore.acquire().await.expect("held");
        wait_counts(&world, 0, 2).await;
        costs.push(world.proxy.requests().len());
        one.release().await.expect("released");
        two.release().await.expect("released");
        wait_counts(&world, 0, 0).await;
        if costs.len() == 2 {
            wait_gone(&world).await;
        }
    }
    assert_eq!(costs[0], costs[1], "its path stays");
}

/// Leases are shared by several holders, so the release of one hands nothing over.
#[tokio::test]
async fn mutex_among_the_leases_waits_for_all_of_them() {
    let world = World::with_path().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 2).expect("a semaphore");
    let first = semaphore.acquire().await.expect("a permit");
    let second = semaphore.acquire().await.expect("a permit");
    let waiting = locking(Mutex::new(&world.session, &format!("{}/leases", world.path)).expect("a mutex"));
    let leases = [&first, &second].map(|permit| permit.nodes()[0].clone());
    let watches = |lease: &str| {
        let lease = lease.to_owned();
        world.proxy.wait_for(move |one| one.watch && one.path == lease && one.answer.is_some())
    };
    soon("a watch", watches(&leases[1])).await;
    second.release().await.expect("released");
    soon("a watch on the next", watches(&leases[0])).await;
    assert!(!waiting.is_finished());
    first.release().await.expect("released");
    drop(soon("a turn", waiting).await.expect("no panic").expect("held"));
}
