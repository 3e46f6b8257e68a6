//! Who is in a group: names, data and changes, over sessions, outages and lost events.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use testbed::frames::Op;
use testbed::proxy::{Cut, Request, Verdict};
use zookeeper_groups::{
    Members, Membership,
    members::{Member, MemberChanges},
};
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};
use zookeeper_recipes::{Error, Session};

use crate::support::{ROUND_TRIP, World, at_every_frame, at_most, pass, polled, promptly, renewed, soon, until};

/// Longer than a test.
const LONG: Duration = Duration::from_secs(600);

fn group(world: &World, session: &Session) -> Members {
    Members::new(session, &world.path).expect("a valid path")
}

async fn join(members: &Members, name: &str) -> Membership {
    soon("a member", members.join(name, name.as_bytes())).await.expect("joined")
}

/// Members from another session, which no test counts.
async fn fleet(world: &World, count: usize) -> (Members, Vec<Membership>) {
    let members = group(world, &world.other().await);
    let names: Vec<_> = (0..count).map(|number| format!("host-{number:03}")).collect();
    let joined = join_all(names.iter().map(|name| join(&members, name))).await;
    (members, joined)
}

fn names(members: &[Member]) -> Vec<&str> {
    members.iter().map(Member::name).collect()
}

async fn changed(changes: &mut MemberChanges) -> Vec<Member> {
    promptly("a change", changes.changed()).await.expect("seen")
}

/// Waits until a set with these names is returned.
async fn has(changes: &mut MemberChanges, wanted: &[&str]) -> Vec<Member> {
    promptly("the set", changes.wait_for(|members| names(members) == wanted)).await.expect("seen")
}

fn is_watch(request: &Request) -> bool {
    request.watch && request.answer.is_some()
}

/// Waits until the task of a group has set its watch, and has read what it had to.
async fn settled(world: &World, listings: usize) {
    let is_seen = |all: &[Request]| {
        all.iter().filter(|request| is_watch(request)).count() >= listings
            && all.iter().all(|request| request.answer.is_some())
    };
    soon("the looks", world.proxy.wait_until(is_seen)).await;
}

#[tokio::test]
async fn members_are_seen_by_all_with_name_and_data_until_they_leave() {
    let world = World::new().await;
    let (here, there) = (group(&world, &world.session), group(&world, &world.other().await));
    let (mut seen_here, mut seen_there) = (here.changes(), there.changes());
    assert_eq!(changed(&mut seen_here).await, []);
    let first = join(&here, "orders-0").await;
    let second = join(&there, "eu/west").await;
    for changes in [&mut seen_here, &mut seen_there] {
        let set = has(changes, &["eu/west", "orders-0"]).await;
        assert_eq!(set[1].data(), b"orders-0");
        assert_eq!(set[1].session_id(), world.session.id());
        assert_eq!(Some(set[1].generation()), first.generation());
        assert!(set[1].since() <= set[0].since(), "{set:?}");
    }
    assert_eq!(names(&here.members().await.expect("read")), ["eu/west", "orders-0"]);
    soon("its end", second.leave()).await.expect("left");
    assert_eq!(names(&there.members().await.expect("read")), ["orders-0"]);
    has(&mut seen_here, &["orders-0"]).await;
    drop(first);
    has(&mut seen_there, &[]).await;
}

#[tokio::test]
async fn change_costs_one_listing_and_a_read_of_what_is_new_for_all_subscribers() {
    let world = World::with_path().await;
    let (_others, joined) = fleet(&world, 40).await;
    let observing = group(&world, &world.session);
    let mut subscribers = [observing.changes(), observing.clone().changes(), observing.changes()];
    for changes in &mut subscribers {
        soon("all", changes.wait_for(|members| members.len() == 40)).await.expect("seen");
    }
    assert_eq!(world.ops(), [Op::GetChildren2, Op::MultiRead]);
    world.proxy.reset();
    let another = group(&world, &world.other().await);
    let late = join(&another, "late").await;
    for changes in &mut subscribers {
        soon("it", changes.wait_for(|members| members.len() == 41)).await.expect("seen");
    }
    let (ops, reads) = (world.ops(), world.proxy.requests().iter().map(|request| request.parts.len()).max());
    assert_eq!((&ops[..], reads), (&[Op::GetChildren2, Op::MultiRead][..], Some(1)));
    world.proxy.reset();
    soon("its end", late.leave()).await.expect("left");
    for changes in &mut subscribers {
        soon("it", changes.wait_for(|members| members.len() == 40)).await.expect("seen");
    }
    assert_eq!(world.ops(), [Op::GetChildren2]);
    assert_eq!(joined.len(), 40);
}

