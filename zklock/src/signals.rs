//! Owns the signals that end us, or are passed on to the command.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Failure, OTHER};

/// TERM, INT, HUP and QUIT, without those that we were started to ignore.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(i32, unix::Signal)>,
    have_come: bool,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let ignored = ignored();
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let numbers = kinds.iter().map(|kind| kind.as_raw_value());
        let caught = numbers.filter(|number| ignored >> (number - 1) & 1 == 0).map(|number| {
            let signal = unix::signal(SignalKind::from_raw(number));
            signal
                .map(|signal| (number, signal))
                .map_err(|error| Failure::new(OTHER, format!("no signals: {error}")))
        });
        caught.collect::<Result<_, _>>().map(|caught| Self { caught, have_come: false })
    }

    /// The number of the next one.
    ///
    /// Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            for (number, signal) in &mut self.caught {
                if let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                    self.have_come = true;
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Whether there was one yet.
    pub(crate) fn have_come(&self) -> bool {
        self.have_come
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
