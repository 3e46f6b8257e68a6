//! Access lists: who may do what to a node.

use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

use crate::code::Code;

pub(crate) const READ: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const CREATE: i32 = 4;
pub(crate) const DELETE: i32 = 8;
pub(crate) const ADMIN: i32 = 16;
const ALL: i32 = 31;

/// A list as nodes share it.
pub(crate) type Acls = Arc<[Acl]>;

/// Who somebody is, in a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// `world`, `digest`, `ip`, or in requests `auth`.
    pub scheme: String,
    /// Such as `user:hash`.
    pub id: String,
}

/// What an identity may do to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acl {
    /// The sum of the bits of the protocol.
    pub permissions: i32,
    /// Who may.
    pub who: Identity,
}

impl Identity {
    /// An identity.
    pub fn new(scheme: impl Into<String>, id: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), id: id.into() }
    }

    /// The identity of a client that authenticates so.
    pub(crate) fn authenticated(scheme: &str, credentials: &[u8]) -> Result<Self, Code> {
        if scheme != "digest" {
            return Err(Code::AuthFailed);
        }
        let text = String::from_utf8_lossy(credentials);
        let user = text.split(':').next().unwrap_or_default();
        let hash = BASE64_STANDARD.encode(Sha1::digest(text.as_bytes()));
        Ok(Self::new(scheme, format!("{user}:{hash}")))
    }

    /// As clients see it: without the hash of the password.
    pub(crate) fn user(&self) -> Self {
        let hidden = self.scheme == "digest";
        let user = if hidden { self.id.split(':').next().unwrap_or_default() } else { &self.id };
        Self::new(&self.scheme, user)
    }

    fn is_anyone(&self) -> bool {
        self.scheme == "world" && self.id == "anyone"
    }
}

impl Acl {
    /// An entry of a list.
    pub fn new(permissions: i32, who: Identity) -> Self {
        Self { permissions, who }
    }

    /// The list that allows everything to everybody.
    pub fn open() -> Vec<Self> {
        vec![Self::new(ALL, Identity::new("world", "anyone"))]
    }

    /// The entry without the hash of a password, for clients that may not administer the node.
    pub(crate) fn redacted(&self) -> Self {
        let mut acl = self.clone();
        if acl.who.scheme == "digest" {
            acl.who.id = format!("{}:x", acl.who.user().id);
        }
        acl
    }
}

/// The list of all nodes that a server has from its start.
pub(crate) fn open() -> Acls {
    static OPEN: LazyLock<Acls> = LazyLock::new(|| Acl::open().into());
    OPEN.clone()
}

/// The list of the node with the configuration.
pub(crate) fn read_only() -> Acls {
    [Acl::new(READ, Identity::new("world", "anyone"))].into()
}

/// Whether one of these bits is granted to one of these identities.
pub(crate) fn check(acls: &[Acl], permission: i32, identities: &[Identity]) -> Result<(), Code> {
    let grants =
        |acl: &Acl| acl.permissions & permission != 0 && (acl.who.is_anyone() || identities.contains(&acl.who));
    if acls.iter().any(grants) { Ok(()) } else { Err(Code::NoAuth) }
}

/// The list that a node gets from the one in a request.
pub(crate) fn resolve(acls: &[Acl], identities: &[Identity]) -> Result<Acls, Code> {
    let mut resolved: Vec<Acl> = Vec::new();
    for (index, acl) in acls.iter().enumerate() {
        if acls[..index].contains(acl) {
            continue;
        }
        match acl.who.scheme.as_str() {
            "world" if acl.who.is_anyone() => resolved.push(acl.clone()),
            "digest" if acl.who.id.split(':').filter(|part| !part.is_empty()).count() == 2 => {
                resolved.push(acl.clone());
            }
            "auth" => {
                let before = resolved.len();
                let authenticated = identities.iter().filter(|one| one.scheme == "digest");
                resolved.extend(authenticated.map(|one| Acl::new(acl.permissions, one.clone())));
                if resolved.len() == before {
                    return Err(Code::InvalidAcl);
                }
            }
            _ => return Err(Code::InvalidAcl),
        }
    }
    if resolved.is_empty() {
        return Err(Code::InvalidAcl);
    }
    Ok(if resolved == *open() { open() } else { resolved.into() })
}
