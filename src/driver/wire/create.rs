//! Owns the create of an acquisition's nodes, together with the parents that are missing.
//!
//! 1. The missing parents and the nodes are created in one transaction. One that is refused makes nothing; one that
//!    is done puts a child into every container. The server removes a container that has become empty, but never one
//!    that has not had a child.
//! 2. Which parents are missing is guessed: one transaction for each depth goes out in one burst, of which only the
//!    one that fits the servers' state can be done.
//! 3. Paths may be missing to different depths, where no guess fits. So where there are several, the same burst asks
//!    which of their ancestors are there, and the next one creates what is not. Where guessing would take too many
//!    bytes, a burst that only asks comes first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, TryFutureExt};
use zookeeper_client::{Client, CreateMode, MultiWriteResult, Stat};

use crate::driver::draft::Draft;
use crate::driver::names::{self, Made, Notes, Paths};
use crate::driver::wire::{Answered, MAX_REQUEST_BYTES, Parts, THROTTLED, failed, transact, whole};
use crate::error::{Error, ZkError};
use crate::machine::{Counted, Kind, Name, Op, Outcome, Spec};
use crate::options::Parents;
use crate::path::LockPath;

/// What all guesses of one burst may have together, in bytes.
const MAX_GUESSED_BYTES: usize = 2 * MAX_REQUEST_BYTES;

/// More than this, in bytes, may be too large for a server that was set to take less than usual.
const LARGE: usize = 16 * 1024;

/// So may more than this, if it is more than the server has answered in this session.
const UNUSUAL: usize = 1024;

/// Empty containers vanish at any moment, so a missing parent is created again; but not for ever.
const MAX_ROUNDS: usize = 64;

/// The create of an acquisition's nodes.
pub(super) struct Create {
    client: Arc<Client>,
    op: Op,
    draft: Arc<Draft>,
    /// Writes the empty data of the paths, which counts their children.
    counts: bool,
    nodes: Vec<New>,
    /// The lock paths, each once, and what is noted of them.
    paths: Vec<(LockPath, Arc<Notes>)>,
    turn: Option<LockPath>,
    /// The bytes of the largest create that was answered in this session: without parents, and with.
    answered: Arc<[AtomicUsize; 2]>,
}

/// A node that is to be created.
struct New {
    /// Its path without the number.
    prefix: String,
    guid: u128,
    kind: Kind,
    /// The index of its lock path.
    at: usize,
}

/// What a transaction creates before its nodes, ancestors first.
type Containers = Vec<String>;

type Stats = Vec<Result<Option<Stat>, ZkError>>;

/// An answer that ends it. It is large, and rare.
type End = Box<Answered>;

impl From<Error> for End {
    fn from(refusal: Error) -> Self {
        Self::new(Answered::refused(refusal))
    }
}

/// Which transaction of a burst was done, or if all were refused, which part of each, and why.
type Done = Result<(usize, Vec<MultiWriteResult>), Vec<(usize, ZkError)>>;

impl Create {
    pub(super) fn new(
        client: Arc<Client>,
        paths: &mut Paths,
        op: Op,
        spec: &Spec,
        guid: u128,
        counts: bool,
        draft: Arc<Draft>,
    ) -> Self {
        let session = client.session_id().0;
        if paths.answered.0 != session {
            paths.answered = (session, Arc::default());
        }
        let answered = Arc::clone(&paths.answered.1);
        let (mut nodes, mut known): (Vec<New>, Vec<(LockPath, Arc<Notes>)>) = (Vec::new(), Vec::new());
        let mut places = HashMap::new();
        for (index, ((path, kind), (number, _))) in draft.queues.iter().zip(&spec.queues).enumerate() {
            let at = *places.entry(*number).or_insert_with(|| {
                known.push((path.clone(), paths.notes(*number)));
                known.len() - 1
            });
            let guid = guid + index as u128;
            nodes.push(New { prefix: names::prefix(path.as_str(), guid, *kind), guid, kind: *kind, at });
        }
        let turn = draft.admission.turn().cloned();
        Self { client, op, draft, counts, nodes, paths: known, turn, answered }
    }

