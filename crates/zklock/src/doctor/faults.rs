//! Owns the faults of released versions of the server that matter to locks. Free of I/O.
//!
//! The ranges of the vulnerabilities are those of <https://zookeeper.apache.org/security> and of the records that it refers to,
//! read in November 2026; that of CVE-2026-100235 is from its announcement, <https://seclists.org/oss-sec/2026/q4/484>.
//! Those that ended before 3.6 are left out, because such servers are refused.

/// Major, minor and patch.
pub(crate) type Version = (u32, u32, u32);

/// Versions with none of the [`FAULTS`].
pub(crate) const GOOD: &str = "3.8.8 or 3.9.7, or later";

/// The first version of the oldest branch that still gets fixes: 3.7 ended in February 2024, and 3.6 before it
/// (<https://zookeeper.apache.org/news>).
pub(crate) const FIXED_FROM: Version = (3, 8, 0);

/// A fault of some versions.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Its name in the issue tracker or in the list of vulnerabilities.
    pub(crate) id: &'static str,
    /// What such a server does.
    pub(crate) what: &'static str,
    /// Whether it can lose a lock node, so that two contenders hold the lock.
    pub(crate) loses: bool,
    /// The first versions with it, each with the first later version without it.
    versions: &'static [(Version, Version)],
}

/// Up to 3.8.6 and 3.9.5: what 3.8.7 and 3.9.6 fix.
const BEFORE_3_9_6: &[(Version, Version)] = &[((3, 8, 0), (3, 8, 7)), ((3, 9, 0), (3, 9, 6))];

/// Faults that lose locks come first.
pub(crate) const FAULTS: [Fault; 14] = [
    Fault {
        id: "ZOOKEEPER-4785",
        what: "can lose committed transactions when a follower crashes just after it has joined",
        loses: true,
        versions: &[((3, 6, 0), (3, 8, 5)), ((3, 9, 0), (3, 9, 2))],
    },
    Fault {
        id: "ZOOKEEPER-4925",
        what: "can lose committed transactions when a follower leads just after it has joined",
        loses: true,
        versions: &[((3, 9, 3), (3, 9, 4))],
    },
    Fault {
        id: "CVE-2023-44981",
        what: "lets every machine join the ensemble where the servers authenticate each other by SASL",
        loses: false,
        versions: &[((3, 6, 0), (3, 7, 2)), ((3, 8, 0), (3, 8, 3)), ((3, 9, 0), (3, 9, 1))],
    },
    Fault {
        id: "CVE-2024-23944",
        what: "shows the names of nodes to all",
        loses: false,
        versions: &[((3, 6, 0), (3, 8, 4)), ((3, 9, 0), (3, 9, 2))],
    },
    Fault {
        id: "CVE-2024-51504",
        what: "believes the address in a header of HTTP where the admin server checks addresses",
        loses: false,
        versions: &[((3, 9, 0), (3, 9, 3))],
    },
    Fault {
        id: "CVE-2025-58457",
        what: "lets every authenticated client of the admin server take and restore snapshots",
        loses: false,
        versions: &[((3, 9, 0), (3, 9, 4))],
    },
    Fault {
        id: "CVE-2026-24281",
        what: "accepts a TLS certificate for a name that only reverse DNS gives the peer",
        loses: false,
        versions: &[((3, 8, 0), (3, 8, 6)), ((3, 9, 0), (3, 9, 5))],
    },
    Fault {
        id: "CVE-2026-24308",
        what: "has a Java client that can log the secrets of its configuration",
        loses: false,
        versions: &[((3, 8, 0), (3, 8, 6)), ((3, 9, 0), (3, 9, 5))],
    },
    Fault {
        id: "CVE-2026-59739",
        what: "shows the names of nodes to clients that reconnect",
        loses: false,
        versions: BEFORE_3_9_6,
    },
    Fault {
        id: "CVE-2026-59969",
        what: "accepts a server's TLS certificate for another name in FIPS mode",
        loses: false,
        versions: BEFORE_3_9_6,
    },
    Fault {
        id: "CVE-2026-79993",
        what: "lets everyone delete empty nodes that are not ephemeral, such as the path of a free lock, against its ACL",
        loses: false,
        versions: BEFORE_3_9_6,
    },
    Fault {
        id: "CVE-2026-84439",
        what: "lets clients forge entries of the audit log",
        loses: false,
        versions: BEFORE_3_9_6,
    },
    Fault {
        id: "CVE-2026-84501",
        what: "lets everyone forge lines of the server's log",
        loses: false,
        versions: BEFORE_3_9_6,
    },
    Fault {
        id: "CVE-2026-100235",
        what: "lets a client that loses a permission use it for a moment longer",
        loses: false,
        versions: &[((3, 8, 0), (3, 8, 8)), ((3, 9, 0), (3, 9, 7))],
    },
];

