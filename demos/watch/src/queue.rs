//! Owns [`Queue`]: the queue of a lock as last seen.

use std::time::Instant;

use zookeeper_recipes::Contender;

/// The contenders of a lock, each with its identifier. Nothing was seen yet in the default one.
#[derive(Default)]
pub(crate) struct Queue {
    seen: Option<Vec<Contender>>,
    /// The identifier of each contender, in the same order: a revocation overwrites it on the servers.
    identifiers: Vec<String>,
    /// When it was looked at last.
    pub(crate) looked: Option<Instant>,
    /// Whether no look has failed since then.
    pub(crate) is_followed: bool,
    /// Whether the ACLs did not let us look.
    pub(crate) is_hidden: bool,
}

impl Queue {
    /// Takes in what a look has returned. Returns whether it makes a difference.
    pub(crate) fn update(&mut self, seen: Vec<Contender>) -> bool {
        (self.looked, self.is_followed, self.is_hidden) = (Some(Instant::now()), true, false);
        if self.seen.as_ref() == Some(&seen) {
            return false;
        }
        self.identifiers = seen.iter().map(|contender| self.identifier(contender)).collect();
        self.seen = Some(seen);
        true
    }

    /// Takes in that the ACLs did not let us look. Returns whether it makes a difference.
    pub(crate) fn hide(&mut self) -> bool {
        let was_hidden = self.is_hidden;
        *self = Self { looked: Some(Instant::now()), is_hidden: true, ..Self::default() };
        !was_hidden
    }

    fn identifier(&self, contender: &Contender) -> String {
        let known = self.contenders().find(|(known, _)| is_same(known, contender));
        match known {
            Some((_, identifier)) if contender.revoke_requested() => identifier.to_owned(),
            _ => contender.identifier_lossy().into_owned(),
        }
    }

    pub(crate) fn was_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// In the order of the queue, each with its identifier.
    pub(crate) fn contenders(&self) -> impl Iterator<Item = (&Contender, &str)> {
        self.seen.iter().flatten().zip(self.identifiers.iter().map(String::as_str))
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = (&Contender, &str)> {
        self.contenders().filter(|(contender, _)| contender.is_holder())
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.contenders().map(|(contender, _)| contender).filter(|contender| !contender.is_holder())
    }

    /// The contender with this node and token, if it was there at the last look.
    pub(crate) fn find(&self, name: &str, token: &str) -> Option<Contender> {
        let is_meant = |it: &&Contender| it.name() == name && it.token().to_string() == token;
        self.seen.iter().flatten().find(is_meant).cloned()
    }
}

/// Whether both are the same node.
fn is_same(one: &Contender, other: &Contender) -> bool {
    (one.token(), one.name()) == (other.token(), other.name())
}
