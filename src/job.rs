//! [`Job`]: work that a fleet does once for each fire, and records.

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex as PlainMutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use zookeeper_client::{CheckWriteError, CreateMode, Error as ZkError, MultiWriteResult, Stat};

use crate::contender::{Contender, for_operators};
use crate::error::{Error, Loss, Result};
use crate::hold::HoldMonitor;
use crate::mutex::{Mutex, MutexGuard};
use crate::options::Options;
use crate::path;
use crate::session::Session;
use crate::telemetry;

/// The most bytes of a slot. The record has to fit into a request.
const MAX_SLOT_BYTES: usize = 1024;

/// The longest pause. The end of a longer one may be past what a `SystemTime` can hold.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A fire that is superseded by a record older than this logs a warning, because the fire was not merely late.
const LONG_ON_RECORD: Duration = Duration::from_secs(3600);

/// Work that one machine of a fleet does for each fire, although the clock of every machine starts it. Examples are a
/// nightly report and a monthly bill.
///
/// Each fire has a [slot](JobSlot), for example the time for which it was planned. A record in the same ZooKeeper has
/// the last slot that was run. The record is written only while the job's lock is held. So one machine at a time runs a
/// slot, at most once or at least once, [as you choose](JobRecord).
///
/// Slots are run in ascending order. Once a later slot is recorded, an earlier one is not run any more, even if it
/// never ran. Its fire is [`Superseded`](JobOutcome::Superseded). Fires that wait at the same time run in the order in
/// which they came, not in the order of their slots. So an earlier slot behind a later one in the queue is not run.
///
/// The clocks of the machines are not compared. A machine whose clock is far ahead, and whose slots are times of that
/// clock, therefore stops the job on all machines until that time. A fire that is superseded by a record older than an
/// hour logs a warning. [Incidents](crate::guide::incidents#a-job-fails-or-does-not-run) says how to correct the
/// record.
///
/// In an outage, a fire waits for the servers for as long as [`with_wait_limit`](Job::with_wait_limit) allows, by
/// default one session timeout. Then it fails with [`Error::Unavailable`], and the slot is run only if it is fired
/// again.
///
/// The lock is a [`Mutex`] at `<path>/lock`, and the record is the node `<path>/record`. Its first line is the slot,
/// and the next lines name the machine that ran it. There is one record for each job, however many slots it had. To run
/// a slot again, write an earlier slot into the record.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn bill(token: zookeeper_recipes::FencingToken) -> Result<u32, zookeeper_recipes::Error> { Ok(17) }
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::job::JobOutcome;
/// use zookeeper_recipes::Job;
///
/// let job = Job::new(&session, "/jobs/billing")?;
/// match job.run("2026-11-22T02:00Z", |run| bill(run.fencing_token())).await? {
///     JobOutcome::Ran(bills) => println!("{bills} bills"),
///     JobOutcome::RanAlready { by, .. } => println!("{by} has done it"),
///     JobOutcome::Superseded { last, .. } => println!("too late: {last} was run"),
///     JobOutcome::Running { by } => println!("{by} is at it"),
///     JobOutcome::TooEarly { .. } => println!("not so soon"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Job {
    session: Session,
    mutex: Mutex,
    record_path: String,
    record: JobRecord,
    least_pause: Duration,
    wait: Duration,
    /// The transaction that wrote the record, and when this handle or a clone first saw that record. Shared by clones.
    seen: Arc<PlainMutex<Option<(i64, Instant)>>>,
}

/// The moment at which a [`Job`] records a slot. It decides whether a slot is run again if its runner dies or loses the
/// lock during the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no third time")]
pub enum JobRecord {
    /// Before the work: a slot is run **at most once**, and may be lost. If its runner dies at work, or the work fails,
    /// the slot stays recorded and is not run again, done or not.
    #[default]
    Before,
    /// After the work: a slot is run **at least once**, and may be repeated, in whole or in part. If its runner dies,
    /// or the work fails, another fire of the same slot runs it again, unless a later slot was recorded first. A paused
    /// runner may go on after another has begun: let the store check the [fencing
    /// token](crate::HoldMonitor::fencing_token).
    After,
}

