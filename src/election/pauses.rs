//! Owns [`Pauses`]: how long a candidate stays out of the queue after a term that has failed.

use std::any::Any;
use std::time::Duration;

use tokio::time::sleep;

use crate::lock::Lock;
use crate::session::{Session, SessionState};
use crate::telemetry;

/// A term that returns sooner than this has failed: most likely it could not begin its work. Without a pause after it, the
/// candidate could be elected again some hundred times a second.
const SHORTEST_TERM: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. After a term that is longer than this, the next pause is [`FIRST_PAUSE`] again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How a term has ended.
pub(crate) enum TermEnd {
    /// The term has returned, perhaps because it was asked to.
    Returned,
    Lost,
    /// The term has panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
}

/// The pauses of a candidate, each twice as long as the last, up to [`LONGEST_PAUSE`].
pub(crate) struct Pauses {
    session: Session,
    path: String,
    last: Option<Duration>,
}

impl Pauses {
    pub(crate) fn new(lock: &Lock) -> Self {
        let path = lock.path.to_string();
        telemetry::candidate_begins(&path);
        Self { session: lock.session.clone(), path, last: None }
    }

    /// Pauses if the term has failed. Ends early if the session is closed or over. `led`: the length of the term. Call
    /// this after the candidate has resigned, so that other candidates can lead meanwhile.
    pub(crate) async fn after(&mut self, led: Duration, end: TermEnd) {
        if led > LONGEST_PAUSE {
            self.last = None;
        }
        match end {
            TermEnd::Lost => return,
            TermEnd::Returned if led >= SHORTEST_TERM => return,
            TermEnd::Returned | TermEnd::Panicked(_) => {}
        }
        let pause = self.last.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE));
        self.last = Some(pause);
        let path = &self.path;
        match end {
            TermEnd::Panicked(payload) => {
                telemetry::candidate_pauses(path, telemetry::PANICKED);
                let panic = text_of(payload);
                tracing::error!(path, panic, retry_in = ?pause, "the term of a candidate has panicked");
            }
            _ => {
                telemetry::candidate_pauses(path, telemetry::RETURNED);
                tracing::warn!(path, ?led, retry_in = ?pause, "the term of a candidate has ended at once");
            }
        }
        let mut states = self.session.states();
        let is_over = |state| matches!(state, SessionState::Closing | SessionState::Ended);
        tokio::select! {
            () = sleep(pause) => {}
            _ = states.wait_for(is_over) => {}
        }
    }
}

/// Returns the text of a panic.
fn text_of(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<&'static str>() {
        Ok(text) => return (*text).to_owned(),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => {
            // The payload's drop may panic in turn.
            std::mem::forget(payload);
            "a payload that is no text".to_owned()
        }
    }
}
