//! Records what the library logs: by what locks are granted.

use std::fmt;
use std::sync::Arc;

use testbed::history::Journal;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

use super::Result;
use crate::line::{Mark, What};

const HOLD: &str = "zookeeper_recipes::hold";

/// Records every grant of this process from now on.
pub(super) fn record(name: &Arc<str>, journal: &Journal) -> Result {
    Ok(set_global_default(Logs { name: Arc::clone(name), journal: journal.clone() })?)
}

struct Logs {
    name: Arc<str>,
    journal: Journal,
}

/// The fields of a log event, of which one is wanted.
#[derive(Default)]
struct Fields {
    by: Option<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "by" {
            self.by = Some(format!("{value:?}"));
        }
    }
}

impl Subscriber for Logs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == HOLD && *metadata.level() <= Level::DEBUG && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // Only a grant has this field.
        if let Some(by) = fields.by {
            let mark = Mark::new(&self.name, What::Granted { by });
            self.journal.write(&mark).expect("the journal can be written");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
