//! The monotonic clock for trust in a session. On Linux and Android it also runs while the computer sleeps.

#[cfg(not(unix))]
use std::sync::LazyLock;
use std::time::Duration;
#[cfg(not(unix))]
use std::time::Instant;

use crate::machine::Moment;

/// Returns the time of the standard library's monotonic clock, which may stand still while the computer sleeps.
#[cfg(not(unix))]
pub(crate) fn now() -> Moment {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Moment(micros(BEGAN.elapsed()))
}

/// Returns the time since boot, which includes sleep on Linux and Android.
#[cfg(unix)]
pub(crate) fn now() -> Moment {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    // On other systems the monotonic clock is the closest to such a clock.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or_default());
    let since = seconds + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or_default());
    Moment(micros(since))
}

/// Converts a duration to microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
