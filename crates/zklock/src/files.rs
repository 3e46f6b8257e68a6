//! Reads the files that options name.

use std::fs;
use std::path::Path;

use crate::exit::{Failure, USAGE};

/// Reads a file whole.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure::new(USAGE, format!("cannot read {}: {error}", file.display())))
}

/// The failure for a file with something else than it should have.
#[cfg(feature = "tls")]
pub(crate) fn unusable(file: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(USAGE, format!("cannot use {}: {error}", file.display()))
}
