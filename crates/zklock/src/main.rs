//! `zklock`: flock(1) for a fleet, on ZooKeeper. See README.md.

mod acquire;
mod change;
mod changes;
mod cli;
mod command;
mod connect;
mod connections;
mod count;
#[cfg(target_os = "linux")]
mod die_with_parent;
mod doctor;
mod exit;
mod files;
mod generate;
mod group;
mod hold;
mod input;
mod json;
mod kazoo;
mod line;
mod list;
mod locked;
mod ls;
mod messages;
mod nested;
mod port;
mod program;
mod progress;
mod queue;
mod run;
mod screen;
mod shards;
mod signals;
mod size;
mod stall;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod wait;
mod watch;

use std::process::ExitCode;

use crate::cli::{Action, Cli};
use crate::exit::Failure;
use crate::messages::{flush, report};

fn main() -> ExitCode {
    let code = match Cli::of_process() {
        Ok(cli) => perform(cli.action),
        Err(error) => {
            let printed = error.print().map_err(Failure::from);
            // Nobody is left to report to if it is an error that cannot be printed.
            if error.use_stderr() { Ok(exit::USAGE) } else { printed.map(|()| 0) }
        }
    };
    let code = code.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            report(&failure);
        }
        failure.code
    });
    flush();
    ExitCode::from(code)
}

fn perform(action: Action) -> Result<u8, Failure> {
    // The session has a thread beside the one that writes and waits, which may block.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(exit::OTHER, format!("no threads: {error}")))?;
    let code = runtime.block_on(async {
        match action {
            Action::Run(given) => run::run(&given).await,
            Action::Hold(given) => hold::hold(&given).await,
            Action::List(given) => list::list(&given).await,
            Action::Ls(given) => ls::ls(&given).await,
            Action::Wait(given) => wait::wait(&given).await,
            Action::Break(given) => change::break_node(&given).await,
            Action::Revoke(given) => change::revoke(&given).await,
            Action::Watch(given) => watch::watch(&given).await,
            Action::Count(given) => count::count(&given).await,
            Action::Shards(given) => shards::shards(&given).await,
            Action::Doctor(given) => doctor::doctor(&given).await,
            Action::Completions { shell } => generate::completions(shell),
            Action::Man { directory } => generate::man(&directory),
            #[cfg(target_os = "linux")]
            Action::DieWith(given) => die_with_parent::execute(&given).await,
        }
    });
    // A thread may still wait for somebody at a terminal.
    runtime.shutdown_background();
    code
}
