//! One leader among candidates, one after another, and observers of them.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::{Closing, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode, Permission};
use zookeeper_recipes::{Contender, Election, Error, HoldState, Loss, Observer, Options, Session};

use super::candidate::Candidate;
use crate::support::{BRIEF, ROUND_TRIP, World, at_every_frame, at_most, polled, remove_path, soon};

fn election(session: &Session, path: &str, name: &str) -> Election {
    Election::with_options(session, path, Options::new().with_identifier(name)).expect("an election")
}

/// A candidate in a session of its own.
async fn candidate(world: &World, name: &str) -> Election {
    election(&world.other().await, &world.path, name)
}

async fn changed(observer: &mut Observer) -> Option<Contender> {
    soon("another leader", observer.changed()).await.expect("observed")
}

fn text(leader: &Option<Contender>) -> Option<&str> {
    leader.as_ref().map(|leader| str::from_utf8(leader.identifier()).expect("text"))
}

#[tokio::test]
async fn candidate_has_curators_node_name_and_its_identifier() {
    let world = World::new().await;
    let term = election(&world.session, &world.path, "10.0.0.7:8080").campaign().await.expect("leads");
    let name = world.wait_children(1).await.remove(0);
    let guid = name.strip_prefix("_c_").and_then(|name| name.strip_suffix("-latch-0000000000")).expect(&name);
    assert_eq!(guid.len(), 36, "{name}");
    assert!(guid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(world.admin.get_data(&term.nodes()[0]).await.expect("read").0, b"10.0.0.7:8080");
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn leader_is_returned_as_the_servers_have_it() {
    let world = World::new().await;
    let standing = election(&world.session, &world.path, "here");
    assert_eq!(standing.leader().await.expect("asked"), None, "on a path that does not exist");
    let term = standing.campaign().await.expect("leads");
    let other = candidate(&world, "elsewhere").await;
    let waiting = other.enqueue().await.expect("enqueued");
    for asked in [&standing, &other] {
        let leader = asked.leader().await.expect("asked").expect("somebody leads");
        assert_eq!(format!("{}/{}", leader.path(), leader.name()), term.nodes()[0]);
        assert_eq!((leader.kind(), leader.is_holder()), (ContenderKind::Latch, true));
        assert_eq!((leader.token(), leader.session_id()), (term.fencing_token(), world.session.id()));
        assert_eq!(leader.identifier(), b"here");
    }
    drop(waiting);
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn proclaimed_data_replaces_the_identifier() {
    let world = World::new().await;
    let standing = election(&world.session, &world.path, "here");
    let term = standing.campaign().await.expect("leads");
    for data in ["http://10.0.0.7:8080", "", "ü"] {
        term.proclaim(data).await.expect("proclaimed");
        assert_eq!(text(&standing.leader().await.expect("asked")), Some(data));
    }
    assert_eq!(term.state(), HoldState::Held);
    let next = candidate(&world, "next").await.enqueue().await.expect("enqueued");
    drop(next);
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn proclaiming_after_the_loss_returns_lost() {
    let world = World::new().await;
    let standing = election(&world.session, &world.path, "here");
    let term = standing.campaign().await.expect("leads");
    world.admin.delete(&term.nodes()[0], None).await.expect("deleted");
    let error = soon("an answer", term.proclaim("late")).await.expect_err("lost");
    assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error:?}");
    drop(term);
    let term = standing.campaign().await.expect("leads");
    world.expire().await;
    let error = soon("an answer", term.proclaim("late")).await.expect_err("lost");
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    drop(term);
    world.wait_empty().await;
}

#[tokio::test]
async fn proclaiming_without_an_answer_ends_with_the_loss() {
    let world = World::brief().await;
    let term = election(&world.session, &world.path, "here").campaign().await.expect("leads");
    world.proxy.black_hole();
    let error = soon("an answer", term.proclaim("late")).await.expect_err("no answer");
    assert!(matches!(error, Error::Lost(Loss::TrustEnded)), "{error:?}");
    world.proxy.heal();
    drop(term);
    world.wait_empty().await;
}

#[tokio::test]
async fn proclaiming_survives_a_cut_at_any_frame() {
    let world = World::new().await;
    let standing = election(&world.session, &world.path, "here");
    let term = standing.campaign().await.expect("leads");
    let observed = candidate(&world, "").await;
    at_every_frame(&world.proxy, async |cut| {
        let data = format!("{cut:?}");
        soon("an answer", term.proclaim(data.as_str())).await.expect("proclaimed");
        assert_eq!(text(&observed.leader().await.expect("asked")), Some(data.as_str()));
    })
    .await;
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn term_is_cancelled_by_a_loss_and_followed_by_another() {
    let world = World::new().await;
    let (started, mut starts) = unbounded_channel();
    let running = Arc::new(());
    let runs = running.clone();
    let candidate = Candidate::new(election(&world.session, &world.path, "here"), move |term| {
        let (started, running) = (started.clone(), runs.clone());
        async move {
            let _running = running;
            started.send(term.fencing_token()).expect("received");
            // Work that never checks whether it still leads.
            pending::<()>().await;
        }
    });
    let disturb = async {
        let first = starts.recv().await.expect("a term");
        // This test, the closure and the term.
        assert_eq!(Arc::strong_count(&running), 3);
        world.expire().await;
        let second = starts.recv().await.expect("a term in the renewed session");
        assert_eq!(Arc::strong_count(&running), 3, "the first was dropped");
        let node = world.wait_children(1).await.remove(0);
        world.admin.delete(&format!("{}/{node}", world.path), None).await.expect("deleted");
        let third = starts.recv().await.expect("a term after the deletion");
        assert!(first < second && second < third);
    };
    soon("the disturbance", disturb).await;
    candidate.drop();
    world.wait_empty().await;
    assert_eq!(Arc::strong_count(&running), 1);
}

/// Without a listener for the loss, a hold watches its node only after an eighth of the session timeout.
#[tokio::test]
async fn candidate_campaigns_again_at_once_after_its_leadership_was_broken() {
    let world = World::new().await;
    let (begins, mut begun) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path, "here"), move |term| {
        begins.send(term.fencing_token()).expect("received");
        pending()
    });
    soon("a term", begun.recv()).await.expect("leads");
    let node = format!("{}/{}", world.path, world.children().await[0]);
    world.admin.delete(&node, None).await.expect("deleted");
    let deleted = Instant::now();
    soon("another term", begun.recv()).await.expect("leads");
    // The event, and the round trips of another create and its listing.
    assert!(deleted.elapsed() <= at_most(3 * ROUND_TRIP), "{:?}", deleted.elapsed());
    candidate.drop();
    world.wait_empty().await;
}

#[tokio::test]
async fn term_that_returns_ends_and_the_next_candidate_leads() {
    let world = World::new().await;
    let other = candidate(&world, "other").await;
    let observed = other.clone();
    let (begins, mut begun) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path, "here"), move |term| {
        begins.send(term.clone()).expect("received");
        async move { term.revoke_requested().await }
    });
    let term = soon("a term", begun.recv()).await.expect("leads");
    let next = tokio::spawn(async move { other.campaign().await });
    world.wait_children(2).await;
    let ended = term.ended();
    let leader = observed.leader().await.expect("asked").expect("it leads");
    assert!(observed.revoke(&leader).await.expect("asked"));
    let next = soon("the next", next).await.expect("no panic").expect("leads");
    assert_eq!((soon("the end", ended).await, term.state()), (HoldState::Released, HoldState::Released));
    assert!(term.fencing_token() < next.fencing_token());
    let refused = term.proclaim("late").await.expect_err("the term is over");
    assert!(matches!(refused, Error::InvalidInput { what: "hold", .. }), "{refused:?}");
    // It campaigns again.
    world.wait_children(2).await;
    next.resign().await.expect("resigned");
    let again = soon("another term", begun.recv()).await.expect("leads");
    assert!(term.fencing_token() < again.fencing_token());
    candidate.drop();
    world.wait_empty().await;
}

