//! Random programs of requests, played to the simulated server and to a real one. Both must answer the same.
//!
//! `SIMULATION_SEED` is the seed of the first program, `SIMULATION_PROGRAMS` how many there are.

mod play;
mod program;
mod rare;
mod relay;
mod transcript;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use zookeeper_simulation::{Code, Config, Server, Version};

use program::Step;

const PROGRAMS: u64 = 30;

/// Each operation and answer in which 3.8 and the simulated server are compared here. What else a scene in virtual time meets shows
/// nothing about real servers: see verify/virtual.
const COMPARED: &str = include_str!("compared");

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn real_server() -> String {
    std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run it as `zk-docker/run cargo test -p zookeeper-simulation`")
}

/// The version that a server reports.
fn version(server: &str) -> Version {
    let mut stream = TcpStream::connect(server).expect("connects");
    stream.write_all(b"srvr").expect("sent");
    let mut report = String::new();
    stream.read_to_string(&mut report).expect("a report");
    let versions = [("3.6.", Version::V3_6), ("3.8.", Version::V3_8), ("3.9.", Version::V3_9)];
    let is_its = |(number, _): &&(&str, Version)| report.starts_with(&format!("Zookeeper version: {number}"));
    versions.iter().find(is_its).unwrap_or_else(|| panic!("no version that is simulated: {report}")).1
}

/// On one thread, so that events are seen in the order in which the client reads them.
#[tokio::test]
async fn simulated_and_real_server_answer_the_same() {
    let real = real_server();
    let mut config = Config::default();
    let version = version(&real);
    config.version = version;
    let simulated = Server::start_with(config, &[0]).expect("a server");
    let seed = number("SIMULATION_SEED", 1);
    let (mut steps, mut events, mut differing) = (0, 0, 0);
    let programs = number("SIMULATION_PROGRAMS", PROGRAMS);
    for seed in seed..seed + programs {
        let program = program::random(seed);
        let ours = play::play(&simulated.address(), seed, &program).await;
        let theirs = play::play(&real, seed, &program).await;
        steps += program.len();
        events += theirs.iter().map(|line| line.matches("SyncConnected of ").count()).sum::<usize>();
        differing += usize::from(report(seed, &program, &ours, &theirs));
    }
    let rare = |server: &str| rare::play(server).expect("answers");
    assert_eq!(rare(&simulated.address()), rare(&real), "rare answers differ");
    println!("{version:?}: {programs} programs, {steps} steps with {events} events, from seed {seed}");
    assert_eq!(differing, 0, "programs differ");
    let line = |(operation, code): (&str, Option<Code>)| {
        format!("{operation} {}", code.map_or_else(|| "Ok".to_owned(), |code| format!("{code:?}")))
    };
    let answered: BTreeSet<_> = simulated.answered().into_iter().map(line).collect();
    println!("{}", answered.iter().map(|line| format!("compared: {line}\n")).collect::<String>());
    let missing: Vec<_> = COMPARED.lines().filter(|line| !answered.contains(*line)).collect();
    // Other versions have other answers, and fewer programs have fewer of them.
    if version == Version::V3_8 && programs >= PROGRAMS {
        assert!(missing.is_empty(), "tests/conformance/compared lists what was not compared: {missing:?}");
    }
}

/// Prints the first step after which the servers differ, and whether there is one.
fn report(seed: u64, program: &[Step], ours: &[String], theirs: &[String]) -> bool {
    let Some(index) = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) else {
        return false;
    };
    println!("SIMULATION_SEED={seed} SIMULATION_PROGRAMS=1: they differ at step {index}");
    for (index, step) in program.iter().enumerate().take(index + 1) {
        println!("{index:>3} {step:?}\n      {}", theirs[index]);
    }
    println!("  simulated: {}\n  real:      {}", ours[index], theirs[index]);
    true
}
