//! The operations inside a multi.

use super::{Fields, Op};

/// Reads the operations with their first paths, as far as they can be parsed.
pub(super) fn read_parts(fields: &mut Fields<'_>) -> Vec<(Op, String)> {
    let mut parts = Vec::new();
    while let Some(part) = read_part(fields) {
        parts.push(part);
    }
    parts
}

/// Reads an operation of a multi up to the next header; `None` at the end.
fn read_part(fields: &mut Fields<'_>) -> Option<(Op, String)> {
    let op = Op::from_code(fields.int()?);
    let done = fields.bool()?;
    let _err = fields.int()?;
    if done {
        return None;
    }
    let path = fields.string()?;
    match op {
        Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
            fields.buffer()?;
            for _ in 0..fields.int()? {
                fields.int()?;
                fields.buffer()?;
                fields.buffer()?;
            }
            fields.int()?;
            if op == Op::CreateTtl {
                fields.long()?;
            }
        }
        Op::Delete | Op::Check => {
            fields.int()?;
        }
        Op::SetData => {
            fields.buffer()?;
            fields.int()?;
        }
        Op::GetData | Op::GetChildren => {
            fields.bool()?;
        }
        // Its length is unknown, so nothing after it can be read.
        _ => fields.skip_all(),
    }
    Some((op, path))
}
