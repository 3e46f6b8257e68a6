//! The timers of `async-io`, by the clock of tokio. It has no reactor, and no adapter for sockets.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use tokio::time::{Sleep, sleep_until};

/// A future or stream of the instants when it fires.
#[derive(Debug)]
pub struct Timer {
    when: Option<Instant>,
    period: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    pub fn never() -> Self {
        Self { when: None, period: Duration::MAX, sleep: None }
    }

    pub fn after(duration: Duration) -> Self {
        Instant::now().checked_add(duration).map_or_else(Self::never, Self::at)
    }

    pub fn at(instant: Instant) -> Self {
        Self::interval_at(instant, Duration::MAX)
    }

    pub fn interval(period: Duration) -> Self {
        Instant::now().checked_add(period).map_or_else(Self::never, |at| Self::interval_at(at, period))
    }

    pub fn interval_at(start: Instant, period: Duration) -> Self {
        Self { when: Some(start), period, sleep: None }
    }
}

impl Future for Timer {
    type Output = Instant;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        self.poll_next(cx).map(|when| when.expect("a timer never ends"))
    }
}

impl Stream for Timer {
    type Item = Instant;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let this = self.get_mut();
        let Some(when) = this.when else { return Poll::Pending };
        let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep_until(when.into())));
        std::task::ready!(sleep.as_mut().poll(cx));
        this.when = when.checked_add(this.period);
        this.sleep = None;
        if this.when.is_some() {
            // As the original, it is registered for the next time at once.
            let next =
                this.sleep.insert(Box::pin(sleep_until(when.checked_add(this.period).expect("checked").into())));
            if next.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
                this.sleep = None;
            }
        }
        Poll::Ready(Some(when))
    }
}
