//! Metrics of locks and sessions, reported through the [`metrics`](https://docs.rs/metrics) crate. Feature `metrics`.
//!
//! The metrics go to the recorder that the process has installed, such as the one of `metrics-exporter-prometheus`.
//! Without a recorder they are dropped, at little cost.
//!
//! | name | type | unit | labels | meaning |
//! |---|---|---|---|---|
//! | [`ACQUISITIONS`] | counter | | `kind`, `outcome`, `lock` | calls that asked for a lock, by how they ended |
//! | [`WAIT`] | histogram | seconds | `kind`, `outcome`, `lock` | the time from the call to its end |
//! | [`WAITING`] | gauge | | `kind`, `lock` | calls that have asked for a lock and have not ended |
//! | [`HOLDS`] | gauge | | `kind`, `lock` | locks that are held |
//! | [`HOLD`] | histogram | seconds | `kind`, `lock` | the time from the grant to the release or loss |
//! | [`LOSSES`] | counter | | `kind`, `cause`, `lock` | locks that were lost before they were released |
//! | [`JOBS`] | counter | | `outcome`, `lock` | fires of [`Job`](crate::Job)s, by how they ended |
//! | [`PAUSES`] | counter | | `cause`, `lock` | pauses of [`Election::run`](crate::Election::run) after a term that has failed |
//! | [`CONNECTED`] | gauge | | | sessions that are connected: 1 or 0 in a process that has one session |
//! | [`RENEWALS`] | counter | | | ZooKeeper sessions that replaced one that ended |
//! | [`FALLS`] | counter | | | grants with a smaller fencing token than before: the servers have older or other data |
//! | [`REQUESTS`] | counter | | `request` | requests to the servers |
//!
//! The labels have these values:
//!
//! * `kind`: `lock`, `reader`, `writer`, `permit`, `candidate`, or `several` for a lock with several queues.
//! * `outcome` of an acquisition: `granted`, `contended`, `cancelled`, or a word of [`Error::kind`](crate::Error::kind).
//! * `outcome` of a job: `ran`, `ran_already`, `superseded`, `running`, `too_early`, or `failed` for an error.
//! * `cause` of a loss, from [`Loss`]: `expired`, `trust_ended`, `deleted`, `closed` or `stalled`.
//! * `cause` of a pause: `returned` if the term returned within a second, or `panicked`.
//! * `lock`: what the function given to [`label_locks_by`] returns, and empty without such a function. It is not the path,
//!   because each path would create its own time series.
//! * `request`: `create`, `delete`, `delete_many`, `replace`, `list`, `watch_children`, `watch_data`, `watch_existence`,
//!   `list_ephemerals`, `check`, `stat`, `read`, `write`, or `user` for your own requests, by
//!   [`Session::request`](crate::Session::request) and [`Looks::look`](crate::session::Looks::look).
//!
//! The guide [monitoring](crate::guide::monitoring) explains the metrics, and has alerts.
//!
//! Install the recorder before you make the first session, because gauges are reported as changes. Many metrics are
//! reported as 0 at first, so that Prometheus' `increase` sees the first loss:
//!
//! * when a session is made, [`CONNECTED`], [`RENEWALS`] and [`FALLS`];
//! * when a lock is made, [`WAITING`], and [`ACQUISITIONS`] and [`LOSSES`] with each outcome and cause;
//! * when a job is made, [`JOBS`] with each outcome;
//! * when [`Election::run`](crate::Election::run) is called, [`PAUSES`] with each cause.
//!
//! # Buckets
//!
//! Give the two histograms buckets. The exporter's default, quantiles, cannot be added up over processes.
//!
//! * [`WAIT`]: from one round trip, about 1 ms, to the longest limit of a `try_lock_for`, or the longest acceptable wait. A
//!   contended call waits for whole holds, so let each bucket be a few times the one before: 1, 5, 25, 100 and 500 ms, 1, 5
//!   and 30 s, 2 and 10 min.
//! * [`HOLD`]: in the same way, from the shortest work to [`Options::with_stall_limit`](crate::Options::with_stall_limit). Put
//!   one bucket at the session timeout, because longer holds depend on the renewal of trust.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::error::{Error, Loss};
use crate::telemetry::Labels;

/// Calls that asked for a lock, by how they ended.
pub const ACQUISITIONS: &str = "zookeeper_lock_acquisitions_total";
/// How long calls that asked for a lock took.
pub const WAIT: &str = "zookeeper_lock_wait_seconds";
/// Calls that have asked for a lock and have not ended.
pub const WAITING: &str = "zookeeper_lock_waiting";
/// Locks that are held.
pub const HOLDS: &str = "zookeeper_lock_holds";
/// How long locks were held.
pub const HOLD: &str = "zookeeper_lock_hold_seconds";
/// Locks that were lost before they were released.
pub const LOSSES: &str = "zookeeper_lock_losses_total";
/// Fires of jobs, by how they ended.
pub const JOBS: &str = "zookeeper_job_fires_total";
/// Pauses of candidates after a term that has failed.
pub const PAUSES: &str = "zookeeper_candidate_pauses_total";
/// Sessions that are connected.
pub const CONNECTED: &str = "zookeeper_session_connected";
/// ZooKeeper sessions that replaced one that ended.
pub const RENEWALS: &str = "zookeeper_session_renewals_total";
/// Grants with a smaller fencing token than an earlier grant of the session.
pub const FALLS: &str = "zookeeper_session_token_falls_total";
/// Requests to the servers.
pub const REQUESTS: &str = "zookeeper_session_requests_total";

