//! Plays the journals of real runs again on the machine, and compares them with what crossed the wire.

mod clock;
mod debug;
mod form;
mod log;
mod play;
mod read;
mod servers;
mod wire;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::servers::Servers;
use zookeeper_machine as machine;

const USAGE: &str = "usage: replay FOLDER    plays the journals that `chaos --journal FOLDER` has written";

const MACHINE: &str = ".machine.jsonl";
const WIRE: &str = ".wire.jsonl";
const LOG: &str = "server-";

/// How many differences of a process are shown.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    match replay(folder) {
        Ok(is_same) => ExitCode::from(u8::from(!is_same)),
        Err(error) => {
            eprintln!("replay: {}: {error}", folder.display());
            ExitCode::from(2)
        }
    }
}

/// Plays all journals of a folder; returns whether there is no difference.
fn replay(folder: &Path) -> io::Result<bool> {
    let mut files = BTreeSet::new();
    for entry in folder.read_dir()? {
        files.extend(entry?.file_name().into_string());
    }
    let (mut played, mut wired) = (play::Counts::default(), wire::Counts::default());
    let (mut processes, mut sessions, mut differences) = (0, 0, 0);
    let of_file = |file: &str, error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
    let clients: BTreeSet<&str> =
        files.iter().filter(|file| file.ends_with(MACHINE)).filter_map(|file| file.split('.').next()).collect();
    if clients.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no journals are there; `chaos --journal` records them",
        ));
    }
    let mut all = Vec::new();
    for client in clients {
        let mut connections = Vec::new();
        for (server, file) in
            files.iter().filter(|file| file.ends_with(WIRE) && file.starts_with(&format!("{client}-"))).enumerate()
        {
            connections
                .extend(wire::connections(&folder.join(file), server).map_err(|error| of_file(file, error))?);
        }
        connections.sort_by_key(|one| one.began);
        let is_its = |file: &&String| file.ends_with(MACHINE) && file.starts_with(&format!("{client}."));
        for file in files.iter().filter(is_its) {
            let process = play::play(&folder.join(file)).map_err(|error| of_file(file, error))?;
            let mut found = process.differences;
            for life in process.lives.iter().filter(|life| life.session != 0) {
                sessions += 1;
                found.extend(wire::compare(life, &connections, &process.clock, &mut wired));
            }
            processes += 1;
            played.add(&process.counts);
            differences += found.len();
            found.iter().take(SHOWN).for_each(|difference| println!("{file}: {difference}"));
            if found.len() > SHOWN {
                println!("{file}: {} more differences", found.len() - SHOWN);
            }
        }
        all.extend(connections);
    }
    if sessions == 0 {
        let why = "the journals have no session; was the target `zookeeper_recipes::machine` recorded?";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let logs: Vec<PathBuf> =
        files.iter().filter(|file| file.starts_with(LOG)).map(|file| folder.join(file)).collect();
    let history = log::history(logs.iter().map(PathBuf::as_path))?;
    let mut servers = Servers::new(&all);
    servers.play(&history);
    servers.differences.iter().take(SHOWN).for_each(|difference| println!("{difference}"));
    differences += servers.differences.len();
    let play::Counts { events, actions, grants, losses, timers, latest } = played;
    println!(
        "{processes} processes, {sessions} sessions: {events} events and {actions} actions, with {grants} grants, {losses} \
         losses and {timers} timers, the latest by {:.0} ms",
        latest as f64 / 1e3
    );
    let wire::Counts { requests, answers, events, others } = wired;
    println!(
        "on the wire {requests} requests, {answers} answers and {events} events of watches; {others} requests of others"
    );
    let servers::Counts { transactions, writes, reads, events, closed, excused } = servers.counts;
    println!(
        "simulated servers: {transactions} transactions, with the answers to {writes} writes and {reads} reads, and {events} \
         events; {closed} answers over connections that have moved"
    );
    if let Some((zxid, server)) = history.lost {
        println!(
            "{server} has lost transaction {zxid:x} and gone on; {excused} differences behind it are not counted"
        );
    }
    println!("{differences} differences");
    Ok(differences == 0)
}
