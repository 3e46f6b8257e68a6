//! The `select!` of tokio, in place of that of `async-select`, which begins by the address of a local variable.

pub use tokio::select;
