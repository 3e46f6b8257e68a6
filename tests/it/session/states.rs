//! The states of a session, as it reports them.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::poll;
use testbed::free_port;
use zookeeper_recipes::session::SessionStates;
use zookeeper_recipes::{Servers, Session, SessionState};

use crate::support::{BRIEF, World, connect, connect_for, hosts, soon};

async fn next(states: &mut SessionStates) -> Option<SessionState> {
    soon("a state", states.changed()).await
}

fn never_connected() -> Session {
    Session::lazy(format!("127.0.0.1:{}", free_port())).expect("a session")
}

#[tokio::test]
async fn states_follow_a_session_from_its_connection_to_its_end() {
    let world = World::new().await;
    let (mut states, old) = (world.session.states(), world.session.id());
    assert_eq!(next(&mut states).await, Some(SessionState::Connected(old)));
    world.proxy.refuse();
    assert_eq!(next(&mut states).await, Some(SessionState::Suspended));
    world.proxy.heal();
    assert_eq!(next(&mut states).await, Some(SessionState::Connected(old)));
    world.expire().await;
    // The connection may be reported as lost before.
    let mut seen = next(&mut states).await;
    while matches!(seen, Some(SessionState::Suspended | SessionState::Connected(_))) {
        seen = next(&mut states).await;
    }
    assert_eq!(seen, Some(SessionState::Renewing));
    let Some(SessionState::Connected(id)) = next(&mut states).await else { panic!("no renewal") };
    assert_ne!(id, old);
    assert_eq!(world.session.state(), SessionState::Connected(id));
    world.session.close().await.expect("closed");
    assert_eq!(next(&mut states).await, Some(SessionState::Ended));
    assert_eq!(next(&mut states).await, None);
    assert_eq!(world.session.state(), SessionState::Ended);
}

#[tokio::test]
async fn states_between_two_reads_are_not_queued() {
    let world = World::new().await;
    let (mut late, mut early) = (world.session.states(), world.session.states());
    let connected = SessionState::Connected(world.session.id());
    assert_eq!(next(&mut late).await, Some(connected));
    world.proxy.refuse();
    soon("the outage", early.wait_for(|state| state == SessionState::Suspended)).await.expect("no connection");
    world.proxy.heal();
    soon("the connection", early.wait_for(SessionState::is_connected)).await.expect("connected");
    assert!(poll!(pin!(late.changed())).is_pending(), "it is as it was at the last read");
    assert_eq!(next(&mut world.session.states()).await, Some(connected), "the present state comes first");
}

#[tokio::test]
async fn states_end_with_the_last_handle() {
    let (session, never) = (connect(&hosts()).await, never_connected());
    let (mut states, mut none) = (session.states(), never.states());
    drop((session, never));
    assert_eq!(next(&mut none).await, Some(SessionState::Ended));
    let mut last = None;
    while let Some(state) = next(&mut states).await {
        last = Some(state);
    }
    assert_eq!(last, Some(SessionState::Ended));
}

#[tokio::test]
async fn wait_for_a_change_ends_with_a_session_that_is_dropped_while_it_is_renewed() {
    let world = World::new().await;
    let session = connect_for(&world.proxy.hosts(), BRIEF).await;
    let mut states = session.states();
    world.proxy.refuse();
    soon("the expiry", states.wait_for(|state| state == SessionState::Renewing)).await.expect("expired");
    let mut state = pin!(states.changed());
    assert!(poll!(&mut state).is_pending());
    drop(session);
    assert_eq!(soon("a state", state).await, Some(SessionState::Ended));
}

/// A session that was never made has nothing to lose, but its owner wants to know.
#[tokio::test]
async fn refused_credentials_are_reported_before_there_is_a_session() {
    let refused = Arc::new(AtomicBool::new(true));
    let asked = refused.clone();
    let session = Session::lazy(Servers::from_fn(move || {
        let servers = Servers::new(&hosts());
        let refused = asked.load(Ordering::Relaxed);
        ready(Ok(if refused { servers.with_auth("nonsense", "") } else { servers }))
    }));
    let session = session.expect("a session");
    let mut states = session.states();
    assert_eq!(next(&mut states).await, Some(SessionState::Connecting));
    assert_eq!(next(&mut states).await, Some(SessionState::Refused));
    refused.store(false, Ordering::Relaxed);
    assert_eq!(next(&mut states).await, Some(SessionState::Connected(session.id())));
    session.close().await.expect("closed");
    assert_eq!(next(&mut states).await, Some(SessionState::Ended));
}
