//! Counts grants and losses in the clients' journals while these are written.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Counts over journals which grow.
#[derive(Debug)]
pub(crate) struct Progress {
    folder: PathBuf,
    files: Vec<(PathBuf, u64)>,
    pub(crate) grants: usize,
    pub(crate) losses: usize,
}

impl Progress {
    pub(crate) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), files: Vec::new(), grants: 0, losses: 0 }
    }

    /// Counts what was written since the last call.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if !self.files.iter().any(|(known, _)| *known == path) {
                self.files.push((path, 0));
            }
        }
        for (path, seen) in &mut self.files {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(*seen))?;
            let mut new = Vec::new();
            file.read_to_end(&mut new)?;
            let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *seen += whole as u64;
            let new = String::from_utf8_lossy(&new[..whole]);
            self.grants += new.matches("\"step\":\"acquired\"").count();
            self.losses += new.matches("\"step\":\"lost\"").count();
        }
        Ok(())
    }
}
