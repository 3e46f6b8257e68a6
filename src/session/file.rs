//! Owns the session file: it names the ZooKeeper session of a process, which the next process ends if this one crashes.
//!
//! 1. The file is replaced as a whole, so a process that is killed leaves the old one or the new one.
//! 2. The lock is on a second file, which is neither replaced nor deleted. A lock on the first would be on an inode that the next
//!    write unlinks, and another process could lock the new one. The operating system releases the lock with the process.
//! 3. The file names its lock. If another lock is beside it, the file was copied or the lock was deleted, and the session may
//!    be that of a living process. Then it is left alone.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use zookeeper_client::{SessionId, SessionInfo};

use crate::error::{Error, Result};
use crate::locked::locked;
use crate::session::password::{Credentials, credentials_of, session_of};
use crate::telemetry::guarded;

/// The first word of a session file.
const FORM: &str = "zookeeper-recipes-session-1";

/// Reads stop after this many bytes. A session file is always shorter.
const LONGEST: u64 = 1024;

/// The session file of a session.
pub(super) struct SessionFile {
    path: PathBuf,
    /// The lock. `None` when the session is over: then the file is for the next.
    lock: Mutex<Option<Arc<Lock>>>,
    /// Counts the writes and removals that were asked for.
    asked: AtomicU64,
    /// The number of the newest of them that has begun. It is locked while one is under way. The threads of the pool may begin
    /// them in another order.
    written: Mutex<u64>,
    /// The session that an earlier process has left.
    left: Option<Credentials>,
    /// The same for the client.
    session: OnceCell<SessionInfo>,
    /// There is no such session any more.
    is_gone: AtomicBool,
    /// A failure to end it was reported.
    is_reported: AtomicBool,
}

