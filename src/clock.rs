//! The clock of trust: it runs on while the machine sleeps, and nobody can set it.

use std::time::Duration;

use crate::machine::Moment;

/// The system's boot time.
pub(crate) fn now() -> Moment {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    // Elsewhere the monotonic clock is the nearest there is.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or_default());
    let since = seconds + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or_default());
    Moment(micros(since))
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
