//! Records what the library logs: by what locks are granted, and the journal of its machine.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use testbed::history::{Journal, now};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};

use super::Result;
use crate::line::{Mark, What};

const HOLD: &str = "zookeeper_recipes::hold";
const MACHINE: &str = "zookeeper_recipes::machine";

/// Records every grant of this process from now on. `machine`: where the journal of its machine goes.
pub(super) fn record(name: &Arc<str>, journal: &Journal, machine: Option<Journal>) -> Result {
    Ok(set_global_default(Logs { name: Arc::clone(name), journal: journal.clone(), machine })?)
}

struct Logs {
    name: Arc<str>,
    journal: Journal,
    machine: Option<Journal>,
}

/// The fields of a log event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}

impl Subscriber for Logs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_wanted = match metadata.target() {
            HOLD => *metadata.level() <= Level::DEBUG,
            MACHINE => self.machine.is_some(),
            _ => false,
        };
        is_wanted && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields(mut fields) = fields;
        if let (MACHINE, Some(machine)) = (event.metadata().target(), &self.machine) {
            fields.insert("time".to_owned(), now().into());
            machine.write(&fields).expect("the journal can be written");
        } else if let Some(Value::String(by)) = fields.remove("by") {
            // Only a grant has this field.
            let mark = Mark::new(&self.name, What::Granted { by });
            self.journal.write(&mark).expect("the journal can be written");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
