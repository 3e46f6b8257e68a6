//! What a session reports of itself.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testbed::frames::Op;
use testbed::free_port;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Error, Session, SessionEvent};

use crate::support::{NO_AUTH, UNHURRIED, World, connect, ends_within, hosts, refuse_checks, soon};

#[tokio::test]
async fn events_follow_a_session_from_its_connection_to_its_end() {
    let world = World::new().await;
    let (mut events, old) = (world.session.events(), world.session.id());
    let mut next = async || soon("an event", events.next()).await;
    assert_eq!(next().await, Some(SessionEvent::Connected));
    world.proxy.refuse();
    assert_eq!(next().await, Some(SessionEvent::Suspended));
    world.proxy.heal();
    assert_eq!(next().await, Some(SessionEvent::Connected));
    world.expire().await;
    // The connection may be reported as lost before.
    let mut seen = next().await;
    while matches!(seen, Some(SessionEvent::Suspended | SessionEvent::Connected)) {
        seen = next().await;
    }
    assert_eq!(seen, Some(SessionEvent::Expired { old }));
    let Some(SessionEvent::Renewed { id }) = next().await else { panic!("no renewal") };
    assert_ne!(id, old);
    world.session.close().await.expect("closed");
    assert_eq!(next().await, Some(SessionEvent::Ended));
    assert_eq!(next().await, None);
}

#[tokio::test]
async fn events_end_with_the_last_handle() {
    let session = connect(&hosts()).await;
    let never = Session::lazy(Client::connector(), &format!("127.0.0.1:{}", free_port())).expect("a session");
    let (mut events, mut none) = (session.events(), never.events());
    drop((session, never));
    assert_eq!(soon("an event", none.next()).await, Some(SessionEvent::Ended));
    let mut last = None;
    while let Some(event) = soon("an event", events.next()).await {
        last = Some(event);
    }
    assert_eq!(last, Some(SessionEvent::Ended));
}

#[tokio::test]
async fn check_takes_one_round_trip_and_fails_within_its_limit() {
    let world = World::at(&hosts(), UNHURRIED).await;
    world.proxy.leave_out(|_| false);
    world.proxy.reset();
    let checked = world.session.check(Duration::from_secs(30)).await.expect("answered");
    assert_eq!(world.proxy.requests().len(), 1);
    assert!(!checked.trusted_for.is_zero(), "{checked:?}");
    world.proxy.refuse();
    let limit = Duration::from_millis(500);
    let error = ends_within(limit, world.session.check(limit)).await.expect_err("no server");
    assert!(matches!(&error, Error::Unavailable { failures, .. } if failures.len() <= 1), "{error:?}");
    let closed = connect(&world.hosts).await;
    closed.close().await.expect("closed");
    let error = closed.check(Duration::from_secs(30)).await.expect_err("closed");
    assert!(matches!(error, Error::Closed), "{error:?}");
}

/// A server may refuse a transaction by itself. Only when its parts were judged, a quorum has answered.
#[tokio::test]
async fn check_whose_transaction_was_refused_as_a_whole_has_no_answer_of_a_quorum() {
    let world = World::new().await;
    world.proxy.leave_out(|_| false);
    refuse_checks(&world.proxy);
    let refused = world.session.check(Duration::from_secs(30)).await;
    assert!(matches!(&refused, Err(Error::NoAuth { path }) if path == "/"), "{refused:?}");
    // No error of the whole; a part that is an error; the end.
    world.proxy.rewrite_answers(|request, answer| {
        if request.op == Op::Multi {
            let (error, end) = (NO_AUTH.to_be_bytes(), (-1_i32).to_be_bytes());
            answer.truncate(12);
            answer.extend([&[0; 4][..], &end, &[0], &error, &error, &end, &[1], &end].concat());
        }
    });
    world.session.check(Duration::from_secs(30)).await.expect("judged by a quorum");
}

#[tokio::test]
async fn stream_that_is_waited_for_ends_with_the_last_handle() {
    let never = Session::lazy(Client::connector(), &format!("127.0.0.1:{}", free_port())).expect("a session");
    let mut events = never.events();
    let mut event = std::pin::pin!(events.next());
    assert!(futures_util::poll!(&mut event).is_pending());
    drop(never);
    assert_eq!(soon("an event", event).await, Some(SessionEvent::Ended));
}

#[tokio::test]
async fn stream_ends_with_a_session_that_is_dropped_while_it_is_renewed() {
    let world = World::new().await;
    let session = connect(&world.proxy.hosts().to_string()).await;
    let mut events = session.events();
    world.proxy.refuse();
    while !matches!(soon("an event", events.next()).await, Some(SessionEvent::Expired { .. })) {}
    let mut event = std::pin::pin!(events.next());
    assert!(futures_util::poll!(&mut event).is_pending());
    drop(session);
    assert_eq!(soon("an event", event).await, Some(SessionEvent::Ended));
}

/// A session that was never made has nothing to lose, but its owner wants to know.
#[tokio::test]
async fn refused_credentials_are_reported_before_there_is_a_session() {
    let refused = Arc::new(AtomicBool::new(true));
    let asked = refused.clone();
    let session = Session::lazy_by(move || {
        let connector = Client::connector();
        let refused = asked.load(Ordering::Relaxed);
        ready(Ok((if refused { connector.with_auth("nonsense", b"") } else { connector }, hosts())))
    });
    let session = session.expect("a session");
    let mut events = session.events();
    assert_eq!(soon("an event", events.next()).await, Some(SessionEvent::AuthFailed));
    refused.store(false, Ordering::Relaxed);
    assert_eq!(soon("an event", events.next()).await, Some(SessionEvent::Connected));
    session.close().await.expect("closed");
    assert_eq!(soon("an event", events.next()).await, Some(SessionEvent::Ended));
}
