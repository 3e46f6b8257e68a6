//! Owns `zklock count`: shows or sets a number that services share.

use std::io::{self, Write};

use zookeeper_groups::SharedCount;

use crate::cli::Count;
use crate::connect::{close, connect};
use crate::exit::{Failure, NO};
use crate::messages::report;
use crate::queue::{plain, span};

/// The longest identifier that is shown.
const IDENTIFIER: usize = 80;

pub(crate) async fn count(given: &Count) -> Result<u8, Failure> {
    let session = connect(&given.connection, None).await?;
    if let Some(number) = given.number {
        SharedCount::set_at(&session, &given.path, number).await?;
    }
    let set = SharedCount::read_at(&session, &given.path).await?;
    close(&session).await;
    let Some(set) = set else {
        report(format_args!("{} has no number: each service counts with its own", given.path));
        return Ok(NO);
    };
    let by = match plain(&String::from_utf8_lossy(&set.by), IDENTIFIER) {
        by if by.is_empty() => "somebody".to_owned(),
        by => by,
    };
    let age = span(set.at.elapsed().unwrap_or_default());
    let mut out = io::stdout().lock();
    writeln!(out, "{}\tset by {by} {age} ago", set.count)?;
    out.flush()?;
    Ok(0)
}
