//! Owns the texts of node names and paths, which the machine knows by numbers, and the last listing of each path.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex};

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::error::Error;
use crate::locked::locked;
use crate::machine::{Kind, Ledger, Listing, Machine, Name, Path};
use crate::queue::order::{self, is_before_zero};

/// The text before the guid in our node names.
const PREFIX: &str = "_c_";

/// The longest sequence number of a node.
const LONGEST_NUMBER: &str = "-2147483648";

/// Returns the path of a node of ours without its sequence number. The string has capacity for the number.
pub(super) fn prefix(path: &str, guid: u128, kind: Kind) -> String {
    let mut text = String::with_capacity(longest_child(path));
    for part in [path, "/", PREFIX] {
        text.push_str(part);
    }
    text.push_str(Uuid::from_u128(guid).as_hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    text.push_str(kind.separator());
    text
}

/// Returns the path of a node of ours.
pub(super) fn own(path: &str, name: Name) -> String {
    let mut text = prefix(path, name.guid, name.kind);
    // Writing to a string cannot fail.
    let _ = write!(text, "{:010}", name.number);
    text
}

/// Returns the most bytes that the path of a node of ours under `path` can have.
pub(crate) fn longest_child(path: &str) -> usize {
    path.len() + 1 + PREFIX.len() + Hyphenated::LENGTH + Kind::Read.separator().len() + LONGEST_NUMBER.len()
}

/// Parses the name of a contender. Returns `None` for any other name.
pub(super) fn parse(text: &str) -> Option<Name> {
    let order::NodeName { kind, number, .. } = order::NodeName::parse(text)?;
    Some(Name { number, guid: guid(text, kind), kind })
}

/// Returns the guid in a name that is spelled as ours are. Any other name gets a hash of its text. The upper half of that
/// hash is 0, which is no session's nonce.
fn guid(text: &str, kind: Kind) -> u128 {
    let own = || {
        let (uuid, rest) = text.strip_prefix(PREFIX)?.split_at_checked(Hyphenated::LENGTH)?;
        // The function `own` makes the name from the guid again, so the name must be spelled as ours are.
        let is_number = rest.strip_prefix(kind.separator())?.len() <= LONGEST_NUMBER.len();
        // Without an early end, this loop is vectorized. It runs for each name of each listing.
        let is_ours = is_number && !uuid.bytes().fold(false, |any, byte| any | byte.is_ascii_uppercase());
        Uuid::try_parse(uuid).ok().filter(|_| is_ours)
    };
    let other = || BuildHasherDefault::<DefaultHasher>::default().hash_one(text).into();
    own().map_or_else(other, |uuid| uuid.as_u128())
}

/// Returns the upper half of a guid, which all nodes of one session share.
pub(super) fn nonce(guid: u128) -> u64 {
    (guid >> 64) as u64
}

/// Returns a function that decides whether the czxid of a listed node must be read to know the queue order. Without two nodes near
/// the wrap of the sequence counter (number 2147483647, or negative), none must be read. Otherwise, of the nodes near the wrap,
/// those of our session must be, and those that they may wait for. If the listing also has nodes that are not near the wrap, so must
/// all nodes whose numbers are at most 2^30 below 0.
pub(super) fn needs_czxid(names: &[Name], nonce: u64) -> impl Fn(Name) -> bool {
    let mut near_wrap = names.iter().filter(|name| name.is_near_wrap());
    let is_alone = near_wrap.clone().nth(1).is_none();
    let is_mixed = names.iter().any(|name| !name.is_near_wrap());
    let mut own: Vec<Kind> = Vec::new();
    while let Some(name) = near_wrap.find(|name| self::nonce(name.guid) == nonce && !own.contains(&name.kind)) {
        own.push(name.kind);
    }
    move |name| {
        let is_ours = self::nonce(name.guid) == nonce;
        let is_awaited = is_ours || own.iter().any(|kind| kind.waits_for(name.kind));
        name.is_near_wrap() && !is_alone && (is_awaited || is_mixed && is_before_zero(name.number))
    }
}

/// The contenders of a listing in queue order, each with the text of its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    contenders: Vec<(Name, String)>,
}

