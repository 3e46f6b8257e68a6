//! Configurations, on a real server: credentials from a file, and a chroot.

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Config, Error, Mutex, Options, Servers, Session};

use crate::support::{BRIEF, TIMEOUT, World, admin_client, hosts, renewed, soon};
use crate::warnings::Warnings;

/// A configuration with these settings beside the session timeout of the tests.
fn config(hosts: &str, more: &Value) -> Config {
    let mut settings = json!({ "hosts": hosts, "session_timeout_ms": BRIEF.as_millis() });
    let more = more.as_object().expect("settings").clone();
    settings.as_object_mut().expect("settings").extend(more);
    serde_json::from_value(settings).expect("a configuration")
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    file
}

fn chroot() -> String {
    format!("/config-{}/deep", Uuid::new_v4().simple())
}

/// A new chroot, which only sessions with these credentials may use.
async fn chroot_of(auth: &str) -> String {
    let (admin, chroot) = (admin_client(&hosts()).await, chroot());
    admin.auth("digest", auth.as_bytes()).await.expect("known");
    admin.mkdir(&chroot, &CreateMode::Persistent.with_acls(Acls::creator_all())).await.expect("created");
    chroot
}

async fn is_lockable(session: &Session) -> Result<(), Error> {
    let mutex = Mutex::new(session, "/lock")?;
    match soon("an answer", mutex.try_lock()).await? {
        Some(guard) => guard.release().await,
        None => panic!("nobody else locks it"),
    }
}

#[tokio::test]
async fn credentials_are_read_whenever_a_session_is_made() {
    let (auth, chroot) = (file("billing:old"), chroot_of("billing:old").await);
    let config = config(&hosts(), &json!({ "chroot": chroot, "auth_file": auth.path() }));
    is_lockable(&Session::connect(&config).await.expect("connects")).await.expect("held");
    std::fs::write(auth.path(), "billing:new\r\n").expect("written");
    let session = Session::connect(&config).await.expect("connects");
    let refused = Mutex::new(&session, "/other").expect("a mutex").try_lock().await;
    assert!(matches!(refused, Err(Error::NoAuth { .. })), "the chroot is of the old ones: {refused:?}");
    std::fs::write(auth.path(), "billing:old\n").expect("written");
    is_lockable(&Session::connect(&config).await.expect("connects")).await.expect("held");
    std::fs::write(auth.path(), "hunter2").expect("written");
    let error = Session::connect(&config).await.expect_err("no credentials").to_string();
    assert_eq!(error, "invalid configuration: auth_file has to have one line, of the form user:password");
}

/// The trap: the credentials open a closed parent, and the lock below it is open to everyone.
#[tokio::test]
async fn credentials_without_acls_make_an_open_lock_and_one_warning() {
    const OPEN: &str = "credentials are set, but no ACLs: the lock is open";
    let warnings = Warnings::new();
    let _listens = warnings.listen();
    let settings = json!({ "chroot": chroot_of("billing:secret").await, "auth": "billing:secret" });
    let session = Session::connect(&config(&hosts(), &settings)).await.expect("connects");
    let own = session.clone().with_lock_options(Options::new().with_acls(Acls::creator_all()));
    let closed = Mutex::new(&own, "/closed").expect("a mutex").lock().await.expect("held");
    assert_eq!(warnings.count(OPEN), 0, "it has ACLs");

    let open = Mutex::new(&session, "/open").expect("a mutex").lock().await.expect("held");
    let logged = warnings.with(OPEN);
    assert!(matches!(&logged[..], [text] if text.contains("/open")), "{logged:?}");
    Mutex::new(&session, "/another").expect("a mutex");
    assert_eq!(warnings.count(OPEN), 1, "once for each session");

    let client = session.client().expect("a client");
    for (path, scheme) in [("/closed", "digest"), ("/open", "world")] {
        let (acls, _stat) = client.get_acl(path).await.expect("allowed");
        assert!(acls.iter().all(|acl| acl.scheme() == scheme), "{path}: {acls:?}");
    }
    drop((closed, open, client));
    session.close().await.expect("closed");
}

/// The users that the servers know the session by: the owners of a node that it creates. (3.6 does not answer `whoAmI`.)
async fn users(session: &Session) -> Vec<String> {
    let (client, node) = (session.client().expect("a client"), format!("/users-{}", Uuid::new_v4().simple()));
    let mode = CreateMode::Ephemeral.with_acls(Acls::creator_all());
    client.create(&node, b"", &mode).await.expect("created");
    let (acls, _stat) = client.get_acl(&node).await.expect("answered");
    acls.iter().map(|acl| acl.id().split(':').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn renewed_session_has_the_credentials_that_are_in_the_file_by_then() {
    let (world, auth) = (World::new().await, file("old:secret\n"));
    let session = Session::connect(&config(&world.proxy.hosts(), &json!({ "auth_file": auth.path() })))
        .await
        .expect("connects");
    assert_eq!(users(&session).await, ["old"]);
    std::fs::write(auth.path(), "new:secret\n").expect("written");
    let old = session.id();
    world.expire_that_of(&session).await;
    renewed(&session, old).await;
    assert_eq!(users(&session).await, ["new"]);
}

/// Also of the next session, which is made of the configuration again.
#[tokio::test]
async fn setting_replaces_that_of_the_configuration() {
    let world = World::new().await;
    let servers = Servers::from(&config(&world.proxy.hosts(), &json!({}))).with_session_timeout(TIMEOUT);
    let session = Session::connect(servers).await.expect("connects");
    let granted = || session.client().expect("a client").session_timeout();
    assert_eq!(granted(), TIMEOUT);
    let old = session.id();
    world.expire_that_of(&session).await;
    renewed(&session, old).await;
    assert_eq!(granted(), TIMEOUT);
}

#[tokio::test]
async fn chroot_that_is_missing_is_an_error() {
    let chroot = chroot();
    let config = config(&hosts(), &json!({ "chroot": chroot }));
    let error = Session::connect(&config).await.expect_err("there is none");
    assert_eq!(error.to_string(), format!("invalid chroot: {chroot} does not exist; create it first"));
    assert_eq!(admin_client(&hosts()).await.check_stat(&chroot).await.expect("answered"), None);
}