    pub(super) async fn run(self) -> Answered {
        self.create().await.unwrap_or_else(|end| *end)
    }

    async fn create(&self) -> Result<Answered, End> {
        // Mostly the parents are there, and there is nothing to look at.
        let (mut guesses, mut looks) = (vec![Containers::new()], Vec::<String>::new());
        // The first of the paths that was missing.
        let mut first = None;
        for round in 0..MAX_ROUNDS {
            // A path that was missing is counted behind the create: what was known of its data is not true any more.
            let counts = self.counts && round == 0;
            // All are sent before the first is awaited.
            let sent: Vec<_> = guesses.iter().map(|containers| self.begin(containers, counts)).collect();
            let stats: Vec<_> = looks.iter().map(|path| self.client.check_stat(path)).collect();
            let mut done = Vec::with_capacity(sent.len());
            for transaction in sent {
                done.push(transaction.await);
            }
            let refusals = match the_one_done(done) {
                Err(error) => return Ok(self.lost(error, &guesses)),
                Ok(Ok((guess, results))) => {
                    self.has_answered(&guesses);
                    let made = guesses.get(guess).map(Vec::as_slice).unwrap_or_default();
                    return Ok(self.done(made, results, &join_all(stats).await, round > 0).await);
                }
                Ok(Err(refusals)) => refusals,
            };
            self.has_answered(&guesses);
            let mut found = None;
            if let [containers] = guesses.as_slice() {
                refusals.into_iter().try_for_each(|refusal| self.judge(containers, refusal, &mut first))?;
            } else if let Some((_, error)) = refusals.into_iter().find(|(_, error)| failed(error) == Outcome::Odd)
            {
                return Err(refused("create a node under", self.first_path(), error));
            } else if self.paths.len() > 1 {
                found = missing(&looks, join_all(stats).await).ok();
            }
            // No guess may ever fit. Only what was missing a moment before shows by its refusal what is wrong.
            (guesses, looks) = match (self.guess(first)?, found) {
                (Some(guesses), None) if round % 2 == 0 => (guesses, self.looks()),
                (_, Some(found)) => (vec![self.exactly(found)?], self.ends()),
                (_, None) => (vec![self.exactly(self.ask().await?)?], self.ends()),
            };
        }
        Err(Error::refused("keep the parents of", self.first_path(), ZkError::NoNode).into())
    }

