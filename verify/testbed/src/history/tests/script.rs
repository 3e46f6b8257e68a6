//! Histories written as text.

use super::super::{Event, Mode, Step};

/// The lock of all scripts.
pub(super) const LOCK: &str = "/l";

/// Parses events such as `3 a/x#2 ok 10`, separated by semicolons: at 3 ns, the second attempt of process `a` with owner
/// `x` succeeds with the token 10.
pub(super) fn events(script: &str) -> Vec<Event> {
    script.split(';').map(str::trim).filter(|words| !words.is_empty()).map(event).collect()
}

fn event(words: &str) -> Event {
    let words: Vec<_> = words.split_whitespace().collect();
    let number = |index: usize| words[index].parse::<i64>().expect("a number");
    let (client, attempt) = words[1].split_once('#').unwrap_or((words[1], "1"));
    let (process, owner) =
        client.split_once('/').map_or((client, None), |(process, owner)| (process, Some(owner)));
    let acquire = |mode| Step::Acquire { mode, owner: owner.map(Into::into) };
    let step = match words[2] {
        "acquire" => acquire(Mode::Exclusive),
        "share" => acquire(Mode::Shared),
        "permits" => acquire(Mode::Permits(number(3) as u32)),
        "enqueued" => Step::Enqueued { place: words.get(3).map(|_| number(3)) },
        "ok" => Step::Acquired { token: number(3) },
        "fail" => Step::AcquireFailed,
        "unknown" => Step::AcquireUnknown,
        "confirmed" => Step::Confirmed,
        "downgrade" => Step::Downgrade,
        "lost" => Step::Lost { since: number(0) as u64 },
        "lost-since" => Step::Lost { since: number(3) as u64 },
        "release" => Step::Release,
        "released" => Step::Released,
        "release-lost" => Step::ReleaseLost,
        "release-unknown" => Step::ReleaseUnknown,
        other => panic!("no step is called {other}"),
    };
    Event::new(number(0) as u64, process, LOCK, attempt.parse().expect("a number"), step)
}
