//! The whole evening: the work of every way, one at a time, then the faults, in several lanes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Outcome;
use crate::cell::{Cell, Finding};
use crate::faults::{FAULTS, Fault, Fit};
use crate::java;
use crate::load::{Load, Size, measure};
use crate::servers::Setup;
use crate::site::Site;
use crate::stage::{Stage, TOO_SLOW};
use crate::ways::{Kind, Way};

/// How often a run is tried that a slow machine spoils.
const TRIES: usize = 5;
/// Longer than any run should take.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// What is to be played.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "main.rs makes it")]
pub struct Program {
    /// The ways.
    pub ways: Vec<&'static Way>,
    /// The ids of the faults.
    pub faults: Vec<&'static str>,
    /// Whether it is the short form.
    pub short: bool,
    /// Whether only the faults are played.
    pub only_faults: bool,
    /// The first letter of the runs, so that runs of several evenings can stand in one table.
    pub series: char,
    /// How Curator's driver is run, or why it cannot be.
    pub java: Result<Vec<String>, String>,
}

/// Everything that came out.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Results {
    /// The versions of the servers that were started, and of Curator.
    pub versions: BTreeMap<&'static str, String>,
    /// The work without faults.
    pub loads: Vec<Load>,
    /// The ways whose work could not be measured, and why.
    pub failures: Vec<String>,
    /// The cells, in the order of the ways and faults.
    pub cells: Vec<Cell>,
}

static RUNS: AtomicUsize = AtomicUsize::new(1);

fn next_run(program: &Program) -> String {
    format!("{}{:03}", program.series, RUNS.fetch_add(1, Ordering::Relaxed))
}

/// The versions of what is played with, by name.
type Versions = Mutex<BTreeMap<&'static str, String>>;