impl fmt::Debug for SessionFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SessionFile {
    /// Locks the file, and reads it. Fails if another session has it, and if it could not be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        // A link stays, and its target is replaced.
        let path = &target_of(path);
        let invalid = |reason: String| Error::invalid("session file", format!("{}{reason}", path.display()));
        let cannot = |what: &str, error: &io::Error| invalid(format!(" cannot be {what}: {error}"));
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                return Err(invalid(" is a directory; give the path of a file in it".to_owned()));
            }
            Ok(found) if !found.is_file() => {
                return Err(invalid(" is no regular file; give another path".to_owned()));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot("read", &error)),
            _ if path.file_name().is_none() => return Err(invalid(" is no path of a file".to_owned())),
            _ => {}
        }
        let lock = match lock(&beside(path, ".lock")) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                let reason = " belongs to a session that is alive, of this process or another; each needs a file of its own";
                return Err(invalid(reason.to_owned()));
            }
            Err(error) => return Err(cannot("locked, by a file beside it with .lock at the end", &error)),
        };
        let text = read(path).map_err(|error| cannot("read", &error))?;
        let unknown = || {
            let reason = " is no session file; give another path, or delete it if nobody needs it";
            invalid(reason.to_owned())
        };
        // An empty file names no session.
        let named = if text.is_empty() { None } else { Some(parse(&text).ok_or_else(unknown)?) };
        // What cannot be written later shows now, where somebody is there to read it.
        let tried = create(&beside(path, ".new")).and_then(|_| fs::remove_file(beside(path, ".new")));
        tried.map_err(|error| cannot("written, by a file beside it with .new at the end", &error))?;
        let left = named.and_then(|(credentials, mark)| {
            if mark == mark_of(&lock) {
                return Some(credentials);
            }
            let session = credentials.id;
            guarded(|| {
                tracing::warn!(
                    %session, file = %path.display(),
                    "the session file was copied, or its lock was deleted: the session that it names is not ended, because \
                     it may belong to a living process"
                );
            });
            None
        });
        Ok(Self {
            path: path.to_owned(),
            lock: Mutex::new(Some(Arc::new(lock))),
            asked: AtomicU64::new(0),
            written: Mutex::new(0),
            is_gone: AtomicBool::new(left.is_none()),
            left,
            session: OnceCell::new(),
            is_reported: AtomicBool::new(false),
        })
    }

    /// The session that an earlier process has left, until it is [gone](Self::is_gone).
    pub(super) async fn left(&self) -> Result<Option<&SessionInfo>> {
        let Some(left) = self.left.as_ref().filter(|_| !self.is_gone.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let session = self.session.get_or_try_init(|| session_of(left.clone())).await;
        session.map(Some).map_err(|error| self.no_password(&error))
    }

    /// Notes that the session which was left has ended.
    pub(super) fn left_is_gone(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// The session that was left, at the first failure to end it.
    pub(super) fn fails_first(&self) -> Option<SessionId> {
        let left = self.left.as_ref().filter(|_| !self.is_gone.load(Ordering::Relaxed))?;
        (!self.is_reported.swap(true, Ordering::Relaxed)).then_some(left.id)
    }

    /// Lets the file name this session. Fails if the disk takes longer than `limit`; the write goes on then.
    pub(super) async fn name(self: &Arc<Self>, session: &SessionInfo, limit: Duration) -> Result<()> {
        let credentials = credentials_of(session).await.map_err(|error| self.no_password(&error))?;
        let (this, number) = (Arc::clone(self), self.next_number());
        let written = on_disk(limit, move || this.write(number, &credentials)).await;
        written.map_err(|error| self.invalid(format!(" cannot be written: {error}")))
    }

    fn next_number(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn write(&self, number: u64, credentials: &Credentials) -> io::Result<()> {
        // An older write may still be under way, or begin after this one.
        let mut newest = locked(&self.written);
        if number < *newest {
            return Ok(());
        }
        *newest = number;
        // With this handle the file stays locked until the write has ended.
        let Some(lock) = locked(&self.lock).clone() else { return Ok(()) };
        let new = beside(&self.path, ".new");
        let written = create(&new).and_then(|mut file| {
            file.write_all(text(credentials, &mark_of(&lock)).as_bytes())?;
            file.sync_all()?;
            drop(file);
            fs::rename(&new, &self.path)
        });
        if written.is_err() {
            // It may have a part of the password.
            _ = fs::remove_file(new);
        }
        written
    }

    /// Lets the file name no session, because the last one has ended.
    pub(super) async fn name_none(self: &Arc<Self>, limit: Duration) {
        let (this, number, lock) = (Arc::clone(self), self.next_number(), locked(&self.lock).clone());
        let removed = on_disk(limit, move || {
            // An older write that begins later changes nothing.
            let mut newest = locked(&this.written);
            *newest = number.max(*newest);
            let removed = fs::remove_file(&this.path);
            // Until now the file is not that of another session.
            drop(lock);
            removed
        });
        if let Err(error) = removed.await {
            // The next process finds that the session has ended.
            guarded(|| tracing::debug!(%error, file = %self.path.display(), "cannot remove the session file"));
        }
    }

    /// Lets another session have the file.
    pub(super) fn unlock(&self) {
        drop(locked(&self.lock).take());
    }

    fn invalid(&self, reason: String) -> Error {
        Error::invalid("session file", format!("{}{reason}", self.path.display()))
    }

    fn no_password(&self, error: &io::Error) -> Error {
        self.invalid(format!(" is of no use: the process cannot connect to itself on 127.0.0.1: {error}"))
    }
}

/// Runs `work` where it may block, and waits for it for at most `limit`. Then it goes on without a caller.
async fn on_disk(limit: Duration, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    match timeout(limit, spawn_blocking(work)).await {
        Ok(worked) => worked?,
        Err(_) => Err(io::Error::new(ErrorKind::TimedOut, format!("the disk did not answer within {limit:?}"))),
    }
}

/// A path with another end.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(end);
    path.into()
}

/// The file that a path stands for: that of a link is its target, which may not exist yet.
fn target_of(path: &Path) -> PathBuf {
    // As many links in a row as Linux follows; with more, or in a circle, opening the file fails.
    let mut target = path.to_owned();
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&target) else { break };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    target
}

/// A file that is locked.
struct Lock {
    file: File,
    /// The process that has locked it.
    #[cfg(unix)]
    process: u32,
}

/// Unlocks the file. Closing it is not enough: a child process that was just started has a copy of the handle until it runs
/// its own program. After a crash the next process waits for such a child.
#[cfg(unix)]
impl Drop for Lock {
    fn drop(&mut self) {
        // Not in a copy of the process, by `fork`: it would unlock the file of the original. If it fails, closing the file is all
        // that is left.
        if std::process::id() == self.process {
            _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
        }
    }
}

