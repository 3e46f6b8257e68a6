//! What a driver owes to its machine, apart from the requests themselves.

use std::collections::{HashMap, HashSet, VecDeque};

use machine::{Action, Ask, Connection, Event, Life, Machine, Moment, Op, Trust, Watch};

/// How late a timer may fire, in microseconds: timers have whole milliseconds.
const LATEST: u64 = 2_000;

/// What the driver has under way for a machine.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The requests without an answer, by their acquisitions, each with the moment and the connection that it was asked for at.
    flights: HashMap<Option<Op>, VecDeque<(Ask, Moment, u64)>>,
    watches: HashSet<Watch>,
    /// Counts the connections.
    epoch: u64,
    /// The moment of the last event.
    last: Moment,
}

impl Rules {
    /// Called before the machine handles an event. Returns the rule that is broken.
    pub(crate) fn check<T: Trust>(&mut self, machine: &Machine<T>, now: Moment, event: &Event) -> Option<String> {
        let due = machine.next_deadline();
        let is_alive = !matches!(machine.life(), Life::Over | Life::Renewing);
        let late = due.filter(|due| is_alive && due.plus(LATEST) <= self.last && self.last < now);
        self.last = now;
        if !machine.out.is_empty() {
            return Some(format!("{event:?}, and the driver has not done {:?}", machine.out));
        }
        if let Some(due) = late {
            return Some(format!("{event:?} at {now:?}, and what was due at {due:?} has not been done"));
        }
        match event {
            Event::Answer { ask, sent, is_stale, .. } => {
                let flights = self.flights.get_mut(&ask.op()).and_then(VecDeque::pop_front);
                let Some((asked, at, epoch)) = flights else { return Some(format!("{ask:?} was not asked for")) };
                if asked != *ask {
                    return Some(format!("{ask:?} is answered before {asked:?}"));
                }
                if *is_stale != (epoch != self.epoch) {
                    return Some(format!("{ask:?} is answered with is_stale: {is_stale}"));
                }
                if *sent < at {
                    return Some(format!("{ask:?} was asked for at {at:?}, and sent at {sent:?}"));
                }
                self.watches.extend(watch(ask));
            }
            Event::Fired { watch, .. } if !self.watches.remove(watch) => {
                return Some(format!("{watch:?} has fired, and was not set"));
            }
            Event::Timeout if due.is_none_or(|due| due > now) => {
                return Some(format!("nothing is due at {now:?}"));
            }
            Event::Connection(Connection::Down) => self.epoch += 1,
            Event::Connection(Connection::Expired) | Event::Renewed { .. } => self.session_over(),
            _ => {}
        }
        None
    }

    /// Called when the driver takes an action.
    pub(crate) fn act(&mut self, action: &Action) {
        match action {
            Action::Send(ask) => {
                let flight = (ask.clone(), self.last, self.epoch);
                self.flights.entry(ask.op()).or_default().push_back(flight);
            }
            Action::Unwatch(watch) => _ = self.watches.remove(watch),
            Action::Replace => self.session_over(),
            _ => {}
        }
    }

    fn session_over(&mut self) {
        self.epoch += 1;
        self.flights.clear();
        self.watches.clear();
    }
}

/// The watch that a request sets.
pub(crate) fn watch(ask: &Ask) -> Option<Watch> {
    match *ask {
        Ask::Watch { op, path, name } => Some(Watch::Predecessor(op, path, name)),
        Ask::WatchOwn { op, path, name } => Some(Watch::Own(op, path, name)),
        Ask::List { path, watches: true, .. } => Some(Watch::Path(path)),
        _ => None,
    }
}
