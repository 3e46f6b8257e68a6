//! Owns what is generated from the command line's description: manual pages and completions.

use std::fs;
use std::io::{self, Write};
use std::iter;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Failure, OUTPUT};

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut described(), "zklock", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// Writes a page for zklock, and one for each subcommand, also for those below another.
pub(crate) fn man(directory: &Path) -> Result<u8, Failure> {
    let mut command = described();
    command.build();
    for page in with_subcommands(command) {
        let written = write_page(page, directory);
        written
            .map_err(|error| Failure::new(OUTPUT, format!("cannot write to {}: {error}", directory.display())))?;
    }
    Ok(0)
}

fn with_subcommands(command: Command) -> Vec<Command> {
    let below = command.get_subcommands().filter(|below| below.get_name() != "help").cloned();
    let below: Vec<_> = below.flat_map(with_subcommands).collect();
    iter::once(command).chain(below).collect()
}

/// The command line without the subcommands that are not for users.
fn described() -> Command {
    let whole = Cli::command();
    let (shown, hidden): (Vec<_>, Vec<_>) = whole.get_subcommands().cloned().partition(|one| !one.is_hide_set());
    if hidden.is_empty() {
        return whole;
    }
    let empty = Command::new("zklock").version(env!("CARGO_PKG_VERSION")).max_term_width(100);
    let about = whole.get_about().cloned().unwrap_or_default();
    let after = whole.get_after_help().cloned().unwrap_or_default();
    empty.about(about).after_help(after).subcommand_required(true).subcommands(shown)
}

/// Writes a page, whose synopsis is that of the help.
fn write_page(mut command: Command, directory: &Path) -> io::Result<()> {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    let page = match (page.find(SYNOPSIS), page.find("\n.SH DESCRIPTION\n")) {
        (Some(begin), Some(end)) => format!("{}{usage}{}", &page[..begin + SYNOPSIS.len()], &page[end..]),
        _ => page,
    };
    fs::write(directory.join(format!("{name}.1")), page)
}

const SYNOPSIS: &str = ".SH SYNOPSIS\n";
