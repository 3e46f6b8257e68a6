//! tokio as the suite sees it: with the attribute and the sockets of a world.

pub use ::macros::test;
pub use ::real::*;
#[doc(hidden)]
pub mod runner;

/// A task that only yields is not idle, so the clock would stand still.
pub mod task {
    use std::cell::Cell;
    use std::time::Duration;

    pub use ::real::task::*;

    /// On this thread: when another one is done, no clock of a world can tell.
    pub fn spawn_blocking<F, R>(work: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        spawn(async move { work() })
    }

    /// One in so many takes a millisecond.
    const YIELDS: u32 = 50;

    pub async fn yield_now() {
        thread_local! {
            static COUNT: Cell<u32> = const { Cell::new(0) };
        }
        if COUNT.replace((COUNT.get() + 1) % YIELDS) == 0 {
            ::real::time::sleep(Duration::from_millis(1)).await;
        } else {
            ::real::task::yield_now().await;
        }
    }
}

pub mod net {
    pub use ::world::net::{TcpListener, TcpStream, lookup_host};

    pub mod tcp {
        pub use ::world::net::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
    }
}
