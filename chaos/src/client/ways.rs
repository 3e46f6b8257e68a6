//! Records by what locks are granted, as the library logs it.

use std::fmt;
use std::sync::Arc;

use testbed::history::Journal;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

use super::Result;
use crate::line::{Mark, What};

/// Records every grant of this process from now on.
pub(super) fn record(name: &Arc<str>, journal: &Journal) -> Result {
    Ok(set_global_default(Grants { name: Arc::clone(name), journal: journal.clone() })?)
}

struct Grants {
    name: Arc<str>,
    journal: Journal,
}

/// The field that a grant has and no other event.
struct By(Option<String>);

impl Visit for By {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "by" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

impl Subscriber for Grants {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.target() == "zookeeper_recipes::lock" && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut by = By(None);
        event.record(&mut by);
        if let Some(by) = by.0 {
            let mark = Mark::new(&self.name, What::Granted { by });
            self.journal.write(&mark).expect("the journal can be written");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
