//! What users get wrong on the command line: each is refused with its reason, before anything is sent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::support::{World, code, stderr, zklock};

/// The arguments, and a part of the reason.
const USAGE: &[(&[&str], &str)] = &[
    (&["run", "/a"], "required arguments were not provided"),
    (&["run", "a", "--", "true"], "is relative; it should begin with /"),
    (&["run", "/", "--", "true"], "the root cannot be a lock"),
    (&["run", "", "--", "true"], "it is empty"),
    (&["run", "/a/", "--", "true"], "leave the last / out"),
    (&["run", "/a//b", "--", "true"], "has an empty segment"),
    (&["run", "/a/../b", "--", "true"], "which ZooKeeper does not resolve"),
    (&["run", "/a\n", "--", "true"], "has the character '\\n'; write %0A"),
    (&["run", "/zookeeper/quota", "--", "true"], "belongs to the servers"),
    (&["run", "-s", "-x", "/a", "--", "true"], "cannot be used with"),
    (&["run", "-s", "-N", "2", "/a", "--", "true"], "cannot be used with"),
    (&["run", "-n", "-w", "2", "/a", "--", "true"], "cannot be used with"),
    (&["run", "-N", "0", "/a", "--", "true"], "0 is not in 1.."),
    (&["run", "-N", "4294967296", "/a", "--", "true"], "is not in 1.."),
    (&["run", "-w", "-1", "/a", "--", "true"], "unexpected argument '-1'"),
    (&["run", "--wait=-1", "/a", "--", "true"], "it should be a time, such as 2, 0.5, 500ms, 30s, 5m or 2h"),
    (&["run", "-w", "inf", "/a", "--", "true"], "it should be a time, such as 2"),
    (&["run", "-w", "1e9", "/a", "--", "true"], "it should be a time, such as 2"),
    (&["run", "-w", "5 s", "/a", "--", "true"], "it should be a time, such as 2"),
    (&["run", "-w", "2weeks", "/a", "--", "true"], "it should be a time, such as 2"),
    (
        &["run", "/a", "-c", "true"],
        "tip: zklock executes the command itself: run PATH COMMAND ARG..., or run PATH sh -c '...'",
    ),
    (&["/locks/a", "true"], "tip: `zklock run PATH COMMAND...` takes a lock as flock(1) does"),
    (&["run", "-n", "/a"], "tip: `zklock hold PATH` holds a lock without a command"),
    (&["run", "-w", "99999999999", "/a", "--", "true"], "a century is the most"),
    (&["run", "-E", "256", "/a", "--", "true"], "256 is not in 0..=255"),
    (&["run", "--session", "0", "/a", "--", "true"], "from 0.1 s to a day"),
    (&["run", "--hosts", "zk1;zk2", "/a", "--", "true"], "has the character ';'"),
    (&["run", "--hosts", "", "/a", "--", "true"], "a host is missing"),
    (&["run", "--hosts", "zk1/a/,zk2", "/a", "--", "true"], "a chroot comes once"),
    (
        &["run", "--auth", "secret-without-a-scheme", "/a", "--", "true"],
        "--auth should be USER:PASSWORD, without digest: before it",
    ),
    (&["run", "--auth", "digest:a:secret", "/a", "--", "true"], "--auth should be USER:PASSWORD, without digest:"),
    (&["run", "--auth-file", "/no/such/file", "/a", "--", "true"], "cannot read /no/such/file"),
    (&["run", "--tls-ca", "/dev/null", "/a", "--", "true"], "cannot use /dev/null"),
    (&["run", "--tls-cert", "/dev/null", "/a", "--", "true"], "required arguments were not provided"),
    (&["run", "--hosts", "tcp+tls://zk1", "/a", "--", "true"], "give --tls-ca"),
    (&["run", "--sasl-file", "/dev/null", "/a", "--", "true"], "should begin with USER:PASSWORD"),
    (&["run", "--identifier", "__REVOKE__", "/a", "--", "true"], "asks a holder to release"),
    (&["run", "--private", "/a", "--", "true"], "--private needs an identity"),
    (&["man", "/no/such/directory", "more"], "unexpected argument"),
    (&["hold", "/a", "--", "true"], "unexpected argument 'true'"),
    (&["hold", "--private", "/a"], "--private needs an identity"),
    (&["break", "/a", "7"], "give --yes to remove the node"),
    (&["shards"], "required arguments were not provided"),
    (&["shards", "a"], "is relative; it should begin with /"),
    (&["shards", "/a", "/b"], "tip: `zklock shards PATH` shows a group. A change (drain,"),
    (&["shards", "drian", "/a", "b"], "tip: `zklock shards PATH` shows a group. A change (drain,"),
    (&["shards", "drain", "/a"], "required arguments were not provided"),
    (&["shards", "drain", "a", "b"], "is relative; it should begin with /"),
    (&["shards", "pin", "/a", "x", "b"], "it should be the number of a shard, from 0 on"),
    (&["shards", "--json", "drain", "/a", "b"], "cannot be used with"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_refused_with_its_reason() {
    for (arguments, reason) in USAGE {
        let done = zklock(*arguments);
        let stderr = stderr(&done);
        assert_eq!(code(&done), Some(64), "{arguments:?}: {stderr}");
        assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("secret"), "{arguments:?} shows a secret: {stderr}");
    }
}

#[test]
fn path_that_is_too_long_is_not_printed_whole() {
    let path = format!("/{}", "x".repeat(20_000));
    for arguments in [&["list", &path][..], &["ls", &path], &["run", "-n", &path, "true"]] {
        let done = zklock(arguments);
        assert_eq!(code(&done), Some(64), "{}", arguments[0]);
        assert!(stderr(&done).len() < 1000, "{}: {} bytes", arguments[0], stderr(&done).len());
        assert!(stderr(&done).contains("it has 20001 bytes; 16384 are the most"), "{}", stderr(&done));
    }
}

#[test]
fn path_that_is_no_text_is_refused() {
    let done = zklock([OsStr::new("list"), OsStr::from_bytes(b"/\xff")]);
    assert_eq!(code(&done), Some(64), "{}", stderr(&done));
}

#[test]
fn hosts_have_to_be_given() {
    for hosts in [None, Some("")] {
        let mut command = assert_cmd::Command::new(crate::support::binary());
        command.args(["list", "/a"]).env_remove("ZK_HOSTS").envs(hosts.map(|hosts| ("ZK_HOSTS", hosts)));
        let done = command.assert();
        assert_eq!(code(&done), Some(64));
        assert!(
            stderr(&done).contains("no servers are given: set ZK_HOSTS or --hosts, as zk1:2181"),
            "{}",
            stderr(&done)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chroot_that_does_not_exist_is_refused() {
    let world = World::new().await;
    let hosts = format!("{}/no-such-chroot", crate::support::hosts());
    let done = world.run(&["--hosts", &hosts], &["true"]);
    assert_eq!(code(&done), Some(64), "{}", stderr(&done));
    assert!(stderr(&done).contains("no-such-chroot"), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_speaks_no_zookeeper_gives_no_session() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let talk = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // More than any answer of a server, for as long as somebody reads it.
                while tokio::io::AsyncWriteExt::write_all(&mut stream, &[b'?'; 4096]).await.is_ok() {}
            });
        }
    });
    let hosts = format!("127.0.0.1:{port}");
    for arguments in [&["list", "/a"][..], &["doctor"]] {
        let done = zklock(arguments.iter().copied().chain(["--session", "1", "--hosts", &hosts]));
        assert_eq!(code(&done), Some(69), "{arguments:?}: {}", stderr(&done));
    }
    talk.abort();
}
