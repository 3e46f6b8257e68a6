use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// An event arrives while the first call polls the attempt, and wakes both calls. The second call polls meanwhile and stays
/// pending, because the attempt is being polled. The first call would poll again, but is dropped.
#[test]
fn call_that_is_dropped_when_it_was_woken_leaves_the_look_to_another() {
    let (first, second) = (Arc::<Woken>::default(), Arc::<Woken>::default());
    let waker = Waker::from(Arc::clone(&second));
    let other: Arc<Mutex<Option<Acquiring>>> = Arc::default();
    let (waits, mut has_come) = (Arc::clone(&other), false);
    let acquiring = poll_fn(move |cx: &mut Context<'_>| {
        if std::mem::replace(&mut has_come, true) {
            return Poll::Ready(Ok(None));
        }
        cx.waker().wake_by_ref();
        let mut waits = locked(&waits);
        let call = waits.as_mut().expect("the second call waits");
        assert!(call.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        Poll::Pending
    });
    let acquiring = acquiring.boxed().shared();
    let attempt =
        Arc::new(Attempt { acquiring, hold: Arc::default(), progress: Arc::default(), left: Notify::new() });
    let shared = Arc::clone(&attempt);
    *locked(&other) = Some(async move { shared.outcome().await.map(|_| None) }.boxed());
    {
        let call = pin!(attempt.outcome());
        assert!(call.poll(&mut Context::from_waker(&Waker::from(first))).is_pending());
    }
    assert_eq!(second.0.load(Ordering::SeqCst), 1, "it is woken when the first is dropped");
    let mut call = locked(&other).take().expect("the second call waits");
    let polled = call.poll_unpin(&mut Context::from_waker(&Waker::from(second)));
    assert!(matches!(polled, Poll::Ready(Ok(None))), "the attempt has ended");
}
