//! What is measured: who acquires which locks, how many at a time.

/// Which locks the workers of a workload acquire, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each worker has a lock of its own.
    Own,
    /// A worker acquires locks that are new to its session and whose paths exist. Only the acquire counts.
    First,
    /// All workers want the same lock.
    Shared,
    /// All workers read under the same lock.
    Read,
    /// All workers want a permit of the same semaphore, which has this number.
    Permits(usize),
    /// A worker tries a lock that another session holds.
    Try,
    /// A worker acquires this number of locks together.
    Many(usize),
    /// A worker acquires a lock whose path and five ancestors are missing, a new one each time.
    Deep,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The time of a cycle, where one worker does one after the other. Lower is better.
    Time,
    /// Cycles per second of all workers together. Higher is better.
    Rate,
}

/// Work that each contender does: cycles of acquire and release.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) sessions: usize,
    /// Tasks here, threads in a peer. They share the sessions evenly.
    pub(crate) workers: usize,
    pub(crate) measure: Measure,
}

const fn one(name: &'static str, shape: Shape) -> Workload {
    Workload { name, shape, sessions: 1, workers: 1, measure: Measure::Time }
}

const fn many(name: &'static str, shape: Shape, sessions: usize, workers: usize) -> Workload {
    Workload { name, shape, sessions, workers, measure: Measure::Rate }
}

/// With the fewest sessions first: those of earlier workloads stay open, and their pings are counted as requests.
pub(crate) const WORKLOADS: &[Workload] = &[
    one("lock and release", Shape::Own),
    one("first lock of an existing path", Shape::First),
    one("first use of a deep path", Shape::Deep),
    one("2 locks together", Shape::Many(2)),
    one("10 locks together", Shape::Many(10)),
    one("100 locks together", Shape::Many(100)),
    many("64 locks in one session", Shape::Own, 1, 64),
    many("64 tasks of one session on one lock", Shape::Shared, 1, 64),
    many("contended try", Shape::Try, 1, 1),
    many("hand-over, 2 sessions", Shape::Shared, 2, 2),
    many("hand-over, 8 sessions", Shape::Shared, 8, 8),
    many("readers, 8 sessions", Shape::Read, 8, 8),
    many("4 permits, 16 sessions", Shape::Permits(4), 16, 16),
    many("hand-over, 64 sessions", Shape::Shared, 64, 64),
];

impl Shape {
    /// Its name and number in a command to a driver.
    pub(crate) fn words(self) -> (&'static str, usize) {
        match self {
            Self::Own => ("own", 0),
            Self::First => ("first", 0),
            Self::Shared => ("shared", 0),
            Self::Read => ("read", 0),
            Self::Permits(permits) => ("permits", permits),
            Self::Try => ("try", 0),
            Self::Many(locks) => ("many", locks),
            Self::Deep => ("deep", 0),
        }
    }
}
