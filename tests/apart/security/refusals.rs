//! What is reported for wrong certificates and wrong passwords, and how often the servers are tried meanwhile. `SECURITY.md`
//! has the table.

use std::error::Error as _;
use std::time::Instant;

use zookeeper_recipes::zookeeper_client::Acls;
use zookeeper_recipes::{Error, Mutex, Options, Servers, Session};

use crate::certificates::{Authority, Certificate};
use crate::servers::{Counter, TIMEOUT, TlsServer, connect, over_tls, sasl_server, soon, user};

/// More connections than are tried in one session timeout, with growing pauses.
const CONNECTIONS: usize = 12;

/// Checks that the table has these rows: what was wrong, and what is reported.
fn assert_in_table(reports: &[(&str, String)]) {
    let rows = reports.iter().map(|(wrong, report)| format!("| {wrong} | {report} |\n"));
    let missing: String = rows.filter(|row| !include_str!("../../../SECURITY.md").contains(row)).collect();
    assert!(missing.is_empty(), "SECURITY.md does not have\n{missing}");
}

fn plaintext(hosts: &str) -> Servers {
    Servers::new(hosts).with_session_timeout(TIMEOUT)
}

/// Fails to connect, with few connections, and an error that has a reason for the host.
async fn fails(wrong: &str, servers: impl FnOnce(&str) -> Servers, scheme_and_name: &str, port: u16) {
    let counter = Counter::of(port).await;
    let began = Instant::now();
    let hosts = format!("{scheme_and_name}:{}", counter.port);
    let error = soon(wrong, Session::connect(servers(&hosts))).await.expect_err(wrong);
    let (took, count) = (began.elapsed(), counter.count());
    println!("{wrong}: {count} connections in {took:.1?}: {error}");
    let Error::Unavailable { failures, .. } = &error else { panic!("{wrong}: {error:?}") };
    assert!(count <= CONNECTIONS, "{wrong}: {count} connections");
    assert_eq!(failures.len(), 1, "{wrong}: {error}");
}

/// `zklock doctor` finds out more.
#[tokio::test]
async fn wrong_certificates_are_an_error_with_a_reason() {
    const TLS: &str = "tcp+tls://127.0.0.1";
    let [authority, other] = ["authority", "other"].map(Authority::new);
    let issue = |name: &str, days| authority.issue(name, "IP:127.0.0.1", days);
    let (valid, old) = (issue("server", 30), issue("expired", 0));
    let (server, expired) = tokio::join!(TlsServer::start(&valid, &authority), TlsServer::start(&old, &authority));
    let client = issue("client", 30);
    let mixed = Certificate { key: issue("another", 30).key, ..client.clone() };
    let stranger = other.issue("stranger", "IP:127.0.0.1", 30);
    let right = |hosts: &str| over_tls(hosts, &authority, Some(&client));
    tokio::join!(
        fails("another name", right, "tcp+tls://localhost", server.port),
        fails("expired", right, TLS, expired.port),
        fails("unknown authority", |hosts| over_tls(hosts, &other, Some(&client)), TLS, server.port),
        fails("no client certificate", |hosts| over_tls(hosts, &authority, None), TLS, server.port),
        fails("unknown client", |hosts| over_tls(hosts, &authority, Some(&stranger)), TLS, server.port),
        fails("key of another certificate", |hosts| over_tls(hosts, &authority, Some(&mixed)), TLS, server.port),
        fails("TLS to a plaintext port", right, TLS, server.server.port()),
        fails("plaintext to a TLS port", plaintext, "127.0.0.1", server.port),
    );
    // The server was well all the time.
    connect(|| right(&server.hosts())).await;
}

/// The client alone would spin for ever, and block its thread.
#[tokio::test]
async fn hosts_over_tls_need_tls_options() {
    let error = Session::connect(plaintext("tcp+tls://127.0.0.1:1")).await.expect_err("no options");
    assert_in_table(&[("no TLS options", error.to_string())]);
}

/// As a number, the address is one that a name service takes for 127.0.0.1, and no certificate can have.
#[tokio::test]
async fn hosts_that_no_certificate_can_be_for_are_refused() {
    let (authority, server) = (Authority::new("authority"), Counter::of(1).await);
    let hosts = format!("tcp+tls://127.1:{}", server.port);
    let error = Session::connect(over_tls(&hosts, &authority, None)).await.expect_err("no name");
    assert!(matches!(&error, Error::InvalidInput { what: "hosts", .. }), "{error:?}");
}

#[tokio::test]
async fn wrong_passwords_are_refused_at_once() {
    let (server, _files) = sasl_server().await;
    for (wrong, name, password) in
        [("wrong SASL password", "alice", "wander"), ("unknown SASL user", "carol", "wander")]
    {
        let counter = Counter::of(server.port()).await;
        let hosts = format!("127.0.0.1:{}", counter.port);
        let error = soon(wrong, Session::connect(user(&hosts, name, password))).await.expect_err(wrong);
        println!("{wrong}: {} connections: {error}", counter.count());
        // Else it would be tried for a session timeout, with many connections.
        assert!(counter.count() <= 2, "{wrong}: {} connections", counter.count());
        assert_eq!(error.kind(), "client");
        let source = error.source().expect("what the client returned");
        assert_in_table(&[(wrong, format!("{error}: {source}").replace(&hosts, "*hosts*"))]);
    }
}

/// Servers take any digest, and compare it when a node is used.
#[tokio::test]
async fn wrong_digest_is_noticed_at_the_lock() {
    let (server, _files) = sasl_server().await;
    let right = connect(|| plaintext(&server.hosts()).with_auth("digest", "billing:secret")).await;
    let wrong = connect(|| plaintext(&server.hosts()).with_auth("digest", "billing:secrets")).await;
    let mutex =
        |session| Mutex::with_options(session, "/digest/lock", Options::new().with_acls(Acls::creator_all()));
    let guard = soon("the lock", mutex(&right).expect("a mutex").lock()).await.expect("held");
    let error = soon("a refusal", mutex(&wrong).expect("a mutex").lock()).await.expect_err("another password");
    assert!(matches!(&error, Error::NoAuth { path } if path == "/digest/lock"), "{error:?}");
    assert_in_table(&[("wrong digest password", error.to_string().replace("/digest/lock", "*path*"))]);
    guard.release().await.expect("released");
}