/// Opens and locks a file; `None` if another handle has it locked.
#[cfg(unix)]
fn lock(path: &Path) -> io::Result<Option<Lock>> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { file, process: std::process::id() })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file that no other handle may open meanwhile; `None` if there is one.
#[cfg(windows)]
fn lock(path: &Path) -> io::Result<Option<Lock>> {
    use std::os::windows::fs::OpenOptionsExt;

    const ERROR_SHARING_VIOLATION: i32 = 32;
    match OpenOptions::new().read(true).write(true).create(true).truncate(false).share_mode(0).open(path) {
        Err(error) if error.raw_os_error() == Some(ERROR_SHARING_VIOLATION) => Ok(None),
        opened => opened.map(|file| Some(Lock { file })),
    }
}

/// What a lock file is known by. A copy was created later, and has another inode unless it is in another file system.
fn mark_of(lock: &Lock) -> String {
    let Ok(found) = lock.file.metadata() else { return "unknown".to_owned() };
    let created = found.created().ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&found);
    #[cfg(windows)]
    let inode = 0;
    format!("{inode}-{}", created.unwrap_or_default().as_nanos())
}

/// Creates an empty file that nobody else may read. It replaces what a process has left that was killed while it wrote.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    // Not one that somebody has put there, nor a link to one.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The beginning of a file; nothing if there is none.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => _ = opened?.take(LONGEST).read_to_end(&mut text)?,
    }
    Ok(text)
}

/// What stands in a session file.
fn text(credentials: &Credentials, mark: &str) -> String {
    let password: String = credentials.password.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{FORM} {:x} {password} {mark}\n", credentials.id.0)
}

/// The session that a file names, and the mark of its lock.
fn parse(text: &[u8]) -> Option<(Credentials, String)> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    let words: Vec<_> = text.split(' ').collect();
    let [FORM, id, password, mark] = words[..] else { return None };
    let id = SessionId(u64::from_str_radix(id, 16).ok()?.cast_signed());
    let are_digits = password.bytes().all(|digit| digit.is_ascii_hexdigit());
    if id.0 == 0 || password.is_empty() || password.len() % 2 != 0 || !are_digits {
        return None;
    }
    let byte = |at| u8::from_str_radix(&password[at..at + 2], 16).ok();
    let password = (0..password.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    Some((Credentials { id, password }, mark.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;

    use uuid::Uuid;

    use super::*;

    fn file() -> Arc<SessionFile> {
        Arc::new(SessionFile::open(&temp_dir().join(Uuid::new_v4().to_string())).expect("opened"))
    }

    fn write(file: &SessionFile, number: u64, id: i64) {
        let credentials = Credentials { id: SessionId(id), password: vec![1; 16] };
        file.write(number, &credentials).expect("written");
    }

    /// The threads of the pool have begun in another order.
    #[test]
    fn write_that_begins_after_a_newer_one_changes_nothing() {
        let file = file();
        write(&file, 2, 22);
        write(&file, 1, 11);
        let (credentials, _) = parse(&fs::read(&file.path).expect("read")).expect("a session file");
        assert_eq!(credentials.id, SessionId(22));
        for end in ["", ".lock"] {
            fs::remove_file(beside(&file.path, end)).expect("removed");
        }
    }

    /// A process that is being started has a handle of every open file, until its own program runs.
    #[cfg(unix)]
    #[test]
    fn another_handle_of_the_lock_does_not_keep_the_file() {
        let file = file();
        let inherited = locked(&file.lock).as_ref().expect("locked").file.try_clone().expect("another handle");
        file.unlock();
        SessionFile::open(&file.path).expect("it is free");
        drop(inherited);
        fs::remove_file(beside(&file.path, ".lock")).expect("removed");
    }

    #[tokio::test]
    async fn write_that_begins_after_the_removal_changes_nothing() {
        let file = file();
        write(&file, 1, 11);
        // Another write was asked for.
        file.asked.store(2, Ordering::Relaxed);
        file.name_none(Duration::from_secs(60)).await;
        write(&file, 2, 22);
        assert!(!file.path.exists());
        fs::remove_file(beside(&file.path, ".lock")).expect("removed");
    }
}
