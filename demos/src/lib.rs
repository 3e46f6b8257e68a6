//! Examples of `zookeeper-recipes` with heavy neighbours; see `src/bin`.
