//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};

use crate::client::Orders;
use crate::workload::Workload;

/// Runs three servers and many client processes under seeded faults, and judges what the clients recorded.
///
/// Exits with 0 if every promise was kept, 1 if one was broken, and 2 if the run failed or could not be read.
#[derive(Clone, Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, args_override_self = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// A command other than a run.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Judges the history of an earlier run again
    Judge {
        /// The --out directory of that run
        #[arg(value_name = "DIR")]
        out: PathBuf,
    },
    /// A client process of a run.
    #[command(hide = true)]
    Client(Orders),
}

/// The settings of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// Minutes of faults, with or without a fraction
    #[arg(long = "minutes", value_name = "M", default_value = "10", value_parser = minutes)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) duration: Duration,
    /// Repeats the faults of another run [default: random]
    #[arg(long, value_name = "N", default_value_t = any_seed(), hide_default_value = true)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// What the clients do, separated by commas; `mix` is all workloads
    #[arg(long = "workload", value_name = "W", default_value = MIX, value_parser = workloads)]
    pub(crate) workloads: Workloads,
    /// Client processes
    #[arg(long, value_name = "N", default_value_t = 18, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) clients: usize,
    /// Where the history goes [default: target/chaos/SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// An alias, because a field declared as `Vec` would be an option that may be repeated.
pub(crate) type Workloads = Vec<Workload>;

impl Settings {
    pub(crate) fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| format!("target/chaos/{}", self.seed).into())
    }
}

impl Orders {
    /// The arguments which are parsed as [`Command::Client`] with these orders.
    pub(crate) fn to_arguments(&self) -> Vec<OsString> {
        vec![
            "client".into(),
            self.name.clone().into(),
            self.hosts.clone().into(),
            self.workload.to_string().into(),
            self.session.as_millis().to_string().into(),
            self.seed.to_string().into(),
            self.journal.clone().into(),
            self.register.clone().into(),
        ]
    }
}

const MIX: &str = "mix";

fn any_seed() -> u64 {
    fastrand::u64(..1_000_000)
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number")?;
    Duration::try_from_secs_f64(60.0 * minutes).map_err(|_| "not a length of time".to_owned())
}

pub(crate) fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| "not a number of milliseconds".to_owned())
}

fn workloads(names: &str) -> Result<Workloads, String> {
    if names == MIX {
        return Ok(Workload::ALL.to_vec());
    }
    let known = || Workload::ALL.map(Workload::name).join(", ");
    names.split(',').map(|name| name.parse().map_err(|_| format!("give {MIX}, or some of {}", known()))).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_declared_consistently() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn client_process_is_given_the_same_orders() {
        let orders = Orders {
            name: "c0.1".to_owned(),
            hosts: "127.0.0.1:1,127.0.0.1:2".to_owned(),
            workload: Workload::LockSet,
            session: Duration::from_millis(2_500),
            seed: u64::MAX,
            journal: "journals/c0.1.jsonl".into(),
            register: "register".into(),
        };
        let parsed = Arguments::parse_from([vec!["chaos".into()], orders.to_arguments()].concat());
        let Some(Command::Client(parsed)) = parsed.command else { panic!("not a client: {parsed:?}") };
        assert_eq!(format!("{parsed:?}"), format!("{orders:?}"));
    }

    #[test]
    fn workloads_are_chosen_by_name() {
        let chosen = |names: &str| Arguments::parse_from(["chaos", "--workload", names]).settings.workloads;
        assert_eq!(chosen("members,slots,shards"), [Workload::Members, Workload::Slots, Workload::Shards]);
        assert_eq!(chosen("rw"), [Workload::Rw]);
    }

    #[test]
    fn last_of_several_values_counts() {
        let parsed = Arguments::parse_from(["chaos", "--minutes", "1", "--seed", "7", "--minutes", "1.5"]);
        assert_eq!((parsed.settings.duration, parsed.settings.seed), (Duration::from_secs(90), 7));
        assert_eq!(parsed.settings.workloads, Workload::ALL);
        assert_eq!(parsed.settings.out(), PathBuf::from("target/chaos/7"));
    }
}