#[tokio::test]
async fn current_term_is_that_of_any_clone_however_it_was_won() {
    let world = World::new().await;
    let standing = election(&world.session, &world.path, "here");
    let probe = standing.clone();
    assert!(probe.current_term().is_none());
    let term = standing.campaign().await.expect("leads");
    assert_eq!(probe.current_term().expect("leads").fencing_token(), term.fencing_token());
    term.resign().await.expect("resigned");
    assert!(probe.current_term().is_none(), "it has resigned");
    let term = standing.enqueue().await.expect("queued").await.expect("leads");
    assert_eq!(probe.current_term().expect("leads").state(), HoldState::Held);
    world.expire().await;
    assert_eq!(soon("the loss", term.lost()).await, Loss::Expired);
    assert!(probe.current_term().is_none(), "it was lost");
}

#[tokio::test]
async fn candidate_campaigns_again_after_an_eviction() {
    let world = World::new().await;
    let term = candidate(&world, "ahead").await.campaign().await.expect("leads");
    let (begins, mut begun) = unbounded_channel();
    let candidate = Candidate::new(election(&world.session, &world.path, "here"), move |term| {
        begins.send(term.fencing_token()).expect("received");
        async move { term.revoke_requested().await }
    });
    let evicted = world.wait_children(2).await.remove(1);
    world.admin.delete(&format!("{}/{evicted}", world.path), None).await.expect("deleted");
    term.resign().await.expect("resigned");
    soon("a term", begun.recv()).await.expect("leads");
    candidate.stop().await.expect("resigned");
    world.wait_empty().await;
}

