//! What a judge found.

use std::fmt;

use super::Model;

/// What a judge found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What the history was judged by.
    pub model: Model,
    /// What no correct lock can have done, one sentence each, in the order of time. Times are relative to the start of
    /// the history. One wrong step may be the reason of several.
    pub violations: Vec<String>,
}

impl Report {
    /// Whether a correct lock can have done all that.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Passes if a correct lock can have done all that.
    ///
    /// # Panics
    ///
    /// If not, with the first violations in the message.
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
