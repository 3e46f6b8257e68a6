//! A world with its own time, chance and network, on one thread.
//!
//! The time is that of tokio's paused clock. All that runs on the thread gets it, whichever clock it asks.

mod chance;
mod clock;
pub mod net;
mod thread;
mod trace;
mod watchdog;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, RngSeed};

pub use clock::stall;
pub use trace::{Trace, note};
pub use watchdog::worked;

#[cfg(not(all(virtual_time, tokio_unstable, getrandom_backend = "linux_getrandom")))]
compile_error!(
    "build it in its folder, whose .cargo/config.toml has the flags without which a world is not deterministic"
);

/// No scene takes as long.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Plays a scene on a thread of its own, and returns what comes of it and the trace of all that crossed the network.
pub fn play<F: Future>(name: &str, seed: u64, scene: impl FnOnce() -> F + Send + 'static) -> (F::Output, Trace)
where
    F::Output: Send + 'static,
{
    let watched = format!("{name}, seed {seed},");
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _watch = watchdog::Watch::start(watched);
        let _here =
            (clock::Here::enter(), chance::Here::enter(seed), net::Here::enter(seed), trace::Here::enter());
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&seed.to_be_bytes()))
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let played = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                let ended = tokio::time::timeout(LIMIT, scene()).await;
                ended.unwrap_or_else(|_| panic!("nothing happens for {LIMIT:?}"))
            })
        }));
        // The tasks that are left end in the order of numbers that count in the whole process.
        let trace = trace::take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
        (played.and_then(|output| dropped.map(|()| output)), trace)
    });
    let (played, trace) = thread.expect("a thread").join().unwrap_or_else(|panic| resume_unwind(panic));
    match played {
        Ok(output) => (output, trace),
        Err(panic) => {
            println!("seed {seed}: the scene has failed; {trace}");
            resume_unwind(panic)
        }
    }
}
