//! The options of the program, and ways that need more than a run to show what they do, on real servers. `lab/run --fencing`
//! runs them, and leaves out what is not installed by the names of modules.

mod curator;
mod moving_from_postgresql;
mod options;
mod redis;
