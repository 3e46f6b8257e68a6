//! Fair, blocking, distributed locks on ZooKeeper.
