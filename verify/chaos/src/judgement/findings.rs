//! The broken promises, each violation as a sentence.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io;
use std::path::Path;

/// A promise that must hold in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    Exclusion,
    Tokens,
    Order,
    Room,
    Updates,
    Progress,
    Members,
    Shards,
    Nodes,
    Clients,
    /// The judge must have been able to see a violation.
    Sight,
}

impl Promise {
    pub(super) const ALL: [Self; 11] = [
        Self::Exclusion,
        Self::Tokens,
        Self::Order,
        Self::Room,
        Self::Updates,
        Self::Progress,
        Self::Members,
        Self::Shards,
        Self::Nodes,
        Self::Clients,
        Self::Sight,
    ];
}

impl Display for Promise {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exclusion => "conflicting holders at the same time",
            Self::Tokens => "tokens that did not grow",
            Self::Order => "not in the order of arrival",
            Self::Room => "more permits held than there are",
            Self::Updates => "updates lost although tokens were checked",
            Self::Progress => "locks that were never granted",
            Self::Members => "another set of members than the servers'",
            Self::Shards => "shards without an owner",
            Self::Nodes => "leftover nodes",
            Self::Clients => "impossible results seen by a client",
            Self::Sight => "the judge sees nothing",
        })
    }
}

/// All violations.
#[derive(Debug, Default)]
pub(super) struct Findings {
    broken: BTreeMap<Promise, Vec<String>>,
}

impl Findings {
    /// A sentence about tokens breaks that promise, whichever promise was judged.
    pub(super) fn add(&mut self, promise: Promise, sentence: impl Into<String>) {
        let sentence = sentence.into();
        let of_tokens = promise == Promise::Exclusion && sentence.ends_with("with a token that is not above");
        let promise = if of_tokens { Promise::Tokens } else { promise };
        self.broken.entry(promise).or_default().push(sentence);
    }

    pub(super) fn of(&self, promise: Promise) -> &[String] {
        self.broken.get(&promise).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let lines =
            self.broken.iter().flat_map(|(promise, all)| all.iter().map(move |it| format!("{promise}: {it}\n")));
        fs::write(path, lines.collect::<String>())
    }
}
