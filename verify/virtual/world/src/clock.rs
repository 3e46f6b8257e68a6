//! The clocks of the C library, on the thread of a world.

use std::cell::Cell;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use libc::{c_int, c_long, clockid_t, timespec};

/// What the monotonic clock shows when a world begins, and the wall clock: on 2026-01-01.
const BEGIN: Duration = Duration::from_secs(1_000);
const WALL: Duration = Duration::from_secs(1_767_225_600);

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
    /// Whether the time is being asked for, so tokio must not ask in turn.
    static ASKS: Cell<bool> = const { Cell::new(false) };
    static LAST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static BASE: Cell<Option<Instant>> = const { Cell::new(None) };
}

pub(crate) struct Here;

impl Here {
    pub(crate) fn enter() -> Self {
        // Before the first interposed call: what tokio takes for the beginning.
        LAST.set(Duration::ZERO);
        IS_HERE.set(true);
        ASKS.set(true);
        BASE.set(Some(Instant::now()));
        ASKS.set(false);
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        IS_HERE.set(false);
    }
}

/// The time since the world began; `None` outside of one.
pub(crate) fn elapsed() -> Option<Duration> {
    if !IS_HERE.get() {
        return None;
    }
    if !ASKS.replace(true) {
        // Without a runtime it asks the clock, which then shows the last time.
        let now = tokio::time::Instant::now().into_std();
        if let Some(base) = BASE.get() {
            LAST.set(LAST.get().max(now.saturating_duration_since(base)));
        }
        ASKS.set(false);
    }
    Some(LAST.get())
}

/// Lets time pass while nothing of the world runs, as when its process is stopped.
pub fn stall(time: Duration) {
    let mut advance = std::pin::pin!(tokio::time::advance(time));
    let _ = advance.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// In place of that of the C library.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let since = match (elapsed(), clock) {
        (Some(elapsed), libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) => WALL + elapsed,
        (
            Some(elapsed),
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_BOOTTIME,
        ) => BEGIN + elapsed,
        // SAFETY: the arguments are the caller's.
        _ => return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int,
    };
    // SAFETY: the caller gives a valid pointer.
    unsafe {
        *time = timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos() as c_long };
    }
    0
}

/// `thread::sleep` in a world is a stall.
///
/// # Safety
///
/// As that of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    if let Some(elapsed) = elapsed() {
        // SAFETY: the caller gives a valid pointer.
        let time = unsafe { &*time };
        let time = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        stall(if flags & libc::TIMER_ABSTIME == 0 { time } else { time.saturating_sub(BEGIN + elapsed) });
        return 0;
    }
    // SAFETY: the arguments are the caller's.
    match unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) } {
        0 => 0,
        // SAFETY: it is always valid.
        _ => unsafe { *libc::__errno_location() },
    }
}
