//! `zklock doctor`: what it finds, and what not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testbed::proxy::Proxy;
use testbed::{Ensemble, Server, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{World, code, hosts, stderr, stdout, zklock};

/// The forms of what is printed for programs.
const DOCUMENT: &str = include_str!("../../../../docs/zklock.md");

/// Runs it with a session so long that this machine is fast enough.
///
/// A server that does not wait for its disk is a finding, and those of the suite do not: [`server`] and [`ensemble`] do.
fn doctor(hosts: &str, more: &[&str]) -> (Option<i32>, String) {
    let done = zklock(["doctor", "--hosts", hosts, "--session", "30"].iter().chain(more));
    (code(&done), format!("{}{}", stdout(&done), stderr(&done)))
}

/// A server that waits for its disk.
async fn server() -> Server {
    Server::builder().config("forceSync", "yes").start().await.expect("a server")
}

/// Three such servers.
async fn ensemble() -> Ensemble {
    Ensemble::builder().config("forceSync", "yes").start().await.expect("an ensemble")
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_has_to_be_fixed_in_a_good_ensemble() {
    let ensemble = ensemble().await;
    let (code, report) = doctor(&ensemble.hosts(), &["/locks/report"]);
    assert_eq!(code, Some(0), "{report}");
    for part in
        [", leader, tick 200ms", ", follower, tick 200ms", "session 30s", "quorum write ", "containers work"]
    {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(report.contains("/locks/report") && report.contains("does not exist now"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_member_is_found() {
    let mut ensemble = ensemble().await;
    let follower = ensemble.followers().await.expect("followers")[0];
    let name = ensemble.server(follower).hosts();
    ensemble.server_mut(follower).kill();
    let leader = ensemble.server(ensemble.leader().await.expect("a leader"));
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    while !leader.four_letter_word("mntr").await.expect("answered").contains("zk_synced_followers\t1\n") {
        pause.tick().await;
    }
    let (code, report) = doctor(&ensemble.hosts(), &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains(&format!("fix   {name}: connection refused; start the server")), "{report}");
    assert!(report.contains("2 of 3 servers are in step"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_without_all_members_is_found() {
    let ensemble = ensemble().await;
    let (code, report) = doctor(&ensemble.server(0).hosts(), &[]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("note  the list of hosts has 1 of 3 servers"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn single_server_is_found() {
    let server = server().await;
    let (code, report) = doctor(&server.hosts(), &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("fix   there is one server"), "{report}");
    assert!(!report.contains("forceSync"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_does_not_wait_for_its_disk_is_found() {
    let server = Server::builder().config("forceSync", "no").start().await.expect("a server");
    let (code, report) = doctor(&server.hosts(), &[]);
    assert_eq!(code, Some(1), "{report}");
    let fix = format!("fix   {}: has answered writes that were not on its disk", server.hosts());
    assert!(report.contains(&fix) && report.contains("; remove forceSync=no"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_sessions_that_are_not_upgraded_are_found() {
    let ensemble = Ensemble::builder().config("localSessionsEnabled", "true");
    let ensemble = ensemble.config("localSessionsUpgradingEnabled", "false").start().await.expect("an ensemble");
    let (code, report) = doctor(&ensemble.hosts(), &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("fix   a session is local, and gets no lock"), "{report}");
    assert!(report.contains("; set localSessionsUpgradingEnabled=true"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_has_to_be_fixed_where_local_sessions_are_upgraded() {
    let ensemble = Ensemble::builder().config("localSessionsEnabled", "true").config("forceSync", "yes");
    let ensemble = ensemble.config("localSessionsUpgradingEnabled", "true").start().await.expect("an ensemble");
    let (code, report) = doctor(&ensemble.hosts(), &[]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("containers work"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_no_ensemble_are_found() {
    let (one, other) = tokio::join!(Server::start(), Server::start());
    let (one, other) = (one.expect("a server"), other.expect("a server"));
    let (code, report) = doctor(&format!("{},{}", one.hosts(), other.hosts()), &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("are separate servers: each grants the same lock"), "{report}");
    assert!(report.contains(": another ensemble, which does not have a lock that is held now"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_does_not_report_everything_is_examined_all_the_same() {
    // The test needs one to find its server. `srvr` is always allowed.
    let server = Server::builder().config("4lw.commands.whitelist", "conf").start().await.expect("a server");
    let (code, report) = doctor(&server.hosts(), &[]);
    assert_eq!(code, Some(1), "there is one server: {report}");
    let note = format!("note  {}: not checked: followers in step, earlier writes, the disk", server.hosts());
    assert!(report.contains(&format!("{note}; allow 4lw.commands.whitelist=mntr")), "{report}");
    assert!(report.contains("session 30s") && report.contains("quorum write"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_the_servers_shorten_is_found() {
    let server = Server::builder().config("maxSessionTimeout", "5000").start().await.expect("a server");
    let (code, report) = doctor(&server.hosts(), &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(
        report.contains("a session of 30s was asked for, and 5s granted; raise maxSessionTimeout"),
        "{report}"
    );
    assert!(report.contains("the server grants 1s or less to 5s"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_limits_connections_is_examined_all_the_same() {
    let server = Server::builder().config("maxClientCnxns", "1").start().await.expect("a server");
    // The probes would be tried for as long as the sessions that they ask for, and one asks for a day.
    let done = zklock(["doctor", "--hosts", &server.hosts(), "--session", "4"]);
    let report = stdout(&done);
    assert_eq!(code(&done), Some(1), "{report}{}", stderr(&done));
    assert!(report.contains("the server grants ? to ?"), "{report}");
    assert!(report.contains("quorum write"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_is_shorter_than_two_ticks_is_found() {
    let server = Server::builder().tick(Duration::from_secs(3)).config("minSessionTimeout", "1000").start().await;
    let server = server.expect("a server");
    let done = zklock(["doctor", "--hosts", &server.hosts(), "--session", "5"]);
    assert_eq!(code(&done), Some(1), "{}", stderr(&done));
    assert!(stdout(&done).contains("a session of 5s is shorter than two ticks of 3s"), "{}", stdout(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_writes_are_found() {
    let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
    proxy.hold_answers(Duration::from_millis(700));
    let done = zklock(["doctor", "--hosts", &proxy.hosts(), "--session", "4"]);
    assert_eq!(code(&done), Some(1), "{}", stderr(&done));
    assert!(stdout(&done).contains("a sixth of the session, locks are lost"), "{}", stdout(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn acl_and_queue_of_a_path_are_looked_at() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let (_, report) = doctor(&hosts(), &[&world.path]);
    assert!(report.contains("world:anyone ALL; 1 child\n"), "{report}");
    assert!(report.contains("every client that can reach the servers may break its locks"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_leaves_nothing() {
    let world = World::new().await;
    let parent = world.path.rsplit_once('/').expect("a parent").0;
    let _guard = world.mutex().lock().await.expect("held");
    doctor(&hosts(), &[&world.path]);
    assert_eq!(world.session.children_of(parent).await.expect("listed"), std::slice::from_ref(&world.path));
}

#[tokio::test(flavor = "multi_thread")]
async fn chroot_is_examined() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let parent = world.path.rsplit_once('/').expect("a parent").0;
    let (_, report) = doctor(&format!("{}{parent}", hosts()), &["/lock"]);
    assert!(report.contains("world:anyone ALL; 1 child\n"), "{report}");
    let (code, report) = doctor(&format!("127.0.0.1:{}{parent}", free_port()), &["--session", "1"]);
    assert_ne!(code, Some(0), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_majority_is_named() {
    let mut ensemble = ensemble().await;
    let (left, killed) = (ensemble.server(0).hosts(), [ensemble.server(1).hosts(), ensemble.server(2).hosts()]);
    for member in [1, 2] {
        ensemble.server_mut(member).kill();
    }
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    while !ensemble.server(0).four_letter_word("srvr").await.is_ok_and(|answer| answer.contains("not currently")) {
        pause.tick().await;
    }
    let (code, report) = doctor(&ensemble.hosts(), &[]);
    assert_eq!(code, Some(69), "{report}");
    let majority = "fix   no majority: 1 of 3 servers runs, and 2 are needed; start at least 1 of";
    assert!(
        report.contains(&format!("{majority} {} and {}; do not wipe their data", killed[0], killed[1])),
        "{report}"
    );
    assert!(!report.contains(&format!("fix   {left}")) && !report.contains("remove it"), "{report}");
    assert!(report.contains("the servers have no majority"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_are_examined_at_once() {
    let ensemble = ensemble().await;
    let silent = ensemble.followers().await.expect("followers")[0];
    ensemble.server(silent).pause();
    let began = Instant::now();
    let done = zklock(["doctor", "--hosts", &ensemble.hosts(), "--session", "10"]);
    let (took, report) = (began.elapsed(), stdout(&done));
    assert_eq!(code(&done), Some(1), "{report}");
    let reason = format!("fix   {}: accepts connections, and answers nothing", ensemble.server(silent).hosts());
    assert!(report.contains(&reason), "{report}");
    assert!(report.contains("syncLimit × tickTime = 20 × 200ms = 4s"), "{report}");
    assert!(took < Duration::from_secs(20), "{took:?}: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn port_of_another_service_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let host = listener.local_addr().expect("bound").to_string();
    // A server of HTTP waits for the end of the request's head, and answers.
    let http = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                }
                _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
            });
        }
    });
    let (code, report) = doctor(&host, &[]);
    http.abort();
    assert_eq!(code, Some(69), "{report}");
    assert!(report.contains(&format!("fix   {host}: speaks HTTP on this port: give its clientPort")), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_check_no_password_are_found() {
    let server = Server::builder()
        .config("authProvider.sasl", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        .start();
    let server = server.await.expect("a server");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "alice:wrong\n").expect("written");
    let file = file.path().to_str().expect("text");
    let (code, report) = doctor(&server.hosts(), &["--sasl-file", file]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("fix   the servers do not know who we are, although we have credentials"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_of_a_checked_login_is_named() {
    let files = tempfile::tempdir().expect("a folder");
    let (users, login) = (files.path().join("users"), files.path().join("login"));
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    std::fs::write(&users, format!("Server {{ {module} required user_alice=\"wonder\"; }};")).expect("written");
    let server = Server::builder()
        .property("java.security.auth.login.config", users.to_str().expect("text"))
        .config("authProvider.sasl", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        .start();
    let server = server.await.expect("a server");
    for (password, expected, part) in
        [("wonder", 1, "; we are sasl:alice\n"), ("wrong", 77, "cannot authenticate")]
    {
        std::fs::write(&login, format!("alice:{password}\n")).expect("written");
        let (code, report) = doctor(&server.hosts(), &["--sasl-file", login.to_str().expect("text")]);
        assert_eq!(code, Some(expected), "{report}");
        assert!(report.contains(part) && !report.contains("do not know who we are"), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "alice:wonder\n").expect("written");
    let (_, report) = doctor(&hosts(), &["--auth-file", file.path().to_str().expect("text")]);
    assert!(report.contains("; we are digest:alice\n"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_can_be_ignored_by_their_ids() {
    let server = server().await;
    let (code, report) = doctor(&server.hosts(), &["--ignore", "one-server"]);
    assert_eq!(code, Some(0), "{report}");
    assert!(!report.contains("there is one server"), "{report}");
    assert!(report.contains("ignored: one-server\n"), "{report}");
    let (code, report) = doctor(&server.hosts(), &["--ignore", "one-servr"]);
    assert_eq!(code, Some(64), "{report}");
    assert!(report.contains("one-server"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn report_is_also_for_programs() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let done = zklock(["doctor", "--json", "--hosts", &hosts(), "--session", "30", &world.path]);
    assert_eq!(code(&done), Some(1), "{}", stdout(&done));
    let report: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    let host = &report["hosts"][0];
    assert_eq!((&host["mode"], &host["session_ms"]), (&json!("standalone"), &json!(30_000)), "{report}");
    assert!(host["version"].as_str().is_some_and(|version| version.starts_with("3.")), "{report}");
    assert!(host["write_ms"]["median"].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
    assert_eq!(report["path"]["children"], json!(1), "{report}");
    let findings = report["findings"].as_array().expect("an array");
    let alone = findings.iter().find(|finding| finding["id"] == "one-server").expect("a finding");
    assert_eq!(alone["level"], json!("fix"), "{report}");
    // What the page documents is what is printed.
    for (name, value) in [("", &report), ("hosts", host), ("findings", alone), ("lock", &report["lock"])] {
        for field in value.as_object().expect("an object").keys() {
            assert!(DOCUMENT.contains(&format!("`{field}`")), "{name}: {field}");
        }
    }
    let done = zklock(["doctor", "--json", "--hosts", &format!("127.0.0.1:{}", free_port()), "--session", "1"]);
    assert_eq!(code(&done), Some(69));
    let report: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    assert_eq!(report["findings"][0]["id"], json!("refused"), "{report}");
    assert_eq!(report["hosts"][0]["error"], json!("connection refused"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_have_fallen_are_found() {
    let server = server().await;
    // 3 · 2⁵⁵ + 17
    let seen = "108086391056891921";
    let (code, report) = doctor(&server.hosts(), &["--ignore", "one-server", "--token", seen]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("fix   the next token is ") && report.contains("with the epoch 4 "), "{report}");
    let (code, report) =
        doctor(&server.hosts(), &["--ignore", "one-server", "--token", seen, "--token-epoch", "4"]);
    assert_eq!(code, Some(0), "{report}");
    let (code, report) = doctor(&server.hosts(), &["--ignore", "one-server", "--token", "1"]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("containers work; token "), "{report}");
}
