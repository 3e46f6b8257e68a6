//! A wall clock that a test can set, for a process of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A wall clock for one process, with an offset that can be set.
pub(crate) struct FakeClock {
    pub(crate) library: PathBuf,
    folder: tempfile::TempDir,
}

impl FakeClock {
    pub(crate) fn new() -> Self {
        let clock = Self { library: libfaketime(), folder: tempfile::tempdir().expect("a temporary folder") };
        clock.set(0);
        clock
    }

    pub(crate) fn offset(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    pub(crate) fn set(&self, hours: i32) {
        self.write(&format!("{hours:+}h\n"));
    }

    pub(crate) fn set_seconds(&self, seconds: f64) {
        self.write(&format!("{seconds:+}\n"));
    }

    /// Puts it back by this much.
    pub(crate) fn put_back(&self, by: Duration) {
        self.write(&format!("-{:.3}\n", by.as_secs_f64()));
    }

    fn write(&self, offset: &str) {
        // The file is read at every look at the clock, so it must be complete at any time.
        let new = self.folder.path().join("new");
        fs::write(&new, offset).expect("can be written");
        fs::rename(new, self.offset()).expect("can be renamed");
    }

    pub(crate) fn environment(&self) -> [(&'static str, OsString); 5] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.offset().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            // The new name and the old one.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// The library that fakes clocks.
fn libfaketime() -> PathBuf {
    find_libfaketime().expect(
        "there is no libfaketimeMT.so.1 under /usr/lib; as root, `zk-docker/install faketime` installs it, and so does \
         `zk-docker/run cargo test`",
    )
}

fn find_libfaketime() -> Option<PathBuf> {
    let lib = Path::new("/usr/lib");
    let folders = fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path());
    folders
        .chain([lib.to_owned()])
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.exists())
}
