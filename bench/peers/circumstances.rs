//! The day and the machine of a measurement.

use std::fmt::{self, Display, Formatter};
use std::process::Command;
use std::{fs, io, thread};

#[derive(Debug)]
pub(crate) struct Circumstances {
    pub(crate) date: String,
    pub(crate) machine: String,
    /// How busy it was at the beginning: the load averages.
    pub(crate) load: String,
}

impl Circumstances {
    pub(crate) fn now() -> io::Result<Self> {
        let date = Command::new("date").args(["-u", "+%F"]).output()?.stdout;
        let cores = thread::available_parallelism()?;
        let model = first("/proc/cpuinfo", |text| {
            text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, model)| model)
        });
        let load = first("/proc/loadavg", |text| text.rsplitn(3, ' ').nth(2));
        Ok(Self {
            date: String::from_utf8_lossy(&date).trim().to_owned(),
            machine: format!("{cores} x {model}"),
            load,
        })
    }
}

impl Display for Circumstances {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, load {}", self.date, self.machine, self.load)
    }
}

fn first(file: &str, find: fn(&str) -> Option<&str>) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    find(&text).unwrap_or("unknown").to_owned()
}
