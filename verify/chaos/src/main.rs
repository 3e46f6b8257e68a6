//! Runs a real ensemble of three servers and many client processes under random, overlapping faults, and judges what
//! the clients recorded.
//!
//! ```console
//! $ zk-docker/run cargo run --release -p chaos -- --minutes 10 --seed 7
//! ```
//!
//! It prints its progress and a final table, writes the history as JSON lines, and exits with 1 if a promise was broken.
//! `--help` lists the options.

mod arguments;
mod client;
mod director;
mod judgement;
mod leftover;
mod line;
mod lost;
mod operator;
mod progress;
mod register;
mod run;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use self::arguments::{Arguments, Command};

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let Arguments { command, settings } = Arguments::parse();
    let done = match command {
        None => run::run(settings).await,
        Some(Command::Judge { out }) => judgement::again(&out),
        Some(Command::Client(orders)) => client::run(orders).await.map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::from(2)
        }
    }
}
