//! A key-value service whose 16 shards are divided among three processes, and what happens to it; see ../../README.md.

mod client;
mod fleet;
mod history;
mod judge;
mod member;
mod picture;
mod play;
mod store;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use demos::Result;
use tokio::time::timeout;

/// The path of the group, and how many shards there are.
const GROUP: &str = "/demos/shards";
const SHARDS: u32 = 16;

/// For how long the shards of a member that has gone wait for it.
const GRACE: Duration = Duration::from_millis(1500);

/// For how long the set of members has to stay the same before shards move.
const SETTLING: Duration = Duration::from_millis(300);

const PICTURE: &str = "target/shards.svg";
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["member", name, folder] => member::run(name, Path::new(folder)).await,
        [] => supervise(Path::new(PICTURE)).await,
        [picture] if !picture.starts_with('-') => supervise(Path::new(picture)).await,
        _ => Err("usage: shards [PICTURE.svg]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shards: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn supervise(picture: &Path) -> Result<()> {
    timeout(LIMIT, play::play(picture)).await.unwrap_or_else(|_| Err(format!("not done after {LIMIT:?}").into()))
}

/// The shard that has a key. It is the same in all processes, of any release.
fn shard_of(key: &str) -> u32 {
    // FNV-1a.
    let hash = key.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % SHARDS
}
