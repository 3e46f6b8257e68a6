//! A `changed` of a `watch::Receiver` that is dropped while it is pending writes to memory that is not its own any more.
//!
//! This point needs no server. It uses `asyncs-sync` alone, of which the client's `StateWatcher` is made. On two threads it is
//! a race. Here a waker drops the next wait, while `publish` notifies one after the other, so it happens each time.

use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use asyncs_sync::watch;

use crate::support::{Outcome, Result};

/// Set in a process of its own, because nothing is defined any more after the write.
const VICTIM: &str = "UPSTREAM_DROPPED_WATCHER";
const UNHARMED: i32 = 0;
const OVERWRITTEN: i32 = 3;
/// What our memory is full of.
const FILL: u8 = 7;
/// How many wakers are called at once, with the list unlocked.
const BATCH: usize = 32;

pub(crate) fn run(_: &str) -> Result<Outcome> {
    if std::env::var_os(VICTIM).is_some() {
        std::process::exit(publish());
    }
    let end = Command::new(std::env::current_exe()?).arg("dropped-watcher").env(VICTIM, "").status()?;
    let finding = match end.code() {
        Some(UNHARMED) => "is intact",
        Some(OVERWRITTEN) => "is overwritten",
        _ => "is not looked at any more",
    };
    println!("a pending `changed` is dropped while a state is published: other memory {finding} ({end})");
    Ok(Outcome::of(end.code() != Some(UNHARMED)))
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The waits, the oldest first.
struct Waits(Mutex<Vec<Option<Wait>>>);

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        // The last of the batch is notified, and the next one still points to it.
        let (notified, next) = {
            let mut waits = self.0.lock().expect("no panic");
            (waits[BATCH - 1].take(), waits[BATCH].take())
        };
        let (Some(notified), Some(next)) = (notified, next) else { return };
        let size = size_of_val(&*notified);
        drop(notified);
        // An allocator hands out again what has just been freed. `calloc`, of which zeros come, does not: so other bytes.
        let ours = vec![FILL; size];
        drop(next);
        if ours.iter().any(|byte| *byte != FILL) {
            std::process::exit(OVERWRITTEN);
        }
    }
}

fn publish() -> i32 {
    let (sender, receiver) = watch::channel(0_u64);
    let waits = Arc::new(Waits(Mutex::new(Vec::new())));
    let waker = Waker::from(Arc::clone(&waits));
    for _ in 0..BATCH + 2 {
        let mut receiver = receiver.clone();
        let mut wait: Wait = Box::pin(async move {
            receiver.changed().await.ok();
        });
        let _pending = wait.as_mut().poll(&mut Context::from_waker(&waker));
        waits.0.lock().expect("no panic").push(Some(wait));
    }
    sender.publish(1);
    UNHARMED
}
