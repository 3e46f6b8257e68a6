//! The examples as their sources are now, for tests that run them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds an example and returns its executable. `cargo test --test …` does not build examples, so the test would run
/// an outdated one.
pub(crate) fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("the path of this binary");
    // This is `<target>/<profile>/deps/<test>-<hash>`.
    let folder = this.ancestors().nth(2).expect("test binaries are in the folder of their profile");
    let target = folder.parent().expect("a profile's folder is in the target folder");
    let profile = folder.file_name().filter(|profile| *profile != "debug").unwrap_or("dev".as_ref());
    let built = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--locked", "--example", name, "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--profile")
        .arg(profile)
        .arg("--target-dir")
        .arg(target)
        .status()
        .expect("cargo can be run");
    assert!(built.success(), "the example {name} cannot be built: {built}");
    folder.join("examples").join(name)
}
