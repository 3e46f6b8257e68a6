//! Owns what is written to standard error.
//!
//! A thread of its own writes it, because standard error may be a pipe that nobody reads, and a command whose lock is lost
//! must be stopped all the same.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::size;

/// How long the end waits for what is still to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// Erases the row that the cursor is on.
const ERASE: &str = "\r\x1b[K";

enum Message {
    Line(String),
    /// A row on a terminal that the next message erases.
    Status(String),
    EndOfStatus,
    /// Answered when all before it is written.
    End(Sender<()>),
}

fn writer() -> &'static Sender<Message> {
    static WRITER: OnceLock<Sender<Message>> = OnceLock::new();
    WRITER.get_or_init(|| {
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || write(messages));
        sender
    })
}

/// Writes messages until the process ends.
fn write(messages: Receiver<Message>) {
    // A terminal may be set to stop what writes to it in the background, where we are while the command has it.
    _ = SigSet::from(Signal::SIGTTOU).thread_block();
    let mut erase = "";
    for message in messages {
        let (text, is_status) = match message {
            Message::Line(line) => (format!("{erase}zklock: {line}\n"), false),
            Message::Status(status) => (format!("{ERASE}{}", on_one_row(&status)), true),
            Message::EndOfStatus => (erase.to_owned(), false),
            Message::End(done) => {
                _ = done.send(());
                continue;
            }
        };
        // There is nobody to report to if this fails.
        _ = io::stderr().write_all(text.as_bytes());
        erase = if is_status { ERASE } else { "" };
    }
}

/// A row that is too long would be broken in two, and one of them would stay.
fn on_one_row(status: &str) -> String {
    let columns = size::size(io::stderr()).map_or(usize::MAX, |(_, columns)| columns - 1);
    format!("zklock: {status}").chars().take(columns).collect()
}

fn send(message: Message) {
    // The thread ends with the process.
    _ = writer().send(message);
}

/// Writes a line.
pub(crate) fn report(message: impl Display) {
    send(Message::Line(message.to_string()));
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Waits for a moment until all is written.
pub(crate) fn flush() {
    let (done, written) = mpsc::channel();
    send(Message::End(done));
    _ = written.recv_timeout(PATIENCE);
}

/// A row on a terminal that is written over again and again, and erased in the end.
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
        send(Message::Status(text.to_string()));
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if self.is_shown {
            send(Message::EndOfStatus);
            // What is written to the terminal next is not ours.
            flush();
        }
    }
}
