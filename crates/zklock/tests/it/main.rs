//! Tests of the binary, as its users run it: `zk-docker/run cargo test -p zklock`.

mod bad_input;
#[cfg(feature = "tls")]
#[path = "../../../../tests/apart/security/certificates.rs"]
mod certificates;
mod codes;
mod doctor;
mod documents;
mod environment;
mod help;
mod hold;
mod kinds;
mod loss;
mod nested;
mod operators;
mod run;
mod shards;
mod signals;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
mod watch;
