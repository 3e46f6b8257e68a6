//! Owns [`UniqueName`]: the name of a session, which stays the same when the process restarts. Only one process at a time may
//! use a name.
//!
//! The guids of a named session's nodes begin with a hash of the name. So a restarted process recognizes the leftover
//! nodes of its earlier sessions in a list of a lock's nodes, without further requests. It deletes these nodes: see
//! `machine::node`.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::locked::locked;
use crate::options::validate_data;

/// The unique names of the sessions of this process.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A name that no other session of this process has until this value is dropped.
#[derive(Debug)]
pub(crate) struct UniqueName(String);

impl UniqueName {
    pub(crate) fn take(name: &str) -> Result<Self> {
        validate_data("unique name", name.as_bytes())?;
        if name.is_empty() {
            return Err(Error::invalid("unique name", "it is empty; give that of the pod, or of the unit"));
        }
        if !locked(&TAKEN).insert(name.to_owned()) {
            let reason = format!("another session of this process is {name:?}; give each a name of its own");
            return Err(Error::invalid("unique name", reason));
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns a hash of the name, the same in every build: FNV-1a.
    pub(crate) fn hash(&self) -> u64 {
        let next = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.0.bytes().fold(0xcbf2_9ce4_8422_2325, next)
    }
}

impl Drop for UniqueName {
    fn drop(&mut self) {
        locked(&TAKEN).remove(&self.0);
    }
}
