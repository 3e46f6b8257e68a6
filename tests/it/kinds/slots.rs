//! Numbers that one process has at a time: which one, at which cost, and who waits for it.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::proxy::Request;
use tokio::sync::watch;
use tokio::time::timeout;
use zookeeper_groups::{Slot, Slots};
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Options, Session};

use crate::support::{
    PATIENCE, ROUND_TRIP, TIMEOUT, World, at_every_frame, at_most, make_paths, pass, polled, promptly, soon,
};

fn slots(world: &World, session: &Session, count: u32) -> Slots {
    Slots::new(session, &world.path, count).expect("a valid path")
}

/// A world in which the paths of these numbers, and of the queue, exist.
async fn calm(count: u32) -> World {
    let world = World::with_path().await;
    let numbers = (0..count).map(|number| format!("{}/{number}", world.path));
    make_paths(&world.admin, &numbers.chain([format!("{}/queue-{count}", world.path)]).collect::<Vec<_>>()).await;
    world
}

async fn claim(slots: &Slots) -> Slot {
    soon("a number", slots.claim()).await.expect("claimed")
}

/// Claims this number for somebody else.
async fn hold(slots: &Slots, number: u32) -> Slot {
    claim(&slots.clone().with_preferred(number)).await
}

fn numbers(claimed: &[Slot]) -> Vec<u32> {
    let mut numbers: Vec<_> = claimed.iter().map(Slot::number).collect();
    numbers.sort_unstable();
    numbers
}

/// Waits until nothing is left of any claim.
async fn wait_free(world: &World, count: u32) {
    let numbers = (0..count).map(|number| format!("{}/{number}", world.path));
    let dirs: Vec<_> = numbers.chain([format!("{}/queue-{count}", world.path)]).collect();
    soon("no node", crate::wait::for_nodes(&world.admin, &dirs, 0)).await;
}

/// Waits until this many claims of so many numbers queue.
async fn wait_queued(world: &World, numbers: u32, count: usize) {
    crate::support::wait_children(&world.admin, &format!("{}/queue-{numbers}", world.path), count).await;
}

#[tokio::test]
async fn claim_is_the_lowest_free_number_or_the_preferred_one() {
    let world = World::new().await;
    let (here, there) = (slots(&world, &world.session, 4), slots(&world, &world.other().await, 4));
    let first = claim(&here).await;
    let second = claim(&there).await;
    let preferred = claim(&here.clone().with_preferred(3)).await;
    assert_eq!((first.number(), second.number(), preferred.number()), (0, 1, 3));
    assert!(preferred.fencing_token() > second.fencing_token());
    let taken = claim(&there.clone().with_preferred(3)).await;
    assert_eq!(taken.number(), 2, "the preferred one is taken");
    assert!(soon("an answer", here.try_claim()).await.expect("asked").is_none());
    let holders = here.holders().await.expect("listed");
    let held: Vec<_> = holders.iter().map(|(number, holder)| (*number, holder.token())).collect();
    assert_eq!(held, [&first, &second, &taken, &preferred].map(|slot| (slot.number(), slot.fencing_token())));
    let token = second.fencing_token();
    soon("the release", second.release()).await.expect("released");
    let again = soon("a number", here.try_claim()).await.expect("asked").expect("free");
    assert_eq!(again.number(), 1);
    assert!(again.fencing_token() > token, "tokens of a number grow");
    drop((first, taken, preferred, again));
    wait_free(&world, 4).await;
}

#[tokio::test]
async fn free_number_costs_one_look_and_one_create() {
    let world = calm(100).await;
    let claims = slots(&world, &world.session, 100);
    let others = slots(&world, &world.other().await, 100);
    let taken = soon("numbers", join_all((0..40).map(|number| hold(&others, number)))).await;
    assert_eq!(numbers(&taken), (0..40).collect::<Vec<_>>());
    world.proxy.hold_answers(Duration::from_millis(300));
    world.proxy.reset();
    let slot = claim(&claims).await;
    // The create and the listing of its queue go out together.
    assert_eq!((slot.number(), world.proxy.round_trips()), (40, 2));
    assert_eq!(world.ops(), [Op::MultiRead, Op::Create2, Op::GetChildren2]);
    soon("the release", slot.release()).await.expect("released");
    world.proxy.reset();
    // As of any lock that the session has seen without data and without contenders.
    let slot = soon("a number", claims.try_claim()).await.expect("asked").expect("free");
    assert_eq!((slot.number(), world.ops()), (40, vec![Op::MultiRead, Op::Multi]));
    assert_eq!(world.creates(), 1);
    world.proxy.reset();
    soon("the release", slot.release()).await.expect("released");
    assert_eq!(world.ops(), [Op::Delete]);
}

