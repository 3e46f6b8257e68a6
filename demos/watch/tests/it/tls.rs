//! Servers that are reached over TLS. `openssl` makes the certificates.

use std::process::Command;

use testbed::{Server, free_port};

use crate::support::{LOCK, Watch, World, binary};

/// An authority, and a certificate that it gives to the server.
const CERTIFICATES: &str = r#"
    set -e
    new() { openssl req -newkey rsa:2048 -nodes -keyout "$1.key" "${@:2}"; }
    new ca -x509 -days 30 -subj /CN=authority -out ca.pem
    new server -subj /CN=server -addext subjectAltName=IP:127.0.0.1 -out server.request
    openssl x509 -req -in server.request -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -copy_extensions copy -out server.pem
    cat server.key >>server.pem
"#;

#[tokio::test]
async fn locks_are_shown_over_tls_with_the_authority_of_the_environment() {
    let (files, port) = (tempfile::tempdir().expect("a folder"), free_port());
    let made = Command::new("bash").args(["-c", CERTIFICATES]).current_dir(files.path()).output().expect("bash");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = |name| files.path().join(name).to_str().expect("text").to_owned();
    let server = Server::builder()
        .property("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory")
        .config("secureClientPort", port.to_string())
        .config("secureClientPortAddress", "127.0.0.1")
        .config("ssl.keyStore.location", file("server.pem"))
        .config("ssl.trustStore.location", file("ca.pem"))
        .config("ssl.clientAuth", "none")
        .start()
        .await
        .expect("a server");
    let world = World::on(&server.hosts()).await;
    let guard = world.lock_of("billing-7").lock().await.expect("held");
    let mut command = binary(&format!("127.0.0.1:{port}{}", world.chroot));
    let watch = Watch::run(command.env("ZK_TLS_CA_FILE", file("ca.pem"))).await;
    let event = watch.event("/locks", |event| event["is_complete"] == true).await;
    assert_eq!(
        (&event["locks"][0]["path"], &event["locks"][0]["identifier"]),
        (&LOCK.into(), &"billing-7".into())
    );
    guard.release().await.expect("released");
    assert!(watch.terminate().await);
}
