//! A record of holders and their times, which notes every breach of exclusion.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Records the holders of a lock, and notes every breach: too many at once, or a token that does not
/// grow.
///
/// A clone writes to the same record.
#[derive(Clone, Debug)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug)]
struct Book {
    rule: Rule,
    grants: Vec<Grant>,
    violations: Vec<String>,
    /// The index of the grant with the largest token so far, so that it need not be searched for.
    top: Option<usize>,
    /// The indices of grants that have not ended.
    open: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    OneWithGrowingTokens,
    UpTo(usize),
}

/// One grant, with the times when the holder entered and left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The name of the holder.
    pub who: String,
    /// Its fencing token.
    pub token: i64,
    /// When it entered.
    pub entered: Instant,
    /// When it left; `None` while it is inside.
    pub left: Option<Instant>,
}

/// Represents a holder that is inside; dropping it leaves.
#[derive(Debug)]
#[must_use = "dropping an entry leaves"]
pub struct Entry {
    book: Arc<Mutex<Book>>,
    index: usize,
}

impl Ledger {
    /// Makes a record that allows one holder at a time, each with a token above all earlier tokens.
    #[allow(clippy::new_without_default, reason = "the constructor names what the ledger allows")]
    pub fn new() -> Self {
        Self::with_rule(Rule::OneWithGrowingTokens)
    }

    /// Makes a record that allows up to `limit` holders at a time, with tokens in any order.
    pub fn with_capacity_limit(limit: usize) -> Self {
        Self::with_rule(Rule::UpTo(limit))
    }

    fn with_rule(rule: Rule) -> Self {
        let book = Book { rule, grants: Vec::new(), violations: Vec::new(), top: None, open: Vec::new() };
        Self { book: Arc::new(Mutex::new(book)) }
    }

    /// Records that `who` entered with `token`. Notes a breach, and never panics.
    pub fn enter(&self, who: impl Into<String>, token: i64) -> Entry {
        let index = lock(&self.book).enter(who.into(), token);
        Entry { book: Arc::clone(&self.book), index }
    }

    /// All grants in the order in which their holders entered.
    pub fn grants(&self) -> Vec<Grant> {
        lock(&self.book).grants.clone()
    }

    /// All breaches so far, one sentence each.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.book).violations.clone()
    }

    /// Asserts that there was no breach.
    ///
    /// # Panics
    ///
    /// If there was a breach; the message lists all of them.
    #[track_caller]
    pub fn assert_clean(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    }
}

impl Entry {
    /// Records that the holder left.
    pub fn leave(self) {}
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut book = lock(&self.book);
        book.grants[self.index].left = Some(Instant::now());
        book.open.retain(|index| *index != self.index);
    }
}

impl Book {
    fn enter(&mut self, who: String, token: i64) -> usize {
        let limit = match self.rule {
            Rule::OneWithGrowingTokens => {
                if let Some(last) = self.top.map(|top| &self.grants[top]).filter(|last| token <= last.token) {
                    let breach =
                        format!("{who} entered with token {token}, not above {} of {}", last.token, last.who);
                    self.violations.push(breach);
                }
                1
            }
            Rule::UpTo(limit) => limit,
        };
        if self.open.len() >= limit {
            let inside = self.open.iter().map(|index| &self.grants[*index]);
            let inside: Vec<_> = inside.map(|grant| format!("{} (token {})", grant.who, grant.token)).collect();
            let breach = format!("{who} (token {token}) entered while inside: {}", inside.join(", "));
            self.violations.push(breach);
        }
        let index = self.grants.len();
        if self.top.is_none_or(|top| token > self.grants[top].token) {
            self.top = Some(index);
        }
        self.open.push(index);
        self.grants.push(Grant { who, token, entered: Instant::now(), left: None });
        index
    }
}

/// A holder that panics must not hide what the others recorded.
fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_another_is_clean() {
        let ledger = Ledger::new();
        ledger.enter("a", 1).leave();
        drop(ledger.clone().enter("b", 2));
        ledger.assert_clean();
        let grants = ledger.grants();
        assert_eq!(grants.iter().map(|grant| grant.who.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(grants[0].left.is_some_and(|left| left <= grants[1].entered));
    }

    #[test]
    fn grant_is_open_until_its_holder_leaves() {
        let ledger = Ledger::new();
        let entry = ledger.enter("a", 1);
        assert!(ledger.grants()[0].left.is_none());
        entry.leave();
        assert!(ledger.grants()[0].left.is_some());
    }

    #[test]
    fn two_at_once_is_a_violation() {
        let ledger = Ledger::new();
        let _a = ledger.enter("a", 1);
        let _b = ledger.enter("b", 2);
        assert_eq!(ledger.violations(), ["b (token 2) entered while inside: a (token 1)"]);
    }

    #[test]
    fn token_is_compared_with_the_largest_so_far() {
        let ledger = Ledger::new();
        for token in [5, 5, 3, 4, 6] {
            ledger.enter("a", token).leave();
        }
        assert_eq!(ledger.violations().len(), 3);
    }

    #[test]
    #[should_panic(expected = "1 violations:\nb entered with token 1, not above 1 of a")]
    fn violations_are_in_the_panic() {
        let ledger = Ledger::new();
        ledger.enter("a", 1).leave();
        ledger.enter("b", 1).leave();
        ledger.assert_clean();
    }

    #[test]
    fn permits_have_a_limit_and_no_order() {
        let ledger = Ledger::with_capacity_limit(2);
        let a = ledger.enter("a", 9);
        let _b = ledger.enter("b", 1);
        ledger.assert_clean();
        let c = ledger.enter("c", 5);
        assert_eq!(ledger.violations().len(), 1);
        drop((a, c));
        let _d = ledger.enter("d", 5);
        assert_eq!(ledger.violations().len(), 1);
    }

    #[test]
    fn panic_of_a_holder_leaves() {
        let ledger = Ledger::new();
        let other = ledger.clone();
        let holder = std::thread::spawn(move || {
            let _entry = other.enter("a", 1);
            panic!("the holder dies");
        });
        assert!(holder.join().is_err());
        ledger.enter("b", 2).leave();
        ledger.assert_clean();
    }
}
