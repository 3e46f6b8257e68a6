//! Makes the values of the machine of their texts.

use std::sync::Arc;

use crate::debug::Value;
use crate::machine::{
    Action, Admission, Ask, Connection, Counted, Event, Kind, Moment, Name, Outcome, Spec, Timer, Watch,
};

/// A value that can be made of its text.
pub(crate) trait Read: Sized {
    fn read(value: &Value<'_>) -> Option<Self>;
}

/// The value that the whole text stands for. Its text is the same again.
pub(crate) fn read<T: Read + std::fmt::Debug>(text: &str) -> Option<T> {
    let value = T::read(&Value::parse(text)?)?;
    (format!("{value:?}") == text).then_some(value)
}

macro_rules! numbers {
    ($($type:ident)*) => {
        $(impl Read for $type {
            fn read(value: &Value<'_>) -> Option<Self> {
                if let Value::Word(word) = value { word.parse().ok() } else { None }
            }
        })*
    };
}

numbers!(bool u32 u64 u128 i32 i64);

impl Read for String {
    fn read(value: &Value<'_>) -> Option<Self> {
        if let Value::Word(text) = value { Some((*text).to_owned()) } else { None }
    }
}

impl<T: Read> Read for Option<T> {
    fn read(value: &Value<'_>) -> Option<Self> {
        match value.name() {
            "None" => Some(None),
            "Some" => T::read(value.item(0)?).map(Some),
            _ => None,
        }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value<'_>) -> Option<Self> {
        value.items()?.iter().map(T::read).collect()
    }
}

impl<T: Read> Read for Arc<[T]> {
    fn read(value: &Value<'_>) -> Option<Self> {
        Vec::read(value).map(Into::into)
    }
}

impl Read for Arc<Spec> {
    fn read(value: &Value<'_>) -> Option<Self> {
        Spec::read(value).map(Self::new)
    }
}

impl<A: Read, B: Read> Read for (A, B) {
    fn read(value: &Value<'_>) -> Option<Self> {
        Some((A::read(value.item(0)?)?, B::read(value.item(1)?)?))
    }
}

impl Read for Moment {
    fn read(value: &Value<'_>) -> Option<Self> {
        u64::read(value.item(0)?).map(Self)
    }
}

/// As `Name` writes itself: the kind, the three parts of the guid, and the number, which may be negative.
impl Read for Name {
    fn read(value: &Value<'_>) -> Option<Self> {
        let (kind, rest) = value.name().split_once('-')?;
        let (guid, number) = rest.split_once('-')?;
        let mut parts = guid.split('.');
        let nonce = u128::from_str_radix(parts.next()?, 16).ok()?;
        let op: u128 = parts.next()?.parse().ok()?;
        let attempt = u128::from_str_radix(parts.next()?, 16).ok()?;
        let guid = nonce << 64 | op << 32 | attempt;
        Some(Self { number: number.parse().ok()?, guid, kind: Kind::read(&Value::Word(kind))? })
    }
}

macro_rules! variants {
    ($type:ty { $($variant:ident $({ $($field:ident),* })? $(( $($at:tt),* ))?;)* }) => {
        impl Read for $type {
            fn read(value: &Value<'_>) -> Option<Self> {
                match value.name() {
                    $(stringify!($variant) => Some(Self::$variant
                        $({ $($field: Read::read(value.field(stringify!($field))?)?),* })?
                        $(( $(Read::read(value.item($at)?)?),* ))?),)*
                    _ => None,
                }
            }
        }
    };
}

macro_rules! fields {
    ($type:ident { $($field:ident),* }) => {
        impl Read for $type {
            fn read(value: &Value<'_>) -> Option<Self> {
                Some(Self { $($field: Read::read(value.field(stringify!($field))?)?),* })
            }
        }
    };
}

fields!(Spec { queues, admission, waits, max_hold, may_count });
fields!(Counted { others, turns });

variants!(Kind {
    Lock;
    Read;
    Write;
    Lease;
    Latch;
});

impl Read for Admission {
    fn read(value: &Value<'_>) -> Option<Self> {
        match value.name() {
            "First" => Some(Self::First),
            "Permits" => Some(Self::Permits {
                limit: Read::read(value.field("limit")?)?,
                turn: Read::read(value.field("turn")?)?,
            }),
            _ => None,
        }
    }
}

variants!(Ask {
    Create { op, guid, spec, counts, creates_parents };
    Barrier { op, path };
    List { op, path, watches };
    Confirm { op, nodes };
    Watch { op, path, name };
    WatchOwn { op, path, name };
    Delete { op, nodes };
    Replace { op, path, name, guid };
    ListOwn;
    Read;
    Check;
});

variants!(Outcome {
    Created { names, czxid, owner, counted };
    Names { names, other_children, has_no_data };
    Stat { owner };
    Done;
    NoNode;
    Exists;
    DataRefused;
    Refused;
    UnknownError;
    Unknown;
});

variants!(Watch {
    Predecessor(0, 1, 2);
    Own(0, 1, 2);
    Path(0);
});

variants!(Timer {
    Resume;
    Confirm;
    SearchAgain(0);
    Tick;
    Renew;
    TrustEnds;
    Limit(0);
    Turn(0);
    ListOwn;
    FallbackPoll;
    CloseBy;
});

variants!(Connection {
    Up { since };
    Down;
    Expired;
});

variants!(Event {
    Acquire { op, spec };
    Release(0);
    Downgrade(0);
    WatchForLoss(0);
    Abandon(0);
    Drain;
    Close;
    Answer { ask, sent, is_stale, outcome };
    Fired { watch, is_deleted };
    Connection(0);
    Renewed { session, nonce, created, timeout };
    Orphans { path, names };
    Beat { slept };
    Timeout;
    Timer(0);
});

variants!(Action {
    Send(0);
    Unwatch(0);
    Wake(0);
    Placed(0);
    Forget;
    Replace;
    End { is_clean };
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_actions_are_read_as_they_were() {
        let name = |number| Name { number, guid: 0xab << 64 | 7 << 32 | 3 << 16 | 1, kind: Kind::Write };
        let admission = Admission::Permits { limit: 3, turn: Some(4) };
        let queues = vec![(2, Kind::Lease), (2, Kind::Lease)];
        let spec = Arc::new(Spec { queues, admission, waits: true, max_hold: Some(8), may_count: false });
        let create =
            Ask::Create { op: 7, guid: u128::MAX, spec: Arc::clone(&spec), counts: true, creates_parents: false };
        let created = Outcome::Created {
            names: [name(i32::MIN)].into(),
            czxid: -5,
            owner: Some(u64::MAX),
            counted: Some(Counted { others: 1, turns: 2 }),
        };
        let events = [
            Event::Acquire { op: 7, spec },
            Event::Answer { ask: create.clone(), sent: Moment(9), is_stale: true, outcome: created },
            Event::Fired { watch: Watch::Own(7, 2, name(-1)), is_deleted: true },
            Event::Renewed { session: 1, nonce: 2, created: Moment(3), timeout: 4 },
            Event::Timer(Timer::SearchAgain(5)),
            Event::Connection(Connection::Up { since: Moment(6) }),
        ];
        for event in events {
            let text = format!("{event:?}");
            assert_eq!(read::<Event>(&text).map(|event| format!("{event:?}")), Some(text));
        }
        let actions = vec![
            Action::Send(create),
            Action::Send(Ask::ListOwn),
            Action::Forget,
            Action::End { is_clean: false },
        ];
        assert_eq!(read(&format!("{actions:?}")), Some(actions));
        assert!(read::<Event>("Release(x)").is_none() && read::<Event>("Releases(1)").is_none());
    }
}
