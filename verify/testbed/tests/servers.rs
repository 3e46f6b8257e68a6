//! Servers, ensembles and their links.

use std::path::Path;
use std::time::Duration;

use testbed::{Ensemble, Server};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, Client, CreateMode, SessionState};

/// Long enough for a busy machine.
const SESSION: Duration = Duration::from_secs(4);
/// Over before a follower gives up a leader whose pings it misses.
const SHORT_SESSION: Duration = Duration::from_millis(1200);
const POLL: Duration = Duration::from_millis(20);
/// Far longer than anything takes that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

async fn connect(hosts: &str) -> Client {
    connect_for(hosts, SESSION).await
}

async fn connect_for(hosts: &str, session: Duration) -> Client {
    Client::connector().with_session_timeout(session).connect(hosts).await.expect("the server answers")
}

async fn write(client: &Client) -> Result<(), zookeeper_client::Error> {
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    client.create("/written-", b"", &mode).await.map(drop)
}

/// Waits until server `i` takes no requests, or takes them again.
async fn wait_until_serving(ensemble: &Ensemble, i: usize, serving: bool) {
    let deadline = Instant::now() + LIMIT;
    while ensemble.server(i).mode().await.is_some() != serving {
        assert!(Instant::now() < deadline, "server {i} still has serving == {}", !serving);
        sleep(POLL).await;
    }
}

#[tokio::test]
async fn restarted_server_keeps_port_and_data() {
    let mut server = Server::start().await.unwrap();
    let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
    connect(&server.hosts()).await.create("/kept", b"", &mode).await.unwrap();

    server.kill();
    assert!(server.four_letter_word("ruok").await.is_err());
    server.restart().await.unwrap();

    assert_eq!(server.mode().await.as_deref(), Some("standalone"));
    assert!(connect(&server.hosts()).await.check_stat("/kept").await.unwrap().is_some());
}

#[tokio::test]
async fn server_that_is_restarted_empty_has_no_nodes() {
    let mut server = Server::start().await.unwrap();
    let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let (before, _) = connect(&server.hosts()).await.create("/forgotten", b"", &mode).await.unwrap();

    server.restart_empty().await.unwrap();

    let client = connect(&server.hosts()).await;
    assert_eq!(client.check_stat("/forgotten").await.unwrap(), None);
    let (again, _) = client.create("/forgotten", b"", &mode).await.unwrap();
    assert!(again.czxid <= before.czxid, "{again:?}");
}

#[tokio::test]
async fn counter_begins_at_the_given_number_and_survives_a_restart() {
    let mut server = Server::builder().counter("/deep/queue", 2_147_483_645).start().await.unwrap();
    let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let client = connect(&server.hosts()).await;
        for _ in 0..2 {
            let (_, number) = client.create("/deep/queue/n-", b"", &sequential).await.unwrap();
            numbers.push(number.into_i64());
            client.delete(&format!("/deep/queue/n-{number}"), None).await.unwrap();
        }
        server.restart().await.unwrap();
    }
    // If children are created one by one, the counter stays at its end.
    assert_eq!(numbers, [2_147_483_645, 2_147_483_646, 2_147_483_647, 2_147_483_647]);
}

#[tokio::test]
async fn paused_server_is_silent_until_resumed() {
    let server = Server::start().await.unwrap();
    server.pause();
    assert_eq!(server.mode().await, None);
    server.resume();
    assert_eq!(server.four_letter_word("ruok").await.unwrap(), "imok");
}

#[tokio::test]
async fn dropped_server_leaves_no_process_and_no_files() {
    let server = Server::start().await.unwrap();
    let folder = server.folder().to_owned();
    let hosts = server.hosts();
    drop(server);
    assert!(!Path::exists(&folder));
    assert!(tokio::net::TcpStream::connect(hosts).await.is_err());
}

#[tokio::test]
async fn ensemble_has_one_leader_and_others_follow() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let followers = ensemble.followers().await.unwrap();
    assert_eq!(followers.len(), 2);
    assert!(!followers.contains(&leader));
    write(&connect(&ensemble.hosts()).await).await.unwrap();
}