/// The outcome of a fire of a [`Job`].
///
/// Times are by the servers' clocks.
#[must_use = "a slot that was not run here is no error; look at the outcome"]
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller handles each")]
pub enum JobOutcome<T> {
    /// The slot was run here, with this result, and is recorded.
    Ran(T),
    /// The slot of this fire is recorded already. With [`JobRecord::Before`], its work may have failed or still be under
    /// way.
    RanAlready {
        /// The slot of this fire.
        slot: JobSlot,
        /// The [identifier](Options::with_identifier) of the machine that has recorded the slot.
        by: String,
        /// When the slot was recorded.
        at: SystemTime,
    },
    /// A later slot is recorded, so the slot of this fire was not run here, and will not be. Whether it was run before is
    /// not known, because the record has the last slot only.
    Superseded {
        /// The recorded slot.
        last: JobSlot,
        /// The identifier of the machine that has recorded that slot.
        by: String,
        /// When that slot was recorded.
        at: SystemTime,
    },
    /// The job is being run, for this slot or another. The slot of this fire was not run here. If it has to be run, fire
    /// again, or [wait](Job::with_wait_limit).
    Running {
        /// The identifier of the machine that has the lock. Empty if that machine was asked to release.
        by: String,
    },
    /// The last run was recorded less than [`with_least_pause`](Job::with_least_pause) ago. The slot was not run.
    TooEarly {
        /// When the slot may be run.
        until: SystemTime,
    },
}

/// The names of the outcomes in metrics.
pub(crate) const OUTCOMES: [&str; 5] = ["ran", "ran_already", "superseded", "running", "too_early"];

impl<T> JobOutcome<T> {
    fn as_str(&self) -> &'static str {
        let [ran, ran_already, superseded, running, too_early] = OUTCOMES;
        match self {
            Self::Ran(_) => ran,
            Self::RanAlready { .. } => ran_already,
            Self::Superseded { .. } => superseded,
            Self::Running { .. } => running,
            Self::TooEarly { .. } => too_early,
        }
    }
}

/// The name of a fire of a [`Job`]: usually the time for which it was planned, and not the time that a clock shows.
///
/// Slots are **compared as text**, byte by byte. Write times in one format and one zone, with leading zeros and the
/// year first (`2026-11-22T02:00Z`). `From<u64>` makes a text of 20 digits from a number. If you write numbers
/// yourself, give all of them the same number of digits. A slot of digits is refused if the recorded slot has more
/// digits, or fewer. Versions do not ascend as text: `1.10.0` comes before `1.9.0`. Number migrations instead, and do
/// not mix numbers and text in one job.
///
/// A slot has 1 to 1,024 bytes, and no control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobSlot(String);

impl From<&str> for JobSlot {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for JobSlot {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<u64> for JobSlot {
    fn from(number: u64) -> Self {
        Self(format!("{number:020}"))
    }
}

impl JobSlot {
    fn validate(&self) -> Result<()> {
        let reason = match &self.0 {
            slot if slot.is_empty() => "it is empty".to_owned(),
            slot if slot.len() > MAX_SLOT_BYTES => {
                format!("it has {} bytes; {MAX_SLOT_BYTES} are the most", slot.len())
            }
            slot if slot.contains(char::is_control) => format!("{slot:?} has a control character"),
            _ => return Ok(()),
        };
        Err(Error::invalid("slot", reason))
    }

