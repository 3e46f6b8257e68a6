//! Sessions with SASL DIGEST-MD5, and locks that belong to a user.

use testbed::proxy::Proxy;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Permission};
use zookeeper_recipes::{Error, Mutex, Options, Servers, Session};

use crate::servers::{connect, sasl_server, soon, user};

/// A lock that only this user may use.
fn mutex_of(session: &Session, user: &str) -> Mutex {
    let acls = [Acl::new(Permission::ALL, AuthId::new("sasl", user))];
    Mutex::with_options(session, "/sasl/lock", Options::new().with_acls(Acls::new(&acls))).expect("a mutex")
}

#[tokio::test]
async fn lock_of_a_user_keeps_others_out_also_after_a_renewal() {
    let (server, _files) = sasl_server().await;
    let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
    let alice = connect(|| user(&proxy.hosts(), "alice", "wonder")).await;
    let guard = soon("the lock", mutex_of(&alice, "alice").lock()).await.expect("held");
    let bob = connect(|| user(&server.hosts(), "bob", "builder")).await;
    let nobody = connect(|| Servers::new(&server.hosts())).await;
    for session in [&bob, &nobody] {
        let error = soon("a refusal", mutex_of(session, "alice").lock()).await.expect_err("another user");
        assert!(matches!(&error, Error::NoAuth { path } if path == "/sasl/lock"), "{error:?}");
    }

    let first = alice.id();
    let password = proxy.password(first.0).expect("the session went through the proxy");
    proxy.refuse();
    testbed::expire::expire(&server.hosts(), (first.0, password)).await.expect("expires");
    proxy.heal();
    soon("the loss", guard.lost()).await;
    let guard = soon("the lock", mutex_of(&alice, "alice").lock()).await.expect("held by the renewed session");
    assert_ne!(alice.id(), first);
    guard.release().await.expect("released");
}