#[tokio::test]
async fn another_leads_when_leader_is_killed() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let old = ensemble.leader().await.unwrap();
    ensemble.server_mut(old).kill();

    let new = ensemble.leader().await.unwrap();
    assert_ne!(new, old);
    write(&connect(&ensemble.server(new).hosts()).await).await.unwrap();

    ensemble.server_mut(old).restart().await.unwrap();
    ensemble.settled().await.unwrap();
}

#[tokio::test]
async fn isolated_follower_stops_serving_until_healed() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let follower = ensemble.followers().await.unwrap()[0];
    ensemble.isolate(follower);
    wait_until_serving(&ensemble, follower, false).await;
    write(&connect(&ensemble.server(ensemble.leader().await.unwrap()).hosts()).await).await.unwrap();

    ensemble.heal();
    ensemble.settled().await.unwrap();
    write(&connect(&ensemble.server(follower).hosts()).await).await.unwrap();
}

#[tokio::test]
async fn isolated_leader_is_replaced() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let old = ensemble.leader().await.unwrap();
    ensemble.isolate(old);
    wait_until_serving(&ensemble, old, false).await;
    assert_ne!(ensemble.leader().await.unwrap(), old);
    ensemble.heal();
    ensemble.settled().await.unwrap();
}

#[tokio::test]
async fn short_black_hole_loses_no_request() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = ensemble.followers().await.unwrap()[0];
    let client = Client::connector()
        .with_session_timeout(Duration::from_secs(10))
        .connect(&ensemble.server(follower).hosts())
        .await
        .unwrap();
    let link = ensemble.link(follower, leader);

    link.black_hole();
    let write = write(&client);
    tokio::pin!(write);
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut write).await.is_err());
    link.heal();
    write.await.unwrap();
    assert_eq!(ensemble.server(follower).mode().await.as_deref(), Some("follower"));
}

#[tokio::test]
async fn cut_follower_stops_serving_at_once() {
    // A follower would give up a silent leader only after two minutes, which is longer than the test waits.
    let ensemble = Ensemble::builder().sync_limit(600).start().await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = ensemble.followers().await.unwrap()[0];
    ensemble.link(follower, leader).cut();
    wait_until_serving(&ensemble, follower, false).await;
    ensemble.heal();
    ensemble.settled().await.unwrap();
}

#[tokio::test]
async fn held_pings_expire_a_session_whose_requests_are_answered() {
    let ensemble = Ensemble::start(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = ensemble.followers().await.unwrap()[0];
    let client = connect_for(&ensemble.server(follower).hosts(), SHORT_SESSION).await;
    let link = ensemble.link(follower, leader);

    link.hold_pings();
    let held = Instant::now();
    let mut answered = 0;
    while client.state() != SessionState::Expired {
        // On a busy machine the connection may be lost meanwhile.
        answered += u32::from(write(&client).await.is_ok());
        assert!(held.elapsed() < LIMIT, "the session lives on");
        sleep(POLL).await;
    }
    println!("expired after {:?} and {answered} writes", held.elapsed());
    assert!(answered > 0, "no write was answered");
    // The leader expired the session; the follower never left the quorum.
    assert_eq!(ensemble.server(follower).mode().await.as_deref(), Some("follower"));

    link.heal();
    let client = connect(&ensemble.server(follower).hosts()).await;
    sleep(2 * SESSION).await;
    write(&client).await.unwrap();
}

#[tokio::test]
async fn server_has_the_environment_of_its_builder() {
    let server =
        Server::builder().environment("JDK_JAVA_OPTIONS", "-Dof.the.builder=yes").start().await.expect("up");
    let log = std::fs::read_to_string(server.folder().join("server.log")).expect("a log");
    // The launcher of Java reports what it takes from there.
    assert!(log.contains("-Dof.the.builder=yes"), "{log}");
}
