//! When, on what and with what this was measured: numbers without that mean little.

use testbed::Server;

use crate::Outcome;
use crate::circumstances::Circumstances;
use crate::contenders::{Contender, Field};

#[derive(Debug)]
pub(crate) struct About {
    pub(crate) circumstances: Circumstances,
    /// Names and versions.
    pub(crate) versions: Vec<(String, String)>,
}

impl About {
    pub(crate) async fn now(server: &Server, field: &mut Field) -> Outcome<Self> {
        let about = server.four_letter_word("srvr").await?;
        let version = about.lines().find_map(|line| line.strip_prefix("Zookeeper version: "));
        let version = version.and_then(|version| version.split([',', '-']).next()).unwrap_or("unknown");
        let mut versions = vec![
            ("zookeeper-recipes".to_owned(), locked("zookeeper-recipes").to_owned()),
            ("zookeeper-client".to_owned(), locked("zookeeper-client").to_owned()),
            ("ZooKeeper".to_owned(), version.to_owned()),
        ];
        for contender in Contender::ALL {
            if let Some(peer) = contender.peer().and_then(|client| field.peer(client)) {
                versions.push((contender.name().to_owned(), peer.version().await?));
            }
        }
        Ok(Self { circumstances: Circumstances::now()?, versions })
    }

    /// All versions, for a caption.
    pub(crate) fn versions(&self) -> String {
        let versions: Vec<_> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        versions.join("; ")
    }
}

/// The version of a package in `Cargo.lock`.
fn locked(package: &str) -> &'static str {
    let lines = include_str!("../../Cargo.lock").lines();
    let mut lines = lines.skip_while(|line| *line != format!("name = \"{package}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.map_or("unknown", |version| version.trim_matches('"'))
}