#[tokio::test]
async fn contended_try_claim_costs_one_look_and_no_write() {
    let world = calm(3).await;
    let others = slots(&world, &world.other().await, 3);
    let taken = join_all((0..3).map(|number| hold(&others, number))).await;
    world.proxy.reset();
    assert!(soon("an answer", slots(&world, &world.session, 3).try_claim()).await.expect("asked").is_none());
    assert_eq!(world.ops(), [Op::MultiRead]);
    assert_eq!(taken.len(), 3);
}

/// All choose the lowest number at first.
#[tokio::test]
async fn sixty_claims_at_once_cost_few_requests_each() {
    const CLAIMS: u32 = 60;
    let world = calm(CLAIMS).await;
    let processes = join_all((0..CLAIMS).map(|_| World::at(&world.hosts, TIMEOUT))).await;
    processes.iter().for_each(|process| process.proxy.reset());
    let fleet = processes.iter().map(|process| slots(&world, &process.session, CLAIMS));
    let claimed = soon("all", join_all(fleet.map(async |slots| slots.claim().await.expect("claimed")))).await;
    assert_eq!(numbers(&claimed), (0..CLAIMS).collect::<Vec<_>>());
    let requests: Vec<_> = processes.iter().map(|process| process.proxy.requests().len()).collect();
    println!(
        "{CLAIMS} claims at once: {} requests at most, {} in all",
        requests.iter().max().expect("one"),
        requests.iter().sum::<usize>()
    );
    assert!(requests.iter().all(|requests| *requests <= 30), "{requests:?}");
}

/// A roll-out that raises the count: the first of the queue knows the old one.
#[tokio::test]
async fn claim_of_more_numbers_does_not_wait_behind_one_of_fewer() {
    let world = World::new().await;
    let (old, new) = (slots(&world, &world.other().await, 2), slots(&world, &world.session, 4));
    let _taken = (claim(&old).await, claim(&old).await);
    let waiting = tokio::spawn(async move { old.claim().await });
    wait_queued(&world, 2, 1).await;
    assert_eq!(promptly("a number", new.claim()).await.expect("claimed").number(), 2);
    assert!(!waiting.is_finished(), "it knows two numbers");
    waiting.abort();
}

#[tokio::test]
async fn claims_that_wait_are_served_in_order_and_a_release_wakes_one() {
    let world = calm(2).await;
    let holding = slots(&world, &world.other().await, 2);
    let (first, second) = (claim(&holding).await, claim(&holding).await);
    let mut waiters = Vec::new();
    let sessions = join_all((0..3).map(|_| World::at(&world.hosts, TIMEOUT))).await;
    for (number, session) in sessions.iter().enumerate() {
        let claims = slots(&world, &session.session, 2);
        waiters.push(tokio::spawn(async move { claims.claim().await.expect("claimed") }));
        wait_queued(&world, 2, number + 1).await;
    }
    // The head watches both numbers, the others their predecessor.
    let watches = |all: &[Request]| all.iter().filter(|request| request.watch && request.answer.is_some()).count();
    soon("watches", sessions[0].proxy.wait_until(|all| watches(all) >= 2)).await;
    for waiting in &sessions[1..] {
        soon("a watch", waiting.proxy.wait_until(|all| watches(all) >= 1)).await;
    }
    let last = &sessions[2];
    last.proxy.reset();
    drop(second);
    let slot = promptly("its turn", waiters.remove(0)).await.expect("no panic");
    assert_eq!(slot.number(), 1);
    wait_queued(&world, 2, 2).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert_eq!(last.ops(), [], "nobody else is woken");
    drop(slot);
    let slot = promptly("its turn", waiters.remove(0)).await.expect("no panic");
    assert_eq!(slot.number(), 1);
    drop(first);
    let other = promptly("its turn", waiters.remove(0)).await.expect("no panic");
    assert_eq!(other.number(), 0);
    drop((slot, other));
    wait_free(&world, 2).await;
}