/// The faults of a version.
pub(crate) fn faults(version: Version) -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().filter(move |fault| fault.versions.iter().any(|(from, to)| (*from..*to).contains(&version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(version: Version) -> Vec<&'static str> {
        faults(version).map(|fault| fault.id.trim_start_matches("CVE-").trim_start_matches("ZOOKEEPER-")).collect()
    }

    #[test]
    fn each_version_has_the_faults_that_were_published_for_it() {
        // Of September 2026, and of November.
        let autumn = ["2026-59739", "2026-59969", "2026-79993", "2026-84439", "2026-84501", "2026-100235"];
        let spring = ["2026-24281", "2026-24308"];
        for (version, expected, later) in [
            ((3, 6, 3), &["4785", "2023-44981", "2024-23944"][..], [&[][..], &[]]),
            ((3, 7, 1), &["4785", "2023-44981", "2024-23944"], [&[], &[]]),
            ((3, 7, 2), &["4785", "2024-23944"], [&[], &[]]),
            ((3, 8, 0), &["4785", "2023-44981", "2024-23944"], [&spring, &autumn]),
            ((3, 8, 2), &["4785", "2023-44981", "2024-23944"], [&spring, &autumn]),
            ((3, 8, 3), &["4785", "2024-23944"], [&spring, &autumn]),
            ((3, 8, 4), &["4785"], [&spring, &autumn]),
            ((3, 8, 5), &[], [&spring, &autumn]),
            ((3, 8, 6), &[], [&[], &autumn]),
            ((3, 8, 7), &[], [&[], &autumn[5..]]),
            ((3, 8, 8), &[], [&[], &[]]),
            ((3, 9, 0), &["4785", "2023-44981", "2024-23944", "2024-51504", "2025-58457"], [&spring, &autumn]),
            ((3, 9, 1), &["4785", "2024-23944", "2024-51504", "2025-58457"], [&spring, &autumn]),
            ((3, 9, 2), &["2024-51504", "2025-58457"], [&spring, &autumn]),
            ((3, 9, 3), &["4925", "2025-58457"], [&spring, &autumn]),
            ((3, 9, 4), &[], [&spring, &autumn]),
            ((3, 9, 5), &[], [&[], &autumn]),
            ((3, 9, 6), &[], [&[], &autumn[5..]]),
            ((3, 9, 7), &[], [&[], &[]]),
            ((3, 10, 0), &[], [&[], &[]]),
        ] {
            assert_eq!(ids(version), [expected, later[0], later[1]].concat(), "{version:?}");
        }
    }

    #[test]
    fn versions_that_lose_transactions_are_known() {
        let loses = |version| faults(version).any(|fault| fault.loses);
        assert!([(3, 6, 4), (3, 7, 2), (3, 8, 4), (3, 9, 0), (3, 9, 1), (3, 9, 3)].into_iter().all(loses));
        assert!(![(3, 8, 5), (3, 8, 6), (3, 9, 2), (3, 9, 4), (3, 9, 5)].into_iter().any(loses));
    }
}