#[tokio::test]
async fn very_many_members_are_read_in_few_requests() {
    let world = World::with_path().await;
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let paths: Vec<_> = (0..600).map(|number| format!("{}/host-{number:03}", world.path)).collect();
    let created = join_all(paths.iter().map(|path| world.admin.create(path, path.as_bytes(), &ephemeral))).await;
    assert!(created.iter().all(Result::is_ok));
    let members = group(&world, &world.session).members().await.expect("read");
    let is_right =
        |(member, path): (&Member, &String)| member.data() == path.as_bytes() && path.ends_with(member.name());
    assert!(members.len() == 600 && members.iter().zip(&paths).all(is_right));
    assert_eq!(world.ops(), [Op::GetChildren2, Op::MultiRead, Op::MultiRead]);
}

/// The nodes of all go with one session, in one transaction.
#[tokio::test]
async fn end_of_a_process_with_many_members_is_one_change_for_the_others() {
    let world = World::with_path().await;
    let lost = World::with_path().await;
    let members = Members::new(&lost.session, &world.path).expect("a valid path");
    let many: Vec<_> = (0..20).map(|number| format!("host-{number}")).collect();
    let joined = join_all(many.iter().map(|name| join(&members, name))).await;
    let mut changes = group(&world, &world.session).changes();
    soon("all", changes.wait_for(|members| members.len() == 20)).await.expect("seen");
    world.proxy.reset();
    lost.kill().await;
    assert_eq!(changed(&mut changes).await, []);
    assert!(world.listings() <= 2, "{:?}", world.ops());
    assert_eq!(joined.len(), 20);
}

#[tokio::test]
async fn taken_name_is_an_error_that_names_its_owner() {
    let world = World::new().await;
    let other = world.other().await;
    let (here, there) = (group(&world, &world.session), group(&world, &other));
    let owner = soon("a member", there.join("orders-0", b"10.0.0.7")).await.expect("joined");
    for members in [&here, &there, &group(&world, &other)] {
        let error = soon("a refusal", members.join("orders-0", b"10.0.0.8")).await.expect_err("taken");
        let Error::NameTaken { path, session, data } = &error else { panic!("{error:?}") };
        assert_eq!(
            (path.as_str(), *session, &**data),
            (&*format!("{}/orders-0", world.path), other.id(), &b"10.0.0.7"[..])
        );
        assert!(error.to_string().contains("10.0.0.7"), "{error}");
        assert!(error.is_transient());
    }
    assert!(owner.is_joined(), "the refused ones have left it alone");
    let mut waiting = Box::pin(here.join_when_free("orders-0", b"10.0.0.8"));
    assert!(polled(1, &mut waiting).await.is_none());
    soon("its end", owner.leave()).await.expect("left");
    let next = soon("its name", waiting).await.expect("joined");
    let members = here.members().await.expect("read");
    assert_eq!((members[0].data(), Some(members[0].generation())), (&b"10.0.0.8"[..], next.generation()));
}

/// The answers to the creates of both are lost, so neither knows whose the node is.
#[tokio::test]
async fn two_memberships_whose_creates_were_lost_never_share_a_node() {
    let world = World::with_path().await;
    let members = group(&world, &world.session);
    let _first = join(&members, "first").await;
    world.proxy.reset();
    // No answer to a create comes before the cut.
    world.proxy.hold_answers(Duration::from_millis(200));
    world.proxy.cut(Cut::AfterRequest(4));
    let both = [(); 2].map(|()| members.join_when_free("orders-0", b"").boxed());
    let (one, _, mut others) = promptly("one of them", select_all(both)).await;
    let one = one.expect("joined");
    world.proxy.hold_answers(Duration::ZERO);
    let generation = one.generation().expect("joined");
    for _ in 0..20 {
        soon("a read", members.members()).await.expect("read");
    }
    assert!(polled(1, &mut others[0]).await.is_none(), "both have the node {generation}");
    promptly("its end", one.leave()).await.expect("left");
    let other = promptly("the other", others.remove(0)).await.expect("joined");
    assert!(other.generation() > Some(generation));
}