impl Texts {
    /// Sorts contenders into queue order.
    pub(super) fn new(mut contenders: Vec<(Name, String)>, czxids: &HashMap<Name, i64>) -> Self {
        order::sort(&mut contenders, |(name, text)| (name.number, text), |(name, _)| czxids.get(name).copied());
        Self { contenders }
    }

    pub(super) fn names(&self) -> Listing {
        self.contenders.iter().map(|(name, _)| *name).collect()
    }

    fn text(&self, name: Name) -> Option<&str> {
        self.contenders.iter().find(|(listed, _)| *listed == name).map(|(_, text)| text.as_str())
    }
}

/// The known czxids of nodes near the wrap. An entry may be that of an older node of the same name.
///
/// Requests in flight add entries without the session's lock, so the map has a lock of its own.
pub(super) type Czxids = Arc<Mutex<HashMap<Name, i64>>>;

/// The texts of lock paths. The machine knows each path by its number.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    known: BTreeMap<Path, Known>,
    numbers: HashMap<Arc<str>, Path>,
    /// The next number. Numbers of forgotten paths are not reused until the counter wraps.
    next: Path,
    /// The paths that were unused at the last call of `retain`.
    unused: BTreeSet<Path>,
    /// The upper half of the guids of this session's nodes.
    pub(super) nonce: u64,
}

#[derive(Debug)]
struct Known {
    text: Arc<str>,
    /// The last listing, which has the names of other clients' nodes.
    listed: Texts,
    /// Why the last listing was refused.
    refusal: Option<Error>,
    czxids: Czxids,
}

impl Paths {
    pub(super) fn number(&mut self, text: &str) -> Path {
        if let Some(number) = self.numbers.get(text) {
            self.unused.remove(number);
            return *number;
        }
        // The counter wraps, so it may reach the number of a path that is still known.
        while self.known.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let (number, text) = (self.next, Arc::<str>::from(text));
        self.next = self.next.wrapping_add(1);
        let known =
            Known { text: Arc::clone(&text), listed: Texts::default(), refusal: None, czxids: Czxids::default() };
        self.known.insert(number, known);
        self.numbers.insert(text, number);
        number
    }

    pub(super) fn text(&self, path: Path) -> Arc<str> {
        self.known.get(&path).map_or_else(|| "/".into(), |known| Arc::clone(&known.text))
    }

    pub(super) fn czxids(&self, path: Path) -> Czxids {
        self.known.get(&path).map(|known| Arc::clone(&known.czxids)).unwrap_or_default()
    }

    pub(super) fn listed(&mut self, path: Path, texts: Texts) {
        if let Some(known) = self.known.get_mut(&path) {
            known.listed = texts;
        }
    }

    /// Notes why a listing was refused, or that it was not.
    pub(super) fn listing_refused(&mut self, path: Path, refusal: Option<Error>) {
        if let Some(known) = self.known.get_mut(&path) {
            known.refusal = refusal;
        }
    }

    /// Returns why the last listing was refused.
    pub(super) fn refusal(&self, path: Path) -> Option<Error> {
        self.known.get(&path)?.refusal.clone()
    }

    /// Returns the parent's path and the name of a node, or `None` if the last listing does not show it.
    pub(super) fn node(&self, path: Path, name: Name) -> Option<[&str; 2]> {
        let known = self.known.get(&path)?;
        Some([&known.text, known.listed.text(name)?])
    }

