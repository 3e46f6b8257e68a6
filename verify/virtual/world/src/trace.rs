//! A hash over all that crosses the network, and when.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use crate::clock;

/// What crossed the network of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub hash: u64,
    pub segments: u64,
    pub bytes: u64,
    pub time: Duration,
}

thread_local! {
    static TRACE: RefCell<Trace> = const { RefCell::new(Trace { hash: 0xcbf2_9ce4_8422_2325, segments: 0, bytes: 0, time: Duration::ZERO }) };
}

pub(crate) struct Here;

impl Here {
    pub(crate) fn enter() -> Self {
        TRACE.set(Trace { hash: 0xcbf2_9ce4_8422_2325, ..Trace::default() });
        Self
    }
}

/// Adds something to the trace: a kind, a place, and bytes.
pub fn note(kind: u8, place: u64, bytes: &[u8]) {
    let time = clock::elapsed().unwrap_or_default();
    TRACE.with_borrow_mut(|trace| {
        let head = time.as_nanos().to_be_bytes().into_iter().chain(place.to_be_bytes()).chain([kind]);
        for byte in head.chain(bytes.iter().copied()) {
            trace.hash = (trace.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        trace.segments += 1;
        trace.bytes += bytes.len() as u64;
        if dumps() {
            println!("{time:>12.3?} {} {place} {bytes:?}", kind as char);
        }
    });
}

fn dumps() -> bool {
    static DUMPS: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("VIRTUAL_DUMP").is_some());
    *DUMPS
}

pub(crate) fn take() -> Trace {
    let time = clock::elapsed().unwrap_or_default();
    TRACE.with_borrow(|trace| Trace { time, ..*trace })
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hash {:016x}, {} segments, {} bytes, {:.3?}", self.hash, self.segments, self.bytes, self.time)
    }
}
