//! The recorder's events, and their summary.

use std::time::Duration;

use super::super::{Acquire, Acquiring, Event, Gap, Held, History, Mode, Model, Process, Releasing, Step, now};
use super::script;

fn steps(history: &History) -> Vec<Step> {
    history.events().into_iter().map(|event| event.step).collect()
}

const EXCLUSIVE: Step = Step::Acquire { mode: Mode::Exclusive, owner: None };

#[test]
fn steps_are_written_as_they_happen() {
    let history = History::new();
    let before = now();
    let acquire = history.process("a").acquire(Acquire::permits("/l", 3).with_owner("x"));
    acquire.enqueued(Some(7));
    let held = acquire.ok(7);
    held.downgrade();
    let begin = now();
    let mut seen = begin;
    assert!(held.confirm(|| {
        seen = now();
        true
    }));
    assert!(!held.confirm(|| false));
    held.lost_since(5);
    held.lost();
    held.release().lost();
    let events = history.events();
    let (at, acquired) = (events[0].at, Step::Acquire { mode: Mode::Permits(3), owner: Some("x".into()) });
    assert_eq!(events[0], Event::new(at, "a", "/l", 0, acquired));
    assert!(before <= at && events.is_sorted_by_key(|event| event.at) && events[7].at <= now());
    assert!((begin..=seen).contains(&events[4].at), "a check proves nothing about later times");
    let enqueued = Step::Enqueued { place: Some(7) };
    let lost = [5, events[6].at].map(|since| Step::Lost { since });
    let expected = [enqueued, Step::Acquired { token: 7 }, Step::Downgrade, Step::Confirmed];
    assert_eq!(steps(&history)[1..5], expected);
    assert_eq!(steps(&history)[5..], [&lost[..], &[Step::Release, Step::ReleaseLost]].concat());
}

#[test]
fn outcomes_are_written_once() {
    let history = History::new();
    let process = history.process("a");
    let acquire = || process.acquire(Acquire::shared("/l"));
    acquire().fail();
    acquire().unknown();
    acquire().ok(1).release().ok();
    acquire().ok(2).release().unknown();
    let ends: Vec<_> = steps(&history)
        .into_iter()
        .filter(|step| !matches!(step, Step::Acquire { .. } | Step::Acquired { .. } | Step::Release))
        .collect();
    assert_eq!(ends, [Step::AcquireFailed, Step::AcquireUnknown, Step::Released, Step::ReleaseUnknown]);
    let numbers: Vec<_> = history.events().into_iter().map(|event| event.attempt).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
}

#[test]
fn dropped_operation_has_an_unknown_outcome() {
    let history = History::new();
    let process = history.process("a");
    drop(process.acquire(Acquire::exclusive("/l")));
    assert_eq!(steps(&history), [EXCLUSIVE, Step::AcquireUnknown]);
    drop(process.acquire(Acquire::exclusive("/l")).ok(1));
    assert_eq!(steps(&history)[2..], [EXCLUSIVE, Step::Acquired { token: 1 }, Step::Release]);
    drop(process.acquire(Acquire::exclusive("/l")).ok(2).release());
    assert_eq!(steps(&history)[7..], [Step::Release, Step::ReleaseUnknown]);
    history.judge(Model::FencedMutex).assert_clean();
}

#[test]
fn history_continues_where_events_ended() {
    let history = History::from_events(script::events("0 a acquire; 1 a ok 10; 2 a release; 3 a released"));
    history.process("a").acquire(Acquire::exclusive(script::LOCK)).ok(11).release().ok();
    history.judge(Model::FencedMutex).assert_clean();
    assert_eq!(history.events().last().map(|event| event.attempt), Some(2));
}

#[test]
fn clones_write_to_one_record_from_any_thread() {
    fn is_shared<T: Clone + Send + Sync + 'static>() {}
    fn is_sent<T: Send + Sync + 'static>() {}
    is_shared::<History>();
    is_shared::<Process>();
    is_sent::<Acquiring>();
    is_sent::<Held>();
    is_sent::<Releasing>();
    let history = History::new();
    let threads = ["a", "b"].map(|name| {
        let process = history.clone().process(name);
        std::thread::spawn(move || {
            for _ in 0..100 {
                process.acquire(Acquire::shared("/l")).ok(1).release().ok();
            }
        })
    });
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(history.events().len(), 800);
    history.judge(Model::ReadWrite).assert_clean();
}

#[test]
#[should_panic(
    expected = "FencedMutex: 22 violations\n/l: p1 (token 2, from +3ns on) was granted while inside: p0"
)]
fn violations_are_in_the_panic() {
    let script: String =
        (0..23).map(|n| format!("{} p{n} acquire; {} p{n} ok {};", 2 * n, 2 * n + 1, n + 1)).collect();
    let report = History::from_events(script::events(&script)).judge(Model::FencedMutex);
    assert!(report.to_string().ends_with("\nand 2 more"));
    report.assert_clean();
}

#[test]
fn summary_counts_and_finds_the_longest_waits() {
    assert_eq!(
        History::new().summary().to_string(),
        "0 acquires in 0ns: 0 ok, 0 failed, 0 unknown\n\
        0 releases: 0 ok, 0 lost, 0 unknown; 0 losses reported, 0 downgrades"
    );
    let script = "100 a acquire; 105 a ok 10; 107 a downgrade; 108 b acquire; 109 a release; 110 a released; \
        112 b unknown; 112 c acquire; 113 c fail; 109 d acquire; 118 d ok 20; 119 d lost; 120 d release; \
        121 d release-lost; 121 e acquire; 122 e ok 30; 123 e release; 124 e release-unknown; 130 f acquire";
    let summary = History::from_events(script::events(script)).summary();
    assert_eq!(
        summary.longest_gap,
        Some(Gap { start: Duration::from_nanos(5), duration: Duration::from_nanos(13) })
    );
    assert_eq!(summary.longest_wait.as_ref().map(|wait| wait.duration), Some(Duration::from_nanos(9)));
    assert_eq!(
        summary.to_string(),
        "6 acquires in 30ns: 3 ok, 1 failed, 1 unknown\n\
        3 releases: 1 ok, 1 lost, 1 unknown; 1 losses reported, 1 downgrades\n\
        longest wait: 9ns, of d for /l (token 20)\n\
        longest time without a grant: 13ns, from +5ns on"
    );
    let stuck = History::from_events(script::events("0 a acquire; 1 a ok 10; 9 b acquire")).summary();
    assert_eq!(stuck.longest_gap, Some(Gap { start: Duration::from_nanos(1), duration: Duration::from_nanos(8) }));
}