    /// Forgets the paths that were unused at this call and at the one before. One call would be too early: an answer may
    /// still come for a path that is no longer used.
    pub(super) fn retain(&mut self, machine: &Machine<Ledger>) {
        let (used, named) = (machine.used_paths(), machine.own_nodes());
        let nonce = self.nonce;
        for known in self.known.values() {
            // The czxids of other sessions' nodes go when a listing no longer shows those nodes.
            let is_kept = |name: &Name| self::nonce(name.guid) != nonce || named.contains(name);
            locked(&known.czxids).retain(|name, _| is_kept(name));
        }
        let before = std::mem::take(&mut self.unused);
        self.unused = self.known.keys().filter(|path| !used.contains(path)).copied().collect();
        for path in self.unused.intersection(&before) {
            if let Some(known) = self.known.remove(path) {
                self.numbers.remove(&known.text);
            }
        }
        self.unused.retain(|path| self.known.contains_key(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 5] = [Kind::Lock, Kind::Read, Kind::Write, Kind::Lease, Kind::Latch];

    #[test]
    fn own_names_are_taken_apart_again() {
        for kind in KINDS {
            for number in [0, 7, i32::MAX, -3, i32::MIN] {
                let name = Name { number, guid: 5 << 64 | 9, kind };
                let text = own("/a", name);
                assert!(text.len() <= longest_child("/a"), "{text}");
                assert_eq!(parse(text.strip_prefix("/a/").expect("it is below")), Some(name));
            }
        }
        assert_eq!(parse("leases"), None);
        assert_eq!(parse("x-lock-00000000a1"), None);
    }

    #[test]
    fn what_is_spelled_otherwise_has_another_guid() {
        let name = Name { number: 3, guid: 0xab << 64 | 9, kind: Kind::Read };
        let text = own("", name).trim_start_matches('/').to_owned();
        assert_eq!(parse(&text), Some(name));
        for other in [text.replace("ab", "AB"), text.replace("-__READ__", "__READ__"), format!("x{text}")] {
            let parsed = parse(&other).expect("a contender");
            assert!(nonce(parsed.guid) == 0 && parsed.number == 3 && parsed.kind == Kind::Read, "{other}");
        }
        assert_ne!(parse("a-lock-0000000001"), parse("b-lock-0000000001"));
        assert_eq!(parse("x-0100000a1b2c3d4e-0000000009").map(|name| name.kind), Some(Kind::Lock));
    }

    fn named(number: i32, guid: u128, kind: Kind) -> (Name, String) {
        let name = Name { number, guid, kind };
        (name, own("", name).trim_start_matches('/').to_owned())
    }

    #[test]
    fn listing_is_in_the_order_of_the_counter() {
        let child = |number| named(number, 1, Kind::Lock);
        let texts = Texts::new(vec![child(12), child(3), child(7)], &HashMap::new());
        let numbers: Vec<i32> = texts.names().iter().map(|name| name.number).collect();
        assert_eq!(numbers, [3, 7, 12]);
        assert_eq!(texts.text(texts.names()[1]), Some(child(7).1.as_str()));
    }

    #[test]
    fn czxids_decide_at_the_end_of_the_counter_and_are_read_where_they_do() {
        const MAX: i32 = i32::MAX;
        let ours = 7_u128 << 64;
        let name = |number, guid, kind| named(number, guid, kind).0;
        let needed = |names: &[Name]| {
            let needs = needs_czxid(names, 7);
            names.iter().filter(|name| needs(**name)).count()
        };
        let [lock, other] = [name(MAX, ours, Kind::Lock), name(i32::MIN, 1, Kind::Lock)];
        assert_eq!(needed(&[lock, other]), 2);
        assert_eq!(needed(&[lock, name(3, 1, Kind::Lock)]), 0, "it is alone there");
        assert_eq!(needed(&[other, name(MAX, 2, Kind::Lock)]), 0, "none is ours");
        assert_eq!(needed(&[name(MAX, ours, Kind::Read), name(MAX, 3, Kind::Read)]), 1, "readers do not wait");
        assert_eq!(needed(&[name(-1, 2, Kind::Lock), name(-2, 3, Kind::Lock), name(0, ours, Kind::Lock)]), 2);
        let czxids = HashMap::from([(lock, 5), (other, 6)]);
        let texts = Texts::new(vec![named(i32::MIN, 1, Kind::Lock), named(MAX, ours, Kind::Lock)], &czxids);
        assert_eq!(*texts.names(), [lock, other]);
    }

    #[test]
    fn path_is_forgotten_when_nobody_uses_it_and_its_number_is_not_given_again() {
        let mut paths = Paths::default();
        let machine = Machine::new(1, 2, 3, Ledger::new(3, None, crate::machine::Moment(0)));
        let number = paths.number("/a");
        assert_eq!((paths.number("/a"), &*paths.text(number)), (number, "/a"));
        paths.retain(&machine);
        assert_eq!(&*paths.text(number), "/a", "an answer may come");
        paths.retain(&machine);
        assert_eq!(&*paths.text(number), "/");
        assert_ne!(paths.number("/a"), number);
    }
}
