//! Captures the warnings of a library in the thread of a test.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// While there is only one subscriber, the thread that reaches a log statement first decides for all threads whether
/// anybody listens to it. With two, all are asked.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Warnings::new()));

/// The captured texts.
#[derive(Clone)]
pub(crate) struct Warnings {
    level: Level,
    /// The beginning of the targets.
    of: &'static str,
    texts: Arc<Mutex<Vec<String>>>,
    panics_at: Option<&'static str>,
}

/// Makes sure that there are several subscribers.
pub(crate) fn have_several_subscribers() {
    LazyLock::force(&ANOTHER);
}

impl Warnings {
    pub(crate) fn new() -> Self {
        Self::of("zookeeper_recipes")
    }

    /// Captures those of a crate.
    pub(crate) fn of(of: &'static str) -> Self {
        Self { level: Level::WARN, of, texts: Arc::default(), panics_at: None }
    }

    /// Captures what is logged down to this level.
    pub(crate) fn down_to(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Captures all levels.
    pub(crate) fn and_traces() -> Self {
        Self::new().down_to(Level::TRACE)
    }

    /// Panics in the logging thread at a text that contains this.
    pub(crate) fn that_panic_at(text: &'static str) -> Self {
        Self { panics_at: Some(text), ..Self::and_traces() }
    }

    /// Listens in this thread until the guard is dropped.
    pub(crate) fn listen(&self) -> DefaultGuard {
        have_several_subscribers();
        set_default(self.clone())
    }

    /// How many texts contain this.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.texts.lock().expect("no panic").iter().filter(|logged| logged.contains(text)).count()
    }

    /// The texts that contain this.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let texts = self.texts.lock().expect("no panic");
        texts.iter().filter(|logged| logged.contains(text)).cloned().collect()
    }
}

/// The message of an event, and its fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with(self.of)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let panics = self.panics_at.is_some_and(|text| message.0.contains(text));
        assert!(!panics, "on purpose: {}", message.0);
        self.texts.lock().expect("no panic").push(message.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
