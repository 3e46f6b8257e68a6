//! The machine of a session, as the driver sees it. What the driver hands it, and what it asks for, is recorded beside the
//! frames that the client sends and reads. At the end of a scene [`differences`] compares them.

mod compare;
mod form;
mod network;
mod record;
mod rules;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};

// The name `Machine` below hides the original.
pub use machine::*;

pub use crate::network::Tap;
pub use crate::record::differences;
use crate::record::{Entry, Record};
use crate::rules::Rules;

/// The machine, with a record of its events and actions.
#[derive(Debug)]
pub struct Machine<T> {
    machine: machine::Machine<T>,
    rules: Rules,
    record: Record,
    number: usize,
}

impl<T: Trust> Machine<T> {
    pub fn handle(&mut self, now: Moment, event: Event) {
        let wrong = self.rules.check(&self.machine, now, &event);
        wrong.into_iter().for_each(|what| self.record.add(Entry::Wrong(what)));
        self.record.add(Entry::Given(self.number, event.clone()));
        self.machine.handle(now, event);
    }

    pub fn next_action(&mut self) -> Option<Action> {
        let action = self.machine.next_action()?;
        self.rules.act(&action);
        self.record.add(Entry::Asked(self.number, action.clone()));
        Some(action)
    }
}

impl Default for Machine<Ledger> {
    fn default() -> Self {
        let (record, machine) = (Record::of_world(), machine::Machine::default());
        Self { machine, rules: Rules::default(), number: record.next_machine(), record }
    }
}

impl<T> Deref for Machine<T> {
    type Target = machine::Machine<T>;

    fn deref(&self) -> &Self::Target {
        &self.machine
    }
}

impl<T> DerefMut for Machine<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.machine
    }
}
