//! What `zklock doctor` reports for wrong certificates, and for TLS on the wrong port. `SECURITY.md` has the table.

use std::fs;
use std::path::Path;

use assert_cmd::assert::Assert;
use tempfile::TempDir;
use testbed::{Server, free_port};

use crate::certificates::{Authority, Certificate};
use crate::support::{code, stderr, stdout, zklock};

/// A server with a port for TLS, which wants certificates from its clients, and another port without TLS.
struct TlsServer {
    server: Server,
    port: u16,
    _files: TempDir,
}

impl TlsServer {
    async fn start(own: &Certificate, trusted: &Authority) -> Self {
        let (files, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let file = |name| files.path().join(name).to_str().expect("text").to_owned();
        let (key_store, trust_store) = (file("own.pem"), file("trusted.pem"));
        fs::write(&key_store, own.both()).expect("written");
        fs::copy(trusted.trust(), &trust_store).expect("written");
        let server = Server::builder()
            .property("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
            .config("secureClientPort", port.to_string())
            .config("secureClientPortAddress", "127.0.0.1")
            .config("ssl.keyStore.location", key_store)
            .config("ssl.trustStore.location", trust_store)
            .start();
        Self { server: server.await.expect("a server"), port, _files: files }
    }
}

/// Runs the doctor with certificates.
fn doctor(host: &str, trusted: &Authority, own: Option<&Certificate>) -> Assert {
    let text = |file: &Path| file.to_str().expect("text").to_owned();
    let mut arguments = vec!["doctor".to_owned(), "--hosts".to_owned(), host.to_owned()];
    arguments.extend(["--session".to_owned(), "6".to_owned()]);
    arguments.extend(["--tls-ca".to_owned(), text(trusted.trust())]);
    if let Some(own) = own {
        arguments.extend(["--tls-cert".to_owned(), text(&own.cert), "--tls-key".to_owned(), text(&own.key)]);
    }
    zklock(&arguments)
}

/// What the doctor reports of a host.
fn reported(host: &str, trusted: &Authority, own: Option<&Certificate>) -> String {
    let done = doctor(host, trusted, own);
    let report = stdout(&done);
    let reason = report.lines().find_map(|line| line.split_once("gives no session: "));
    reason.unwrap_or_else(|| panic!("{host}: {report}{}", stderr(&done))).1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_report_about_themselves_also_over_tls() {
    let authority = Authority::new("authority");
    let issue = |name: &str| authority.issue(name, "IP:127.0.0.1", 30);
    let server = TlsServer::start(&issue("server"), &authority).await;
    let done = doctor(&format!("127.0.0.1:{}", server.port), &authority, Some(&issue("client")));
    let report = stdout(&done);
    assert_eq!(code(&done), Some(1), "{report}{}", stderr(&done));
    assert!(report.contains("version 3.") && report.contains(", standalone, tick 500ms"), "{report}");
    assert!(report.contains("fix   there is one server"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_certificates_are_named() {
    let [authority, other, renewed] = ["authority", "other", "authority"].map(Authority::new);
    let issue = |name: &str, days| authority.issue(name, "IP:127.0.0.1", days);
    let (valid, old) = (issue("server", 30), issue("expired", 0));
    let (server, expired) = tokio::join!(TlsServer::start(&valid, &authority), TlsServer::start(&old, &authority));
    let client = issue("client", 30);
    let mixed = Certificate { key: issue("another", 30).key, ..client.clone() };
    let stranger = other.issue("stranger", "IP:127.0.0.1", 30);
    let tls = |name: &str, port: u16| format!("tcp+tls://{name}:{port}");
    let (host, plain) = (tls("127.0.0.1", server.port), server.server.port());
    let mut missing = String::new();
    for (wrong, report) in [
        (
            "server certificate for another name",
            reported(&tls("localhost", server.port), &authority, Some(&client)),
        ),
        ("expired server certificate", reported(&tls("127.0.0.1", expired.port), &authority, Some(&client))),
        ("server certificate of an unknown authority", reported(&host, &other, Some(&client))),
        ("server certificate of an earlier authority", reported(&host, &renewed, Some(&client))),
        ("no client certificate", reported(&host, &authority, None)),
        ("client certificate of an unknown authority", reported(&host, &authority, Some(&stranger))),
        ("key of another client certificate", reported(&host, &authority, Some(&mixed))),
        ("TLS to a plaintext port", reported(&tls("127.0.0.1", plain), &authority, Some(&client))),
        (
            "plaintext to a TLS port",
            reported(&format!("tcp://127.0.0.1:{}", server.port), &authority, Some(&client)),
        ),
    ] {
        let row = format!("| {wrong} | {report} |\n");
        if !include_str!("../../../../SECURITY.md").contains(&row) {
            missing += &row;
        }
    }
    assert!(missing.is_empty(), "SECURITY.md does not have\n{missing}");
}