/// The value of the label `lock`.
pub(crate) type Label = Cow<'static, str>;

type Namer = dyn Fn(&str) -> Cow<'static, str> + Send + Sync;

static NAMER: OnceLock<Box<Namer>> = OnceLock::new();

/// Sets the function that returns the label `lock` for a lock path, for the whole process. Let it return one of a few words,
/// because each word creates its own time series.
///
/// Returns whether the function was set: only the first call sets one.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::metrics;
///
/// metrics::label_locks_by(|path| match path.split('/').nth(1) {
///     Some("orders") => "orders".into(),
///     Some("shards") => "shards".into(),
///     _ => "other".into(),
/// });
/// ```
pub fn label_locks_by(namer: impl Fn(&str) -> Cow<'static, str> + Send + Sync + 'static) -> bool {
    NAMER.set(Box::new(namer)).is_ok()
}

/// Gives the recorder the unit and the meaning of each metric. Call this once, after you have installed the recorder.
pub fn describe() {
    describe_counter!(ACQUISITIONS, "calls that asked for a lock, by how they ended");
    describe_histogram!(WAIT, Unit::Seconds, "from the call that asked for a lock to its end");
    describe_gauge!(WAITING, "calls that have asked for a lock and have not ended");
    describe_gauge!(HOLDS, "locks that are held");
    describe_histogram!(HOLD, Unit::Seconds, "from the grant of a lock to its release or loss");
    describe_counter!(LOSSES, "locks that were lost before they were released");
    describe_counter!(JOBS, "fires of jobs, by how they ended");
    describe_counter!(PAUSES, "pauses of candidates after a term that has failed");
    describe_gauge!(CONNECTED, "sessions that are connected");
    describe_counter!(RENEWALS, "sessions that took the place of one that had expired");
    describe_counter!(FALLS, "grants with a smaller fencing token than an earlier one of the session");
    describe_counter!(REQUESTS, "requests to the servers");
}

pub(crate) fn label_of(path: &str) -> Label {
    NAMER.get().map_or(Cow::Borrowed(""), |namer| namer(path))
}

pub(crate) fn session_begins() {
    gauge!(CONNECTED).increment(0.0);
    counter!(RENEWALS).increment(0);
    counter!(FALLS).increment(0);
}

/// Counts a session that has connected, or has lost its connection.
pub(crate) fn connected(is_up: bool) {
    gauge!(CONNECTED).increment(if is_up { 1.0 } else { -1.0 });
}

pub(crate) fn lock_begins(labels: &Labels) {
    let Labels { kind, lock } = labels;
    shift_of(labels, WAITING, 0.0);
    // No acquisition fails with `name_taken`. Only a membership of a group does.
    let errors = Error::KINDS.iter().copied().filter(|kind| *kind != "name_taken");
    for outcome in ["granted", "contended", "cancelled"].into_iter().chain(errors) {
        counter!(ACQUISITIONS, "kind" => *kind, "outcome" => outcome, "lock" => lock.clone()).increment(0);
    }
    for cause in [Loss::Expired, Loss::TrustEnded, Loss::Deleted, Loss::Closed, Loss::Stalled] {
        counter!(LOSSES, "kind" => *kind, "cause" => cause.as_str(), "lock" => lock.clone()).increment(0);
    }
}

pub(crate) fn job_ended(path: &str, outcome: &'static str, count: u64) {
    counter!(JOBS, "outcome" => outcome, "lock" => label_of(path)).increment(count);
}

pub(crate) fn candidate_pauses(path: &str, cause: &'static str, count: u64) {
    counter!(PAUSES, "cause" => cause, "lock" => label_of(path)).increment(count);
}

/// Adds to a gauge of a lock.
pub(crate) fn shift_of(labels: &Labels, name: &'static str, change: f64) {
    let Labels { kind, lock } = labels.clone();
    gauge!(name, "kind" => kind, "lock" => lock).increment(change);
}

pub(crate) fn acquired(labels: &Labels, outcome: &'static str, waited: Duration) {
    shift_of(labels, WAITING, -1.0);
    let Labels { kind, lock } = labels.clone();
    counter!(ACQUISITIONS, "kind" => kind, "outcome" => outcome, "lock" => lock.clone()).increment(1);
    histogram!(WAIT, "kind" => kind, "outcome" => outcome, "lock" => lock).record(waited.as_secs_f64());
}

pub(crate) fn ended(labels: &Labels, loss: Option<Loss>, held: Duration) {
    shift_of(labels, HOLDS, -1.0);
    let Labels { kind, lock } = labels.clone();
    histogram!(HOLD, "kind" => kind, "lock" => lock.clone()).record(held.as_secs_f64());
    if let Some(loss) = loss {
        counter!(LOSSES, "kind" => kind, "cause" => loss.as_str(), "lock" => lock).increment(1);
    }
}

pub(crate) fn renewed() {
    counter!(RENEWALS).increment(1);
}

pub(crate) fn tokens_fell() {
    counter!(FALLS).increment(1);
}

pub(crate) fn requested(request: &'static str, count: u64) {
    counter!(REQUESTS, "request" => request).increment(count);
}
