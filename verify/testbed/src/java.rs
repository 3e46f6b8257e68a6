//! Java processes: finds java and a class path, and kills each process when its test ends.

use std::env;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::OnceCell;

use crate::server::ServerError;

const FINDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../zk-docker/classpath");

// Its input ends when the test's process ends for any reason.
const WATCHDOG: &str = r#"read -r; kill -KILL "$1"; rm -rf -- "$2"; sleep 0.2; rm -rf -- "$2""#;

/// The java binary and the class path of a ZooKeeper on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    java: String,
    class_path: String,
}

impl Installation {
    /// Runs `zk-docker/classpath --find`, once per process. `zk-docker/run` installs, and not a test.
    pub(crate) async fn find() -> Result<&'static Self, ServerError> {
        static FOUND: OnceCell<Installation> = OnceCell::const_new();
        FOUND.get_or_try_init(Self::ask_finder).await
    }

    async fn ask_finder() -> Result<Self, ServerError> {
        let output = tokio::process::Command::new(FINDER)
            .arg("--find")
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|error| ServerError::new(format!("cannot run {FINDER}: {error}")))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        match (output.status.success(), stdout.trim_end().split_once('\n')) {
            (true, Some((java, class_path))) => {
                Ok(Self { java: java.to_owned(), class_path: class_path.to_owned() })
            }
            _ => Err(ServerError::new(format!(
                "this test starts its own servers and needs ZooKeeper and Java on this machine: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }
}

/// The program to launch.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) class_path: Vec<PathBuf>,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) main_class: String,
}

/// A running java process.
#[derive(Debug)]
pub(crate) struct Java {
    child: Child,
    watchdog: Child,
}

impl Java {
    /// Starts `program` with the argument `zoo.cfg` in `folder`, and its output appended to `server.log` there. `SERVER_JVMFLAGS`
    /// has more flags for `java`, as for `zkServer.sh`: with it `zk-docker/run` starts servers that do not wait for their disk.
    pub(crate) fn launch(
        installation: &Installation,
        program: &Program,
        folder: &Path,
    ) -> Result<Self, ServerError> {
        let failed = |error| ServerError::new(format!("cannot start {}: {error}", installation.java));
        let log = OpenOptions::new().create(true).append(true).open(folder.join("server.log")).map_err(failed)?;
        let mut child = Command::new(&installation.java)
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-Dzookeeper.preAllocSize=1024", "-Dzookeeper.jmx.log4j.disable=true"])
            .args(env::var("SERVER_JVMFLAGS").unwrap_or_default().split_whitespace())
            .args(program.properties.iter().map(|(key, value)| format!("-D{key}={value}")))
            .arg("-cp")
            .arg(program.join_class_path(installation))
            .args([program.main_class.as_str(), "zoo.cfg"])
            .envs(program.environment.iter().cloned())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            // Ctrl-C must reach only the test; the watchdog notices when it ends.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        match watch(&child, folder) {
            Ok(watchdog) => Ok(Self { child, watchdog }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(ServerError::new(format!("cannot start bash: {error}")))
            }
        }
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        let exited = !matches!(self.child.try_wait(), Ok(None));
        if exited {
            self.dismiss_watchdog();
        }
        exited
    }

    /// Stops the process, and waits until all of its threads have stopped. The signal reaches only one thread, and the
    /// others run on until that thread is scheduled.
    pub(crate) fn pause(&self) {
        let pid = Pid::from_child(&self.child);
        // Both fail only if the process has ended, and then the signal does not matter.
        let _ = kill_process(pid, Signal::STOP);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }

    pub(crate) fn resume(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::CONT);
    }

    fn dismiss_watchdog(&mut self) {
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // Must come before the wait below, which frees the process id: the watchdog could kill a process that reuses it.
        self.dismiss_watchdog();
        let _ = self.child.wait();
    }
}

fn watch(child: &Child, folder: &Path) -> std::io::Result<Child> {
    Command::new("bash")
        .args(["-c", WATCHDOG, "watchdog"])
        .arg(child.id().to_string())
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

impl Program {
    fn join_class_path(&self, installation: &Installation) -> OsString {
        let mut joined = OsString::new();
        for path in &self.class_path {
            joined.push(path);
            joined.push(":");
        }
        joined.push(&installation.class_path);
        joined
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Server;

    /// The states of all threads, as in proc(5).
    fn states(java: &Java) -> Vec<char> {
        let tasks = fs::read_dir(format!("/proc/{}/task", java.child.id())).expect("it runs");
        let stat = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).expect("a thread");
        let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        tasks.map(|task| state(stat(task.expect("a thread"))).expect("a state")).collect()
    }

    #[tokio::test]
    async fn paused_process_has_no_running_thread() {
        let server = Server::start().await.unwrap();
        let java = server.java().unwrap();
        for _ in 0..200 {
            java.pause();
            let states = states(java);
            assert!(states.iter().all(|state| *state == 'T'), "{states:?}");
            java.resume();
        }
    }
}
