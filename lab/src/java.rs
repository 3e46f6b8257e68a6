//! The driver of Curator's locks: the one of `tests/apart/interop`, compiled into `target/lab`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::servers::process::output;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// For virtual machines of which many are started, for seconds only.
const SHORT_LIVED: [&str; 3] = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// The version of Curator, and that of Java.
///
/// # Errors
///
/// If the driver does not run.
pub fn version(driver: &[String]) -> Outcome<String> {
    let (program, arguments) = driver.split_first().ok_or("no Java")?;
    output(Command::new(program).args(arguments).arg("--version"))
}

/// The command that runs it, without its arguments.
///
/// # Errors
///
/// If there is no Curator, or no JDK.
pub fn driver() -> Outcome<Vec<String>> {
    let found = output(Command::new(Path::new(ROOT).join("zk-docker/peers")).arg("--curator"))?;
    let variable = |name: &str| {
        let mut lines = found.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value).ok_or_else(|| format!("no {name}"))
    };
    let (class_path, tools) = (variable("PEER_CLASSPATH")?, PathBuf::from(variable("PEER_JAVA")?));
    let classes = Path::new(ROOT).join("target/lab/classes");
    let mut sources: Vec<_> = fs::read_dir(Path::new(ROOT).join("tests/apart/interop/java"))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    sources.retain(|source| source.extension() == Some(OsStr::new("java")));
    output(Command::new(tools.join("javac")).arg("-d").arg(&classes).args(["-cp", class_path]).args(&sources))?;
    let mut command = vec![tools.join("java").display().to_string()];
    command.extend(SHORT_LIVED.map(str::to_owned));
    command.extend(["-cp".to_owned(), format!("{}:{class_path}", classes.display()), "Peer".to_owned()]);
    Ok(command)
}
