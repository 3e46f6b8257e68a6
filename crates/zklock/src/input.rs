//! Owns standard input, which a thread of its own reads.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::thread;
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::{isatty, tcgetpgrp};

/// How often a terminal is looked at that belongs to another group.
const LOOK: Duration = Duration::from_millis(200);

/// Waits for the end of the input. That of /dev/null never comes: a shell gives it to jobs in the background of a script.
pub(crate) async fn end() {
    if is_null().unwrap_or(false) {
        return std::future::pending().await;
    }
    read_until(|_| false).await;
}

/// Waits for a key of the keyboard, or the end of the input.
pub(crate) async fn key(key: u8) {
    read_until(move |byte| byte == key).await;
}

async fn read_until(is_last: impl Fn(u8) -> bool + Send + 'static) {
    let read = tokio::task::spawn_blocking(move || while next().is_some_and(|byte| !is_last(byte)) {});
    // It neither panics nor is cancelled.
    _ = read.await;
}

/// Reads a byte; `None` at the end.
fn next() -> Option<u8> {
    let mut byte = [0];
    loop {
        // The read would fail, or begin again and again where SIGTTIN is caught.
        while is_terminal_of_others() {
            thread::sleep(LOOK);
        }
        match io::stdin().lock().read(&mut byte) {
            Ok(0) => return None,
            Ok(_) => return Some(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Whether the input is a terminal that another process group has.
fn is_terminal_of_others() -> bool {
    isatty(io::stdin()) && tcgetpgrp(io::stdin()).is_ok_and(|owner| owner != getpgrp())
}

fn is_null() -> io::Result<bool> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()?;
    Ok(input.file_type().is_char_device() && input.rdev() == fs::metadata("/dev/null")?.rdev())
}
