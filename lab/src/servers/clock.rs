//! A clock that jumps, for a process that libfaketime is loaded into.

use std::ffi::OsString;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::Outcome;

/// The time of day as some processes see it. Their other clocks stay those of the machine.
#[derive(Clone, Debug)]
pub struct Clock {
    libraries: OsString,
    folder: Arc<TempDir>,
}

impl Clock {
    /// A clock that is right so far.
    ///
    /// # Errors
    ///
    /// If libfaketime is not installed.
    pub fn new() -> Outcome<Self> {
        let folders = fs::read_dir("/usr/lib")?.flatten().map(|folder| folder.path());
        let library = folders
            .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
            .find(|library| library.is_file())
            .ok_or(
                "there is no libfaketimeMT.so.1; `apt-get install --no-install-recommends faketime` installs it",
            )?;
        let folder = tempfile::Builder::new().prefix("lab-clock.").tempdir()?;
        // A server may run as another user.
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        // Redis' own allocator looks at the clock before the library can; libc's does not.
        let libc = library.with_file_name("../libc.so.6");
        let libraries = format!("{} {}", library.display(), libc.display()).into();
        let clock = Self { libraries, folder: Arc::new(folder) };
        clock.write(Duration::ZERO)?;
        Ok(clock)
    }

    /// Lets it be ahead of the machine's.
    ///
    /// # Errors
    ///
    /// If its file cannot be written.
    pub fn jump(&self, ahead: Duration) -> Outcome {
        self.write(ahead)
    }

    /// The environment of a process that sees this clock.
    pub fn environment(&self) -> [(&'static str, OsString); 5] {
        [
            ("LD_PRELOAD", self.libraries.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.folder.path().join("offset").into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            // The new name and the old one.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    /// The same for a virtual machine of Java, which looks at the clock far too often to read a file each time: it sees a jump
    /// a second later. Its threads wait by the monotonic clock, for which a workaround of the library takes seconds.
    pub fn environment_of_java(&self) -> Vec<(&'static str, OsString)> {
        let all = self.environment().into_iter().filter(|(name, _)| *name != "FAKETIME_NO_CACHE");
        all.chain([("FAKETIME_CACHE_DURATION", "1".into()), ("FAKETIME_FORCE_MONOTONIC_FIX", "0".into())])
            .collect()
    }

    /// The file is read at every look at the clock, so it must be complete at any time.
    fn write(&self, ahead: Duration) -> Outcome {
        let new = self.folder.path().join("new");
        fs::write(&new, format!("+{}s\n", ahead.as_secs()))?;
        Ok(fs::rename(new, self.folder.path().join("offset"))?)
    }
}
