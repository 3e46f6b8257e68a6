//! Debian's packages that ways need, of those that are missing.

use crate::ways::{Kind, Way};

/// The packages to install. What ZooKeeper and Java need is in `zk-docker`, which installs it when it is asked for.
pub fn missing(ways: &[&Way], look: bool) -> Vec<&'static str> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
        folders.any(|folder| folder.join(program).is_file())
    };
    let some_file = |folder: &str, file: &str| {
        let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
        folders.map(|entry| entry.path().join(file)).any(|file| file.is_file())
    };
    let uses = |kinds: &[Kind]| ways.iter().any(|way| kinds.contains(&way.kind));
    let mut missing = Vec::new();
    // The server alone, without the scripts that start it with the machine.
    if uses(&[Kind::MariaDb]) && !has("mariadbd") {
        missing.push("mariadb-server-core");
    }
    if uses(&[Kind::PostgreSql]) && !has("postgres") && !some_file("/usr/lib/postgresql", "bin/postgres") {
        missing.push("postgresql");
    }
    if uses(&[Kind::Redis, Kind::FiveRedis]) && !has("redis-server") {
        missing.push("redis-server");
    }
    if uses(&[Kind::Etcd]) && !has("etcd") {
        missing.push("etcd-server");
    }
    if uses(&[Kind::Memcached]) && !has("memcached") {
        missing.push("memcached");
    }
    if !some_file("/usr/lib", "faketime/libfaketimeMT.so.1") {
        missing.push("faketime");
    }
    if look && !has("chromium") {
        missing.extend(["chromium", "fonts-dejavu-core"]);
    }
    missing
}
