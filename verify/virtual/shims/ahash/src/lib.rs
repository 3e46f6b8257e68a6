//! The random state of the standard library, in place of that of `ahash` 0.7, which depends on addresses of the process.

pub use std::collections::hash_map::RandomState;
