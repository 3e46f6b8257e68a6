//! How the driver of Curator's locks and of ZooKeeper's own recipe is compiled and run.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::peer::variable;

/// Where the classes are.
static CLASSES: OnceCell<PathBuf> = OnceCell::const_new();

/// The driver whose sources are in the folder `java` of `sources`, compiled, on a virtual machine with these options.
pub(crate) async fn command(sources: &str, options: &[&str]) -> Command {
    let classes = CLASSES.get_or_init(|| compile(Path::new(sources).join("java"))).await;
    let mut class_path = classes.clone().into_os_string();
    class_path.push(":");
    class_path.push(variable("PEER_CLASSPATH"));
    let mut command = Command::new(tool("java"));
    command.args(options).arg("-cp").arg(class_path).arg("Peer");
    command
}

fn tool(name: &str) -> PathBuf {
    Path::new(&variable("PEER_JAVA")).join(name)
}

/// What classes depend on besides their sources: the compiler's version and the class path.
async fn surroundings() -> impl Hash {
    // Old compilers print it on standard error.
    let version = Command::new(tool("javac")).arg("-version").output().await.expect("javac starts");
    let class_path = variable("PEER_CLASSPATH");
    // A replaced jar differs in length or age.
    let jars: Vec<_> = std::env::split_paths(&class_path)
        .map(|jar| {
            let about = std::fs::metadata(&jar).ok();
            (jar, about.map(|about| (about.len(), about.modified().ok())))
        })
        .collect();
    (version.stdout, version.stderr, jars)
}

/// Compiles into a folder of Cargo's. Its name is a hash of everything that the classes depend on, so later runs reuse
/// it.
async fn compile(folder: PathBuf) -> PathBuf {
    let entries = std::fs::read_dir(&folder).expect("the sources");
    let mut sources: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    sources.retain(|source| source.extension() == Some(OsStr::new("java")));
    sources.sort();
    let mut hasher = DefaultHasher::new();
    surroundings().await.hash(&mut hasher);
    for source in &sources {
        (source, std::fs::read(source).expect("readable")).hash(&mut hasher);
    }
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("java-{:016x}", hasher.finish()));
    if !classes.exists() {
        // Compiled elsewhere first: other test processes must not find a partial folder.
        let aside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let fresh = aside.path().join("classes");
        let mut javac = Command::new(tool("javac"));
        javac.arg("-d").arg(&fresh).arg("-cp").arg(variable("PEER_CLASSPATH")).args(&sources);
        let status = javac.status().await.expect("javac starts");
        assert!(status.success(), "javac ended with {status}");
        let renamed = std::fs::rename(&fresh, &classes);
        assert!(renamed.is_ok() || classes.exists(), "{renamed:?}");
    }
    classes
}
