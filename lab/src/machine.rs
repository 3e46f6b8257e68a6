//! The day and the machine of a run, without its name.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::process::Command;
use std::thread;

use serde::Serialize;

use crate::Outcome;
use crate::servers::process::output;

/// What the figures depend on.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// The day, in UTC.
    pub date: String,
    /// The number of cores that can be used.
    pub cores: usize,
    /// Their model.
    pub model: String,
    /// The memory, in GiB.
    pub memory_gib: u64,
    /// The name and version of the distribution.
    pub system: String,
    /// The load averages of one, five and fifteen minutes: what else it had to do.
    pub load: String,
    /// Whether the contenders were built with optimizations.
    pub release: bool,
}

impl Machine {
    /// This machine, today.
    ///
    /// # Errors
    ///
    /// If it is no Linux.
    pub fn this() -> Outcome<Self> {
        let find = |file: &str, name: &str, between: char| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let mut lines = text.lines().filter_map(|line| line.split_once(between));
            let found =
                lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim_matches(['"', ' ', '\t']));
            found.unwrap_or("unknown").to_owned()
        };
        let memory = find("/proc/meminfo", "MemTotal", ':');
        let kibibytes: u64 = memory.split(' ').next().unwrap_or_default().parse()?;
        Ok(Self {
            date: output(Command::new("date").args(["-u", "+%F"]))?,
            cores: thread::available_parallelism()?.get(),
            model: find("/proc/cpuinfo", "model name", ':'),
            memory_gib: (kibibytes + (1 << 19)) >> 20,
            system: find("/etc/os-release", "PRETTY_NAME", '='),
            load: fs::read_to_string("/proc/loadavg")?.split(' ').take(3).collect::<Vec<_>>().join(" "),
            release: !cfg!(debug_assertions),
        })
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { date, cores, model, memory_gib, system, load, release } = self;
        let build = if *release { "optimized" } else { "not optimized" };
        write!(f, "{date}, {cores} cores ({model}), {memory_gib} GiB, {system}, load {load}, contenders {build}")
    }
}
