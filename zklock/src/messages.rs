//! Owns what is written to standard error.
//!
//! A thread of its own writes it, because standard error may be a pipe that nobody reads, and a command whose lock is lost
//! must be stopped all the same.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// How long the end waits for what is still to be written.
const PATIENCE: Duration = Duration::from_secs(1);

enum Message {
    Text(String),
    /// Answered when all before it is written.
    End(Sender<()>),
}

fn writer() -> &'static Sender<Message> {
    static WRITER: OnceLock<Sender<Message>> = OnceLock::new();
    WRITER.get_or_init(|| {
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            // A terminal may be set to stop what writes to it in the background, where we are while the command has it.
            _ = SigSet::from(Signal::SIGTTOU).thread_block();
            for message in messages {
                match message {
                    // There is nobody to report to if this fails.
                    Message::Text(text) => _ = io::stderr().write_all(text.as_bytes()),
                    Message::End(done) => _ = done.send(()),
                }
            }
        });
        sender
    })
}

/// Writes text as it is.
fn write(text: String) {
    // The thread ends with the process.
    _ = writer().send(Message::Text(text));
}

/// Writes a line.
pub(crate) fn report(message: impl Display) {
    write(format!("zklock: {message}\n"));
}

/// Waits for a moment until all is written.
pub(crate) fn flush() {
    let (done, written) = mpsc::channel();
    _ = writer().send(Message::End(done));
    _ = written.recv_timeout(PATIENCE);
}

/// A line on a terminal that is written over again and again, and erased in the end.
#[derive(Debug, Default)]
pub(crate) struct Status {
    is_shown: bool,
}

impl Status {
    /// Whether anybody would see it.
    pub(crate) fn is_seen() -> bool {
        io::stderr().is_terminal()
    }

    pub(crate) fn show(&mut self, text: impl Display) {
        self.is_shown = true;
        write(format!("\r\x1b[Kzklock: {text}"));
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if self.is_shown {
            write("\r\x1b[K".to_owned());
            // What is written to the terminal next is not ours.
            flush();
        }
    }
}
