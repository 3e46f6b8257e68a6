//! Explores and simulates the machine.

mod alive;
mod client;
mod explore;
mod reduce;
mod server;
mod simulate;
mod trust;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::client::User;
use crate::explore::{Case, Found, explore, permits, together, trying, trying_permits, user};
use crate::world::Budget;
use zookeeper_machine::{self as machine, Kind};

const USAGE: &str = "\
usage: explore cases [quick | WORD] [show]     explores the cases whose names contain the word, or the quick ones
       explore simulate HISTORIES SEED         plays random histories, the first with this seed
       explore history SEED                    shows one of them
       explore shrink SEED                     shows one that breaks with as few steps as it takes";

/// How many of the cases are explored in seconds.
const QUICK: usize = 18;
/// A case that takes longer is reported as unfinished, which is a failure.
const LIMIT: Duration = Duration::from_secs(600);

fn cases() -> Vec<Case> {
    let one = |times| vec![user(Kind::Lock, times)];
    let kinds = |kinds: &[Kind]| kinds.iter().map(|kind| user(*kind, 1)).collect::<Vec<_>>();
    let two = || kinds(&[Kind::Lock, Kind::Lock]);
    let none = Budget::default();
    let case = |name, sessions: &[Vec<User>], budget| Case { name, sessions: sessions.to_vec(), budget };
    let read_and_write = kinds(&[Kind::Read, Kind::Write]);
    let (read, write) = (kinds(&[Kind::Read]), kinds(&[Kind::Write]));
    let permit = |count, limit| vec![permits(count, limit)];
    vec![
        case("1 session, twice, 1 cut", &[one(2)], Budget { cuts: 1, ..none }),
        case("1 session, 1 cut, 1 expiry, 1 drop", &[one(1)], Budget { cuts: 1, expiries: 1, drops: 1, ..none }),
        case("1 session, 2 cuts, 1 by hand, 1 tick", &[one(1)], Budget { cuts: 2, hand: 1, ticks: 1, ..none }),
        case("2 sessions, twice", &[one(2), one(2)], none),
        case("2 sessions, 1 cut, 1 by hand", &[one(1), one(1)], Budget { cuts: 1, hand: 1, ..none }),
        case("1 session, 2 tasks, 1 cut, 1 by hand", &[two()], Budget { cuts: 1, hand: 1, ..none }),
        case("reader and writer, 1 cut", &[write, read.clone()], Budget { cuts: 1, ..none }),
        case("2 readers and a writer, 1 by hand", &[read_and_write, read], Budget { hand: 1, ..none }),
        case(
            "a caller that does not queue, 1 cut",
            &[one(1), vec![trying(Kind::Lock)]],
            Budget { cuts: 1, ..none },
        ),
        case("2 locks beside a mutex", &[vec![together(&[0, 1])], one(1)], none),
        case(
            "2 locks in 2 sessions, 1 by hand",
            &[vec![together(&[0, 1])], vec![together(&[1, 0])]],
            Budget { hand: 1, ..none },
        ),
        case("semaphore of 1, 2 sessions", &[permit(1, 1), permit(1, 1)], none),
        case(
            "semaphore of 2, 2 permits and 1, 1 drop",
            &[permit(2, 2), permit(1, 2)],
            Budget { drops: 1, ..none },
        ),
        case("semaphore of 1, then of 2, 2 sessions", &[permit(1, 1), permit(1, 1)], Budget { raises: 2, ..none }),
        case(
            "1 session, 1 foreign session, 1 cut, 1 expiry",
            &[one(1)],
            Budget { cuts: 1, foreign_sessions: 1, expiries: 1, ..none },
        ),
        case("1 session, 2 tasks, 1 close, 1 cut", &[two()], Budget { closes: 1, cuts: 1, ..none }),
        case("2 sessions, 2 closes", &[one(1), one(1)], Budget { closes: 2, ..none }),
        case("2 sessions of one name, one locks twice", &[one(2), one(1)], Budget { is_named: true, ..none }),
        case("3 sessions, 1 by hand, 1 drop", &[one(1), one(1), one(1)], Budget { hand: 1, drops: 1, ..none }),
        case(
            "1 session, 2 tasks, 1 cut, 1 by hand, 1 drop",
            &[two()],
            Budget { cuts: 1, hand: 1, drops: 1, ..none },
        ),
        case(
            "2 sessions, 1 foreign session, 1 cut",
            &[one(1), one(1)],
            Budget { cuts: 1, foreign_sessions: 1, ..none },
        ),
        case("2 sessions, 1 cut, 1 expiry", &[one(1), one(1)], Budget { cuts: 1, expiries: 1, ..none }),
        case(
            "2 locks beside a mutex of each, 1 cut",
            &[vec![together(&[0, 1])], one(1)],
            Budget { cuts: 1, ..none },
        ),
        case("semaphore of 1, 2 sessions, 1 cut", &[permit(1, 1), permit(1, 1)], Budget { cuts: 1, ..none }),
        case(
            "semaphore of 1, one caller does not queue, 1 by hand",
            &[permit(1, 1), vec![trying_permits(1, 1)]],
            Budget { hand: 1, ..none },
        ),
        case(
            "semaphore of 1, 2 tasks, 1 expiry",
            &[vec![permits(1, 1), permits(1, 1)]],
            Budget { expiries: 1, ..none },
        ),
        case("semaphore of 2, 3 sessions", &[permit(1, 2), permit(1, 2), permit(1, 2)], none),
        case(
            "2 sessions of one name, 1 expiry",
            &[one(1), one(1)],
            Budget { is_named: true, expiries: 1, ..none },
        ),
        case("2 sessions, 1 expiry, 1 by hand", &[one(1), one(1)], Budget { expiries: 1, hand: 1, ..none }),
    ]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let holds = match (words.as_slice(), number(1), number(2)) {
        (["cases", rest @ ..], ..) => explore_cases(rest),
        (["simulate", _, _], Some(histories), Some(seed)) => simulate(histories, seed),
        (["history", _], Some(seed), _) => {
            let history = simulate::history(seed, true);
            println!("{history:?}");
            history.broken.is_none()
        }
        (["shrink", _], Some(seed), _) => {
            let broken = simulate::shrink(seed);
            println!("{}", broken.as_deref().unwrap_or("it holds"));
            broken.is_none()
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    ExitCode::from(u8::from(!holds))
}

fn explore_cases(words: &[&str]) -> bool {
    let shows = words.contains(&"show");
    let is_quick = words.contains(&"quick");
    let word = words.iter().find(|word| !["show", "quick"].contains(*word)).copied().unwrap_or_default();
    let cases = cases().into_iter().take(if is_quick { QUICK } else { usize::MAX });
    let found: Vec<_> =
        cases.filter(|case| case.name.contains(word)).map(|case| explore(&case, LIMIT, shows)).collect();
    !found.is_empty() && found.iter().all(|found| matches!(found, Found::Holds))
}

fn simulate(histories: u64, first: u64) -> bool {
    let began = Instant::now();
    let (mut steps, mut grants) = (0u64, 0u64);
    for seed in first..first + histories {
        let history = simulate::history(seed, false);
        steps += u64::from(history.steps);
        grants += u64::from(history.grants);
        if let Some(broken) = history.broken {
            println!("seed {seed}: {broken}");
            println!(
                "after {} histories and {:.1?}; `cargo run --release -p explore -- history {seed}` shows it",
                seed - first + 1,
                began.elapsed()
            );
            return false;
        }
    }
    let (all, took) = (histories.max(1) as f64, began.elapsed().as_secs_f64());
    let (each, granted) = (steps as f64 / all, grants as f64 / all);
    println!(
        "{histories} histories hold, {:.0} a second, {each:.0} steps and {granted:.1} grants each",
        all / took
    );
    true
}

/// What `rules` plays. The units of the machine are in the same binary, so that it is built once for each rule.
#[cfg(all(test, feature = "rules"))]
mod tests {
    use super::{LIMIT, QUICK, cases, simulate};
    use crate::explore::{Found, explore};

    #[test]
    fn histories_hold() {
        assert!(simulate(10_000, 1));
    }

    #[test]
    fn cases_hold() {
        assert!(cases()[..QUICK].iter().all(|case| matches!(explore(case, LIMIT, false), Found::Holds)));
    }
}
