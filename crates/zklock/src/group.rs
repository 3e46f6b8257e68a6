//! Owns [`Group`]: the process group of a command.
//!
//! It is signalled only while it has a member, because the number of an empty one may be given to another.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) Pid);

impl Group {
    /// Sends all of it a signal. An empty one needs none.
    pub(crate) fn send(self, signal: Signal) -> Result<(), Errno> {
        kill_process_group(self.0, signal)
    }

    /// Whether a member of it runs.
    ///
    /// One that has ended stays a member until its parent asks for its exit code. Orphans get process 1 for a parent, which does
    /// not ask in a container without an init.
    pub(crate) fn is_running(self) -> bool {
        match test_kill_process_group(self.0) {
            Err(Errno::SRCH) => false,
            // All of it belongs to another user. Its processes may be hidden from us.
            Err(_) => true,
            Ok(()) => self.has_running_member(),
        }
    }

    /// Looks at each process. Without Linux's /proc, each member counts as running.
    fn has_running_member(self) -> bool {
        let Some(processes) = fs::read_dir("/proc").ok().filter(|_| Path::new("/proc/self/stat").exists()) else {
            return true;
        };
        let stats = processes.flatten().filter_map(|process| fs::read(process.path().join("stat")).ok());
        stats.filter_map(|stat| member(&stat)).any(|(group, has_ended)| group == self.0 && !has_ended)
    }
}

/// The group of a process, and whether it has ended, as /proc/PID/stat has them.
fn member(stat: &[u8]) -> Option<(Pid, bool)> {
    // They come after the name, which may have parentheses and blanks in it: `17 (a) b) S PARENT GROUP`.
    let after = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = stat[after..].split(|&byte| byte == b' ').skip(1);
    let state = *fields.next()?.first()?;
    let group = str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
    // A process whose first thread has ended shows as a zombie while the others run.
    let threads = fields.nth(14)?;
    Some((Pid::from_raw(group)?, matches!(state, b'Z' | b'X') && matches!(threads, b"0" | b"1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_shows_what_has_ended() {
        let group = |id| Pid::from_raw(id).expect("a group");
        let stat = |begin: &str, threads: &str| {
            format!("{begin} 16 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0").into_bytes()
        };
        assert_eq!(member(&stat("17 (sh) S 1 16", "1")), Some((group(16), false)));
        assert_eq!(member(&stat("17 (a) Z 9 9) Z 1 17", "1")), Some((group(17), true)));
        // Its first thread has ended, and two others run.
        assert_eq!(member(&stat("17 (pool) Z 1 17", "3")), Some((group(17), false)));
        assert_eq!(member(&stat("2 (kthreadd) S 0 0", "1")), None);
        assert_eq!(member(b""), None);
    }
}