    /// Sends one transaction. A node without parents is created without one: that would cost a round trip more on
    /// servers which do not return its czxid.
    fn begin<'a>(&'a self, containers: &[String], counts: bool) -> BoxFuture<'a, Parts> {
        let options = &self.draft.options;
        let mode = CreateMode::EphemeralSequential.with_acls(options.acls());
        if let ([New { prefix, .. }], [], false) = (self.nodes.as_slice(), containers, counts) {
            let created = self.client.create(prefix, options.identifier(), &mode);
            let created = created.map_ok(move |(stat, number)| {
                vec![MultiWriteResult::Create { path: format!("{prefix}{number}"), stat }]
            });
            return created.map(whole).boxed();
        }
        let parent = match options.parents() {
            Parents::Persistent => CreateMode::Persistent,
            Parents::Container | Parents::MustExist => CreateMode::Container,
        };
        let parent = parent.with_acls(options.parent_acls());
        let counted = self.paths.iter().map(|(path, _)| path).chain(&self.turn).filter(|_| counts);
        transact(&self.client, |writer| {
            containers.iter().try_for_each(|path| writer.add_create(path, b"", &parent))?;
            self.nodes.iter().try_for_each(|node| writer.add_create(&node.prefix, options.identifier(), &mode))?;
            let mut counted = counted;
            counted.try_for_each(|path| writer.add_set_data(path.as_str(), b"", None))
        })
    }

    fn first_path(&self) -> &str {
        self.paths.first().map_or("/", |(path, _)| path.as_str())
    }

    /// The bytes of a transaction that creates the nodes and these containers.
    fn bytes<'p>(&self, containers: impl IntoIterator<Item = &'p str>) -> usize {
        let root = self.client.path().trim_end_matches('/').len();
        let (options, number) = (&self.draft.options, "0123456789".len());
        let node = |node: &New| root + node.prefix.len() + number + options.request_bytes();
        let container = |path: &str| root + path.len() + options.container_bytes();
        self.nodes.iter().map(node).sum::<usize>() + containers.into_iter().map(container).sum::<usize>()
    }

    fn has_answered(&self, guesses: &[Containers]) {
        let [plain, parental] = &*self.answered;
        let answered = if has_containers(guesses) { parental } else { plain };
        answered.fetch_max(self.largest(guesses), Ordering::Relaxed);
    }

    /// The bytes of the largest transaction of a burst, which is the last.
    fn largest(&self, guesses: &[Containers]) -> usize {
        self.bytes(guesses.last().into_iter().flatten().map(String::as_str))
    }

    /// A create whose outcome is not known. If that happens again and again, what was tried may be the cause: not if
    /// the servers have answered such a create before.
    fn lost(&self, error: ZkError, guesses: &[Containers]) -> Answered {
        if error == ZkError::Throttled {
            return Answered::failed(error, |error| Error::refused(THROTTLED, self.first_path(), error));
        }
        let with_parents = has_containers(guesses);
        let bytes = self.largest(guesses);
        let [plain, parental] = &*self.answered;
        let [plain, parental] = [plain, parental].map(|largest| largest.load(Ordering::Relaxed));
        let is_known = if with_parents { parental > 0 } else { plain > 0 };
        let is_larger = is_known && bytes > UNUSUAL.max(plain).max(parental);
        let cause = if bytes > LARGE || is_larger {
            Some("create nodes (the request may exceed the servers' jute.maxbuffer) under")
        } else if is_known {
            None
        } else if with_parents {
            Some("create missing parents (the servers close the connection on that; see Options::with_parents) of")
        } else {
            Some("create a node (the servers close the connection on that) under")
        };
        let refusal = cause.map(|cause| Error::refused(cause, self.first_path(), ZkError::ConnectionLoss));
        let answered = Answered::unanswered(error);
        match answered.outcome {
            Outcome::Unknown if refusal.is_some() => Answered { outcome: Outcome::Cut, refusal, ..answered },
            _ => answered,
        }
    }

    /// Guesses what to create with the nodes, if that does not take too much. `first`: the path that was refused.
    fn guess(&self, first: Option<usize>) -> Result<Option<Vec<Containers>>, End> {
        if self.draft.options.parents() == Parents::MustExist
            && let Some((path, _)) = first.and_then(|first| self.paths.get(first))
        {
            let reason = format!("{path:?} does not exist, and the options leave it to you; create it first");
            return Err(Error::invalid("lock path", reason).into());
        }
        // A transaction is judged part by part, so the paths before the first are there. Those behind it may be
        // missing, too.
        let behind = self.paths.get(first.unwrap_or_default()..).unwrap_or_default();
        let lineages: Vec<Vec<&str>> = behind.iter().map(|(path, _)| path.lineage().collect()).collect();
        let depth = lineages.iter().map(Vec::len).max().unwrap_or_default();
        let bytes = self.bytes(lineages.iter().flatten().copied().collect::<BTreeSet<_>>());
        if bytes > MAX_REQUEST_BYTES || bytes.saturating_mul(depth + 1) > MAX_GUESSED_BYTES {
            return Ok(None);
        }
        // The last levels of each lineage. The first guess is that somebody else has made them all.
        let guess = |levels| {
            let ends = lineages.iter().flat_map(|lineage| &lineage[lineage.len().saturating_sub(levels)..]);
            let sorted: BTreeSet<&str> = ends.copied().collect();
            sorted.into_iter().map(str::to_owned).collect()
        };
        Ok(Some((0..=depth).map(guess).collect()))
    }

    async fn ask(&self) -> Result<BTreeSet<String>, End> {
        let all: Vec<String> = self.lineages().into_iter().map(str::to_owned).collect();
        let stats: Vec<_> = all.iter().map(|path| self.client.check_stat(path)).collect();
        missing(&all, join_all(stats).await)
    }

    fn exactly(&self, found: BTreeSet<String>) -> Result<Containers, End> {
        let bytes = self.bytes(found.iter().map(String::as_str));
        if !found.is_empty() && bytes > MAX_REQUEST_BYTES {
            let reason = format!(
                "{} missing paths are created in one request with the nodes, of about {bytes} bytes; \
                 {MAX_REQUEST_BYTES} are the most (a server's jute.maxbuffer); create the paths first, or take fewer",
                found.len()
            );
            return Err(Error::invalid("lock path", reason).into());
        }
        Ok(found.into_iter().collect())
    }

    fn ends(&self) -> Vec<String> {
        self.paths.iter().map(|(path, _)| path.as_str().to_owned()).collect()
    }

    /// What is looked at beside guesses: the lock paths, and if there are several, all ancestors. For one the guesses show all.
    fn looks(&self) -> Vec<String> {
        let mut looks = self.ends();
        if self.paths.len() > 1 {
            let ends: HashSet<&str> = self.paths.iter().map(|(path, _)| path.as_str()).collect();
            looks.extend(self.lineages().into_iter().filter(|path| !ends.contains(path)).map(str::to_owned));
        }
        looks
    }

    /// The paths and all their ancestors.
    fn lineages(&self) -> BTreeSet<&str> {
        self.paths.iter().flat_map(|(path, _)| path.lineage()).collect()
    }

    /// Judges the refusal of a transaction that creates what was missing a moment before; an error if nothing helps.
    fn judge(
        &self,
        containers: &[String],
        (index, error): (usize, ZkError),
        first: &mut Option<usize>,
    ) -> Result<(), End> {
        let end = |outcome: Outcome| Err(Box::new(Answered::from(outcome)));
        if let Some(path) = containers.get(index) {
            return match error {
                ZkError::NoNode if path.rfind('/') == Some(0) => {
                    let reason = format!(
                        "there is no parent for {path}: the chroot of the session does not exist; create it first"
                    );
                    Err(Error::invalid("chroot", reason).into())
                }
                // It has changed meanwhile.
                ZkError::NoNode | ZkError::NodeExists => Ok(()),
                ZkError::Unimplemented => {
                    let action =
                        "create a container (which needs ZooKeeper 3.5.3 or later; see Options::with_parents) at";
                    Err(Error::refused(action, path, error).into())
                }
                error => Err(refused("create", path, error)),
            };
        }
        let Some(New { at, .. }) = self.nodes.get(index - containers.len()) else {
            // One of the counts behind the nodes.
            return match error {
                // The path of the turn. The lock paths are there, or their nodes would have been refused.
                ZkError::NoNode => end(Outcome::NoNode),
                error if failed(&error) == Outcome::Odd => {
                    Err(refused("create a node under", self.first_path(), error))
                }
                _ => end(Outcome::DataRefused),
            };
        };
        let path = self.paths.get(*at).map_or("/", |(path, _)| path.as_str());
        match error {
            // It is granted by this transaction or not at all, and the path cannot be counted before it is there.
            ZkError::NoNode if self.turn.is_some() => end(Outcome::NoNode),
            ZkError::NoNode => {
                *first = Some(first.map_or(*at, |first| first.min(*at)));
                Ok(())
            }
            // No other create has its guid: it has to be looked for.
            ZkError::NodeExists => end(Outcome::Unknown),
            ZkError::Unimplemented => {
                let action = "create a node (which needs ZooKeeper 3.5.3 or later) under";
                Err(Error::refused(action, path, error).into())
            }
            error => Err(refused("create a node under", path, error)),
        }
    }

    /// The answer to the transaction that was done. `is_late`: paths were missing before. Then `stats` are theirs.
    async fn done(
        &self,
        made: &[String],
        results: Vec<MultiWriteResult>,
        stats: &Stats,
        is_late: bool,
    ) -> Answered {
        let (mut texts, mut czxid, mut owner, mut counts) = (Vec::new(), None, None, Vec::new());
        for (at, result) in results.into_iter().enumerate() {
            match result {
                MultiWriteResult::Create { path, stat } => {
                    // Servers before 3.7.2, 3.8.2 and 3.9.0 return the stat of containers only (ZOOKEEPER-4026).
                    if !stat.is_invalid() && stat.czxid > 0 {
                        czxid = Some(stat.czxid);
                        owner = Some(stat.ephemeral_owner);
                    }
                    texts.extend(Some(path).filter(|_| at >= made.len()));
                }
                MultiWriteResult::SetData { stat } => {
                    counts.push(children(&stat));
                    // It was written by this very transaction, which created the nodes.
                    czxid = czxid.or(Some(stat.mzxid));
                }
                _ => {}
            }
        }
        let czxid = match czxid {
            Some(czxid) => czxid,
            None => match self.client.check_stat(texts.first().map_or("/", String::as_str)).await {
                Ok(Some(stat)) => {
                    owner = Some(stat.ephemeral_owner);
                    stat.czxid
                }
                // It was created, and is gone again. That is not to be taken for a refusal.
                Ok(None) => return Outcome::Unknown.into(),
                // It was created all the same, so this is nothing to give up for.
                Err(error) => return Answered::unanswered(error),
            },
        };
        let numbered = |(text, new): (&String, &New)| {
            let number = text.strip_prefix(&*new.prefix)?.parse().ok()?;
            Some(Name { number, guid: new.guid, kind: new.kind })
        };
        let names: Option<Vec<Name>> = texts.iter().zip(&self.nodes).map(numbered).collect();
        let Some(names) = names.filter(|names| names.len() == self.nodes.len()) else {
            return Outcome::Unknown.into();
        };
        let ours = self.ours(&names);
        let counts = if is_late { self.counts_behind(made, stats).unwrap_or_default() } else { counts };
        let counted = self.counted(&ours, &counts);
        self.note(ours, czxid, is_late, counted);
        // A container, whose stat may be the only one, has the owner that marks it.
        let owner = owner.filter(|owner| ![0, i64::MIN].contains(owner)).map(i64::cast_unsigned);
        Outcome::Created { names: names.into(), czxid, owner, counted }.into()
    }

    /// How many others were there, by the children of each path, and those of the turn's path behind them.
    fn counted(&self, ours: &[Ours], counts: &[u32]) -> Option<Counted> {
        let (paths, turn) = counts.split_at_checked(self.paths.len())?;
        let others = paths.iter().zip(ours).map(|(all, ours)| all.saturating_sub(ours.children())).sum();
        Some(Counted { others, turns: turn.first().copied().unwrap_or_default() })
    }

    /// The children of each path, by what was looked at behind the transaction: only ours in a path that it has made.
    fn counts_behind(&self, made: &[String], stats: &Stats) -> Option<Vec<u32>> {
        let made: HashSet<&str> = made.iter().map(String::as_str).collect();
        let count = |((path, _), stat): (&(LockPath, _), &Result<Option<Stat>, _>)| match stat {
            _ if made.contains(path.as_str()) => Some(0),
            // A path with data is not to be taken for one without.
            Ok(Some(stat)) if stat.data_length == 0 => Some(children(stat)),
            _ => None,
        };
        self.paths.iter().zip(stats).map(count).collect()
    }

    /// What each path has of ours.
    fn ours(&self, names: &[Name]) -> Vec<Ours> {
        let lineages: Vec<Vec<&str>> = self.paths.iter().map(|(path, _)| path.lineage().collect()).collect();
        let steps: HashSet<&[&str]> = lineages.iter().flat_map(|lineage| lineage.windows(2)).collect();
        let mut inner: HashMap<&str, u32> = HashMap::new();
        for outer in steps.into_iter().filter_map(<[_]>::first) {
            *inner.entry(outer).or_default() += 1;
        }
        let of = |(path, _): &(LockPath, _)| Ours {
            nodes: Vec::new(),
            paths: inner.get(path.as_str()).copied().unwrap_or_default(),
        };
        let mut ours: Vec<Ours> = self.paths.iter().map(of).collect();
        for (name, node) in names.iter().zip(&self.nodes) {
            if let Some(ours) = ours.get_mut(node.at) {
                ours.nodes.push(*name);
            }
        }
        ours
    }

    /// Notes what listings need to know of the nodes. `is_late`: those that were sent with the create do not show them.
    fn note(&self, ours: Vec<Ours>, czxid: i64, is_late: bool, counted: Option<Counted>) {
        for ((_, notes), ours) in self.paths.iter().zip(ours) {
            let in_zone = ours.nodes.iter().filter(|name| name.is_in_zone());
            let mut noted = notes.lock();
            noted.czxids.extend(in_zone.map(|name| (*name, czxid)));
            if is_late {
                noted.made += 1;
                let is_alone = counted.is_some_and(|counted| counted.others == 0);
                noted.last = Some(Made { op: self.op, alone: is_alone.then_some((ours.nodes, ours.paths)) });
            }
        }
    }
}

