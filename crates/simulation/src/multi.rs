//! Several writes as one transaction: all, or none.

use crate::code::Code;
use crate::message::{Reply, Write};
use crate::tree::{Change, Stat};
use crate::write::Draft;

/// The steps, or the answers to the parts when one of them fails: those before it would have succeeded, those after it
/// were not tried.
pub(crate) fn decide(draft: &mut Draft<'_>, writes: &[Write]) -> Result<Vec<Change>, Vec<Result<Reply, Code>>> {
    let mut changes = Vec::new();
    for (index, write) in writes.iter().enumerate() {
        match draft.decide(write) {
            Ok(change) => changes.push(change),
            Err(code) => {
                let mut answers = vec![Err(Code::Ok); index];
                answers.push(Err(code));
                answers.resize(writes.len(), Err(Code::RuntimeInconsistency));
                return Err(answers);
            }
        }
    }
    Ok(changes)
}

/// The answer to a write that was applied as this step, with this stat.
pub(crate) fn answer(write: &Write, change: &Change, stat: Option<Stat>) -> Reply {
    let stat = stat.unwrap_or_default();
    match (write, change) {
        (Write::Create { with_stat: true, .. }, Change::Create { path, .. }) => Reply::Create2(path.clone(), stat),
        (_, Change::Create { path, .. }) => Reply::Create(path.clone()),
        (_, Change::SetData { .. }) => Reply::SetData(stat),
        (_, Change::SetAcl { .. }) => Reply::SetAcl(stat),
        (_, Change::Check) => Reply::Check,
        (_, Change::Delete { .. } | Change::CloseSession(_)) => Reply::Delete,
    }
}
