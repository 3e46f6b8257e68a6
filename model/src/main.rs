//! Explores the model of the queue, and prints what holds and what does not; see README.md.

#[path = "../../src/queue/order.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of the crate, of which the model uses the position")]
mod order;

mod cases;
mod client;
mod explore;
mod faults;
mod handover;
mod log;
mod model;
mod properties;
mod rules;
mod scenario;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod undisturbed;
mod words;

use std::process::ExitCode;

use crate::cases::{Case, Expected};
use crate::explore::{Found, Limits, explore};
use crate::rules::Rules;

const USAGE: &str = "\
cargo run --release -p model                the table of all cases
  -- --today | --new | --large              the queue as it is; the new ways; larger cases
  -- --show RULE                            the shortest counterexample without this rule
  -- --size SESSIONS TIMES CUTS EXPIRIES HAND   another size of the queue as it is, with --new of all new ways
  -- --rules                                the rules";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let behind = |name: &'static str| arguments.iter().skip_while(move |argument| *argument != name).skip(1);
    let known = ["--today", "--new", "--large", "--show", "--size", "--rules"];
    if arguments.iter().any(|argument| argument.starts_with('-') && !known.contains(&argument.as_str())) {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    }
    if has("--rules") {
        Rules::NAMES.iter().for_each(|(name, meaning)| println!("{name:28}{meaning}"));
        return ExitCode::SUCCESS;
    }
    let cases = match (has("--today"), has("--new")) {
        _ if has("--large") => cases::LARGE.to_vec(),
        (true, false) => cases::TODAY.to_vec(),
        (false, true) => cases::NEW.to_vec(),
        _ => [cases::TODAY, cases::NEW].concat(),
    };
    if has("--size") {
        let sizes: Vec<u8> = behind("--size").map_while(|size| size.parse().ok()).collect();
        let Ok(sizes) = <[u8; 5]>::try_from(sizes) else {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        };
        return run(&[cases::of_size(sizes, has("--new"))], false);
    }
    if has("--show") {
        let rule = behind("--show").next().map_or("", String::as_str);
        let shown: Vec<_> = cases.into_iter().filter(|case| case.off.contains(&rule)).collect();
        if shown.is_empty() {
            eprintln!("no case without {rule:?}; --rules lists the rules");
            return ExitCode::FAILURE;
        }
        return run(&shown, true);
    }
    run(&cases, false)
}

/// Prints a line for each case, and the steps of each failure that was not expected, or of all.
fn run(cases: &[Case], show: bool) -> ExitCode {
    println!(
        "{:7} | {:34} | {:38} | {:>9} | {:>5} | {:>5} | result",
        "queue", "without", "scenario", "states", "depth", "s"
    );
    let mut code = ExitCode::SUCCESS;
    for case in cases {
        let found = explore(case, Limits::LONG);
        let off = case.off.join(", ");
        let Found { states, depth, seconds, .. } = found;
        let result = found.result(case.expected);
        println!(
            "{:7} | {off:34} | {:38} | {states:9} | {depth:5} | {seconds:5.1} | {result}",
            case.of, case.scenario.name
        );
        let expected = found.is_expected(case.expected);
        if !expected {
            code = ExitCode::FAILURE;
        }
        if let Some((name, path)) = &found.failed
            && (show || !expected)
        {
            println!("\n{name} fails:\n{}", words::story(path));
        }
    }
    code
}

impl Found {
    fn is_expected(&self, expected: Expected) -> bool {
        match expected {
            Expected::Holds | Expected::NotNeeded(_) => self.failed.is_none(),
            Expected::Fails | Expected::Known(_) => self.failed.is_some(),
        }
    }

    fn result(&self, expected: Expected) -> String {
        let failure = self.failed.as_ref().map(|(name, path)| format!("{name} fails in {} steps", path.len() - 1));
        let bound =
            if self.complete { String::new() } else { " as far as explored: a bound was reached".to_owned() };
        match (expected, failure) {
            (Expected::Holds, None) => format!("holds{bound}"),
            (Expected::NotNeeded(why), None) => format!("holds{bound}: {why}"),
            (Expected::Fails, Some(failure)) => failure,
            (Expected::Known(what), Some(failure)) => format!("{failure}: known: {what}"),
            (_, Some(failure)) => format!("NOT EXPECTED: {failure}"),
            (_, None) => format!("NOT EXPECTED: holds{bound}"),
        }
    }
}
