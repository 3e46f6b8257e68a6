//! Owns the warning about kazoo, whose locks may be held while they are shown as waiting.

/// In the names of its `Lock`, `WriteLock` and `ReadLock`.
const OF_KAZOO: [&str; 2] = ["__lock__", "__rlock__"];

/// In the names of the locks of Curator, and ours.
const OF_OTHERS: [&str; 3] = ["-lock-", "__WRIT__", "__READ__"];

/// Whether a node is one of its locks.
pub(crate) fn is_its_own(name: &str) -> bool {
    OF_KAZOO.iter().any(|part| name.contains(part))
}

/// A warning if the nodes of a path have names of both.
pub(crate) fn warning<'a>(path: &str, names: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    let have = |parts: &[&str]| names.clone().any(|name| parts.iter().any(|part| name.contains(part)));
    (have(&OF_KAZOO) && have(&OF_OTHERS)).then(|| {
        format!(
            "{path} has nodes of kazoo (__lock__) beside others: without extra_lock_patterns=[\"-lock-\"], a kazoo Lock does not \
             wait for others, and may hold the lock while it is shown as waiting; docs/mixed-fleets.md shows how to rename \
             its nodes"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::warning;

    #[test]
    fn only_both_kinds_together_are_warned_of() {
        let (kazoo, ours) = ("0123456789abcdef__lock__0000000001", "_c_0123-lock-0000000000");
        let warns = |names: &[&str]| warning("/a", names.iter().copied()).is_some();
        assert!(warns(&[ours, kazoo]));
        assert!(warns(&["_c_0123-__READ__0000000000", "0123__rlock__0000000001"]));
        assert!(!warns(&[ours, ours]) && !warns(&[kazoo]) && !warns(&[kazoo, "leases"]) && !warns(&[]));
    }
}
