//! The findings of a judge.

use std::fmt;

use super::Model;

/// The findings of a judge.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The model that the history was judged by.
    pub model: Model,
    /// Behaviour that no correct lock can show, one sentence each, ordered by time. Times are relative to the start of
    /// the history. One wrong step may cause several violations.
    pub violations: Vec<String>,
}

impl Report {
    /// Whether a correct lock can have produced the history.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Asserts that a correct lock can have produced the history.
    ///
    /// # Panics
    ///
    /// If not; the message lists the first violations.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        let Self { model, violations } = self;
        write!(f, "{model:?}: {} violations", violations.len())?;
        for violation in violations.iter().take(SHOWN) {
            write!(f, "\n{violation}")?;
        }
        match violations.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}
