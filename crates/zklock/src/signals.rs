//! Owns the signals that end us, or are passed on to the command.

use std::future::poll_fn;
use std::task::{Context, Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Failure, OTHER};
use crate::messages::report;

/// Those that ask for the end.
const ENDS: [Signal; 8] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
];

/// Those that mean what a program wants them to, such as to read its files again.
const OTHERS: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// Those that stop a process, unless they are caught. The last two come to the whole group of a pager behind us, if it reads
/// while the command has the terminal.
const STOPS: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// The signals that would end us, without those that we were started to ignore.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
    stops: Vec<(Signal, unix::Signal)>,
    is_end: bool,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let ignored = ignored();
        let signals = ENDS.into_iter().chain(OTHERS).filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        Ok(Self { caught: catch_all(signals)?, stops: Vec::new(), is_end: false })
    }

    /// Also catches the signals that would stop us, from now on. A stopped process holds up the queue behind it, and loses its
    /// lock.
    pub(crate) fn catch_stops(&mut self) -> Result<(), Failure> {
        self.stops = catch_all(STOPS.into_iter())?;
        Ok(())
    }

    /// The number of the next one that does not stop us.
    ///
    /// Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            while let Some(stop) = poll(&mut self.stops, cx) {
                if stop == Signal::TSTP {
                    report("Ctrl-Z does not stop zklock: it would hold up the queue, or lose its lock");
                }
            }
            let Some(signal) = poll(&mut self.caught, cx) else { return Poll::Pending };
            self.is_end |= ENDS.contains(&signal);
            Poll::Ready(signal.as_raw())
        })
        .await
    }

    /// Whether one has asked for the end.
    pub(crate) fn ask_for_the_end(&self) -> bool {
        self.is_end
    }
}

/// A signal that has come; otherwise the task is woken by the next.
fn poll(signals: &mut [(Signal, unix::Signal)], cx: &mut Context<'_>) -> Option<Signal> {
    signals.iter_mut().find_map(|(signal, caught)| caught.poll_recv(cx).is_ready().then_some(*signal))
}

fn catch_all(signals: impl Iterator<Item = Signal>) -> Result<Vec<(Signal, unix::Signal)>, Failure> {
    signals.map(|signal| Ok((signal, catch(signal)?))).collect()
}

/// Catches a signal from now on.
pub(crate) fn catch(signal: Signal) -> Result<unix::Signal, Failure> {
    let caught = unix::signal(SignalKind::from_raw(signal.as_raw()));
    caught.map_err(|error| Failure::new(OTHER, format!("no signals: {error}")))
}

/// The signals that we were started to ignore, as a mask: SIGHUP under `nohup`, SIGINT and SIGQUIT in the background of a
/// script. A handler would end that, and the command would get them.
///
/// Only Linux shows it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
