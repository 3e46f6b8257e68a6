//! Decides what a write does, or why it fails, before anything changes.

use std::collections::HashMap;

use crate::acl::{self, Acls, Identity};
use crate::code::Code;
use crate::message::Write;
use crate::tree::{CONTAINER, Change, Tree, length, split};

/// The flags of creates.
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const IS_CONTAINER: i32 = 4;
const WITH_TTL: i32 = 5;
const SEQUENTIAL_WITH_TTL: i32 = 6;

const SYSTEM: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// What a decision needs to know of a node.
#[derive(Clone, Debug)]
struct Record {
    version: i32,
    cversion: i32,
    aversion: i32,
    owner: i64,
    children: i32,
    acl: Acls,
}

/// The tree as the steps that are already decided will leave it. Unlike the tree it counts on beyond the end of the counter.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    tree: &'a Tree,
    session: i64,
    identities: &'a [Identity],
    /// `None` is a node that is deleted.
    changed: HashMap<String, Option<Record>>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(tree: &'a Tree, session: i64, identities: &'a [Identity]) -> Self {
        Self { tree, session, identities, changed: HashMap::new() }
    }

    /// The step that does this after those before. The order of its checks decides which error a client gets.
    pub(crate) fn decide(&mut self, write: &Write) -> Result<Change, Code> {
        match write {
            Write::Create { path, data, acl, flags, .. } => self.create(path, data, acl, *flags),
            Write::Delete { path, version } => self.delete(path, *version),
            Write::SetData { path, data, version } => {
                validate(path)?;
                let mut record = self.record(path)?;
                self.allow(&record, acl::WRITE)?;
                record.version = next_version(record.version, *version)?;
                let change =
                    Change::SetData { path: path.clone(), data: data.as_slice().into(), version: record.version };
                self.changed.insert(path.clone(), Some(record));
                Ok(change)
            }
            Write::SetAcl { path, acl, version } => {
                validate(path)?;
                let acl = acl::resolve(acl, self.identities)?;
                let mut record = self.record(path)?;
                self.allow(&record, acl::ADMIN)?;
                record.aversion = next_version(record.aversion, *version)?;
                let change = Change::SetAcl { path: path.clone(), acl, version: record.aversion };
                self.changed.insert(path.clone(), Some(record));
                Ok(change)
            }
            Write::Check { path, version } => {
                validate(path)?;
                let record = self.record(path)?;
                self.allow(&record, acl::READ)?;
                next_version(record.version, *version)?;
                Ok(Change::Check)
            }
        }
    }

    /// The steps that end the session: its ephemeral nodes go, in the order of their paths.
    pub(crate) fn close_session(&self) -> Vec<Change> {
        let deletes = self.tree.ephemerals(self.session).map(|path| Change::Delete { path: path.clone() });
        deletes.chain([Change::CloseSession(self.session)]).collect()
    }

    fn create(&mut self, path: &str, data: &[u8], acl: &[acl::Acl], flags: i32) -> Result<Change, Code> {
        let is_sequential = matches!(flags, SEQUENTIAL | EPHEMERAL_SEQUENTIAL);
        let owner = match flags {
            0 | SEQUENTIAL => 0,
            EPHEMERAL | EPHEMERAL_SEQUENTIAL => self.session,
            IS_CONTAINER => CONTAINER,
            // Servers have to be configured for these.
            WITH_TTL | SEQUENTIAL_WITH_TTL => return Err(Code::Unimplemented),
            _ => return Err(Code::BadArguments),
        };
        let parent_path = parent_of(path)?;
        let acl = acl::resolve(acl, self.identities)?;
        let mut parent = self.record(parent_path)?;
        self.allow(&parent, acl::CREATE)?;
        let path = if is_sequential { format!("{path}{:010}", parent.cversion) } else { path.to_owned() };
        validate(&path)?;
        if self.record(&path).is_ok() {
            return Err(Code::NodeExists);
        }
        if !matches!(parent.owner, 0 | CONTAINER) {
            return Err(Code::NoChildrenForEphemerals);
        }
        parent.cversion = parent.cversion.wrapping_add(1);
        parent.children += 1;
        let cversion = parent.cversion;
        self.changed.insert(parent_path.to_owned(), Some(parent));
        let record = Record { version: 0, cversion: 0, aversion: 0, owner, children: 0, acl: acl.clone() };
        self.changed.insert(path.clone(), Some(record));
        Ok(Change::Create { path, data: data.into(), acl, owner, cversion })
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<Change, Code> {
        let parent_path = parent_of(path)?;
        if SYSTEM.contains(&path) {
            return Err(Code::BadArguments);
        }
        let mut parent = self.record(parent_path)?;
        self.allow(&parent, acl::DELETE)?;
        let record = self.record(path)?;
        next_version(record.version, version)?;
        if record.children > 0 {
            return Err(Code::NotEmpty);
        }
        parent.children -= 1;
        self.changed.insert(parent_path.to_owned(), Some(parent));
        self.changed.insert(path.to_owned(), None);
        Ok(Change::Delete { path: path.to_owned() })
    }

    fn record(&self, path: &str) -> Result<Record, Code> {
        if let Some(changed) = self.changed.get(path) {
            return changed.clone().ok_or(Code::NoNode);
        }
        let node = self.tree.get(path).ok_or(Code::NoNode)?;
        let stored = &node.stored;
        Ok(Record {
            version: stored.version,
            cversion: stored.cversion,
            aversion: stored.aversion,
            owner: stored.ephemeral_owner,
            children: length(node.children.len()),
            acl: node.acl.clone(),
        })
    }

    fn allow(&self, record: &Record, permission: i32) -> Result<(), Code> {
        acl::check(&record.acl, permission, self.identities)
    }
}

fn next_version(current: i32, expected: i32) -> Result<i32, Code> {
    if expected == -1 || expected == current { Ok(current.wrapping_add(1)) } else { Err(Code::BadVersion) }
}

fn parent_of(path: &str) -> Result<&str, Code> {
    if path.contains('/') && !path.contains('\0') { Ok(split(path).0) } else { Err(Code::BadArguments) }
}

/// Whether a path is one that a node can have.
fn validate(path: &str) -> Result<(), Code> {
    if path == "/" {
        return Ok(());
    }
    let is_valid = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(is_allowed);
    let names = path.strip_prefix('/').ok_or(Code::BadArguments)?;
    if names.split('/').all(is_valid) { Ok(()) } else { Err(Code::BadArguments) }
}

/// The ranges are those of the servers, which count characters beyond the first plane as two that are not allowed.
fn is_allowed(character: char) -> bool {
    !matches!(character, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}
