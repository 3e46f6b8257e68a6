//! How it connects: with the variables `ZK_*` of the library.

use testbed::Server;
use tokio::io::AsyncReadExt;
use zookeeper_recipes::zookeeper_client::Acls;
use zookeeper_recipes::{Mutex, Options, Servers, Session};

use crate::support::{FROM_HERE, LOCK, Watch, World, binary, soon};

#[tokio::test]
async fn lock_that_acls_close_is_shown_and_revoked_with_the_credentials_and_the_chroot_of_the_environment() {
    let world = World::new().await;
    let session = Session::connect(Servers::new(&world.hosts()).with_auth("digest", "billing:secret"));
    let session = session.await.expect("connects");
    let options = Options::new().with_identifier("billing-7").with_acls(Acls::creator_all());
    let lock = Mutex::with_options(&session, LOCK, options).expect("a lock");
    let guard = lock.lock().await.expect("held");
    let hidden = Watch::start(&world.hosts()).await;
    let event = hidden.event("/locks", |event| event["is_complete"] == true).await;
    assert_eq!((&event["locks"], &event["denied"]), (&serde_json::json!([]), &serde_json::json!(1)));
    hidden
        .event(&format!("/queue?lock={LOCK}"), |event| event["hidden"] == true && event["queue"].is_null())
        .await;

    let mut command = binary(&world.server);
    let watch = Watch::run(command.env("ZK_CHROOT", &world.chroot).env("ZK_AUTH", "billing:secret")).await;
    let event = watch.event("/locks", |event| event["is_complete"] == true).await;
    assert_eq!(
        (&event["locks"][0]["path"], &event["locks"][0]["identifier"]),
        (&LOCK.into(), &"billing-7".into())
    );
    let holder = lock.contenders().await.expect("listed").remove(0);
    let revoke = format!("/contenders/{}/{}/revoke?lock={LOCK}", holder.name(), holder.token());
    let (status, answer) = watch.ask("POST", &revoke, FROM_HERE).await;
    assert_eq!(status, 200, "{answer}");
    soon("the holder is asked", guard.revoke_requested()).await;
    guard.release().await.expect("released");
    session.close().await.expect("closed");
}

/// Without the feature, unless another package of the same build asks the library for TLS: then the file is missing.
#[tokio::test]
async fn tls_that_cannot_be_had_ends_it_with_the_name_of_the_variable() {
    let server = Server::start().await.expect("a server");
    let mut command = binary(&server.hosts());
    let mut process = command.env("ZK_TLS_CA_FILE", "/missing/ca.pem").spawn().expect("it can be run");
    let mut text = String::new();
    let mut errors = process.stderr.take().expect("piped");
    soon("its end", errors.read_to_string(&mut text)).await.expect("text");
    assert!(!soon("its end", process.wait()).await.expect("a child").success());
    assert!(text.contains("ZK_TLS_CA_FILE"), "{text}");
}
