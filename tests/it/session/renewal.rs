//! Sessions that ask for their credentials and hosts whenever they are renewed.

use std::sync::{Arc, Mutex as Shared};
use std::time::Duration;

use testbed::proxy::Proxy;
use zookeeper_recipes::options::Parents;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, Mutex, Options, Servers, Session};

use crate::support::{BRIEF, admin_client, hosts, soon};

/// What is answered: who to connect as, and where, or why that is not known.
type Answer = Arc<Shared<Result<(&'static str, String), &'static str>>>;

fn answer(credentials: &'static str, hosts: String) -> Answer {
    Arc::new(Shared::new(Ok((credentials, hosts))))
}

fn change(answer: &Answer, to: Result<(&'static str, String), &'static str>) {
    *answer.lock().expect("no panic") = to;
}

type Asked = Result<Servers, Box<dyn std::error::Error + Send + Sync>>;

fn ask(answer: &Answer) -> impl Fn() -> std::future::Ready<Asked> + Send + Sync + 'static {
    let answer = answer.clone();
    move || {
        let (credentials, hosts) = match answer.lock().expect("no panic").clone() {
            Ok(answer) => answer,
            Err(reason) => return std::future::ready(Err(reason.into())),
        };
        std::future::ready(Ok(Servers::new(&hosts).with_session_timeout(BRIEF).with_auth("digest", credentials)))
    }
}

/// The reasons why a session is not connected, once they have this text.
async fn reason(session: &Session, text: &str) -> String {
    let mutex = Mutex::new(session, "/asked/lock").expect("a mutex");
    soon("the reason", async {
        loop {
            if let Err(error) = mutex.try_lock_for(Duration::from_millis(50)).await
                && error.to_string().contains(text)
            {
                return error.to_string();
            }
        }
    })
    .await
}

#[tokio::test]
async fn renewed_session_has_the_credentials_and_hosts_of_that_moment() {
    let first = Proxy::start(&hosts()).await.expect("a proxy");
    let answer = answer("billing:old", first.hosts());
    let session = Session::connect(Servers::from_fn(ask(&answer))).await.expect("connects");
    let path = format!("/asked-{}", uuid::Uuid::new_v4().simple());
    // An empty container would not stay.
    let options = Options::new().with_acls(Acls::creator_all()).with_parents(Parents::Persistent);
    let mutex = Mutex::with_options(&session, &path, options).expect("a mutex");
    mutex.lock().await.expect("held").release().await.expect("released");

    change(&answer, Err("the vault is sealed"));
    first.refuse();
    let text = reason(&session, "the vault is sealed").await;
    assert!(text.contains("they could not be asked for: the vault is sealed"), "{text}");
    let second = Proxy::start(&hosts()).await.expect("a proxy");
    change(&answer, Ok(("billing:new", second.hosts())));
    // Another identity, to which the ACLs of the old one give nothing.
    let error = soon("the refusal", mutex.lock()).await.expect_err("refused");
    assert!(matches!(error, Error::NoAuth { .. }), "{error:?}");
    assert!(format!("{session:?}").contains(&second.hosts()));

    change(&answer, Ok(("billing:old", second.hosts())));
    let before = session.client().expect("a client");
    second.refuse();
    soon("the end of the session", async {
        let mut state = before.state_watcher();
        while !state.state().is_terminated() {
            state.changed().await;
        }
    })
    .await;
    drop(before);
    second.heal();
    soon("the lock", mutex.lock()).await.expect("held").release().await.expect("released");
    session.close().await.expect("closed");
}

#[tokio::test]
async fn question_that_fails_at_first_is_an_error() {
    let answer = Arc::new(Shared::new(Err("the vault is sealed")));
    let error = Session::connect(Servers::from_fn(ask(&answer))).await.expect_err("no answer");
    assert_eq!(error.to_string(), "invalid servers: they could not be asked for: the vault is sealed");
    let lazy = Session::lazy(Servers::from_fn(ask(&answer))).expect("a session");
    reason(&lazy, "the vault is sealed").await;
    change(&answer, Ok(("billing:secret", hosts())));
    let mutex = Mutex::new(&lazy, &format!("/asked-{}", uuid::Uuid::new_v4().simple())).expect("a mutex");
    soon("the lock", mutex.lock()).await.expect("held").release().await.expect("released");

    change(&answer, Ok(("billing:secret", "zk1;zk2".to_owned())));
    let error = Session::connect(Servers::from_fn(ask(&answer))).await.expect_err("no host");
    assert!(matches!(error, Error::InvalidInput { what: "hosts", .. }), "{error:?}");
    let own = Session::connect(Servers::from_fn(async || Err(Error::Closed.into()))).await.expect_err("no answer");
    assert_eq!(own, Error::Closed);
}

#[tokio::test]
async fn chroot_of_a_session_cannot_change() {
    let admin = admin_client(&hosts()).await;
    let chroot = format!("/asked-{}", uuid::Uuid::new_v4().simple());
    admin.create(&chroot, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("created");
    let proxy = Proxy::start(&hosts()).await.expect("a proxy");
    let answer = answer("billing:secret", format!("{}{chroot}", proxy.hosts()));
    let session = Session::connect(Servers::from_fn(ask(&answer))).await.expect("connects");
    change(&answer, Ok(("billing:secret", hosts())));
    proxy.refuse();
    let text = reason(&session, "has to remain").await;
    assert!(text.contains(&format!("the chroot of the session is {chroot}")), "{text}");
}
