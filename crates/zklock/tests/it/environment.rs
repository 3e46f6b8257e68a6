//! The variables of services mean the same to zklock.

use assert_cmd::assert::Assert;

use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};

use crate::support::{PATIENCE, World, binary, code, hosts, stderr, stdout, written};

fn zklock_with(variables: &[(&str, &str)], arguments: &[&str]) -> Assert {
    let mut command = assert_cmd::Command::new(binary());
    command.args(arguments).envs(variables.iter().copied()).timeout(PATIENCE).assert()
}

#[tokio::test(flavor = "multi_thread")]
async fn path_is_below_the_chroot_of_services() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let chroot = world.path.rsplit_once('/').expect("a parent").0;
    for (variables, arguments, rows) in [
        (&[("ZK_CHROOT", chroot)][..], &["list", "/lock"][..], 2),
        (&[], &["list", "--chroot", chroot, "/lock"], 2),
        (&[("ZK_CHROOT", "/")], &["list", &world.path], 2),
        (&[("ZK_CHROOT", "")], &["list", "/lock"], 0),
    ] {
        let done = zklock_with(variables, arguments);
        assert_eq!(code(&done), Some(0), "{}", stderr(&done));
        assert_eq!(stdout(&done).lines().count(), rows, "{variables:?} {arguments:?}: {}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_identifier_are_those_of_services() {
    let world = World::new().await;
    let (held, auth) = (world.file("held"), world.file("auth"));
    std::fs::write(&auth, "billing:secret\n").expect("written");
    let name = held.display().to_string();
    let mut command = std::process::Command::new(binary());
    command.args(world.arguments(&["--private"], &["sh", "-c", "echo >$0; sleep 1000", &name]));
    let command = command.env("ZK_AUTH", "billing:secret").env("ZK_IDENTIFIER", "billing-7");
    let _holder = crate::support::Running::start(command);
    written(&held).await;
    for (variables, expected) in [
        (&[("ZK_AUTH_FILE", auth.to_str().expect("a text"))][..], 0),
        (&[("ZK_AUTH", "billing:secret"), ("ZK_AUTH_FILE", "")], 0),
        (&[("ZK_AUTH", "billing:other")], 77),
    ] {
        let done = zklock_with(variables, &["list", &world.path]);
        assert_eq!(code(&done), Some(expected), "{variables:?}: {}", stderr(&done));
        assert_eq!(stdout(&done).contains(" billing-7 "), expected == 0, "{variables:?}: {}", stdout(&done));
    }
    // The command line replaces it.
    let done = zklock_with(&[("ZK_AUTH", "billing:other")], &["list", "--auth", "billing:secret", &world.path]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
    // One file serves both.
    let file = auth.to_str().expect("a text");
    let done = zklock_with(&[], &["list", "--auth-file", file, &world.path]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_without_private_make_an_open_lock_and_a_warning() {
    for (variables, options, is_warned) in [
        (&[("ZK_AUTH", "billing:secret")][..], &[][..], true),
        (&[("ZK_AUTH", "billing:secret")], &["--private"], false),
        (&[], &[], false),
    ] {
        // A path of its own: servers delete an empty one at any time, and the next run creates it with its ACL.
        let world = World::new().await;
        let done = zklock_with(variables, &world.arguments(options, &["true"]));
        assert_eq!(code(&done), Some(0), "{}", stderr(&done));
        assert_eq!(stderr(&done).contains("is open to everyone"), is_warned, "{variables:?}: {}", stderr(&done));
    }
}

/// Only what is known is reported.
#[tokio::test(flavor = "multi_thread")]
async fn lock_that_is_not_open_is_not_warned_of() {
    let world = World::new().await;
    let client = world.session.client().expect("a client");
    client.auth("digest", b"billing:secret").await.expect("known");
    client.mkdir(&world.path, &CreateMode::Persistent.with_acls(Acls::creator_all())).await.expect("created");
    let done = zklock_with(&[("ZK_AUTH", "billing:secret")], &world.arguments(&[], &["true"]));
    assert_eq!((code(&done), stderr(&done)), (Some(0), String::new()), "its path is closed");
    let nobody = format!("127.0.0.1:{}", testbed::free_port());
    let variables = [("ZK_AUTH", "billing:secret"), ("ZK_HOSTS", &nobody)];
    let done = zklock_with(&variables, &["run", "--session", "1", "/a", "true"]);
    assert_eq!(code(&done), Some(69), "{}", stderr(&done));
    assert!(!stderr(&done).contains("open to everyone"), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn session_timeout_of_services_is_asked_for() {
    for (variables, arguments, expected) in [
        (&[("ZK_SESSION_TIMEOUT_MS", "7000")][..], &["doctor"][..], "session 7s"),
        (&[("ZK_SESSION_TIMEOUT_MS", "7000")], &["doctor", "--session", "8"], "session 8s"),
        (&[("ZK_SESSION_TIMEOUT_MS", "")], &["doctor"], "session 10s"),
        (&[], &["doctor"], "session 10s"),
    ] {
        let done = zklock_with(variables, arguments);
        assert!(stdout(&done).contains(expected), "{variables:?} {arguments:?}: {}", stdout(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chroot_is_created_if_services_create_it() {
    let open = "zklock: /a is open to everyone, although you have credentials; --private closes it\n";
    for (credentials, others, warning) in [("", 0, ""), ("billing:secret", 77, open)] {
        let chroot = format!("/zklock-{}/app", uuid::Uuid::new_v4().simple());
        let run = |lock: &str, variables: &[(&str, &str)]| {
            let variables = [&[("ZK_CHROOT", chroot.as_str())], variables].concat();
            zklock_with(&variables, &["run", lock, "--", "true"])
        };
        assert_eq!(code(&run("/a", &[])), Some(64));
        let done = run("/a", &[("ZK_AUTH", credentials), ("ZK_CREATE_CHROOT", "true")]);
        assert_eq!((code(&done), stderr(&done)), (Some(0), warning.to_owned()));
        let done = run("/b", &[("ZK_AUTH", "other:secret")]);
        assert_eq!(code(&done), Some(others), "with credentials it is for these only: {}", stderr(&done));
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_reason() {
    let with_chroot = format!("{}/a", hosts());
    for (variables, reason) in [
        (
            &[("ZK_AUTH", "digest:billing:secret")][..],
            "ZK_AUTH should be USER:PASSWORD, without digest: before it",
        ),
        (&[("ZK_AUTH", "secret")], "ZK_AUTH should be USER:PASSWORD"),
        (&[("ZK_AUTH", "a:secret\nb:secret")], "ZK_AUTH should have one line"),
        (&[("ZK_SESSION_TIMEOUT_MS", "10s")], "ZK_SESSION_TIMEOUT_MS should be a number of milliseconds"),
        (&[("ZK_CREATE_CHROOT", "yes")], "ZK_CREATE_CHROOT should be true or false"),
        (&[("ZK_AUTH", "a:secret"), ("ZK_AUTH_FILE", "/b")], "ZK_AUTH and ZK_AUTH_FILE are both set"),
        (&[("ZK_AUTH_FILE", "/no/such/file")], "cannot read /no/such/file"),
        (&[("ZK_CHROOT", "a")], "is relative; it should begin with /"),
        (&[("ZK_CHROOT", "/b"), ("ZK_HOSTS", &with_chroot)], "the hosts end with the chroot /a"),
        (&[("ZK_TLS_CA_FILE", "/dev/null")], "cannot use /dev/null"),
        (&[("ZK_TLS_CERT_FILE", "/dev/null")], "required arguments were not provided"),
    ] {
        let done = zklock_with(variables, &["list", "/a"]);
        assert_eq!(code(&done), Some(64), "{variables:?}: {}", stderr(&done));
        assert!(stderr(&done).contains(reason), "{variables:?}: {}", stderr(&done));
        assert!(!stderr(&done).contains("secret"), "{variables:?} shows a secret: {}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn epoch_of_tokens_is_that_of_services() {
    let world = World::new().await;
    for (variables, options, expected) in [
        (&[][..], &[][..], 0),
        (&[("ZK_TOKEN_EPOCH", "3")], &[], 3),
        (&[("ZK_TOKEN_EPOCH", "3")], &["--token-epoch", "4"], 4),
        (&[("ZK_TOKEN_EPOCH", "")], &[], 0),
    ] {
        let arguments =
            world.arguments(options, &["sh", "-c", "echo $ZK_LOCK_TOKEN; $0 list --json $ZK_LOCK_PATH", binary()]);
        let done = zklock_with(variables, &arguments);
        let printed = stdout(&done);
        let (token, list) = printed.split_once('\n').expect("a token");
        assert_eq!(
            token.parse::<i64>().map(|token| token >> 55),
            Ok(expected),
            "{variables:?}: {}",
            stderr(&done)
        );
        // Of the command's environment, where the option is not.
        let token = format!("\"token\": {token}");
        assert_eq!(list.contains(&token), options.is_empty(), "{variables:?}: {list}");
    }
    let done = zklock_with(&[("ZK_TOKEN_EPOCH", "256")], &["list", &world.path]);
    assert_eq!(code(&done), Some(64));
    assert!(stderr(&done).contains("256"), "{}", stderr(&done));
}
