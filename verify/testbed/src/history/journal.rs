//! A file of events, one JSON object a line, which survives the process that writes it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file to which events and other marks are appended. A clone writes to the same file.
#[derive(Clone, Debug)]
pub struct Journal {
    file: Arc<File>,
}

impl Journal {
    /// Creates a new, empty file.
    ///
    /// # Errors
    ///
    /// If the file already exists, or cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self { file: Arc::new(file) })
    }

    /// Appends a line with a single system call: a killed process has written it completely or not at all.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, entry: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        (&*self.file).write_all(&line)
    }
}

/// Reads the lines of a journal. Ignores a last line without an end, whose writer was killed.
///
/// # Errors
///
/// If the file cannot be read, or a line cannot be parsed.
pub fn read_journal<T: DeserializeOwned>(path: impl AsRef<Path>) -> io::Result<Vec<T>> {
    let text = fs::read_to_string(&path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}, in {line:?}"));
        serde_json::from_str(line).map_err(wrong)
    };
    whole.lines().map(parse).collect()
}
