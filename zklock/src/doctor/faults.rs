//! Owns the faults of released versions of the server that matter to locks. Free of I/O.

/// Major, minor and patch.
pub(crate) type Version = (u32, u32, u32);

/// Versions with none of the [`FAULTS`].
pub(crate) const GOOD: &str = "3.8.6 or 3.9.5, or later";

/// A fault of some versions.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What such a server does.
    pub(crate) what: &'static str,
    /// Whether it can lose a lock node, so that two contenders hold the lock.
    pub(crate) loses: bool,
    /// The first versions with it, each with the first after it that has it no more.
    versions: &'static [(Version, Version)],
}

/// Those that lose locks come first.
const FAULTS: [Fault; 5] = [
    Fault {
        what: "can lose committed transactions when a follower crashes just after it has joined (ZOOKEEPER-4785)",
        loses: true,
        versions: &[((3, 6, 0), (3, 8, 5)), ((3, 9, 0), (3, 9, 2))],
    },
    Fault {
        what: "can lose committed transactions when a follower leads just after it has joined (ZOOKEEPER-4925)",
        loses: true,
        versions: &[((3, 9, 3), (3, 9, 4))],
    },
    Fault {
        what: "shows the names of nodes to all (CVE-2024-23944)",
        loses: false,
        versions: &[((3, 6, 0), (3, 8, 4)), ((3, 9, 0), (3, 9, 2))],
    },
    Fault {
        what: "accepts a TLS certificate for a name that only reverse DNS gives the peer (CVE-2026-24281)",
        loses: false,
        versions: &[((3, 8, 0), (3, 8, 6)), ((3, 9, 0), (3, 9, 5))],
    },
    Fault {
        what: "has a Java client that can log the secrets of its configuration (CVE-2026-24308)",
        loses: false,
        versions: &[((3, 8, 0), (3, 8, 6)), ((3, 9, 0), (3, 9, 5))],
    },
];

/// The faults of a version.
pub(crate) fn faults(version: Version) -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().filter(move |fault| fault.versions.iter().any(|(from, to)| (*from..*to).contains(&version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_the_faults_that_were_published_for_it() {
        let all = ["ZOOKEEPER-4785", "ZOOKEEPER-4925", "CVE-2024-23944", "CVE-2026-24281", "CVE-2026-24308"];
        for (version, expected) in [
            ((3, 6, 3), &["ZOOKEEPER-4785", "CVE-2024-23944"][..]),
            ((3, 8, 0), &["ZOOKEEPER-4785", "CVE-2024-23944", "CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 8, 4), &["ZOOKEEPER-4785", "CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 8, 5), &["CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 8, 6), &[]),
            ((3, 8, 7), &[]),
            ((3, 9, 1), &["ZOOKEEPER-4785", "CVE-2024-23944", "CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 9, 2), &["CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 9, 3), &["ZOOKEEPER-4925", "CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 9, 4), &["CVE-2026-24281", "CVE-2026-24308"]),
            ((3, 9, 5), &[]),
            ((3, 10, 0), &[]),
        ] {
            let found: Vec<_> = faults(version).map(|fault| fault.what).collect();
            let named: Vec<_> =
                all.iter().copied().filter(|name| found.iter().any(|what| what.contains(name))).collect();
            assert_eq!((named.as_slice(), found.len()), (expected, expected.len()), "{version:?}");
        }
    }

    #[test]
    fn versions_that_lose_transactions_are_known() {
        let loses = |version| faults(version).any(|fault| fault.loses);
        assert!([(3, 6, 4), (3, 7, 2), (3, 8, 4), (3, 9, 0), (3, 9, 1), (3, 9, 3)].into_iter().all(loses));
        assert!(![(3, 8, 5), (3, 8, 6), (3, 9, 2), (3, 9, 4), (3, 9, 5)].into_iter().any(loses));
    }
}
