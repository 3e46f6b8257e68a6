//! This crate beside the other locks on ZooKeeper, in one run:
//!
//! ```console
//! $ zk-docker/run --peers cargo bench --manifest-path bench/Cargo.toml --bench peers
//! $ zk-docker/run --peers cargo bench --manifest-path bench/Cargo.toml --bench peers -- --short hand-over
//! $ cargo bench --manifest-path bench/Cargo.toml --bench peers -- --draw "$PWD"/target/peers/peers.json
//! ```
//!
//! The first takes less than ten minutes. `--short` takes less than one, which shows that all works, but Java has not
//! compiled its code by then: Curator looks several times slower than it is. A word chooses the workloads whose names
//! contain it. `PEERS_ROUNDS` sets the number of rounds.
//!
//! Times depend on the machine, and on what else it does. So all do the same work in turns, round by round, on one server
//! that the benchmark starts; and what is reported are *ratios* to the bare requests of the same round.
//! [`workloads`] lists what is done, [`contenders`] by whom; [`floor`] has the bare requests. Curator and kazoo run in
//! processes of their own, which do whole rounds and measure them there. The table goes to the terminal; JSON with every
//! round and a chart go to `target/peers`. `--draw` draws the chart beside such a file again, without measuring.

mod about;
mod chart;
mod circumstances;
mod client_lock;
mod contenders;
mod crew;
mod floor;
#[path = "../../tests/apart/interop/java.rs"]
mod java;
mod ours;
mod peer;
mod report;
mod rounds;
mod sample;
mod summary;
mod workloads;

use std::fs;
use std::path::Path;
use std::time::Duration;

use testbed::Server;

use crate::about::About;
use crate::contenders::{Contender, Field};
use crate::rounds::Pace;
use crate::workloads::WORKLOADS;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of all sessions, so that none pings more often than others. It is Curator's default.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// Longer than a round takes on a busy machine, with 64 new sessions. One that takes longer waits for a lock that nobody
/// releases.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// All workloads together. Starting and connecting come on top.
const LONG: Pace = Pace { warm_ups: 6, rounds: 13, time: Duration::from_secs(480) };
const SHORT: Pace = Pace { warm_ups: 2, rounds: 5, time: Duration::from_secs(26) };

/// The pace for each workload, and which are chosen.
fn arguments() -> Outcome<(Pace, Vec<String>)> {
    // Cargo itself adds `--bench`.
    let (flags, words): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).filter(|word| word != "--bench").partition(|word| word.starts_with('-'));
    let mut pace = match &*flags.iter().map(String::as_str).collect::<Vec<_>>() {
        [] => LONG,
        ["--short"] => SHORT,
        _ => return Err(format!("unknown options {flags:?}; there are --short and --draw FILE").into()),
    };
    if let Ok(rounds) = std::env::var("PEERS_ROUNDS") {
        pace.rounds = rounds.parse::<u32>()?.max(1);
    }
    // And once to warm up.
    pace.time /= u32::try_from(WORKLOADS.len() + 1)?;
    Ok((pace, words))
}

/// Draws the chart of the rounds in a file, beside it.
fn draw(file: &Path) -> Outcome {
    let report = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let (rows, about) = report::read(&serde_json::from_str(&report)?)?;
    println!("{}", report::table(&rows));
    fs::write(file.with_extension("svg"), chart::svg(&rows, &about))?;
    println!("{}", file.with_extension("svg").display());
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [flag, file] = &*words
        && flag == "--draw"
    {
        return draw(Path::new(file));
    }
    let (pace, words) = arguments()?;
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(&**word));
    let workloads: Vec<_> = WORKLOADS.iter().filter(|workload| is_chosen(workload.name)).collect();
    if workloads.is_empty() {
        return Err(format!("no workload has {words:?} in its name").into());
    }
    // Paths between two rounds are empty containers; they stay.
    let server = Server::builder().property("znode.container.checkIntervalMs", "3600000").start().await?;
    let mut field = Field::new(server.hosts()).await?;
    let about = About::now(&server, &mut field).await?;
    println!("{}\n{}", about.circumstances, about.versions());
    for contender in Contender::ALL {
        if contender.peer().is_some_and(|client| field.peer(client).is_none()) {
            println!("{} is not installed: use `zk-docker/run --peers`", contender.name());
        }
    }
    eprintln!("warming up …");
    rounds::measure(&server, &mut field, &WORKLOADS[0], Pace { rounds: 1, ..pace }).await?;
    let mut rows = Vec::new();
    for workload in workloads {
        eprintln!("{} …", workload.name);
        rows.push(rounds::measure(&server, &mut field, workload, pace).await?);
    }
    println!(
        "\nFloor: bare requests. Others: in units of the floor of the same round; only requests are absolute numbers.\n\
         Each is the median of at most {} rounds, with the range from the 10th to the 90th percentile.\n\
         The time of a first lock of an existing path is without its release; that of the others is of both.",
        pace.rounds
    );
    if pace.warm_ups < LONG.warm_ups {
        println!(
            "Too short for Java to compile its code: Curator is faster than this. Only a whole run compares it."
        );
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("peers");
    fs::create_dir_all(&folder)?;
    let file = folder.join("peers.json");
    fs::write(&file, serde_json::to_string(&report::json(&rows, &about))?)?;
    // The chart comes from the file, so that anybody can draw it again.
    draw(&file)
}
