//! Ends the process when a scene works without end, or blocks its thread, and names the scene. In both cases no time passes in
//! its world, so no limit of its own ends it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use libc::{clockid_t, timespec};

/// The processor time that no scene needs.
const LIMIT: Duration = Duration::from_secs(30);
/// After so many looks without any work of its thread a scene is blocked. They are counted, so a process that is stopped in
/// between has not blocked.
const IDLE_LOOKS: u32 = 20;

struct Watched {
    scene: String,
    clock: clockid_t,
    worked: Duration,
    idle_looks: u32,
}

static WATCHED: LazyLock<Mutex<BTreeMap<u64, Watched>>> = LazyLock::new(|| {
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            lock().values_mut().for_each(Watched::look);
        }
    });
    Mutex::default()
});

fn lock() -> MutexGuard<'static, BTreeMap<u64, Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    fn look(&mut self) {
        let worked = of(self.clock);
        self.idle_looks = if worked == self.worked { self.idle_looks + 1 } else { 0 };
        self.worked = worked;
        let why = if worked > LIMIT {
            "works without end: a loop in it lets no time pass"
        } else if self.idle_looks > IDLE_LOOKS {
            "blocks its thread, so no time passes in its world"
        } else {
            return;
        };
        // What is printed by a macro would be captured for a test that never ends.
        _ = writeln!(std::io::stderr(), "virtual world: {} {why}", self.scene);
        std::process::abort();
    }
}

/// The thread that made it is watched until it is dropped.
pub(crate) struct Watch(u64);

impl Watch {
    pub(crate) fn start(scene: String) -> Self {
        let mut clock = 0;
        // SAFETY: the thread is the present one, and the pointer is valid.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        let mut watched = lock();
        let number = watched.last_key_value().map_or(0, |(last, _)| last + 1);
        watched.insert(number, Watched { scene, clock, worked: Duration::ZERO, idle_looks: 0 });
        Self(number)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock().remove(&self.0);
    }
}

/// The processor time of this thread.
pub fn worked() -> Duration {
    of(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn of(clock: clockid_t) -> Duration {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a valid pointer.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
