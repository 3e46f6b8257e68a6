//! Owns what is generated from the command line's description: manual pages and completions.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Failure, OUTPUT};

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "zklock", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// Writes a page for zklock, and one for each subcommand.
pub(crate) fn man(directory: &Path) -> Result<u8, Failure> {
    clap_mangen::generate_to(Cli::command(), directory)
        .map_err(|error| Failure::new(OUTPUT, format!("cannot write to {}: {error}", directory.display())))?;
    Ok(0)
}
