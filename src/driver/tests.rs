//! Tests of what no caller can cause or see: a panic under the session's lock, the journal, and how often the session is
//! locked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::driver::reports::JOURNAL;
use crate::locked::locked;
use crate::{Error, HoldState, Loss, Mutex, Session};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn panic_under_the_lock_ends_the_session() {
    let session = Session::local().await.expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.map(drop) }
    });
    let other = session.another().await.expect("another session");
    let core = Arc::clone(session.core());
    let panics = std::thread::spawn(move || {
        let _state = core.lock();
        panic!("on purpose");
    });
    panics.join().expect_err("it panics");
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
    let is_over = |error: &Error| matches!(error, Error::SessionEnded { reason } if reason.contains("panic"));
    let refused =
        timeout(SOON, waiter).await.expect("an answer").expect("no panic").expect_err("the session is over");
    assert!(is_over(&refused), "{refused:?}");
    let refused = timeout(SOON, mutex.lock()).await.expect("an answer").expect_err("the session is over");
    assert!(is_over(&refused), "{refused:?}");
    let released = timeout(SOON, guard.release()).await.expect("an answer");
    assert!(matches!(released, Err(Error::Lost(Loss::Expired))), "{released:?}");
    // The nodes go with the session.
    let next = Mutex::new(&other, "/locks/report").expect("a mutex");
    drop(timeout(SOON, next.lock()).await.expect("in time").expect("held"));
}

#[tokio::test]
async fn panic_under_the_lock_deletes_the_nodes_in_the_session_of_a_given_client() {
    let local = Session::local().await.expect("a session");
    let session = Session::attach(local.client().expect("a client")).expect("in a runtime");
    let guard = Mutex::new(&session, "/locks/report").expect("a mutex").lock().await.expect("held");
    let core = Arc::clone(session.core());
    let panics = std::thread::spawn(move || {
        let _state = core.lock();
        panic!("on purpose");
    });
    panics.join().expect_err("it panics");
    assert_eq!(timeout(SOON, guard.lost()).await.expect("in time"), Loss::Expired);
    let next = Mutex::new(&local, "/locks/report").expect("a mutex");
    drop(timeout(SOON, next.lock()).await.expect("in time").expect("held"));
}

/// Keeps the events of the journal.
#[derive(Clone, Default)]
struct Journal(Arc<std::sync::Mutex<Vec<String>>>);

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == JOURNAL
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Entry(&mut locked(&self.0)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Entry<'a>(&'a mut Vec<String>);

impl Visit for Entry<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "event" {
            self.0.push(format!("{value:?}"));
        }
    }
}

#[tokio::test]
async fn journal_begins_with_the_session() {
    let journal = Journal::default();
    // With one subscriber, `tracing` asks only the default of the thread that comes first, which may be another test's.
    let _others = [(); 2].map(|()| tracing::Dispatch::new(Journal::default()));
    let _subscribed = tracing::subscriber::set_default(journal.clone());
    let session = Session::local().await.expect("a session");
    drop(Mutex::new(&session, "/locks/report").expect("a mutex").lock().await.expect("held"));
    session.close().await.expect("closed");
    let entries = locked(&journal.0);
    assert!(
        matches!(&entries[..], [begin, renewed, ..] if begin == "Begin" && renewed.starts_with("Renewed")),
        "{entries:?}"
    );
}

/// Counts how often `work` locks the state of a session: the least of ten runs, because the session's task locks it, too.
async fn locks<F: Future<Output = ()>>(session: &Session, work: impl Fn() -> F) -> usize {
    let mut least = usize::MAX;
    for _ in 0..10 {
        let before = session.core().locks.load(Ordering::Relaxed);
        work().await;
        least = least.min(session.core().locks.load(Ordering::Relaxed) - before);
    }
    least
}

#[tokio::test]
async fn lock_and_its_release_lock_the_session_a_few_times() {
    let session = Session::local().await.expect("a session");
    let other = session.another().await.expect("another session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let rival = Mutex::new(&other, "/locks/report").expect("a mutex");
    let alone = locks(&session, async || {
        mutex.lock().await.expect("held").release().await.expect("released");
    });
    let alone = alone.await;
    let handed_over = locks(&session, async || {
        let guard = rival.lock().await.expect("held");
        let waiting = mutex.enqueue().await.expect("queued");
        guard.release().await.expect("released");
        waiting.await.expect("held").release().await.expect("released");
    });
    let handed_over = handed_over.await;
    println!("locks of the session: {alone} for a free lock and its release, {handed_over} behind another");
    assert!(alone <= 8 && handed_over <= 20, "{alone} and {handed_over} times");
}
