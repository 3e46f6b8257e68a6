//! What tracing shows of locks: a span for each acquisition and each hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex as Shared};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Instrument, Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use zookeeper_recipes::{Loss, RwLock, Semaphore};

use crate::support::{World, soon, until};
use crate::warnings::have_several_subscribers;

/// A span, or an event.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
    is_closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Seen {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Captures spans and events of a thread.
#[derive(Clone, Default)]
struct Spans(Arc<Shared<Vec<Entry>>>);

/// A span with its id, or an event without one.
type Entry = (Option<Id>, Seen);

impl Spans {
    fn listen() -> (Self, DefaultGuard) {
        have_several_subscribers();
        let spans = Self::default();
        let guard = set_default(Registry::default().with(spans.clone()));
        (spans, guard)
    }

    fn named(&self, name: &str) -> Vec<Seen> {
        let seen = self.0.lock().expect("no panic");
        seen.iter().filter(|(_, seen)| seen.name == name).map(|(_, seen)| seen.clone()).collect()
    }

    fn one(&self, name: &str) -> Seen {
        let named = self.named(name);
        assert_eq!(named.len(), 1, "{named:#?}");
        named[0].clone()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.0.lock().expect("no panic");
        // The ids of spans that are closed are given again.
        if let Some((_, seen)) = seen.iter_mut().rfind(|(of, _)| of.as_ref() == Some(id)) {
            change(seen);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent().map(|parent| parent.name().to_owned()));
        let mut seen = Seen { name: attributes.metadata().name().to_owned(), parent, ..Seen::default() };
        attributes.record(&mut seen);
        self.0.lock().expect("no panic").push((Some(id.clone()), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |seen| values.record(seen));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let parent = context.event_span(event).map(|span| span.name().to_owned());
        let mut seen = Seen { parent, ..Seen::default() };
        event.record(&mut seen);
        seen.name = seen.field("message").to_owned();
        self.0.lock().expect("no panic").push((None, seen));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |seen| seen.is_closed = true);
    }
}

#[tokio::test]
async fn acquisition_and_hold_are_spans_of_the_caller_and_work_nests_in_the_hold() {
    let world = World::new().await;
    let (spans, _listens) = Spans::listen();
    let token = async {
        let guard = world.mutex().lock().await.expect("held");
        guard.run_until_lost(async { drop(info_span!("work")) }).await.expect("still held");
        let token = guard.fencing_token();
        guard.release().await.expect("released");
        token
    }
    .instrument(info_span!("caller"))
    .await
    .to_string();
    let acquire = spans.one("lock.acquire");
    assert_eq!((acquire.parent.as_deref(), acquire.is_closed), (Some("caller"), true));
    assert_eq!((acquire.field("lock.path"), acquire.field("lock.kind")), (world.path.as_str(), "lock"));
    assert_eq!(acquire.field("lock.outcome"), "granted");
    assert_eq!(acquire.field("lock.token"), token);
    acquire.field("lock.waited_ms").parse::<u64>().expect("a number");
    let hold = spans.one("lock.hold");
    assert_eq!((hold.parent.as_deref(), hold.field("lock.ended")), (Some("caller"), "released"));
    assert_eq!((hold.field("lock.path"), hold.field("lock.token")), (world.path.as_str(), token.as_str()));
    hold.field("lock.held_ms").parse::<u64>().expect("a number");
    assert_eq!(spans.one("work").parent.as_deref(), Some("lock.hold"));
}

#[tokio::test]
async fn acquisitions_end_with_what_became_of_them() {
    let world = World::new().await;
    let held = world.other_mutex().await.lock().await.expect("held");
    let (spans, _listens) = Spans::listen();
    let mutex = world.mutex();
    assert!(mutex.try_lock().await.expect("asked").is_none());
    let waiting = tokio::spawn(async move { mutex.lock().await.map(drop) });
    world.wait_children(2).await;
    waiting.abort();
    assert!(waiting.await.expect_err("cancelled").is_cancelled());
    world.wait_children(1).await;
    held.release().await.expect("released");
    let ended: Vec<_> =
        spans.named("lock.acquire").iter().map(|one| one.field("lock.outcome").to_owned()).collect();
    assert_eq!(ended, ["contended", "cancelled"]);
    assert!(spans.named("lock.hold").is_empty());

    let lock = RwLock::new(&world.session, "/spans/rwlock").expect("a lock");
    drop((lock.read().await.expect("held"), lock.read().await.expect("held")));
    drop(lock.write().await.expect("held"));
    let permits = Semaphore::new(&world.session, "/spans/permits", 2).expect("a semaphore");
    drop(permits.acquire().await.expect("held"));
    let kinds: Vec<_> = spans.named("lock.hold").iter().map(|one| one.field("lock.kind").to_owned()).collect();
    assert_eq!(kinds, ["reader", "reader", "writer", "permit"]);
}

#[tokio::test]
async fn loss_is_a_warning_in_the_span_of_the_hold() {
    let world = World::new().await;
    let (spans, _listens) = Spans::listen();
    let guard = world.mutex().lock().await.expect("held");
    world.wait_children(1).await;
    world.expire().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    until("a warning", || !spans.named("lock is lost").is_empty()).await;
    let warning = spans.one("lock is lost");
    assert_eq!((warning.parent.as_deref(), warning.field("cause")), (Some("lock.hold"), "expired"));
    assert_eq!(warning.field("path"), world.path);
    assert_eq!(spans.one("lock.hold").field("lock.ended"), Loss::Expired.to_string());
}