/// Checks that an observer sees a sequence of leaders while `disturb` disturbs its session.
async fn sees_every_leader(disturb: impl AsyncFn(&World)) {
    let world = World::new().await;
    let (a, b) = (candidate(&world, "a").await, candidate(&world, "b").await);
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None, "returned at once, from a path that does not exist");
    // Waits until the observer watches, disturbs it, and changes the leader.
    macro_rules! during {
        ($change:expr) => {{
            world.proxy.reset();
            let change = async {
                world.proxy.wait_for(|request| request.watch && request.answer.is_some()).await;
                disturb(&world).await;
                $change
            };
            tokio::join!(changed(&mut observer), soon("the change", change))
        }};
    }
    let (seen, term) = during!(a.campaign().await.expect("leads"));
    assert_eq!((text(&seen), seen.as_ref().map(Contender::token)), (Some("a"), Some(term.fencing_token())));
    let next = tokio::spawn(async move { b.campaign().await });
    world.wait_children(2).await;
    let (seen, ()) = during!(term.resign().await.expect("resigned"));
    let term = soon("a term", next).await.expect("no panic").expect("leads");
    assert_eq!((text(&seen), seen.as_ref().map(Contender::token)), (Some("b"), Some(term.fencing_token())));
    let (seen, ()) = during!(term.proclaim("b, ready").await.expect("proclaimed"));
    assert_eq!((text(&seen), seen.as_ref().map(Contender::token)), (Some("b, ready"), Some(term.fencing_token())));
    let (seen, ()) = during!(term.resign().await.expect("resigned"));
    assert_eq!(seen, None);
    let (seen, term) = during!({
        remove_path(&world.admin, &world.path).await;
        a.campaign().await.expect("leads")
    });
    assert_eq!(text(&seen), Some("a"));
    assert_eq!(seen.expect("a leader").sequence(), 0, "on a path that was created again");
    // An operator deletes everything, and another candidate leads on a new path of the same name.
    let (seen, term) = during!({
        world.admin.delete(&term.nodes()[0], None).await.expect("deleted");
        remove_path(&world.admin, &world.path).await;
        drop(term);
        candidate(&world, "c").await.campaign().await.expect("leads")
    });
    let seen = if seen.is_none() { changed(&mut observer).await } else { seen };
    assert_eq!(text(&seen), Some("c"));
    term.resign().await.expect("resigned");
    assert_eq!(changed(&mut observer).await, None);
    world.wait_empty().await;
}

#[tokio::test]
async fn observer_sees_every_leader_that_stays() {
    sees_every_leader(async |_| {}).await;
}

#[tokio::test]
async fn observer_sees_every_leader_across_a_lost_connection() {
    sees_every_leader(async |world| world.proxy.cut_now()).await;
}

#[tokio::test]
async fn observer_sees_every_leader_across_the_end_of_its_session() {
    sees_every_leader(async |world| world.expire().await).await;
}

