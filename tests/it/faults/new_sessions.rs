//! Servers that answer a reconnect with another session, as ClickHouse Keeper does, and do not know what they are asked.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use testbed::frames::{Kind, Op};
use testbed::next_look;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::options::Parents;
use zookeeper_recipes::{HoldState, Loss, Mutex, Options};

use crate::support::{World, connect, locking, pass, soon, until};
use crate::warnings::Warnings;

#[tokio::test]
async fn hold_is_lost_with_its_session_as_soon_as_the_server_answers_with_another() {
    let world = World::brief().await;
    let guard = world.mutex().lock().await.expect("held");
    let before = world.session.id();
    world.proxy.forget_sessions();
    world.proxy.cut_now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    // Nobody else can have it yet: the old session is alive.
    assert_eq!(world.children().await.len(), 1);
    // The next lock waits for the end of the old session, and is one of another.
    let next = soon("the next lock", world.mutex().lock()).await.expect("held");
    assert_ne!(world.session.id(), before);
    assert!(next.fencing_token() > guard.fencing_token());
    next.release().await.expect("released");
}

#[tokio::test]
async fn waiter_queues_again_in_the_session_that_it_is_given() {
    let world = World::brief().await;
    let holder = connect(&world.hosts).await;
    let held = Mutex::new(&holder, &world.path).expect("a mutex").lock().await.expect("held");
    let waiting = locking(world.mutex());
    let queued = world.wait_children(2).await;
    world.proxy.forget_sessions();
    world.proxy.cut_now();
    // Its old node goes with the old session, and a new one is there.
    let again = soon("another node", async {
        loop {
            let now = world.wait_children(2).await;
            if now[1] != queued[1] {
                return now;
            }
            next_look().await;
        }
    });
    assert_eq!(again.await[0], queued[0]);
    assert!(!waiting.is_finished());
    held.release().await.expect("released");
    let guard = soon("a turn", waiting).await.expect("no panic").expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn session_ends_where_the_server_closes_the_connection_on_the_question_whose_it_is() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.on_request(|one| if one.op == Op::GetEphemerals { Verdict::Cut } else { Verdict::Forward });
    world.proxy.reset();
    world.proxy.cut_now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    let asked = world.count(Op::GetEphemerals);
    assert!(asked <= 11, "asked {asked} times");
    world.proxy.on_request(|_| Verdict::Forward);
    let next = soon("the next lock", world.mutex().lock()).await.expect("held");
    next.release().await.expect("released");
}

/// As ClickHouse Keeper does. The first session finds it out at its fallback poll; the later ones do not ask then.
#[tokio::test]
async fn holds_last_until_a_reconnect_where_the_server_knows_neither_old_sessions_nor_the_question() {
    let (world, warnings) = (World::brief().await, Warnings::new());
    let _listens = warnings.listen();
    world.proxy.forget_sessions();
    world.proxy.on_request(|one| if one.op == Op::GetEphemerals { Verdict::Cut } else { Verdict::Forward });
    let guard = world.mutex().lock().await.expect("held");
    soon("the loss", guard.lost()).await;
    let guard = soon("the next lock", world.mutex().lock()).await.expect("held");
    world.proxy.reset();
    pass(Duration::from_secs(120)).await;
    assert_eq!((guard.state(), world.count(Op::GetEphemerals)), (HoldState::Held, 0));
    world.proxy.cut_now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    assert_eq!(world.count(Op::GetEphemerals), 1);
    until("a warning", || {
        warnings.count("the server closes each connection on which it is asked for the nodes") == 2
    })
    .await;
    // A server that answers is asked as before.
    world.proxy.on_request(|_| Verdict::Forward);
    let guard = soon("the next lock", world.mutex().lock()).await.expect("held");
    world.proxy.cut_now();
    soon("the loss", guard.lost()).await;
    let guard = soon("the next lock", world.mutex().lock()).await.expect("held");
    world.proxy.reset();
    pass(Duration::from_secs(60)).await;
    assert!(guard.state() == HoldState::Held && world.count(Op::GetEphemerals) >= 1);
}

/// A session without a node, which is asked nothing.
#[tokio::test]
async fn session_ends_where_the_server_closes_each_connection_on_which_watches_are_set_again() {
    let world = World::brief().await;
    world.make_path().await;
    let client = world.session.client().expect("a client");
    let _watcher = client.get_and_watch_data(&world.path).await.expect("a watch");
    let before = world.session.id();
    world.proxy.refuse_set_watches();
    world.proxy.reset();
    world.proxy.cut_now();
    until("another session", || world.session.id() != before).await;
    let connects = || world.proxy.uncounted().iter().filter(|frame| frame.kind == Kind::SetWatches).count();
    assert!(connects() < 100, "{} connections", connects());
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    guard.release().await.expect("released");
}

/// Alone, or in the transaction that also counts the children.
fn creates(one: &Request) -> bool {
    one.op == Op::Create2 || one.parts.iter().any(|(op, _)| matches!(op, Op::Create | Op::Create2))
}

fn has_container(one: &Request) -> bool {
    one.parts.iter().any(|(op, _)| *op == Op::CreateContainer)
}

#[tokio::test]
async fn containers_on_which_the_server_closes_the_connection_can_be_left_out() {
    let world = World::new().await;
    world.proxy.on_request(|one| if has_container(one) { Verdict::Cut } else { Verdict::Forward });
    let options = Options::new().with_parents(Parents::Persistent);
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    soon("the lock", mutex.lock()).await.expect("held").release().await.expect("released");
}

/// A session without a node is asked nothing: the owner of its next node is the first that shows it.
#[tokio::test]
async fn node_that_another_session_owns_is_not_taken_for_a_grant() {
    let world = World::new().await;
    world.make_path().await;
    let before = world.session.id();
    world.proxy.forget_sessions();
    world.proxy.cut_now();
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    let stat = world.admin.check_stat(&guard.nodes()[0]).await.expect("asked").expect("it is there");
    assert_ne!(stat.ephemeral_owner, before.0, "the proxy has replaced that session");
    assert_eq!(stat.ephemeral_owner, world.session.id().0);
    guard.release().await.expect("released");
}

/// The node is of the session before. Its connection was asked for when nobody knew of the node.
#[tokio::test]
async fn lock_whose_create_was_answered_before_the_reconnect_is_not_held_in_the_session_before() {
    let world = World::brief().await;
    world.make_path().await;
    let before = world.session.id();
    let mutex = world.mutex();
    let mut locking = pin!(mutex.lock());
    assert!(poll!(&mut locking).is_pending(), "the create is under way");
    soon("the create", world.proxy.wait_for(|one| creates(one) && one.answer.is_some())).await;
    world.proxy.forget_sessions();
    world.proxy.reset();
    world.proxy.cut_now();
    soon("the question", world.proxy.wait_for(|one| one.answer.is_some())).await;
    let guard = soon("the lock", locking).await.expect("held");
    let stat = world.admin.check_stat(&guard.nodes()[0]).await.expect("asked").expect("it is there");
    assert_ne!(stat.ephemeral_owner, before.0, "nobody keeps that session alive");
    guard.release().await.expect("released");
}
