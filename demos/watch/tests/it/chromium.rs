//! Owns [`Chromium`]: a headless browser, driven by its DevTools protocol over two pipes.

use std::process::Stdio;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::soon;

/// The browser reads commands from descriptor 3 and writes answers to 4. Its complaints about the machine go to a file.
const SWAP: &str = r#"exec chromium "$@" 3<&0 4>&1 </dev/null >"$0" 2>&1"#;

const LOG: &str = "log";

/// A browser with one tab.
pub(crate) struct Chromium {
    process: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    /// The tab.
    session: Option<String>,
    last_id: u64,
    /// What the scripts of its pages have complained about.
    errors: Vec<String>,
    profile: TempDir,
}

impl Chromium {
    pub(crate) async fn open(url: &str) -> Self {
        let found =
            Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        assert!(
            found.is_ok_and(|status| status.success()),
            "no chromium: install Debian's packages chromium and fonts-dejavu-core"
        );
        let profile = tempfile::tempdir().expect("a folder");
        let mut process = Command::new("sh")
            // Its sandbox refuses root, and the page is our own.
            .args(["-c", SWAP])
            .arg(profile.path().join(LOG))
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en-GB", "--window-size=1000,600"])
            // It looks for nothing on other machines.
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh can be run");
        let commands = process.stdin.take().expect("stdin is piped");
        let messages = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let (session, errors) = (None, Vec::new());
        let mut chromium = Self { process, commands, messages, session, last_id: 0, errors, profile };
        let tab = chromium.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let to = json!({ "targetId": tab["targetId"], "flatten": true });
        let attached = chromium.call("Target.attachToTarget", to).await;
        chromium.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            chromium.call(&format!("{domain}.enable"), json!({})).await;
        }
        chromium.go(url).await;
        chromium
    }

    pub(crate) async fn go(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({ "url": url })).await;
        assert_eq!(gone["errorText"], Value::Null, "{url}");
    }

    /// The value of an expression, or of its promise.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let what = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let evaluated = self.call("Runtime.evaluate", what).await;
        assert_eq!(evaluated["exceptionDetails"], Value::Null, "{expression}");
        evaluated["result"]["value"].clone()
    }

    /// Clicks the middle of the only element that matches, as a mouse does.
    pub(crate) async fn click(&mut self, selector: &str) {
        let found = self
            .value(&format!(
                "[...document.querySelectorAll({})].map(it => it.getBoundingClientRect())
                    .map(at => [at.x + at.width / 2, at.y + at.height / 2])",
                json!(selector)
            ))
            .await;
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{selector}: {found}");
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({ "type": kind, "x": found[0][0], "y": found[0][1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// A picture of the page, as PNG.
    pub(crate) async fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        BASE64.decode(picture["data"].as_str().expect("a picture")).expect("base64")
    }

    /// The same of all of it, also of what the window has no room for.
    pub(crate) async fn whole_picture(&mut self) -> Vec<u8> {
        let size = self.value("[innerWidth, Math.max(innerHeight, document.documentElement.scrollHeight)]").await;
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let what = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", what).await;
        BASE64.decode(picture["data"].as_str().expect("a picture")).expect("base64")
    }

    /// Shows the page in a window of this width, as a user sees it that prefers the colour scheme `light` or `dark`.
    pub(crate) async fn emulate(&mut self, width: u32, scheme: &str) {
        let window = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", window).await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Ends it, and returns what its pages have complained about.
    pub(crate) async fn close(mut self) -> Vec<String> {
        // Messages come in order: all complaints of before have come with this answer.
        self.value("0").await;
        self.session = None;
        self.call("Browser.close", json!({})).await;
        soon("it ends", self.process.wait()).await.expect("a child");
        std::mem::take(&mut self.errors)
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).await.expect("it runs");
        loop {
            let mut message = Vec::new();
            soon(method, self.messages.read_until(0, &mut message)).await.expect("it runs");
            if message.pop() != Some(0) {
                let log = std::fs::read(self.profile.path().join(LOG)).unwrap_or_default();
                panic!("it has ended: {}", String::from_utf8_lossy(&log));
            }
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            if message["id"] == self.last_id {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
            self.listen(&message["method"], &message["params"]);
        }
    }

    fn listen(&mut self, event: &Value, parameters: &Value) {
        let entry = &parameters["entry"];
        if event == "Runtime.exceptionThrown" || event == "Log.entryAdded" && entry["level"] == "error" {
            self.errors.push(parameters.to_string());
        }
    }
}

impl Drop for Chromium {
    /// With all the processes that it has started.
    fn drop(&mut self) {
        if let Some(group) = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