#[tokio::test]
async fn observers_look_five_times_a_second_however_often_the_node_of_the_leader_changes() {
    let world = World::new().await;
    let term = candidate(&world, "here").await.campaign().await.expect("leads");
    let observers = (0..5).map(|_| {
        let mut observer = election(&world.session, &world.path, "observer").observe();
        tokio::spawn(async move {
            loop {
                observer.changed().await.expect("observed");
            }
        })
    });
    let observers: Vec<_> = observers.collect();
    let mut writes = tokio::time::interval(Duration::from_secs(1) / 450);
    world.proxy.reset();
    for write in 0..450 * 4 {
        writes.tick().await;
        // Sent by the call; its answer does not matter.
        drop(world.admin.set_data(&term.nodes()[0], write.to_string().as_bytes(), None).now_or_never());
    }
    observers.iter().for_each(tokio::task::JoinHandle::abort);
    let reads = world.count(Op::GetData);
    println!("{reads} reads of five observers in four seconds");
    assert!(reads <= 5 * (4 * 5 + 1), "{reads} reads");
    term.resign().await.expect("resigned");
}

/// Waits until the observer in the session of `world` has read its leader and waits for a change.
async fn wait_look(world: &World) {
    world.proxy.wait_for(|request| request.op == Op::GetData && request.watch && request.answer.is_some()).await;
    world.proxy.reset();
}

#[tokio::test]
async fn observer_is_not_disturbed_by_a_revocation_of_the_leader_it_knows() {
    let world = World::new().await;
    let (standing, operator) = (candidate(&world, "here").await, candidate(&world, "").await);
    let term = standing.campaign().await.expect("leads");
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(text(&changed(&mut observer).await), Some("here"));
    world.proxy.reset();
    let disturb = async {
        wait_look(&world).await;
        let leader = operator.leader().await.expect("asked").expect("a leader");
        assert!(operator.revoke(&leader).await.expect("asked"));
        wait_look(&world).await;
        // Nor by its end, when the leader proclaims the same data again.
        term.proclaim("here").await.expect("proclaimed");
        wait_look(&world).await;
        assert!(operator.revoke(&leader).await.expect("asked"));
        wait_look(&world).await;
        term.proclaim("elsewhere").await.expect("proclaimed");
    };
    let (seen, ()) = tokio::join!(changed(&mut observer), soon("the disturbance", disturb));
    assert_eq!(text(&seen), Some("elsewhere"));
    term.resign().await.expect("resigned");
    assert_eq!(changed(&mut observer).await, None);
    world.wait_empty().await;
}

#[tokio::test]
async fn observer_created_after_a_revocation_sees_a_leader_without_an_identifier() {
    let world = World::new().await;
    let standing = candidate(&world, "here").await;
    let term = standing.campaign().await.expect("leads");
    let leader = standing.leader().await.expect("asked").expect("a leader");
    assert!(standing.revoke(&leader).await.expect("asked"));
    let mut observer = election(&world.session, &world.path, "observer").observe();
    let seen = changed(&mut observer).await.expect("a leader");
    assert_eq!((seen.identifier(), seen.revoke_requested()), (&b""[..], true));
    assert_eq!(seen.token(), term.fencing_token());
    term.proclaim("there").await.expect("proclaimed");
    assert_eq!(text(&changed(&mut observer).await), Some("there"));
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn observer_sees_the_leader_across_a_cut_at_any_frame() {
    let world = World::new().await;
    world.proxy.close_by(Closing::Reset);
    let standing = candidate(&world, "here").await;
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None);
    at_every_frame(&world.proxy, async |cut| {
        let (seen, term) =
            tokio::join!(changed(&mut observer), async { standing.campaign().await.expect("leads") });
        assert_eq!(seen.map(|leader| leader.token()), Some(term.fencing_token()), "{cut:?}");
        let (seen, ()) = tokio::join!(changed(&mut observer), async { term.resign().await.expect("resigned") });
        assert_eq!(seen, None, "{cut:?}");
    })
    .await;
    world.wait_empty().await;
}

