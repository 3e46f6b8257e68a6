//! Judges what the store has accepted against what clients were promised.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::Write;

/// The promises that were broken.
pub(crate) fn judge(
    acknowledged: &BTreeMap<String, u64>,
    log: &[Write],
    pairs: &BTreeMap<String, u64>,
) -> Vec<String> {
    let mut broken = Vec::new();
    let mut newest = BTreeMap::<u32, &Write>::new();
    let mut written = BTreeMap::<&str, BTreeSet<u64>>::new();
    for write in log {
        let Write { shard, token, owner, key, value } = write;
        let before = newest.insert(*shard, write);
        if let Some(before) = before.filter(|before| before.token > *token) {
            let (newer, its) = (before.token, &before.owner);
            broken.push(format!(
                "shard {shard}: {owner} wrote {key} with token {token} after {its} had written with {newer}"
            ));
        }
        if let Some(before) = before.filter(|before| before.token == *token && before.owner != *owner) {
            broken.push(format!("shard {shard}: {owner} and {} wrote with the same token {token}", before.owner));
        }
        let values = written.entry(key).or_default();
        if values.last().is_some_and(|last| last > value) {
            broken.push(format!("{key}: {value} of {owner} was written over a newer value"));
        }
        values.insert(*value);
    }
    for (key, last) in acknowledged {
        let has = |value: &u64| written.get(key.as_str()).is_some_and(|values| values.contains(value));
        let lost = (1..=*last).filter(|value| !has(value)).count();
        if lost > 0 {
            broken.push(format!("{key}: {lost} of {last} acknowledged writes are lost"));
        }
        let value = pairs.get(key).copied().unwrap_or_default();
        if value < *last {
            broken.push(format!("{key} has the value {value}, and {last} was acknowledged"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(owner: &str, token: i64, value: u64) -> Write {
        Write { shard: 3, token, owner: owner.to_owned(), key: "key".to_owned(), value }
    }

    /// What is broken if clients were promised the values up to this one.
    fn broken(last: u64, log: &[Write]) -> Vec<String> {
        let value = log.last().map(|write| ("key".to_owned(), write.value));
        judge(&BTreeMap::from([("key".to_owned(), last)]), log, &value.into_iter().collect())
    }

    #[test]
    fn writes_of_owners_in_turn_are_right_and_so_is_one_that_is_repeated() {
        let log = [write("a", 7, 1), write("a", 7, 2), write("b", 9, 2), write("b", 9, 3)];
        assert!(broken(3, &log).is_empty());
        // The last one was not acknowledged yet.
        assert!(broken(2, &log).is_empty());
    }

    #[test]
    fn late_write_of_an_old_owner_breaks_a_promise() {
        let log = [write("a", 7, 1), write("b", 9, 2), write("b", 9, 3), write("a", 7, 2)];
        assert_eq!(
            broken(3, &log),
            [
                "shard 3: a wrote key with token 7 after b had written with 9",
                "key: 2 of a was written over a newer value",
                "key has the value 2, and 3 was acknowledged",
            ]
        );
    }

    #[test]
    fn lost_writes_and_two_owners_with_one_token_break_promises() {
        assert_eq!(broken(3, &[write("a", 7, 1), write("a", 7, 3)]), ["key: 1 of 3 acknowledged writes are lost"]);
        let two = [write("a", 7, 1), write("b", 7, 2)];
        assert_eq!(broken(2, &two), ["shard 3: b and a wrote with the same token 7"]);
        assert_eq!(broken(1, &[]).len(), 2);
    }
}
