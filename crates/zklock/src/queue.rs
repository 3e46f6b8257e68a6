//! Owns [`Queue`]: the contenders of a lock at one moment, as operators see them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::{Contender, Mutex, Semaphore, Session};

use crate::exit::{Failure, NO, USAGE};
use crate::messages::{count, report};

/// The holders and waiters of a lock, the holders first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    entries: Vec<Entry>,
}

/// A contender with its position: 0 is held, and N has N-1 waiters ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) position: usize,
    pub(crate) contender: Contender,
    /// Its node, relative to the lock path.
    pub(crate) node: String,
}

impl Queue {
    /// Looks at a path, as a lock and as a semaphore with this number of slots. Without it, each that is taken is held.
    pub(crate) async fn look(session: &Session, path: &str, slots: Option<u32>) -> Result<Self, Failure> {
        let lock = Mutex::new(session, path)?;
        let semaphore = Semaphore::new(session, path, slots.unwrap_or(u32::MAX))?;
        let (lock, semaphore) = tokio::try_join!(lock.contenders(), semaphore.contenders())?;
        let mut waiters = 0;
        let entries = lock.into_iter().chain(semaphore).map(|contender| {
            if !contender.is_holder() {
                waiters += 1;
            }
            let position = if contender.is_holder() { 0 } else { waiters };
            let below = contender.path().strip_prefix(path).unwrap_or_default().trim_start_matches('/');
            let slash = if below.is_empty() { "" } else { "/" };
            let node = format!("{below}{slash}{}", contender.name());
            Entry { position, contender, node }
        });
        Ok(Self { entries: entries.collect() })
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the next contender would be granted at once: nobody is there, or of a semaphore, a slot is not taken.
    pub(crate) fn is_free(&self, slots: Option<u32>) -> bool {
        let holds_slot = |entry: &Entry| entry.position == 0 && entry.contender.kind() == ContenderKind::Lease;
        let slots = slots.map_or(1, |slots| slots as usize);
        self.entries.len() < slots && self.entries.iter().all(holds_slot)
    }

    /// The one that an operator means, by its node or its token.
    pub(crate) fn find(&self, path: &str, node: &str) -> Result<&Entry, Failure> {
        let relative = node.strip_prefix(path).map_or(node, |rest| rest.strip_prefix('/').unwrap_or(node));
        let found: Vec<_> = self
            .entries
            .iter()
            .filter(|entry| entry.node == relative || entry.contender.token().to_string() == node)
            .collect();
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(Failure::new(
                NO,
                format!("{path} has no contender with this node or token: {}", plain(node, 200)),
            )),
            several => {
                let count = several.len();
                let message = format!("{count} contenders of {path} have the token {node}: name one by its node");
                Err(Failure::new(USAGE, message))
            }
        }
    }
}

impl Entry {
    /// How long ago it joined the queue, by the clocks of the servers and of this machine.
    pub(crate) fn age(&self) -> Duration {
        SystemTime::now().duration_since(self.contender.since()).unwrap_or_default()
    }

    /// The contender in a sentence.
    pub(crate) fn who(&self) -> String {
        let (contender, session) = (&self.contender, self.contender.session_id());
        let identifier = contender.identifier_lossy();
        if contender.revoke_requested() {
            format!("session {session}, which was asked to release,")
        } else if identifier.is_empty() {
            format!("session {session} (token {})", contender.token())
        } else {
            format!("{} (token {}, session {session})", plain(&identifier, 60), contender.token())
        }
    }

    /// Whether its node outlives every client: it is in no session.
    pub(crate) fn is_of_no_session(&self) -> bool {
        self.contender.session_id().0 == 0
    }

    /// What to know of a node that ends with no client.
    pub(crate) fn of_no_session(&self) -> Option<String> {
        self.is_of_no_session().then(|| {
            let node = plain(&self.node, 200);
            format!(
                "{node} belongs to no session (0x0): it was created by hand, or came with restored data, and no client releases it; \
                 `zklock break` removes it"
            )
        })
    }
}

/// Whether a name ends with a number of the servers, as all contenders do.
pub(crate) fn is_sequential(name: &str) -> bool {
    let (bytes, digits) = (name.as_bytes(), 10);
    bytes.len() > digits && bytes[bytes.len() - digits..].iter().all(u8::is_ascii_digit)
}

/// Who holds a lock, in a sentence about it.
pub(crate) fn holders(entries: &[Entry]) -> Option<String> {
    let mut holders = entries.iter().filter(|entry| entry.position == 0);
    let first = holders.next()?;
    let others = match holders.count() {
        0 => String::new(),
        others => format!(", and {} too", count(others, "other", "others")),
    };
    Some(format!("{} holds it{others}; it joined the queue {} ago", first.who(), span(first.age())))
}

/// Reports that a lock is busy, and who holds it. That is one look more, of a second at most: the time of the caller is over.
pub(crate) async fn report_busy(session: &Session, path: &str, slots: Option<u32>) {
    let look = timeout(Duration::from_secs(1), Queue::look(session, path, slots)).await;
    let holders = look.ok().and_then(Result::ok).and_then(|queue| holders(queue.entries()));
    match holders {
        Some(holders) => report(format_args!("{path} is busy: {holders}")),
        None => report(format_args!("{path} is busy")),
    }
}

/// A duration in two units at most, as `3m20s`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (minutes, hours, days) {
        (0, ..) => format!("{seconds}s"),
        (_, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (_, _, 0) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// A text on one row of a terminal. Characters that could steer the terminal are escaped, and what is too long is cut off.
pub(crate) fn plain(text: &str, most: usize) -> String {
    let mut plain = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == most {
            plain.push('…');
            break;
        }
        match c {
            '"' | '\'' | '\\' => plain.push(c),
            c => plain.extend(c.escape_debug()),
        }
    }
    plain
}

/// A time as `2024-05-31T23:59:59Z`.
pub(crate) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Years begin in March here, so that the leap day is the last of its year; 719,468 days before 1970 began the first.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + later;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (200, "3m20s"), (7500, "2h05m"), (273_600, "3d04h")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn texts_cannot_steer_a_terminal() {
        assert_eq!(plain("\x1b[2J\nzk-1's \u{202e}", 100), "\\u{1b}[2J\\nzk-1's \\u{202e}");
        assert_eq!(plain("bücher", 3), "büc…");
    }
}