/// Starts the servers of all ways; returns the versions of those that start, and of Curator.
pub async fn versions(program: &Program) -> BTreeMap<&'static str, String> {
    let versions = of_curator(program);
    for way in &program.ways {
        if !locked(&versions).contains_key(product(way.kind)) {
            // A server that does not start has no version.
            let _ = start(way, &Setup::default(), program, &versions).await;
        }
    }
    versions.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn of_curator(program: &Program) -> Versions {
    let version = program.java.as_ref().ok().and_then(|java| java::version(java).ok());
    Mutex::new(version.map(|version| ("Curator", version)).into_iter().collect())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays everything.
pub async fn play(program: &Program) -> Results {
    let mut results = Results::default();
    let versions = Arc::new(of_curator(program));
    if !program.only_faults {
        for way in &program.ways {
            work(way, program, &mut results, &versions).await;
        }
    }
    // Each takes turns with its lane's others; most of the time nothing is done but to wait.
    let lanes = if program.short { 8 } else { 4 };
    // Long ones first.
    let mut ways: Vec<_> = program.ways.clone();
    ways.sort_by_key(|way| (way.job.is_none(), way.kind != Kind::ZooKeeper));
    let waiting = Arc::new(Mutex::new(VecDeque::from(ways)));
    let program = Arc::new(program.clone());
    let mut running = JoinSet::new();
    for _ in 0..lanes {
        let (waiting, program, versions) = (waiting.clone(), program.clone(), versions.clone());
        running.spawn(async move {
            let mut cells = Vec::new();
            loop {
                let next = locked(&waiting).pop_front();
                let Some(way) = next else { return cells };
                cells.extend(faults(way, &program, &versions).await);
            }
        });
    }
    while let Some(cells) = running.join_next().await {
        match cells {
            Ok(cells) => results.cells.extend(cells),
            Err(error) => results.failures.push(format!("a lane ended: {error}")),
        }
    }
    results.versions = std::mem::take(&mut *locked(&versions));
    let position = |cell: &Cell| {
        let way = program.ways.iter().position(|way| way.id == cell.way);
        (way, FAULTS.iter().position(|fault| fault.id == cell.fault))
    };
    results.cells.sort_by_key(position);
    results
}

/// The work of one way, which has the machine for itself.
async fn work(way: &'static Way, program: &Program, results: &mut Results, versions: &Versions) {
    let site = match start(way, &Setup { counts: true, ..Setup::default() }, program, versions).await {
        Ok(site) => site,
        Err(error) => return results.failures.push(format!("{}: not run: {error}", way.id)),
    };
    if way.fails_alone || way.plain.is_some_and(|plain| program.ways.iter().any(|way| way.id == plain)) {
        return;
    }
    let (sizes, size): (&[usize], _) = if program.short {
        (&[1, 8], Size { grants: 80, limit: Duration::from_secs(2) })
    } else {
        (&[1, 8, 32], Size { grants: 640, limit: Duration::from_secs(8) })
    };
    let _job = start_job(way, &site);
    for contenders in sizes {
        let run = next_run(program);
        eprintln!("{run}: {}, {contenders} at a time …", way.title);
        let java = program.java.clone().unwrap_or_default();
        match measure(way, &site, *contenders, size, &run, &java).await {
            Ok(load) => results.loads.push(load),
            Err(error) => {
                results.failures.push(format!("{} with {contenders} contenders: not run: {error}", way.id));
            }
        }
    }
}

/// All faults of one way.
async fn faults(way: &'static Way, program: &Program, versions: &Versions) -> Vec<Cell> {
    let mut shared = None;
    let mut cells = Vec::new();
    for fault in FAULTS.iter().filter(|fault| program.faults.contains(&fault.id)) {
        let run = next_run(program);
        let times = if program.short { 1 } else { fault.times };
        let mut plays = Vec::new();
        for time in 1..=times {
            let run = if times == 1 { run.clone() } else { format!("{run}.{time}") };
            let mut played = timeout(RUN_LIMIT, one(way, fault, (program, versions), &run, &mut shared)).await;
            for _ in 1..TRIES {
                if !matches!(&played, Ok(Err(error)) if error.to_string() == TOO_SLOW) {
                    break;
                }
                played = timeout(RUN_LIMIT, one(way, fault, (program, versions), &run, &mut shared)).await;
            }
            plays.push(match played {
                Ok(Ok(cell)) => cell,
                Ok(Err(error)) => Cell::missing(way.id, fault.id, Finding::NotRun, &error.to_string()),
                Err(_) => Cell::missing(way.id, fault.id, Finding::NotRun, "it took too long"),
            });
            if plays.iter().any(|cell| cell.finding == Finding::NotApplicable) {
                break;
            }
        }
        if let Some(cell) = Cell::of_several(&run, plays) {
            eprintln!("{run}: {}, {}: {}", way.title, fault.title, cell.text);
            cells.push(cell);
        }
    }
    cells
}

async fn one(
    way: &'static Way,
    fault: &'static Fault,
    (program, versions): (&Program, &Versions),
    run: &str,
    shared: &mut Option<Site>,
) -> Outcome<Cell> {
    let (mut own, setup) = match (fault.fit)(way)? {
        Fit::Not(why) => return Ok(Cell::missing(way.id, fault.id, Finding::NotApplicable, why)),
        Fit::Own(setup) => (Some(start(way, &setup, program, versions).await?), setup),
        Fit::Shared => (None, Setup::default()),
    };
    if own.is_none() && shared.is_none() {
        *shared = Some(start(way, &setup, program, versions).await?);
    }
    let site = own.as_mut().or(shared.as_mut()).ok_or("no servers")?;
    let _job = start_job(way, site);
    let java = program.java.clone().unwrap_or_default();
    let stage = Stage::new(way, run, site.addresses(), &java).await?;
    let outcomes = (fault.play)(&stage, site, &setup).await?;
    Ok(Cell::played(way.id, fault.id, run.to_owned(), outcomes, way.optimistic))
}

async fn start(way: &Way, setup: &Setup, program: &Program, versions: &Versions) -> Outcome<Site> {
    if way.java {
        program.java.as_ref().map_err(|why| why.clone())?;
    }
    let site = Site::start(way.kind, setup).await?;
    locked(versions).insert(product(way.kind), site.version().to_owned());
    Ok(site)
}

/// A job that ends with its run.
struct Running(tokio::task::AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn start_job(way: &Way, site: &Site) -> Option<Running> {
    let place = crate::ways::Place { addresses: site.addresses(), ..Default::default() };
    way.job.map(|job| Running(job(place)))
}

/// The name of a server.
pub fn product(kind: Kind) -> &'static str {
    match kind {
        Kind::MariaDb => "MariaDB",
        Kind::PostgreSql => "PostgreSQL",
        Kind::Redis | Kind::FiveRedis => "Redis",
        Kind::Etcd => "etcd",
        Kind::ZooKeeper => "ZooKeeper",
        Kind::Memcached => "Memcached",
    }
}