#[tokio::test]
async fn observation_dropped_at_any_poll_loses_no_change() {
    let world = World::new().await;
    let standing = candidate(&world, "here").await;
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None);
    for polls in 1.. {
        let term = standing.campaign().await.expect("leads");
        let early = polled(polls, observer.changed()).await.map(|seen| seen.expect("observed"));
        let completed = early.is_some();
        let seen = match early {
            Some(seen) => seen,
            None => changed(&mut observer).await,
        };
        assert_eq!(seen.map(|leader| leader.token()), Some(term.fencing_token()), "dropped at poll {polls}");
        // Nor is a change returned twice.
        for _ in 0..2 {
            let early = tokio::time::timeout(BRIEF / 50, polled(polls, observer.changed())).await;
            assert!(matches!(early, Ok(None) | Err(_)), "nothing changed: {early:?}");
        }
        // The same while it waits: the change comes before the drop.
        {
            let mut waits = pin!(observer.changed());
            assert!(futures_util::poll!(&mut waits).is_pending());
            term.resign().await.expect("resigned");
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(changed(&mut observer).await, None, "dropped at poll {polls}");
        if completed {
            assert!(polls > 2, "something was dropped under way");
            break;
        }
    }
    world.wait_empty().await;
}

/// The number of watches that the server has below `path` for the session of `world`. Its command `wchp` lists all but
/// child watches.
async fn watches(world: &World) -> usize {
    let server = world.hosts.split([',', '/']).next().expect("a host");
    let mut stream = TcpStream::connect(server).await.expect("connects");
    stream.write_all(b"wchp").await.expect("asked");
    let mut report = String::new();
    stream.read_to_string(&mut report).await.expect("readable");
    assert!(!report.contains("whitelist"), "the server needs 4lw.commands.whitelist=*");
    let session = format!("0x{:x}", world.session.id().0);
    let mut below = false;
    let mut count = 0;
    for line in report.lines() {
        match line.strip_prefix('\t') {
            Some(watcher) => count += usize::from(below && watcher == session),
            None => below = line.starts_with(&world.path),
        }
    }
    count
}

async fn wait_watches(world: &World, count: usize) {
    let counted = async { while watches(world).await != count {} };
    soon("the watches", counted).await;
}

/// It shows whether what was returned last is out of date.
#[tokio::test]
async fn observer_keeps_one_watch_and_leaves_none_behind() {
    let world = World::new().await;
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None);
    let standing = candidate(&world, "here").await;
    let mut term = None;
    // On a path that does not exist, with a leader, and with none.
    for op in [Op::Exists, Op::GetData, Op::GetChildren2] {
        if op == Op::GetData {
            // The path must not be removed while there is no candidate.
            world.make_path().await;
            term = Some(standing.campaign().await.expect("leads"));
            assert!(changed(&mut observer).await.is_some());
        } else if let Some(term) = term.take() {
            term.resign().await.expect("resigned");
            assert!(changed(&mut observer).await.is_none());
        }
        // A watch of children is not counted.
        let one = usize::from(op != Op::GetChildren2);
        wait_watches(&world, one).await;
        world.proxy.reset();
        for _ in 0..2 {
            // The watch of the last look still stands.
            assert!(tokio::time::timeout(BRIEF / 50, observer.changed()).await.is_err(), "nothing changed");
            wait_watches(&world, one).await;
            assert!(!world.ops().iter().any(|sent| [Op::Exists, Op::GetData, Op::GetChildren2].contains(sent)));
        }
    }
    drop(observer);
    wait_watches(&world, 0).await;
    world.wait_empty().await;
}

/// An abandoned node blocks nobody. If it may not be deleted, nobody leads.
#[tokio::test]
async fn observer_beside_an_abandoned_node_waits_without_polling() {
    let world = World::new().await;
    world.restrict(Permission::READ | Permission::CREATE).await;
    let term = election(&world.session, &world.path, "leader").campaign().await.expect("leads");
    let error = term.resign().await.expect_err("its node may not be deleted");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    world.proxy.reset();
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None, "nobody leads");
    let counts = [Op::GetChildren, Op::GetChildren2, Op::Delete].map(|op| world.count(op));
    assert_eq!(counts, [1, 1, 1], "{:?}", world.proxy.requests());
}

