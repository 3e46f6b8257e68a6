//! Owns the making of lock paths that do not exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::attempt::Interrupt;
use crate::session::{Answer, Failure, Requests, Slot, Work};

type ZkError = zookeeper_client::Error;

/// Lock paths that are being made, with all their ancestors.
pub(super) struct Parents {
    paths: Vec<LockPath>,
    answers: BTreeMap<String, Answer<()>>,
}

impl Parents {
    /// Prepares the making of `paths`; the returned closure sends it.
    pub(super) fn of(
        paths: Vec<LockPath>,
        options: &Options,
    ) -> (Self, impl FnOnce(&Requests) -> Vec<Work> + Send + use<>) {
        // Sorted, an ancestor comes before what stands below it.
        let lineages: BTreeSet<_> = paths.iter().flat_map(LockPath::lineage).map(str::to_owned).collect();
        let mut answers = BTreeMap::new();
        let mut slots: Vec<(String, Slot<()>)> = Vec::new();
        for path in lineages {
            let (slot, answer) = Answer::deferred();
            slots.push((path.clone(), slot));
            answers.insert(path, answer);
        }
        let options = options.clone();
        let send = move |requests: &Requests| {
            let make = |(path, slot): (String, Slot<()>)| slot.fill(requests.create_container(&path, &options));
            slots.into_iter().map(make).collect()
        };
        (Self { paths, answers }, send)
    }

    /// Why they could not be made, if it is a reason to stop.
    pub(super) async fn check(self) -> Result<(), Interrupt> {
        let mut made = BTreeMap::new();
        for (path, answer) in self.answers {
            made.insert(path, answer.await);
        }
        self.paths.iter().try_for_each(|path| check(path, &made))
    }
}

fn check(path: &LockPath, made: &BTreeMap<String, Result<(), Failure>>) -> Result<(), Interrupt> {
    // The server checks the permission before it looks whether the node exists. So a refusal means something only if
    // what stands below it could not be made either.
    let mut denied = None;
    for (index, ancestor) in path.lineage().enumerate() {
        match made.get(ancestor) {
            None | Some(Err(Failure::Unknown)) => {}
            Some(Ok(())) => denied = None,
            Some(Err(Failure::Over)) => return Err(Interrupt::SessionOver),
            Some(Err(Failure::Refused(error))) => match error {
                ZkError::NodeExists => denied = None,
                ZkError::NoAuth => denied = Some(ancestor),
                ZkError::NoNode if index == 0 => {
                    let reason =
                        format!("there is no parent for {ancestor}: the chroot of the session does not exist");
                    return Err(Error::invalid("chroot", format!("{reason}; create it first")).into());
                }
                // It has vanished again; the next round makes it again.
                ZkError::NoNode => {}
                ZkError::NoChildrenForEphemerals => return Err(no_children(path).into()),
                ZkError::Unimplemented => {
                    let action = "create a container (which needs ZooKeeper 3.5.3 or later) at";
                    return Err(Error::refused(action, ancestor, error.clone()).into());
                }
                error => return Err(Error::refused("create", ancestor, error.clone()).into()),
            },
        }
    }
    match denied {
        Some(path) => Err(Error::NoAuth { path: path.to_owned() }.into()),
        None => Ok(()),
    }
}

pub(super) fn no_children(path: &LockPath) -> Error {
    Error::invalid(
        "lock path",
        format!("{:?} or an ancestor of it is an ephemeral node, which can have no children", path.as_str()),
    )
}