#[tokio::test]
async fn renewal_within_the_grace_is_no_change_and_has_another_generation() {
    let (world, renewing) = (World::new().await, World::new().await);
    let theirs = Members::new(&renewing.session, &world.path).expect("a valid path");
    let member = join(&theirs, "orders-0").await;
    let graced = group(&world, &world.session).with_grace(LONG);
    let (mut calm, mut strict) = (graced.changes(), group(&world, &world.session).changes());
    let before = has(&mut calm, &["orders-0"]).await;
    has(&mut strict, &["orders-0"]).await;
    let old = renewing.session.id();
    renewing.expire().await;
    renewed(&renewing.session, old).await;
    soon("it is back", member.joined()).await.expect("joined");
    let is_back = |members: &[Member]| members.iter().any(|member| member.generation() > before[0].generation());
    let after = soon("the new generation", strict.wait_for(is_back)).await.expect("seen");
    assert_eq!(Some(after[0].generation()), member.generation());
    // Those with a grace have seen it, too, and were not woken.
    let other = join(&graced, "orders-1").await;
    let set = changed(&mut calm).await;
    assert_eq!(names(&set), ["orders-0", "orders-1"]);
    assert_eq!(set[0].generation(), after[0].generation());
    drop(other);
}

/// Nobody has looked while it was away.
#[tokio::test]
async fn member_that_was_away_between_two_looks_is_a_change_without_a_grace() {
    let world = World::new().await;
    let (others, mut joined) = fleet(&world, 2).await;
    let mut changes = group(&world, &world.session).changes();
    let before = has(&mut changes, &["host-000", "host-001"]).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.proxy.refuse();
    soon("its end", joined.remove(0).leave()).await.expect("left");
    let _again = join(&others, "host-000").await;
    // It goes unnoticed, as does a node that is no member.
    world.admin.create(&format!("{}/short", world.path), b"", &open).await.expect("created");
    world.admin.delete(&format!("{}/short", world.path), None).await.expect("deleted");
    world.proxy.heal();
    let after = changed(&mut changes).await;
    assert_eq!(names(&after), names(&before));
    assert!(after[0].generation() > before[0].generation() && after[1] == before[1], "{before:?} {after:?}");
}

#[tokio::test]
async fn member_that_has_gone_is_removed_after_the_grace_and_not_before() {
    let world = World::new().await;
    let (_others, mut joined) = fleet(&world, 2).await;
    let grace = Duration::from_secs(2);
    let mut changes = group(&world, &world.session).with_grace(grace).changes();
    has(&mut changes, &["host-000", "host-001"]).await;
    let began = Instant::now();
    soon("its end", joined.remove(0).leave()).await.expect("left");
    let is_away = |members: &[Member]| members.iter().map(Member::is_away).eq([true, false]);
    soon("its grace", changes.wait_for(is_away)).await.expect("seen");
    assert_eq!(names(&changed(&mut changes).await), ["host-001"]);
    let took = began.elapsed();
    // It has a turn five times a second.
    assert!(took >= grace && took <= at_most(grace + Duration::from_millis(200) + ROUND_TRIP), "{took:?}");
}

/// Its grace ends while nobody answers, and then it is back.
#[tokio::test]
async fn nobody_is_removed_by_a_clock_alone() {
    let world = World::new().await;
    let (others, mut joined) = fleet(&world, 2).await;
    let grace = Duration::from_millis(500);
    let graced = group(&world, &world.session).with_grace(grace);
    let mut changes = graced.changes();
    has(&mut changes, &["host-000", "host-001"]).await;
    world.proxy.reset();
    soon("its end", joined.remove(0).leave()).await.expect("left");
    settled(&world, 1).await;
    world.proxy.refuse();
    let again = join(&others, "host-000").await;
    pass(2 * grace).await;
    assert!(changes.changed().now_or_never().is_none());
    world.proxy.heal();
    // The next change is another request.
    let _third = join(&others, "third").await;
    assert_eq!(names(&changed(&mut changes).await), ["host-000", "host-001", "third"]);
    assert!(again.is_joined());
}