    /// Returns the slot as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares this slot with `last`, the recorded slot.
    fn compare(&self, Self(last): &Self) -> Result<Ordering> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if self.0.len() != last.len() && is_number(&self.0) && is_number(last) {
            let reason = format!(
                "{} has another number of digits than {last}, the last on record, and slots are compared as text; pad \
                 them with zeros",
                self.0
            );
            return Err(Error::invalid("slot", reason));
        }
        Ok(self.0.cmp(last))
    }
}

impl fmt::Display for JobSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The record of a [`Job`]: the last slot that was recorded. Returned by [`Job::last`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastJob {
    /// The slot.
    pub slot: JobSlot,
    /// The [identifier](Options::with_identifier) of the machine that has recorded the slot.
    pub by: String,
    /// When the slot was recorded, by the servers' clocks.
    pub at: SystemTime,
}

impl LastJob {
    /// Parses the data of the record, which was written at `at`. `None` if the slot is empty, as in a node without data.
    fn parse((data, at): (Vec<u8>, SystemTime)) -> Option<Self> {
        let text = String::from_utf8_lossy(&data);
        let (slot, by) = text.split_once('\n').unwrap_or((&text, ""));
        (!slot.is_empty()).then(|| Self { slot: slot.into(), by: by.to_owned(), at })
    }

    /// Returns the outcome of a fire of `slot`, if this record shows that the slot must not be run; otherwise `None`.
    fn covers<T>(&self, slot: &JobSlot) -> Result<Option<JobOutcome<T>>> {
        let Self { slot: last, by, at } = self.clone();
        Ok(match slot.compare(&last)? {
            Ordering::Less => Some(JobOutcome::Superseded { last, by, at }),
            Ordering::Equal => Some(JobOutcome::RanAlready { slot: last, by, at }),
            Ordering::Greater => None,
        })
    }
}

impl Job {
    /// Creates a handle of the job at `path`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path.
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        Self::with_options(session, path, Options::new())
    }

    /// Creates a handle of the job at `path` with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` or `options` cannot be used.
    pub fn with_options(session: &Session, path: &str, options: Options) -> Result<Self> {
        path::validate(path)?;
        let session = session.clone().with_lock_options(options);
        let mutex = Mutex::new(&session, &format!("{path}/lock"))?;
        telemetry::job_begins(mutex.path(), &OUTCOMES);
        Ok(Self {
            session,
            mutex,
            record_path: format!("{path}/record"),
            record: JobRecord::default(),
            least_pause: Duration::ZERO,
            wait: Duration::ZERO,
            seen: Arc::default(),
        })
    }

    /// Sets when a slot is recorded. The default is [`Before`](JobRecord::Before). Set the same on all machines.
    #[must_use]
    pub fn with_record(mut self, record: JobRecord) -> Self {
        self.record = record;
        self
    }

    /// Sets the pause between the record of a run and the next run. A fire within it is
    /// [`TooEarly`](JobOutcome::TooEarly). The default is zero, the longest pause a hundred years.
    ///
    /// Use it for slots that come from the machines' own clocks, like "now, to the minute". There, a fast job may have
    /// ended before a machine with a late clock fires, perhaps for another slot. Set the pause longer than the clocks
    /// differ, and shorter than the period. The pause is measured by the clock of the servers' leader. After a change
    /// of leader it is off by the difference of the leaders' clocks. By the clock of this machine, it ends at the latest
    /// `pause` after this handle, or a clone, first saw the record. So keep the handle between fires. The check costs a
    /// write.
    #[must_use]
    pub fn with_least_pause(mut self, pause: Duration) -> Self {
        self.least_pause = pause.min(LONGEST);
        self
    }

    /// Sets how long a fire waits for the servers and for another machine that runs the job. The fire takes over if
    /// that machine dies. Set it to the job's period: a fire then waits for a long run, and ends before the next fire.
    ///
    /// After the limit the result is [`Error::Unavailable`], or [`Running`](JobOutcome::Running) if the fire was in the
    /// queue. Reading the name of the machine that runs the job may take one more session timeout. The default is zero:
    /// no wait for another machine, and one session timeout for the servers. A limit too long for a clock is no limit.
    ///
    /// Without a wait, a fire that comes while an earlier slot is still being run does nothing. If that happens on all
    /// machines, the slot is not run.
    #[must_use]
    pub fn with_wait_limit(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Runs `work` for `slot`, unless the slot was run, is being run, or comes too early.
    ///
    /// A recorded slot costs one read. `work` gets a monitor of the hold, with its fencing token and
    /// [`revoke_requested`](HoldMonitor::revoke_requested). When the lock is lost, the future of `work` is dropped at
    /// its next `await`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the future of `work` and releases the lock in the background. A slot that was recorded
    /// before the work stays recorded.
    ///
    /// # Errors
    ///
    /// The error of `work`, as it is. With [`JobRecord::Before`] the slot stays recorded, with
    /// [`After`](JobRecord::After) it is not recorded.
    ///
    /// [`Error::Lost`] if the lock was lost before the work was done and recorded: the work may have been done in part,
    /// or, with [`After`](JobRecord::After), as a whole.
    ///
    /// [`Error::InvalidInput`] if the slot cannot be stored or compared. [`Error::NoAuth`] if the ACLs deny it: the job
    /// needs the rights that a lock needs, READ and WRITE on the record, and for
    /// [`with_least_pause`](Self::with_least_pause) WRITE on the lock path. Otherwise as
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// use zookeeper_recipes::job::{JobOutcome, JobRecord};
    /// use zookeeper_recipes::Job;
    ///
    /// let job = Job::new(session, "/jobs/cache")?.with_record(JobRecord::After).with_wait_limit(Duration::from_secs(60));
    /// // The number of the hour.
    /// let hour = UNIX_EPOCH.elapsed()?.as_secs() / 3600;
    /// let fill = |_run| async {
    ///     std::fs::write("/srv/cache", "…")?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// };
    /// if let JobOutcome::Ran(()) = job.run(hour, fill).await? {
    ///     println!("filled");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F, R, T, E>(&self, slot: impl Into<JobSlot>, work: F) -> Result<JobOutcome<T>, E>
    where
        F: FnOnce(HoldMonitor) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let slot = slot.into();
        let ended = self.run_once(&slot, work).await;
        if let Ok(JobOutcome::Superseded { last, by, at }) = &ended
            && at.elapsed().is_ok_and(|age| age > LONG_ON_RECORD)
        {
            tracing::warn!(
                path = self.record_path,
                %slot,
                %last,
                by,
                "job is not run: a later slot was recorded more than an hour ago"
            );
        }
        telemetry::job_ended(self.mutex.path(), ended.as_ref().ok().map(JobOutcome::as_str));
        ended
    }

    async fn run_once<F, R, T, E>(&self, slot: &JobSlot, work: F) -> Result<JobOutcome<T>, E>
    where
        F: FnOnce(HoldMonitor) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let guard = match self.begin(slot).await? {
            Ok(guard) => guard,
            Err(outcome) => return Ok(outcome),
        };
        if self.record == JobRecord::Before {
            self.enter(&guard, slot).await?;
        }
        let done = guard.run_until_lost(work(guard.monitor())).await.map_err(Error::from)?;
        if self.record == JobRecord::After && done.is_ok() {
            self.enter(&guard, slot).await?;
        }
        // A loss of the lock after this point does not change the outcome.
        let _ = guard.release().await;
        done.map(JobOutcome::Ran)
    }

