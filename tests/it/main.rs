//! The suite, on a real ZooKeeper.

