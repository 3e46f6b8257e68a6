//! The pages that set up TLS, SASL and ACLs, run as they stand there: their commands, their configuration of the servers, and
//! their code. Only host names and ports are others.

use std::error::Error as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Map, Value};
use tempfile::TempDir;
use testbed::{Server, ServerBuilder, free_port};
use tokio::process::Command;
use tokio::sync::Mutex;
use zookeeper_recipes::zookeeper_client::Error as ZkError;
use zookeeper_recipes::{Config, Error, MutexGuard, Session};

use crate::pages::{acls, sasl};
use crate::servers::soon;

/// The name and the ports of a server in the pages.
const HOST: &str = "zk1.example.com";
const PORT: &str = "2181";
const SECURE_PORT: &str = "2281";

/// The session timeout, longer than a busy machine lets a session wait.
const UNHURRIED_MS: u32 = 30_000;

/// Each page starts Java several times, and the other tests need the machine, too.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Stands for the script of a release.
const ZK_CLI: &str = concat!(
    "#!/usr/bin/env bash\nset -euo pipefail\nfound=$('",
    env!("CARGO_MANIFEST_DIR"),
    "/../../zk-docker/classpath' --find </dev/null)\n",
    "exec \"${found%%$'\\n'*}\" -cp \"${found#*$'\\n'}\" org.apache.zookeeper.ZooKeeperMain \"$@\"\n"
);

/// A page, and the folder in which its commands are run.
struct Page {
    text: String,
    folder: TempDir,
}

impl Page {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("zkCli.sh");
        fs::write(&script, ZK_CLI).expect("written");
        fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("executable");
        Self { text: text.to_owned(), folder }
    }

    /// Reads another name or port where the page has this one.
    fn replace(&mut self, written: &str, ours: &str) {
        assert!(self.text.contains(written), "the page does not have {written}");
        self.text = self.text.replace(written, ours);
    }

    /// The only block under a heading that is in this language.
    fn block(&self, heading: &str, language: &str) -> &str {
        let (_, section) =
            self.text.split_once(&format!("\n## {heading}")).unwrap_or_else(|| panic!("no {heading}"));
        let section = section.split("\n## ").next().expect("a part");
        let fence = format!("\n```{language}\n");
        let mut blocks = section.split(&fence).skip(1);
        let block = blocks.next().unwrap_or_else(|| panic!("{heading} has no {language}"));
        assert_eq!(blocks.next(), None, "one block of {language} under {heading}");
        block.split("\n```").next().expect("a part")
    }

    /// Runs the commands under a heading, and returns what they print. Meanwhile the sessions of the test go on.
    async fn run(&self, heading: &str) -> String {
        self.run_and(heading, "").await
    }

    async fn run_and(&self, heading: &str, then: &str) -> String {
        let script = format!("{}\n{then}", self.block(heading, "sh"));
        let path = std::env::var("PATH").expect("a path");
        let mut command = Command::new("bash");
        command.args(["-eo", "pipefail", "-c", &script]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", self.folder.path().display())).env_remove("SERVER_JVMFLAGS");
        let output = command.output().await.expect("bash can be run");
        let [out, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(output.status.success(), "{script}\n{out}\n{errors}");
        out
    }

    /// A server with the lines that the page has written into `zoo.cfg`.
    fn server(&self) -> ServerBuilder {
        let zoo_cfg = fs::read_to_string(self.folder.path().join("zoo.cfg")).expect("written by the page");
        zoo_cfg.lines().fold(Server::builder(), |server, line| {
            let (key, value) = line.split_once('=').expect("a setting");
            server.config(key, value)
        })
    }

    /// The configuration of a service that is started with the variables under a heading.
    async fn config(&self, heading: &str) -> Config {
        let mut settings: Map<_, _> = self
            .run_and(heading, "env")
            .await
            .lines()
            .filter_map(|line| line.strip_prefix("ZK_")?.split_once('='))
            .map(|(name, value)| (name.to_lowercase(), Value::from(value)))
            .collect();
        settings.insert("session_timeout_ms".to_owned(), UNHURRIED_MS.into());
        serde_json::from_value(settings.into()).expect("a configuration")
    }
}

async fn locked(session: &Session, path: &str) -> Result<MutexGuard, Error> {
    soon("the lock", zookeeper_recipes::Mutex::new(session, path).expect("a mutex").lock()).await
}

#[tokio::test]
async fn page_about_tls_can_be_followed() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let mut page = Page::new(include_str!("../../../docs/tls.md"));
    page.replace(HOST, "localhost");
    page.replace(SECURE_PORT, &free_port().to_string());
    for heading in ["1. An authority", "2. A certificate for each server", "3. A certificate for each service"] {
        page.run(heading).await;
    }
    page.run("4. The servers").await;
    let server = page.server().start().await.expect("a server");

    let config = page.config("5. The service").await;
    let session = soon("a session", Session::connect(&config)).await.expect("connects");
    let guard = locked(&session, "/tls/lock").await.expect("held");
    let plain = Session::connect(&server.hosts()).await.expect("the other port is open");
    let seen =
        zookeeper_recipes::Mutex::new(&plain, "/tls/lock").expect("a mutex").contenders().await.expect("listed");
    assert_eq!(seen.len(), 1, "both ports are of one server");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn page_about_sasl_can_be_followed() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let mut page = Page::new(include_str!("../../../docs/sasl.md"));
    assert_eq!(page.block("2. The service", "rust").trim_end(), include_str!("pages/sasl.rs").trim_end());
    // Debian's `zkServer.sh` reads `environment`, which is there before, and no `java.env`.
    let debian = Page::new(include_str!("../../../docs/sasl.md"));
    fs::write(debian.folder.path().join("environment"), "JAVA_OPTS=\"\"\n").expect("written");
    let read = "test ! -e java.env; . ./environment; printf '%s' \"$SERVER_JVMFLAGS\"";
    let flags = debian.run_and("1. The servers", read).await;
    let jaas = debian.folder.path().join("jaas.conf");
    assert_eq!(flags.trim(), format!("-Djava.security.auth.login.config={}", jaas.display()));

    let flags = page.run_and("1. The servers", ". ./java.env; printf '%s' \"$SERVER_JVMFLAGS\"").await;
    let server = flags.split_whitespace().fold(page.server(), |server, flag| {
        let (key, value) = flag.strip_prefix("-D").and_then(|flag| flag.split_once('=')).expect("a property");
        server.property(key, value)
    });
    let server = server.start().await.expect("a server");
    page.replace(&format!("{HOST}:{PORT}"), &server.hosts());

    let session = sasl::connect(&server.hosts(), "replace-this-password".to_owned()).await.expect("connects");
    let guard = locked(&session, "/locks/report").await.expect("held");
    let shown = page.run("3. Look").await;
    assert!(shown.lines().any(|line| line == "Insufficient permission : /locks/report"), "{shown}");
    let client = session.client().expect("a client");
    let (acls, _stat) = client.get_acl("/locks/report").await.expect("allowed");
    assert!(matches!(&acls[..], [acl] if (acl.scheme(), acl.id()) == ("sasl", "billing")), "{acls:?}");
    drop(client);
    let stranger = Session::connect(&server.hosts()).await.expect("connects");
    let refused = locked(&stranger, "/locks/report").await;
    assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    guard.release().await.expect("released");

    let error = sasl::connect(&server.hosts(), "wrong".to_owned()).await.expect_err("a wrong password");
    let error = format!("{error}: {}", error.source().expect("what the client returned"));
    let expected = format!("cannot authenticate at {}: authentication failed", server.hosts());
    assert_eq!(error, expected);
    assert!(page.text.contains("cannot authenticate at …: authentication failed"));
}