    /// Returns the record: the last slot that was recorded, as far as the connected server knows. `None` before the first
    /// slot is recorded.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within one session timeout, [`Error::NoAuth`] if the ACLs deny it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(job: zookeeper_recipes::Job) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(last) = job.last().await? {
    ///     println!("{} was run by {}", last.slot, last.by);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn last(&self) -> Result<Option<LastJob>> {
        self.read(None).await
    }

    /// Acquires the lock to run `slot`. If this process must not run the slot, the inner error is the outcome.
    async fn begin<T>(&self, slot: &JobSlot) -> Result<Result<MutexGuard, JobOutcome<T>>> {
        slot.validate()?;
        let began = Instant::now();
        let left = || Some(self.wait.saturating_sub(began.elapsed())).filter(|left| !left.is_zero());
        loop {
            if let Some(last) = self.read(left()).await?
                && let Some(outcome) = last.covers(slot)?
            {
                return Ok(Err(outcome));
            }
            let locked = match left() {
                None => self.mutex.try_lock().await?,
                Some(left) => self.mutex.try_lock_for(left).await?,
            };
            let Some(guard) = locked else {
                if let Some(holder) = self.contenders().await?.into_iter().find(Contender::is_holder) {
                    return Ok(Err(JobOutcome::Running { by: holder.identifier_lossy().into_owned() }));
                }
                // The holder has just released, so try again.
                continue;
            };
            let why_not = match self.why_not(&guard, slot).await {
                // The lock was lost before the job began and before anything was recorded, so acquire it again.
                Err(error @ Error::Lost(_)) if error.is_transient() && began.elapsed() < self.wait => continue,
                why_not => why_not?,
            };
            let Some(why_not) = why_not else {
                return Ok(Ok(guard));
            };
            let _ = guard.release().await;
            return Ok(Err(why_not));
        }
    }

    /// Returns the outcome if the holder of the lock must not run `slot`; otherwise `None`. Reads the record again,
    /// because an earlier holder may have written it before this one was granted the lock.
    async fn why_not<T>(&self, guard: &MutexGuard, slot: &JobSlot) -> Result<Option<JobOutcome<T>>> {
        let Some(last) = guard.run_until_lost(self.read(Some(Duration::MAX))).await?? else {
            return Ok(None);
        };
        match last.covers(slot)? {
            None => self.too_early(guard, last.at).await,
            covered => Ok(covered),
        }
    }

    /// Reads the record, as far as the connected server knows.
    async fn read(&self, limit: Option<Duration>) -> Result<Option<LastJob>> {
        let path = self.record_path.as_str();
        match self.session.request(limit, |client| async move { client.get_data(path).await }).await? {
            Ok((data, stat)) => {
                self.see(stat.mzxid);
                Ok(LastJob::parse((data, time(stat.mtime))))
            }
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(Error::refused("read", path, error)),
        }
    }

    /// Notes the time at which this process first saw the record that the transaction `mzxid` wrote.
    fn see(&self, mzxid: i64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.is_some_and(|(seen, _)| seen == mzxid) {
            *seen = Some((mzxid, Instant::now()));
        }
    }

    /// Returns how long ago this process first saw the record. The record is at least this old.
    fn age(&self) -> Duration {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map_or(Duration::ZERO, |(_, at)| at.elapsed())
    }

    /// Returns `TooEarly` if the pause after a run that was recorded at `last` is not over.
    async fn too_early<T>(&self, guard: &MutexGuard, last: SystemTime) -> Result<Option<JobOutcome<T>>> {
        // The clock of this machine decides first: the leader that dated the record may have had a clock far ahead.
        if self.age() >= self.least_pause {
            return Ok(None);
        }
        let until = last + self.least_pause;
        // This writes because the answer to a write has the servers' time. No client reads the data.
        let now = time(self.write(guard, guard.path(), &[]).await?.mtime);
        Ok((now < until).then_some(JobOutcome::TooEarly { until }))
    }

    /// Records `slot`.
    async fn enter(&self, guard: &MutexGuard, slot: &JobSlot) -> Result<()> {
        let record = [slot.0.as_bytes(), b"\n", self.session.lock_options().identifier()].concat();
        let written = self.write(guard, &self.record_path, &record).await?;
        self.see(written.mzxid);
        Ok(())
    }

    /// Writes the data of a node, which is created if it is missing. Returns the node's stat.
    ///
    /// The data may be written twice, but never after the lock is gone: each request checks the lock.
    async fn write(&self, guard: &MutexGuard, path: &str, data: &[u8]) -> Result<Stat> {
        let new = &CreateMode::Persistent.with_acls(self.session.lock_options().acls());
        let write = async {
            let mut is_missing = false;
            loop {
                let written = self.session.request(Some(Duration::MAX), |_| async move {
                    let mut writer = match guard.check_writer() {
                        Ok(writer) => writer,
                        Err(loss) => return Ok(Err(Error::from(loss))),
                    };
                    if is_missing {
                        writer.add_create(path, &[], new)?;
                    }
                    // All servers return a stat for a `SetData`, but not for a create.
                    writer.add_set_data(path, data, None)?;
                    match writer.commit().await {
                        Err(CheckWriteError::CheckFailed { source: ZkError::NoNode }) => {
                            Ok(Err(Loss::Deleted.into()))
                        }
                        Err(error) => Err(error.into()),
                        Ok(results) => written(results).map(Ok),
                    }
                });
                match written.await? {
                    Ok(written) => return written,
                    Err(ZkError::NoNode) if !is_missing => is_missing = true,
                    // The node was created meanwhile, perhaps by a request of ours whose answer was lost.
                    Err(ZkError::NodeExists) => is_missing = false,
                    Err(error) => return Err(Error::refused("write", path, error)),
                }
            }
        };
        guard.run_until_lost(write).await?
    }
}

fn written(mut results: Vec<MultiWriteResult>) -> Result<Stat, ZkError> {
    match results.pop() {
        Some(MultiWriteResult::SetData { stat }) => Ok(stat),
        _ => Err(ZkError::UnexpectedError("a transaction with a write has none".to_owned())),
    }
}

/// Converts a time of the servers, in milliseconds since 1970.
fn time(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.try_into().unwrap_or_default())
}

for_operators!(Job: |job| &job.mutex);