/// A claim that comes later queues, also if a number is free by then.
#[tokio::test]
async fn later_claim_does_not_overtake_one_that_queues() {
    let world = calm(1).await;
    let queue =
        zookeeper_recipes::Mutex::new(&world.other().await, &format!("{}/queue-1", world.path)).expect("valid");
    let ahead = queue.lock().await.expect("held");
    let claims = slots(&world, &world.session, 1);
    let mut waiting = Box::pin(claims.claim());
    tokio::select! {
        _ = &mut waiting => panic!("the number is taken"),
        () = wait_queued(&world, 1, 2) => {}
    }
    // It would wait for its turn only.
    let beside = soon("a number", claims.try_claim()).await.expect("asked").expect("free");
    drop(beside);
    drop(ahead);
    assert_eq!(promptly("its turn", waiting).await.expect("claimed").number(), 0);
}

#[tokio::test]
async fn lost_number_is_reported_and_claimed_again_by_preference() {
    let world = World::new().await;
    let claims = slots(&world, &world.session, 4).with_preferred(2);
    let slot = claim(&claims).await;
    assert_eq!(slot.number(), 2);
    let lost = slot.lost();
    world.expire().await;
    assert_eq!(soon("the loss", lost).await, Loss::Expired);
    assert!(matches!(slot.release().await, Err(Error::Lost(Loss::Expired))));
    let again = claim(&claims).await;
    assert_eq!(again.number(), 2);
    world.admin.delete(&again.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", again.lost()).await, Loss::Deleted);
}

#[tokio::test]
async fn claim_that_waits_outlives_its_session() {
    let world = World::new().await;
    let held = hold(&slots(&world, &world.other().await, 1), 0).await;
    let claims = slots(&world, &world.session, 1);
    for cut in [false, true] {
        let waits = claims.clone();
        let waiting = tokio::spawn(async move { waits.claim().await });
        wait_queued(&world, 1, 1).await;
        if cut {
            world.proxy.cut_now();
        } else {
            world.expire().await;
        }
        wait_queued(&world, 1, 1).await;
        assert!(!waiting.is_finished());
        waiting.abort();
        wait_queued(&world, 1, 0).await;
    }
    let waiting = tokio::spawn(async move { claims.claim().await });
    wait_queued(&world, 1, 1).await;
    world.expire().await;
    drop(held);
    assert_eq!(promptly("the number", waiting).await.expect("no panic").expect("claimed").number(), 0);
}

#[tokio::test]
async fn number_that_is_released_without_an_event_is_claimed() {
    let world = World::new().await;
    let held = slots(&world, &world.other().await, 2);
    let (first, _second) = (claim(&held).await, claim(&held).await);
    let claims = slots(&world, &world.session, 2);
    let waiting = tokio::spawn(async move { claims.claim().await });
    // The first look has found nothing, and the second one follows the watches.
    let is_look = |request: &&Request| request.op == Op::MultiRead && request.answer.is_some();
    soon("two looks", world.proxy.wait_until(|all| all.iter().filter(is_look).count() >= 2)).await;
    world.proxy.swallow_events();
    drop(first);
    assert_eq!(soon("the number", waiting).await.expect("no panic").expect("claimed").number(), 0);
}

#[tokio::test]
async fn number_is_claimed_and_released_through_a_cut_at_each_request() {
    let world = calm(2).await;
    let _held = hold(&slots(&world, &world.other().await, 2), 0).await;
    let claims = slots(&world, &world.session, 2);
    at_every_frame(&world.proxy, async |cut| {
        let slot = claim(&claims).await;
        assert_eq!((slot.number(), slot.state().has_ended()), (1, false), "{cut:?}");
        soon("the release", slot.release()).await.expect("released");
        crate::support::wait_children(&world.admin, &format!("{}/1", world.path), 0).await;
    })
    .await;
    wait_queued(&world, 2, 0).await;
}

#[tokio::test]
async fn claims_that_are_dropped_leave_nothing_behind() {
    let world = World::new().await;
    let claims = slots(&world, &world.session, 2);
    for polls in 1..12 {
        drop(polled(polls, claims.claim()).await);
        drop(polled(polls, claims.try_claim()).await);
    }
    wait_free(&world, 2).await;
    let held = (claim(&claims).await, claim(&claims).await);
    for polls in 1..4 {
        drop(polled(polls, claims.claim()).await);
    }
    let watches =
        |all: &[Request]| all.iter().filter(|request| request.watch && request.answer.is_some()).count() >= 2;
    tokio::select! {
        claimed = claims.claim() => panic!("all are taken, but {claimed:?}"),
        () = soon("it waits", world.proxy.wait_until(watches)) => {}
    }
    wait_queued(&world, 2, 0).await;
    drop(held);
    wait_free(&world, 2).await;
    assert_eq!(claim(&claims).await.number(), 0);
}

#[tokio::test]
async fn taken_numbers_are_none_and_silent_servers_an_error() {
    let world = World::brief().await;
    let held = hold(&slots(&world, &world.other().await, 1), 0).await;
    let claims = slots(&world, &world.session, 1);
    assert!(claims.try_claim().await.expect("asked").is_none());
    assert!(timeout(Duration::from_secs(1), claims.claim()).await.is_err());
    wait_queued(&world, 1, 0).await;
    drop(held);
    drop(claim(&claims).await);
    world.proxy.refuse();
    let error = soon("an error", claims.try_claim()).await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    world.proxy.heal();
}

/// The place in the queue is a hold, which nobody waits for.
#[tokio::test]
async fn drain_ends_claims_that_wait_at_once() {
    let world = World::new().await;
    let _held = hold(&slots(&world, &world.other().await, 1), 0).await;
    let claims = slots(&world, &world.session, 1);
    let waiting =
        [claims.clone(), claims].map(|claims| tokio::spawn(async move { claims.claim().await.map(drop) }));
    wait_queued(&world, 1, 2).await;
    let watches = |all: &[Request]| {
        all.iter().any(|request| request.watch && request.path.ends_with("/0") && request.answer.is_some())
    };
    soon("the head", world.proxy.wait_until(watches)).await;
    assert_eq!(soon("the drain", world.session.drain(2 * PATIENCE)).await, Ok(0));
    for claim in waiting {
        assert_eq!(soon("its end", claim).await.expect("no panic"), Err(Error::Closed));
    }
}

/// It does not watch all of them.
#[tokio::test]
async fn claim_of_very_many_numbers_waits_with_few_watches() {
    let world = World::new().await;
    let (many, other) = (120, world.other().await);
    let held = slots(&world, &other, many);
    let mut taken = soon("numbers", join_all((0..many).map(|number| hold(&held, number)))).await;
    let claims = slots(&world, &world.session, many);
    let waiting = tokio::spawn(async move { claims.claim().await.expect("claimed") });
    let watches =
        |all: &[Request]| all.iter().filter(|request| request.watch && request.answer.is_some()).count() >= 100;
    soon("the watches", world.proxy.wait_until(watches)).await;
    let last = taken.pop().expect("many");
    soon("the release", last.release()).await.expect("released");
    assert_eq!(promptly("the number", waiting).await.expect("no panic").number(), many - 1);
}

#[tokio::test]
async fn number_with_a_node_of_a_stranger_is_taken() {
    let world = calm(2).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(&format!("{}/0/theirs", world.path), b"", &open).await.expect("created");
    let claims = slots(&world, &world.session, 2);
    let slot = claim(&claims).await;
    assert_eq!(slot.number(), 1);
    assert!(claims.try_claim().await.expect("asked").is_none());
    assert_eq!(claims.holders().await.expect("listed").len(), 1);
}

#[tokio::test]
async fn refused_claim_is_an_error() {
    let world = calm(2).await;
    let unreadable = [Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    let path = format!("{}/1", world.path);
    world.admin.set_acl(&path, &unreadable, None).await.expect("denied");
    let error = slots(&world, &world.session, 2).claim().await.expect_err("denied");
    assert_eq!(error, Error::NoAuth { path });
    for (count, path) in [(0, "/a"), (u32::MAX, "/a"), (20_000, "/locks"), (1, "a"), (1, "/zookeeper/a")] {
        let error = Slots::new(&world.session, path, count).expect_err("invalid");
        assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    }
    let claims = slots(&world, &world.session, 1);
    soon("the close", world.session.close()).await.expect("closed");
    assert_eq!(soon("an error", claims.claim()).await.map(drop), Err(Error::Closed));
    assert_eq!(claims.try_claim().now_or_never().map(|claimed| claimed.map(drop)), Some(Err(Error::Closed)));
}

#[tokio::test]
async fn kept_number_is_claimed_again_after_a_loss_and_released_by_a_drop() {
    let world = World::brief().await;
    let other = slots(&world, &world.other().await, 2);
    let mut kept = slots(&world, &world.session, 2).keep();
    let (number, first) = soon("a number", kept.changed()).await.expect("claimed").expect("held");
    assert_eq!((number, kept.number()), (0, Some(0)));
    world.expire().await;
    assert!(soon("its loss", kept.changed()).await.expect("lost").is_none());
    assert_eq!(first.state(), HoldState::Lost(Loss::Expired));
    let (_, second) = soon("a number", kept.changed()).await.expect("claimed").expect("held");
    assert!(second.fencing_token() > first.fencing_token());
    // An operator asks for it back, so it is released. What is claimed then may be the same number.
    let (held, holder) = other.holders().await.expect("read").remove(0);
    let mutex = Mutex::new(&world.other().await, &format!("{}/{held}", world.path)).expect("a mutex");
    assert!(mutex.revoke(&holder).await.expect("asked"));
    assert_eq!(soon("the end", second.ended()).await, HoldState::Released);
    soon("a number", async { while kept.changed().await.expect("claimed").is_none() {} }).await;
    drop(kept);
    wait_free(&world, 2).await;
}

/// As services try it, without a server.
#[tokio::test]
async fn slots_work_with_local_servers() {
    let session = Session::local().await.expect("servers");
    let other = session.another().await.expect("connects");
    let [here, there] = [&session, &other].map(|session| Slots::new(session, "/ids", 2).expect("a valid path"));
    let (first, second) = (claim(&here).await, claim(&there).await);
    assert_eq!((first.number(), second.number()), (0, 1));
    assert!(here.try_claim().await.expect("asked").is_none());
    let waiting = tokio::spawn(async move { here.claim().await });
    other.expire();
    let slot = soon("the number", waiting).await.expect("no panic").expect("claimed");
    assert_eq!(slot.number(), 1);
    assert_eq!(soon("the loss", second.lost()).await, Loss::Expired);
    session.lose("/ids/0").await.expect("deleted");
    assert_eq!(soon("the loss", first.lost()).await, Loss::Deleted);
}

#[tokio::test]
async fn count_changes_while_claims_wait() {
    let world = World::new().await;
    let (count, counts) = watch::channel(0);
    let slots = Slots::following(&world.session, &world.path, counts, Options::new()).expect("a valid path");
    let wait = || {
        let slots = slots.clone();
        tokio::spawn(async move { slots.claim().await })
    };
    assert!(slots.try_claim().await.expect("asked").is_none());
    let first = wait();
    wait_queued(&world, 0, 1).await;
    count.send_replace(1);
    let first = soon("the first", first).await.expect("no panic").expect("claimed");
    let (second, third) = (wait(), wait());
    wait_queued(&world, 1, 2).await;
    count.send_replace(3);
    let both = soon("the others", join_all([second, third])).await;
    let mut held: Vec<_> = both.into_iter().map(|slot| slot.expect("no panic").expect("claimed")).collect();
    assert_eq!((numbers(&held), slots.count(), first.number()), (vec![1, 2], 3, 0));
    // The numbers beyond a smaller count stay with their holders.
    count.send_replace(1);
    assert_eq!(held[0].state(), HoldState::Held);
    assert!(slots.try_claim().await.expect("asked").is_none());
    assert_eq!(slots.holders().await.expect("listed").len(), 1);
    first.release().await.expect("released");
    held.push(claim(&slots).await);
    assert_eq!(numbers(&held), [0, 1, 2]);
    // More than the path has room for.
    count.send_replace(u32::MAX);
    held.push(claim(&slots).await);
    assert_eq!(numbers(&held), [0, 1, 2, 3]);
}

/// How long numbers rest.
const REST: Duration = Duration::from_secs(30);

/// Asserts that a number has rested since this moment, and not much longer.
#[track_caller]
fn assert_rested(since: Instant) {
    let took = since.elapsed();
    assert!(took >= REST && took <= at_most(REST + 10 * ROUND_TRIP), "{took:?}");
}

#[tokio::test]
async fn number_rests_after_its_holder_has_gone() {
    let world = World::new().await;
    let resting = |session: &Session| slots(&world, session, 2).with_rest(REST);
    let (here, there) = (resting(&world.session), resting(&world.other().await));
    let first = claim(&here).await;
    let released = Instant::now();
    first.release().await.expect("released");
    let second = claim(&there).await;
    assert_eq!(second.number(), 1, "it was never used");
    assert!(there.try_claim().await.expect("asked").is_none(), "the other one rests");
    let again = claim(&there).await;
    assert_eq!(again.number(), 0);
    assert_rested(released);
    // Nobody knows when this holder has gone.
    drop(again);
    pass(REST / 2).await;
    let asked = Instant::now();
    let third = claim(&here).await;
    assert_rested(asked);
    // The one that has rested longest is claimed, and at once if that is long enough.
    third.release().await.expect("released");
    pass(REST / 2).await;
    second.release().await.expect("released");
    pass(REST / 2).await;
    let rested = there.try_claim().await.expect("asked").expect("it has rested");
    assert_eq!(rested.number(), 0);
    assert!(there.try_claim().await.expect("asked").is_none());
}

/// A claim whose session ends while its number rests claims again.
#[tokio::test]
async fn claim_outlives_its_session_while_its_number_rests() {
    let world = World::new().await;
    let slots = slots(&world, &world.session, 1).with_rest(REST);
    let released = Instant::now();
    claim(&slots).await.release().await.expect("released");
    let waiting = tokio::spawn(async move { slots.claim().await });
    crate::support::wait_children(&world.admin, &format!("{}/0", world.path), 1).await;
    world.expire().await;
    let slot = soon("the number", waiting).await.expect("no panic").expect("claimed");
    assert!(released.elapsed() >= REST, "{:?}", released.elapsed());
    assert_eq!(slot.state(), HoldState::Held);
}

/// Nobody knows when its holder has gone. Claims that are given up, and those that do not wait, let it rest all the same.
#[tokio::test]
async fn rest_goes_on_while_claims_are_given_up() {
    for waits in [false, true] {
        let world = World::new().await;
        let slots = slots(&world, &world.session, 1).with_rest(REST);
        drop(claim(&slots).await);
        let asked = Instant::now();
        let claimed = async || match waits {
            true => timeout(REST / 2, slots.claim()).await.ok(),
            false => slots.try_claim().await.transpose(),
        };
        while claimed().await.transpose().expect("asked").is_none() {
            pass(REST / 4).await;
        }
        let took = asked.elapsed();
        assert!(took >= REST && took <= at_most(2 * REST), "{took:?}");
    }
}

#[tokio::test]
async fn number_that_has_rested_is_taken_before_the_preferred_one() {
    let world = World::new().await;
    let slots = slots(&world, &world.session, 3).with_rest(REST);
    drop(claim(&slots).await);
    let tried =
        slots.clone().with_preferred(0).try_claim().await.expect("asked").expect("one that was never used");
    let mut kept = slots.keep();
    let (number, monitor) = promptly("a number", kept.changed()).await.expect("claimed").expect("a number");
    assert_eq!((tried.number(), number), (1, 2));
    // The work with a number may go on until its release, so the rest of a kept one begins later.
    let operator = Mutex::new(&world.session, &format!("{}/2", world.path)).expect("a mutex");
    operator.revoke(&operator.contenders().await.expect("listed")[0]).await.expect("asked");
    soon("the release", monitor.ended()).await;
    let ended = Instant::now();
    drop((kept, tried));
    wait_free(&world, 3).await;
    let claims = join_all((0..3).map(|_| claim(&slots))).await;
    assert_eq!(numbers(&claims), [0, 1, 2]);
    assert!(ended.elapsed() >= REST);
}

/// Eight sessions claim at once: nobody waits for a number that rests, because others have rested.
#[tokio::test]
async fn claims_that_meet_take_numbers_that_have_rested() {
    let world = World::new().await;
    let mine = slots(&world, &world.session, 24).with_rest(REST);
    let mut used = Vec::new();
    for _ in 0..16 {
        used.push(claim(&mine).await);
    }
    drop(used);
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(slots(&world, &world.other().await, 24).with_rest(REST));
    }
    let claims = join_all(sessions.iter().map(|slots| promptly("a number", slots.claim()))).await;
    let claims: Vec<_> = claims.into_iter().map(|slot| slot.expect("claimed")).collect();
    assert_eq!(numbers(&claims), (16..24).collect::<Vec<_>>());
}

#[tokio::test]
async fn count_that_is_sent_again_keeps_the_places() {
    let world = World::new().await;
    let (count, counts) = watch::channel(1);
    let slots = Slots::following(&world.session, &world.path, counts, Options::new()).expect("a valid path");
    let held = claim(&slots).await;
    let first = tokio::spawn(async move { slots.claim().await });
    wait_queued(&world, 1, 1).await;
    let other = Slots::new(&world.other().await, &world.path, 1).expect("a valid path");
    let second = tokio::spawn(async move { other.claim().await });
    wait_queued(&world, 1, 2).await;
    count.send_replace(1);
    pass(Duration::from_secs(1)).await;
    drop(held);
    drop(soon("the first", first).await.expect("no panic").expect("claimed"));
    drop(soon("the second", second).await.expect("no panic").expect("claimed"));
}
