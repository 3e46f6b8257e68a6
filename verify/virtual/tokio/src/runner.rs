//! Runs the scenes of the suite in worlds that have a server at port 2181. The README has its variables.

use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::Once;
use std::time::Duration;

use zookeeper_simulation::{Answered, Config, Server, take_answered};

/// The port of the server of a world.
const PORT: u16 = 2181;

/// What simulated and real servers were compared in, a line each.
const COMPARED: &str = include_str!("../../../../crates/simulation/tests/conformance/compared");

/// Plays a scene by each seed, and returns what comes of the last. Before the first of a process plays `first`, in which
/// what is made once a process is made by the same chance.
pub fn run<W: Future, F: Future>(
    name: &'static str,
    first: impl Fn() -> W + Copy + Send + 'static,
    scene: impl Fn() -> F + Copy + Send + 'static,
) -> F::Output
where
    W::Output: Send + 'static,
    F::Output: Send + 'static,
{
    static FIRST: Once = Once::new();
    FIRST.call_once(|| drop(play("the first", 0, first)));
    let first = number("VIRTUAL_SEED").unwrap_or(1);
    let mut last = None;
    for seed in first..first + number("VIRTUAL_SEEDS").unwrap_or(1).max(1) {
        let (output, trace) = play(name, seed, scene);
        if is_played_twice(name) {
            let (_, again) = play(name, seed, scene);
            assert_eq!(trace, again, "seed {seed} shows another world the second time");
        }
        last = Some(output);
    }
    last.expect("one seed at least")
}

fn play<F: Future>(
    name: &'static str,
    seed: u64,
    scene: impl Fn() -> F + Copy + Send + 'static,
) -> (F::Output, world::Trace)
where
    F::Output: Send + 'static,
{
    let ((output, requests, work), trace) = world::play(name, seed, move || async move {
        let began = world::worked();
        let server = Server::start_with(Config::default(), &[PORT]).expect("a free port");
        let output = scene().await;
        drop(server);
        assert_compared();
        let requests = audited();
        (output, requests, world::worked() - began)
    });
    println!("virtual world: seed {seed}, {trace}, {requests} requests audited, {work:.1?} of CPU");
    if let Some(path) = std::env::var_os("VIRTUAL_REPORT") {
        report(&path, name, seed, &trace, work);
    }
    (output, trace)
}

/// A scene that meets an answer in which simulated servers were never compared with real ones shows nothing.
fn assert_compared() {
    let line = |(operation, code): Answered| {
        format!("{operation} {}", code.map_or_else(|| "Ok".to_owned(), |code| format!("{code:?}")))
    };
    let met = take_answered().into_iter().map(line);
    let new: Vec<_> = met.filter(|line| !COMPARED.lines().any(|compared| compared == line)).collect();
    assert!(
        new.is_empty(),
        "the test `conformance` has never compared these answers with those of real servers: {new:?}"
    );
}

/// Compares what the machines asked for with what crossed the network. Returns how many requests were compared.
fn audited() -> usize {
    let (differences, requests) = audit::differences();
    assert!(
        differences.is_empty(),
        "the driver does not do what its machine asks for: {}",
        differences.join("\n")
    );
    requests
}

fn is_played_twice(name: &str) -> bool {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    number("VIRTUAL_TWICE").is_some_and(|one_of| hasher.finish().is_multiple_of(one_of))
}

fn report(path: &std::ffi::OsStr, name: &str, seed: u64, trace: &world::Trace, work: Duration) {
    let (time, work) = (trace.time.as_secs_f64(), work.as_secs_f64() * 1e3);
    let line = format!("{name} {seed} {:016x} {} {time:.3} {work:.1}\n", trace.hash, trace.segments);
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the report can be written");
    file.write_all(line.as_bytes()).expect("the report can be written");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}
