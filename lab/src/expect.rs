//! What every run must show: the losses of the textbooks, and that this crate has none.

use crate::cell::{Cell, counted};
use crate::play::Results;

/// This crate, as its documentation wants it to be used.
const OURS: &str = "zookeeper-recipes-tokens";

/// Updates that are lost each time, by way and faults.
const LOSSES: &[(&str, &[&str])] = &[
    ("mariadb-unique-row", &["stopped-after-check", "write-delayed", "restart-empty"]),
    ("mariadb-for-update", &["write-delayed", "restart-empty"]),
    ("mariadb-for-update-no-index", &["write-delayed", "restart-empty"]),
    ("postgresql-advisory", &["write-delayed"]),
    ("redis-setnx-expire", &["stopped-after-check", "write-delayed", "restart-empty", "failover", "clock"]),
    ("redis-getset", &["stopped-after-check", "write-delayed", "restart-empty", "failover", "clock-client"]),
    ("redis-set-nx", &["stopped-after-check", "write-delayed", "restart-empty", "failover", "clock"]),
    ("redisson-lock", &["stopped-after-check", "write-delayed", "restart-empty", "failover", "clock"]),
    ("redisson-multi", &["stopped-after-check", "write-delayed"]),
    ("redis-watchdog", &["stopped-after-check", "write-delayed", "restart-empty", "failover", "clock"]),
    ("redis-redlock", &["stopped-after-check", "write-delayed", "restart-empty", "clock"]),
    ("tair-put", &["write-delayed", "restart-empty", "failover"]),
    ("tair-put-expire", &["stopped-after-check", "write-delayed", "restart-empty", "failover", "clock"]),
    ("memcached-add", &["stopped-after-check", "write-delayed", "restart-empty"]),
    ("etcd-lease", &["stopped-after-check", "write-delayed"]),
    ("zookeeper-one-node", &["stopped-after-check", "write-delayed", "network-cut"]),
    ("zookeeper-textbook", &["stopped-after-check", "write-delayed", "network-cut"]),
    ("zookeeper-curator", &["stopped-after-check", "write-delayed", "network-cut"]),
    // Whether the listener is in time where the holder is stopped depends on the moment.
    ("zookeeper-curator-listener", &["stopped-after-check", "write-delayed"]),
    ("zookeeper-recipes", &["stopped-after-check", "write-delayed"]),
];

/// Locks that nobody else gets, by way and faults.
const STUCK: &[(&str, &[&str])] = &[
    ("mariadb-unique-row", &["killed"]),
    ("mariadb-for-update", &["network-cut"]),
    ("mariadb-for-update-no-index", &["network-cut", "other-key"]),
    ("postgresql-advisory", &["network-cut", "waiter-cancelled"]),
    ("postgresql-advisory-pool", &["waiter-cancelled"]),
    ("redis-setnx-expire", &["killed-between"]),
    ("tair-put", &["killed", "unlock-lost"]),
    ("zookeeper-textbook", &["waiter-cancelled", "unlock-lost"]),
];

/// What was played and came out otherwise, a sentence each. What was not run proves nothing.
pub fn surprises(results: &Results) -> Vec<String> {
    let listed = |list: &[(&str, &[&str])], cell: &Cell| {
        list.iter().any(|(way, faults)| *way == cell.way && faults.contains(&cell.fault))
    };
    let mut surprises = Vec::new();
    for cell in &results.cells {
        if !cell.finding.is_played() {
            continue;
        }
        let (lost, stuck) = (cell.finding.has_lost(), cell.finding.is_stuck());
        let place = format!("{} under {} ({}): {}", cell.way, cell.fault, cell.run, cell.text);
        if cell.way == OURS && (lost || stuck) {
            surprises.push(format!("{place}; it promises more"));
        }
        if (listed(LOSSES, cell) && !lost) || (listed(STUCK, cell) && !stuck) {
            surprises.push(format!("{place}; its textbook promises less"));
        }
    }
    for load in &results.loads {
        let place = format!("{} with {} ({})", load.way, counted(load.contenders, "contender"), load.run);
        if load.lost > 0 {
            surprises.push(format!("{place} lost {} without a fault", counted(load.lost, "update")));
        }
        if load.way.starts_with("zookeeper-recipes") && load.wake_ups_per_hand_over > 1.05 {
            surprises.push(format!("{place} woke {:.2} waiters for each release", load.wake_ups_per_hand_over));
        }
    }
    surprises
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FAULTS;
    use crate::load::Load;
    use crate::ways::find;

    #[test]
    fn surprise_of_one_is_no_plural() {
        let load = Load { lost: 1, contenders: 1, way: "redis-set-nx", run: "r1".to_owned(), ..Load::default() };
        let results = Results { loads: vec![load], ..Results::default() };
        let expected = "redis-set-nx with 1 contender (r1) lost 1 update without a fault";
        assert_eq!(surprises(&results), [expected]);
    }

    #[test]
    fn lists_name_ways_and_faults_that_exist() {
        for (way, faults) in LOSSES.iter().chain(STUCK) {
            find(way).expect("a way");
            for fault in *faults {
                assert!(FAULTS.iter().any(|other| other.id == *fault), "{fault}");
            }
        }
    }
}