#[tokio::test]
async fn change_of_data_is_a_change_of_the_set_and_no_rejoin() {
    let world = World::with_path().await;
    let (_others, joined) = fleet(&world, 10).await;
    let mut changes = group(&world, &world.session).changes();
    let before = soon("all", changes.wait_for(|members| members.len() == 10)).await.expect("seen");
    world.proxy.reset();
    soon("the change", joined[3].set(b"draining")).await.expect("written");
    let after = changed(&mut changes).await;
    assert_eq!((after[3].data(), after[3].generation()), (&b"draining"[..], before[3].generation()));
    assert_eq!(after.iter().filter(|member| !before.contains(member)).count(), 1);
    assert_eq!(world.ops(), [Op::GetChildren2, Op::MultiRead]);
    assert_eq!(world.children().await.len(), 10, "nothing is left of the change");
    // The grace is for members that were away.
    let mut graced = group(&world, &world.session).with_grace(LONG).changes();
    soon("all", graced.wait_for(|members| members.len() == 10)).await.expect("seen");
    soon("the change", joined[3].set(b"drained")).await.expect("written");
    assert_eq!(changed(&mut graced).await[3].data(), b"drained");
}

#[tokio::test]
async fn data_that_changes_all_the_time_is_written_and_read_five_times_a_second() {
    let world = World::with_path().await;
    let writing = World::with_path().await;
    let members = Members::new(&writing.session, &world.path).expect("a valid path");
    let member = join(&members, "orders-0").await;
    let mut changes = group(&world, &world.session).changes();
    has(&mut changes, &["orders-0"]).await;
    for side in [&world, &writing] {
        side.proxy.reset();
    }
    let (mut sets, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(3) {
        assert!(polled(1, member.set(format!("{sets}").as_bytes())).await.is_none());
        tokio::task::yield_now().await;
        sets += 1;
    }
    let turns = began.elapsed().as_secs_f64() * 5.0 + 2.0;
    let counts = [&world, &writing].map(|side| u32::try_from(side.proxy.requests().len()).expect("few"));
    println!("{sets} changes cost {counts:?} requests in {turns} turns");
    assert!(sets > 100 && counts.iter().all(|count| f64::from(*count) <= 2.0 * turns), "{counts:?}");
    soon("the last", member.set(b"last")).await.expect("written");
    soon("it", changes.wait_for(|members| members[0].data() == b"last")).await.expect("seen");
}

#[tokio::test]
async fn change_whose_event_is_never_sent_is_seen_by_a_slow_look() {
    let world = World::new().await;
    let (others, joined) = fleet(&world, 2).await;
    let mut changes = group(&world, &world.session).changes();
    has(&mut changes, &["host-000", "host-001"]).await;
    world.proxy.swallow_events();
    let _third = join(&others, "third").await;
    // A stranger's write announces nothing, either.
    world.admin.set_data(&format!("{}/host-000", world.path), b"by hand", None).await.expect("written");
    let set = soon("it", changes.wait_for(|members| members.len() == 3)).await.expect("seen");
    assert_eq!(set[0].data(), b"by hand");
    assert_eq!(joined.len(), 2);
}

#[tokio::test]
async fn set_is_right_after_an_outage_and_stale_meanwhile() {
    let world = World::new().await;
    let (others, mut joined) = fleet(&world, 2).await;
    let members = group(&world, &world.session);
    let mut changes = members.changes();
    has(&mut changes, &["host-000", "host-001"]).await;
    let old = world.session.id();
    world.expire_unseen(&world.session).await;
    soon("its end", joined.remove(0).leave()).await.expect("left");
    let _third = join(&others, "third").await;
    assert!(changes.changed().now_or_never().is_none());
    until("the loss of the connection", || !world.session.state().is_connected()).await;
    world.proxy.heal();
    renewed(&world.session, old).await;
    has(&mut changes, &["host-001", "third"]).await;
    world.proxy.cut_now();
    let _fourth = join(&others, "fourth").await;
    has(&mut changes, &["fourth", "host-001", "third"]).await;
}

#[tokio::test]
async fn nodes_that_are_no_members_are_left_out_and_left_alone() {
    let world = World::new().await;
    world.make_path().await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let path = format!("{}/config", world.path);
    world.admin.create(&path, b"", &open).await.expect("created");
    world.admin.create(&format!("{path}/below"), b"", &open).await.expect("created");
    let members = group(&world, &world.session);
    let mut changes = members.changes();
    assert_eq!(changed(&mut changes).await, []);
    let error = soon("a refusal", members.join("config", b"")).await.expect_err("taken");
    assert!(matches!(&error, Error::NameTaken { session, .. } if session.0 == 0), "{error:?}");
    let _mine = join(&members, "orders-0").await;
    has(&mut changes, &["orders-0"]).await;
    assert_eq!(names(&members.members().await.expect("read")), ["orders-0"]);
}

#[tokio::test]
async fn path_that_comes_and_goes_is_an_empty_group() {
    let world = World::new().await;
    let members = group(&world, &world.session);
    let mut changes = members.changes();
    assert_eq!(changed(&mut changes).await, []);
    assert_eq!(members.members().await.expect("read"), []);
    for _ in 0..3 {
        let mine = join(&members, "orders-0").await;
        has(&mut changes, &["orders-0"]).await;
        soon("its end", mine.leave()).await.expect("left");
        has(&mut changes, &[]).await;
        crate::support::remove_path(&world.admin, &world.path).await;
    }
}

async fn set_acl(admin: &Client, path: &str, permissions: Permission) {
    admin.set_acl(path, &[Acl::new(permissions, AuthId::anyone())], None).await.expect("set");
}

#[tokio::test]
async fn refused_look_is_an_error_once_and_put_right() {
    let world = World::new().await;
    let (_others, joined) = fleet(&world, 2).await;
    let members = group(&world, &world.session).with_grace(LONG);
    let mut changes = members.changes();
    has(&mut changes, &["host-000", "host-001"]).await;
    for (denied, node) in [("", world.path.clone()), ("/host-001", format!("{}/host-001", world.path))] {
        set_acl(
            &world.admin,
            &format!("{}{denied}", world.path),
            Permission::WRITE | Permission::CREATE | Permission::DELETE | Permission::ADMIN,
        )
        .await;
        soon("a change", joined[0].set(denied.as_bytes())).await.expect("written");
        let error = soon("a refusal", changes.changed()).await.expect_err("denied");
        assert_eq!(error, Error::NoAuth { path: node.clone() });
        // It is no loop without a pause.
        assert!(changes.changed().now_or_never().is_none());
        assert_eq!(members.members().await.expect_err("denied"), Error::NoAuth { path: node });
        set_acl(&world.admin, &format!("{}{denied}", world.path), Permission::ALL).await;
        let seen = |members: &[Member]| members.len() == 2 && members[0].data() == denied.as_bytes();
        soon("the set", async { while changes.wait_for(seen).await.is_err() {} }).await;
    }
}

#[tokio::test]
async fn refused_join_is_an_error() {
    let world = World::brief().await;
    world.make_path().await;
    set_acl(&world.admin, &world.path, Permission::READ | Permission::ADMIN).await;
    let members = group(&world, &world.session);
    let error = soon("a refusal", members.join("orders-0", b"")).await.expect_err("denied");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    let error = members.join("orders-0", &vec![0; 1 << 20]).await.expect_err("too long");
    assert!(matches!(error, Error::InvalidInput { what: "data", .. }), "{error:?}");
    Members::new(&world.session, "/zookeeper/members").expect_err("it belongs to the servers");
    world.proxy.refuse();
    let error = soon("no answer", members.join("orders-0", b"")).await.expect_err("no server");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    world.proxy.heal();
}

#[tokio::test]
async fn dropped_futures_leave_nothing_behind() {
    let world = World::new().await;
    world.make_path().await;
    let members = group(&world, &world.session);
    let mut changes = members.changes();
    for polls in 1..8 {
        drop(polled(polls, members.join("orders-0", b"")).await);
        let next = soon("the name", members.join_when_free("orders-0", b"")).await.expect("joined");
        drop(polled(1, changes.changed()).await);
        drop(polled(polls, next.leave()).await);
        world.wait_empty().await;
    }
    has(&mut changes, &[]).await;
}

#[tokio::test]
async fn changes_end_with_the_session_and_members_leave() {
    let world = World::new().await;
    let members = group(&world, &world.session);
    let _mine = join(&members, "orders-0").await;
    let mut changes = members.changes();
    has(&mut changes, &["orders-0"]).await;
    soon("the close", world.session.close()).await.expect("closed");
    world.wait_empty().await;
    let ended = async { while changes.changed().await != Err(Error::Closed) {} };
    soon("the end", ended).await;
    assert_eq!(members.changes().changed().await, Err(Error::Closed));
}

/// No lost answer makes a member take its own node for another one's, or leaves it behind.
#[tokio::test]
async fn member_joins_changes_and_leaves_through_a_cut_at_each_request() {
    let world = World::with_path().await;
    let members = group(&world, &world.session);
    at_every_frame(&world.proxy, async |cut| {
        let round = format!("{cut:?}");
        let mut changes = group(&world, &world.session).changes();
        assert_eq!(changed(&mut changes).await, []);
        let mine = promptly(&round, members.join("orders-0", b"first")).await.expect(&round);
        promptly(&round, mine.set(b"second")).await.expect(&round);
        let is_second = |members: &[Member]| members.iter().any(|member| member.data() == b"second");
        let seen = promptly(&round, changes.wait_for(is_second)).await.expect(&round);
        assert_eq!(Some(seen[0].generation()), mine.generation(), "{round}");
        promptly(&round, mine.leave()).await.expect(&round);
        assert_eq!(world.children().await, Vec::<String>::new(), "{round}");
    })
    .await;
}

/// The task ends with the last subscriber, so nothing is sent.
#[tokio::test]
async fn nobody_looks_without_a_subscriber() {
    let world = World::with_path().await;
    let (others, _joined) = fleet(&world, 1).await;
    let members = group(&world, &world.session);
    let (mut first, second) = (members.changes(), members.changes());
    has(&mut first, &["host-000"]).await;
    drop((first, second));
    // The watch is removed before the next request.
    members.members().await.expect("read");
    world.proxy.reset();
    let _second = join(&others, "second").await;
    members.members().await.expect("read");
    assert!(world.proxy.requests().iter().all(|request| !request.watch), "{:?}", world.ops());
    has(&mut members.changes(), &["host-000", "second"]).await;
}

/// Many processes under faults: soon after the last fault all see the same set, and it is the servers'. A look that no event
/// triggers would be 20 s late.
#[tokio::test]
async fn all_see_the_set_of_the_servers_soon_after_the_last_fault() {
    let world = World::new().await;
    let processes = join_all((0..5).map(|_| World::new())).await;
    let mut fleet = Vec::new();
    for (number, process) in processes.iter().enumerate() {
        let members = Members::new(&process.session, &world.path).expect("a valid path");
        fleet.push((join(&members, &format!("orders-{number}")).await, members.changes()));
    }
    let mut random = fastrand::Rng::with_seed(44);
    for _ in 0..6 {
        for process in &processes {
            match random.u8(..4) {
                0 => process.proxy.cut_now(),
                1 => process.proxy.refuse(),
                2 => process.expire().await,
                _ => {}
            }
        }
        let leaves = random.usize(..fleet.len());
        let (member, changes) = fleet.remove(leaves);
        drop(member);
        for process in &processes {
            process.proxy.heal();
        }
        let members = Members::new(&processes[leaves].session, &world.path).expect("a valid path");
        let name = format!("orders-{leaves}");
        fleet
            .insert(leaves, (soon("it", members.join_when_free(&name, b"again")).await.expect("joined"), changes));
    }
    let mut observer = group(&world, &world.session).changes();
    let all = soon("all", observer.wait_for(|members| members.len() == fleet.len())).await.expect("seen");
    let servers = group(&world, &world.session).members().await.expect("read");
    assert_eq!(all, servers);
    let began = Instant::now();
    for (_, changes) in &mut fleet {
        let seen = soon("the same set", changes.wait_for(|members| members == servers)).await.expect("seen");
        assert_eq!(seen, servers);
    }
    assert!(began.elapsed() < at_most(Duration::from_secs(1)), "{:?}", began.elapsed());
}

/// The servers keep the session, and answer no request for longer than its timeout.
#[tokio::test]
async fn member_that_was_dropped_while_servers_were_slow_leaves_when_they_answer_again() {
    let world = World::brief().await;
    let members = group(&world, &world.session);
    let mut changes = group(&world, &world.other().await).changes();
    let (mine, other) = (join(&members, "orders-0").await, join(&members, "orders-1").await);
    has(&mut changes, &["orders-0", "orders-1"]).await;
    world.proxy.on_request(|_| Verdict::Hold);
    drop(mine);
    // It has begun.
    assert!(polled(1, other.leave()).await.is_none());
    for _ in 0..2 {
        // Each takes a session timeout.
        let error = soon("an answer", members.members()).await.expect_err("no server answers");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    world.let_pass();
    has(&mut changes, &[]).await;
}
