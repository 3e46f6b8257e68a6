//! Sessions that are made before their servers are there, and what their error names.

use std::pin::pin;
use std::time::Duration;

use futures_util::{FutureExt, poll};
use testbed::{Server, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode, SessionId};
use zookeeper_recipes::{Error, HoldState, Mutex, Servers, Session, SessionState};

use crate::support::{BRIEF, World, admin_client, hosts, soon};

fn lazy(hosts: &str) -> Session {
    Session::lazy(Servers::new(hosts).with_session_timeout(BRIEF)).expect("a session")
}

#[tokio::test]
async fn session_comes_up_with_its_server() {
    let mut server = Server::start().await.expect("a server");
    server.kill();
    let session = lazy(&server.hosts());
    let (mut states, mutex) = (session.states(), Mutex::new(&session, "/lazy/lock").expect("a mutex"));
    assert_eq!((session.id(), session.state()), (SessionId(0), SessionState::Connecting));
    assert!(session.client().is_none());
    let error = mutex.try_lock().await.expect_err("no server");
    let Error::Unavailable { failures, .. } = &error else { panic!("{error:?}") };
    assert_eq!(failures[0].reason, "connection refused", "{error:?}");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    server.restart().await.expect("a server");
    let guard = soon("the lock", waiting).await.expect("no panic").expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(soon("a state", states.changed()).await, Some(SessionState::Connected(session.id())));
    guard.release().await.expect("released");
    session.close().await.expect("closed");
    assert_eq!(session.state(), SessionState::Ended);
}

#[tokio::test]
async fn wait_for_a_connection_ends_with_the_session() {
    let session = lazy(&format!("127.0.0.1:{}", free_port()));
    let mut states = session.states();
    let mut connected = pin!(states.wait_for(SessionState::is_connected));
    assert!(poll!(&mut connected).is_pending(), "no server is there");
    session.close().await.expect("closed");
    assert_eq!(soon("an answer", connected).await, None);
    assert_eq!(session.states().wait_for(SessionState::is_connected).now_or_never(), Some(None));
    let world = World::new().await;
    world.session.close().await.expect("closed");
    let connected = world.session.states().wait_for(SessionState::is_connected).now_or_never();
    assert_eq!(connected, Some(None), "it was connected");
}

#[tokio::test]
async fn session_without_a_server_can_be_closed() {
    let session = lazy(&format!("127.0.0.1:{}", free_port()));
    let (mut states, mutex) = (session.states(), Mutex::new(&session, "/lazy/lock").expect("a mutex"));
    let waiting = tokio::spawn(async move { mutex.lock().await });
    soon("the end", session.close()).await.expect("closed");
    let error = soon("an answer", waiting).await.expect("no panic").expect_err("closed");
    assert!(matches!(error, Error::Closed), "{error:?}");
    assert_eq!(soon("a state", states.changed()).await, Some(SessionState::Ended));
    assert_eq!(session.state(), SessionState::Ended);
    soon("the same end", session.close()).await.expect("closed");
}

#[tokio::test]
async fn session_waits_for_its_chroot() {
    let chroot = format!("/lazy-{}", uuid::Uuid::new_v4().simple());
    let session = lazy(&format!("{}{chroot}", hosts()));
    let mutex = Mutex::new(&session, "/lock").expect("a mutex");
    let reason = format!("{chroot} does not exist; create it first");
    let is_reported = async || {
        let tried = mutex.try_lock_for(Duration::from_millis(100)).await;
        matches!(tried, Err(Error::Unavailable { failures, .. }) if failures.iter().any(|failure| failure.reason == reason))
    };
    soon("the reason", async { while !is_reported().await {} }).await;
    let admin = admin_client(&hosts()).await;
    admin.create(&chroot, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("created");
    soon("the lock", mutex.lock()).await.expect("held").release().await.expect("released");
}

#[test]
fn session_needs_a_runtime_and_hosts() {
    let error = Session::lazy("localhost:2181").expect_err("no runtime");
    assert!(matches!(&error, Error::InvalidInput { what: "runtime", .. }), "{error:?}");
    let error = Session::lazy("localhost:2181,").expect_err("a host is missing");
    assert!(matches!(&error, Error::InvalidInput { what: "hosts", .. }), "{error:?}");
}

/// A connection may be lost right after the handshake, and the new session expire before the next. A later try may succeed.
#[tokio::test]
async fn connect_is_unavailable_if_the_new_session_has_expired() {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let hosts = server.local_addr().expect("an address").to_string();
    let answers = async {
        loop {
            let (mut connection, _) = server.accept().await.expect("a connection");
            let length = connection.read_u32().await.expect("a handshake");
            connection.read_exact(&mut vec![0; length as usize]).await.expect("the rest of it");
            // Version, timeout, session, password and read-only: a session of number 0 has expired.
            let answer: [&[u8]; 4] = [&37_u32.to_be_bytes(), &[0; 16], &16_u32.to_be_bytes(), &[0; 17]];
            connection.write_all(&answer.concat()).await.expect("an answer");
        }
    };
    let servers = Servers::new(hosts.as_str()).with_session_timeout(BRIEF);
    let error = tokio::select! {
        connected = Session::connect(servers) => connected.expect_err("the session has expired"),
        () = answers => unreachable!("it never ends"),
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn connect_error_names_the_hosts_and_what_is_wrong_with_each() {
    let world = World::new().await;
    world.proxy.black_hole();
    let silent = world.proxy.hosts();
    // Nobody listens on port 1.
    for (hosts, reasons) in [
        (silent.as_str(), &["accepts connections, but gives no session"][..]),
        ("127.0.0.1:1", &["connection refused"]),
        ("no-such-host.invalid:2181", &["name does not resolve: "]),
        ("127.0.0.1:1,127.0.0.1:2/chroot", &["connection refused", "connection refused"]),
    ] {
        let servers = Servers::new(hosts).with_session_timeout(BRIEF);
        let result = soon("an answer", Session::connect(servers)).await;
        match result {
            Err(ref error @ Error::Unavailable { hosts: ref named, why, ref failures, .. }) => {
                assert_eq!((named.as_str(), why), (hosts, Unanswered::Servers));
                assert_eq!(failures.len(), reasons.len(), "{error}");
                for (failure, reason) in failures.iter().zip(reasons) {
                    assert!(failure.reason.starts_with(reason), "{error}");
                    assert!(
                        hosts.contains(&failure.host) && error.to_string().contains(&failure.reason),
                        "{error}"
                    );
                }
            }
            other => panic!("{hosts}: {other:?}"),
        }
    }
}