#[tokio::test]
async fn page_about_acls_can_be_followed() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let mut page = Page::new(include_str!("../../../docs/acls.md"));
    assert_eq!(page.block("3. The service", "rust").trim_end(), include_str!("pages/acls.rs").trim_end());
    let server = Server::start().await.expect("a server");
    page.replace(&format!("{HOST}:{PORT}"), &server.hosts());
    page.run("1. The credentials").await;
    let shown = page.run("2. A parent that is closed").await;
    assert!(shown.contains("'digest,'billing:") && shown.contains(": cdrwa"), "{shown}");
    let stranger = Session::connect(&server.hosts()).await.expect("connects");
    let client = stranger.client().expect("a client");
    let stat = client.check_stat("/billing").await.expect("answered").expect("created");
    assert_eq!(stat.ephemeral_owner, 0, "persistent: a container has another owner, and so has an ephemeral node");
    drop(client);

    let config = page.config("3. The service").await;
    let session = acls::connect(&config).await.expect("connects");
    let guard = locked(&session, "/report").await.expect("held");
    let shown = page.run("4. Look").await;
    assert!(shown.contains("'digest,'billing:") && !shown.contains("world"), "{shown}");
    for path in ["/billing/report", "/billing/other"] {
        let refused = locked(&stranger, path).await;
        assert!(matches!(refused, Err(Error::NoAuth { .. })), "{path}: {refused:?}");
    }
    guard.release().await.expect("released");

    // The rows about a service that leaves out one of the two.
    let without_acls = Session::connect(&config).await.expect("connects");
    let open = locked(&without_acls, "/open").await.expect("held");
    let theirs = zookeeper_recipes::Mutex::new(&stranger, "/billing/open").expect("a mutex");
    let holder = theirs.contenders().await.expect("it is open").remove(0);
    theirs.break_lock(&holder).await.expect("it is open");
    soon("the loss", open.lost()).await;
    let options = session.lock_options().clone();
    let without_credentials = stranger.clone().with_lock_options(options);
    let error = locked(&without_credentials, "/elsewhere").await.expect_err("no creator");
    let source = error.source().and_then(|source| source.downcast_ref::<ZkError>());
    assert!(matches!(error, Error::Client { .. }) && source == Some(&ZkError::InvalidAcl), "{error:?}");
    assert!(
        fs::metadata(page.folder.path().join("billing.auth")).expect("there").permissions().mode() & 0o77 == 0
    );
}
