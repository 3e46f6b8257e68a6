//! Owns the signals that end us, or are passed on to the command.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Failure, OTHER};

/// Those that ask for the end.
const ENDS: [SignalKind; 4] =
    [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];

/// Those that mean what a program wants them to, such as to read its files again.
const OTHERS: [SignalKind; 2] = [SignalKind::user_defined1(), SignalKind::user_defined2()];

/// TERM, INT, HUP, QUIT, USR1 and USR2, without those that we were started to ignore.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(i32, unix::Signal)>,
    is_end: bool,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let ignored = ignored();
        let numbers = ENDS.iter().chain(&OTHERS).map(|kind| kind.as_raw_value());
        let caught = numbers.filter(|number| ignored >> (number - 1) & 1 == 0).map(|number| {
            let signal = unix::signal(SignalKind::from_raw(number));
            signal
                .map(|signal| (number, signal))
                .map_err(|error| Failure::new(OTHER, format!("no signals: {error}")))
        });
        caught.collect::<Result<_, _>>().map(|caught| Self { caught, is_end: false })
    }

    /// The number of the next one.
    ///
    /// Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            for (number, signal) in &mut self.caught {
                if let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                    self.is_end |= ENDS.iter().any(|end| end.as_raw_value() == *number);
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Whether one has asked for the end.
    pub(crate) fn ask_for_the_end(&self) -> bool {
        self.is_end
    }
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
