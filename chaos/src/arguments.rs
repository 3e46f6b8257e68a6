//! What the command line says.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use zookeeper_recipes::Trust;

use crate::client::Orders;
use crate::workload::Workload;

pub(crate) const USAGE: &str = "\
usage: chaos [OPTION VALUE]...
  --minutes M    for how long there are faults; 10, fractions allowed
  --seed N       repeats the faults of another run; random
  --workload W   lock, lock-set, rw, permits, multi, election or mix; mix
  --clients N    how many client processes; 12
  --trust T      quorum or connection, which promises less; quorum
  --out DIR      where the history and the timeline go; target/chaos/SEED
or: chaos judge DIR
  judges again what another run has written there
or: chaos flapping [--acquires N] [--seed N]
  sees whether a client's memory and watches grow over N acquires, 100000 by default, while its connection flaps";

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Help,
    Play(Settings),
    /// See whether memory and watches grow.
    Flap {
        acquires: usize,
        seed: u64,
    },
    FlapClient {
        hosts: String,
        acquires: usize,
    },
    /// Judge again what is in this folder.
    Judge(PathBuf),
    Client(Orders),
}

/// What a run is like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    /// What the clients do, in turn.
    pub(crate) workloads: Vec<Workload>,
    pub(crate) clients: usize,
    pub(crate) trust: Trust,
    pub(crate) out: PathBuf,
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut arguments = arguments.peekable();
    let command = arguments.next_if(|word| !word.starts_with('-')).unwrap_or_default();
    let mut next = || arguments.next().ok_or_else(|| format!("{command} needs more arguments"));
    match command.as_str() {
        "" => play(arguments),
        "judge" => Ok(Command::Judge(next()?.into())),
        "flapping" => flapping(arguments),
        "flapping-client" => {
            Ok(Command::FlapClient { hosts: next()?, acquires: number("the number of acquires", &next()?)? })
        }
        "client" => Ok(Command::Client(Orders {
            name: next()?,
            hosts: next()?,
            workload: next()?.parse()?,
            session: Duration::from_millis(number("session", &next()?)?),
            trust: trust(&next()?)?,
            seed: number("seed", &next()?)?,
            journal: next()?.into(),
            register: next()?.into(),
        })),
        _ => Err(format!("no command is called {command}")),
    }
}

fn flapping(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut acquires, mut seed) = (100_000, fastrand::u64(..1_000_000));
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--acquires" => acquires = number(&option, &value)?,
            "--seed" => seed = number(&option, &value)?,
            _ => return Err(format!("flapping has no option {option}")),
        }
    }
    Ok(Command::Flap { acquires, seed })
}

fn play(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut seed = None;
    let mut out = None;
    let mut settings = Settings {
        duration: Duration::from_secs(600),
        seed: 0,
        workloads: Workload::ALL.to_vec(),
        clients: 12,
        trust: Trust::Quorum,
        out: PathBuf::new(),
    };
    while let Some(option) = arguments.next() {
        if option == "--help" {
            return Ok(Command::Help);
        }
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--minutes" => {
                settings.duration = Duration::from_secs_f64(60.0 * number::<f64>(&option, &value)?.max(0.0))
            }
            "--seed" => seed = Some(number(&option, &value)?),
            "--workload" if value == "mix" => settings.workloads = Workload::ALL.to_vec(),
            "--workload" => settings.workloads = vec![value.parse()?],
            "--clients" => settings.clients = number::<usize>(&option, &value)?.max(1),
            "--trust" => settings.trust = trust(&value)?,
            "--out" => out = Some(PathBuf::from(value)),
            _ => return Err(format!("no option is called {option}")),
        }
    }
    settings.seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    settings.out = out.unwrap_or_else(|| PathBuf::from(format!("target/chaos/{}", settings.seed)));
    Ok(Command::Play(settings))
}

impl Orders {
    /// The arguments that [`parse`] makes these orders of.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        vec![
            "client".to_owned(),
            self.name.clone(),
            self.hosts.clone(),
            self.workload.to_string(),
            self.session.as_millis().to_string(),
            if self.trust == Trust::Connection { CONNECTION } else { QUORUM }.to_owned(),
            self.seed.to_string(),
            self.journal.display().to_string(),
            self.register.display().to_string(),
        ]
    }
}

const QUORUM: &str = "quorum";
const CONNECTION: &str = "connection";

fn trust(value: &str) -> Result<Trust, String> {
    match value {
        QUORUM => Ok(Trust::Quorum),
        CONNECTION => Ok(Trust::Connection),
        _ => Err(format!("there is no trust in {value}")),
    }
}

fn number<N: FromStr>(what: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{what}: {value} is no number that fits"))
}