/// The children of a lock path that are ours.
struct Ours {
    nodes: Vec<Name>,
    /// How many are, or lead to, other lock paths. They are there, because our nodes are in them.
    paths: u32,
}

impl Ours {
    fn children(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).saturating_add(self.paths)
    }
}

/// Which of the nodes that were looked at are missing.
fn missing(looks: &[String], stats: Stats) -> Result<BTreeSet<String>, End> {
    let mut missing = BTreeSet::new();
    for (path, stat) in looks.iter().zip(stats) {
        match stat {
            Ok(None) => drop(missing.insert(path.clone())),
            // Newer servers refuse to show a node that may not be read, and so show that it is there.
            Ok(Some(_)) | Err(ZkError::NoAuth) => {}
            Err(error) => return Err(refused("look at", path, error)),
        }
    }
    Ok(missing)
}

fn has_containers(guesses: &[Containers]) -> bool {
    guesses.iter().any(|containers| !containers.is_empty())
}

fn children(stat: &Stat) -> u32 {
    u32::try_from(stat.num_children).unwrap_or_default()
}

fn refused(action: &'static str, path: &str, error: ZkError) -> End {
    if error == ZkError::NoChildrenForEphemerals {
        let reason = format!("{path:?} or an ancestor of it is an ephemeral node, which can have no children");
        return Error::invalid("lock path", reason).into();
    }
    Box::new(Answered::failed(error, |error| Error::refused(action, path, error)))
}

/// The one of several transactions that was done, or all refusals if all were refused. If more than one was done,
/// because somebody deleted in between what its predecessor had created, the outcome is not known, and the nodes of
/// all have to be looked for.
fn the_one_done(outcomes: Vec<Parts>) -> Result<Done, ZkError> {
    let (mut done, mut refusals, mut failure) = (Vec::new(), Vec::new(), None);
    for (guess, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(Ok(results)) => done.push((guess, results)),
            Ok(Err((part, error))) => refusals.push((part.unwrap_or_default(), error)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let is_certain = |(_, error): &(usize, ZkError)| failed(error) != Outcome::Odd;
    match (done.pop(), failure) {
        (Some((guess, results)), None) if done.is_empty() && refusals.iter().all(is_certain) => {
            Ok(Ok((guess, results)))
        }
        // What the others have created, or may have, has to be looked for.
        (Some(_), _) => Err(ZkError::ConnectionLoss),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(Err(refusals)),
    }
}
