//! Sessions over TLS, by certificates on both sides that are replaced while a service runs.

use std::fs;

use zookeeper_recipes::zookeeper_client::{Acls, TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};
use zookeeper_recipes::{Error, Mutex, Options, Servers, Session};

use crate::certificates::{Authority, Certificate};
use crate::servers::{TIMEOUT, TlsServer, connect, over_tls, soon};

const HOST: &str = "IP:127.0.0.1";
/// Longer than a server takes to restart.
const LONG: std::time::Duration = std::time::Duration::from_secs(30);

/// A lock that only this identity may use: with X.509, the subject of its certificate.
fn own_mutex(session: &Session) -> Mutex {
    Mutex::with_options(session, "/tls/lock", Options::new().with_acls(Acls::creator_all())).expect("a mutex")
}

#[tokio::test]
async fn session_with_a_client_certificate_locks_and_keeps_others_out() {
    let authority = Authority::new("authority");
    let server = TlsServer::start(&authority.issue("server", HOST, 30), &authority).await;
    let [service, other] = ["service", "other"].map(|name| authority.issue(name, HOST, 30));
    let session = connect(|| over_tls(&server.hosts(), &authority, Some(&service))).await;
    let guard = soon("the lock", own_mutex(&session).lock()).await.expect("held");

    let stranger = connect(|| over_tls(&server.hosts(), &authority, Some(&other))).await;
    let plaintext = connect(|| Servers::new(&server.server.hosts())).await;
    for session in [&stranger, &plaintext] {
        let error = soon("a refusal", own_mutex(session).try_lock()).await.expect_err("another identity");
        assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    }
    guard.release().await.expect("released");
}

/// The service reads its files whenever its session is renewed.
#[tokio::test]
async fn service_goes_on_when_all_certificates_are_replaced() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mut server = TlsServer::start(&old.issue("server", HOST, 30), &old).await;
    let files = tempfile::tempdir().expect("a folder");
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| files.path().join(name));
    let put = |authority: &Authority| {
        let issued = authority.issue("service", HOST, 30);
        for (from, to) in [(authority.trust(), &ca), (&issued.cert, &cert), (&issued.key, &key)] {
            fs::copy(from, to).expect("written");
        }
    };
    put(&old);
    let (hosts, paths) = (server.hosts(), [ca.clone(), cert.clone(), key.clone()]);
    let of_files = || {
        let (hosts, paths) = (hosts.clone(), paths.clone());
        Servers::from_fn(move || {
            let (hosts, paths) = (hosts.clone(), paths.clone());
            async move {
                let [ca, cert, key] = paths.map(fs::read_to_string);
                let options = TlsOptions::new().with_pem_ca(&ca?)?.with_pem_identity(&cert?, &key?)?;
                Ok(Servers::new(&hosts).with_session_timeout(TIMEOUT).with_tls(options))
            }
        })
    };
    let session = connect(of_files).await;
    let guard = soon("the lock", own_mutex(&session).lock()).await.expect("held");
    let first = session.id();

    // The server now knows only the new authority, and the session its old certificate, with which it cannot come back.
    put(&new);
    server.rotate(&new.issue("server", HOST, 30), &new).await;
    soon("the loss", guard.lost()).await;
    let guard = soon("the lock", own_mutex(&session).lock()).await.expect("held by the new certificate");
    assert_ne!(session.id(), first);
    guard.release().await.expect("released");
}

/// The client asks such certificates at every connection, so that the session need not end.
#[tokio::test]
async fn session_survives_a_rotation_of_dynamic_certificates() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mut server = TlsServer::start(&old.issue("server", HOST, 30), &old).await;
    let certs = |authority: &Authority| {
        let Certificate { cert, key } = authority.issue("service", HOST, 30);
        let [ca, cert, key] =
            [authority.trust(), &cert, &key].map(|file| fs::read_to_string(file).expect("written"));
        let identity = TlsIdentity::from_pem(&cert, &key).expect("an identity");
        let ca = TlsCa::from_pem(&ca).expect("an authority");
        TlsCerts::builder().with_ca(ca).with_identity(identity).build().expect("certificates")
    };
    let shared = TlsDynamicCerts::new(certs(&old));
    let options = TlsOptions::new().with_certs(shared.clone());
    let servers = || Servers::new(&server.hosts()).with_session_timeout(LONG).with_tls(options.clone());
    let session = connect(servers).await;
    let guard = soon("the lock", own_mutex(&session).lock()).await.expect("held");
    let first = session.id();

    shared.update(certs(&new));
    server.rotate(&new.issue("server", HOST, 30), &new).await;
    soon("the release", guard.release()).await.expect("still held");
    assert_eq!(session.id(), first);
}