#[tokio::test]
async fn observer_of_a_path_with_foreign_children_waits_without_polling() {
    let world = World::new().await;
    world.make_path().await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let strangers = ["readme", "0000000001"].map(|name| format!("{}/{name}", world.path));
    world.admin.create(&strangers[0], b"", &open).await.expect("created");
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None, "there is no candidate");
    world.proxy.reset();
    let mut waits = Box::pin(observer.changed());
    let watching = |request: &Request| request.watch && request.answer.is_some();
    let watches = async || {
        world.proxy.wait_for(watching).await;
        // Its next requests, if any, were sent before this answer.
        for _ in 0..10 {
            world.session.client().expect("a client").check_stat("/").await.expect("asked");
        }
        world.count(Op::GetChildren) + world.count(Op::GetChildren2)
    };
    tokio::select! {
        seen = &mut waits => panic!("nothing changed: {seen:?}"),
        asked = soon("the watch", watches()) => assert_eq!(asked, 2, "a listing and a watch"),
    }
    // Another foreign child causes a listing, but no change.
    world.proxy.reset();
    world.admin.create(&strangers[1], b"", &open).await.expect("created");
    tokio::select! {
        seen = &mut waits => panic!("there is no candidate: {seen:?}"),
        asked = soon("another watch", watches()) => assert_eq!(asked, 2, "a listing and a watch"),
    }
    let standing = candidate(&world, "here").await;
    let (seen, term) = tokio::join!(soon("a leader", waits), async { standing.campaign().await.expect("leads") });
    assert_eq!(text(&seen.expect("observed")), Some("here"));
    term.resign().await.expect("resigned");
    assert_eq!(changed(&mut observer).await, None);
    for stranger in &strangers {
        world.admin.delete(stranger, None).await.expect("deleted");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn change_of_leaders_wakes_each_observer_once() {
    let world = World::new().await;
    let term = candidate(&world, "first").await.campaign().await.expect("leads");
    let next = candidate(&world, "next").await.enqueue().await.expect("enqueued");
    let (watchers, mut observers) = (World::new().await, Vec::new());
    for _ in 0..20 {
        let mut observer = election(&watchers.session, &world.path, "watcher").observe();
        assert_eq!(text(&changed(&mut observer).await), Some("first"));
        observers.push(tokio::spawn(async move {
            let seen = changed(&mut observer).await;
            (observer, seen)
        }));
    }
    let watches = |requests: &[Request]| requests.iter().filter(|one| one.watch && one.answer.is_some()).count();
    soon("the watches", watchers.proxy.wait_until(|requests| watches(requests) >= 40)).await;
    watchers.proxy.reset();
    term.resign().await.expect("resigned");
    let term = soon("the next term", next).await.expect("leads");
    let mut kept = Vec::new();
    for observer in observers {
        let (observer, seen) = soon("a look", observer).await.expect("no panic");
        assert_eq!(text(&seen), Some("next"));
        kept.push(observer);
    }
    // Observers that list at the same time share the listing.
    let (listings, reads) = (watchers.count(Op::GetChildren), watchers.count(Op::GetData));
    assert!((1..=20).contains(&listings) && reads == 20, "one look each: {listings} listings, {reads} reads");
    term.resign().await.expect("resigned");
    world.wait_empty().await;
}

#[tokio::test]
async fn observer_in_a_closed_session_returns_closed() {
    let world = World::new().await;
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert_eq!(changed(&mut observer).await, None);
    let closed = world.session.clone();
    let (seen, ended) = tokio::join!(soon("an end", observer.changed()), closed.close());
    ended.expect("closed");
    assert!(matches!(seen, Err(Error::Closed)), "{seen:?}");
}

/// As in a `select!` with a timer.
#[tokio::test]
async fn observer_whose_wait_was_dropped_still_sees_the_event() {
    let world = World::new().await;
    let leader = candidate(&world, "0").await.campaign().await.expect("leads");
    let mut observer = election(&world.session, &world.path, "observer").observe();
    assert!(changed(&mut observer).await.is_some());
    for _ in 0..20 {
        next_look().await;
        assert!(observer.changed().now_or_never().is_none());
    }
    leader.resign().await.expect("resigned");
    let asked = Instant::now();
    assert_eq!(changed(&mut observer).await, None);
    // The event and its turn come, it lists, and then it reads whether the path is there.
    assert!(
        asked.elapsed() <= at_most(Duration::from_millis(200) + 3 * ROUND_TRIP),
        "the event was lost: {:?}",
        asked.elapsed()
    );
}
