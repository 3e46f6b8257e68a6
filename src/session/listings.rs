//! Owns the listings that are under way: callers of one session that ask for the same one share it.
//!
//! 1. A listing answers only those who asked before it was sent, so it shows what they have done before. Who asks while
//!    one is under way gets the next, which is sent when that one has been answered.
//! 2. So a path has one listing under way in a session, however many wait there. Each is as large as the line is long:
//!    a server that is asked for all of them at once dies of its answers.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use futures_util::FutureExt;

use crate::session::answer::{Answer, Failure, Slot};
use crate::session::link::{Link, Work};
use crate::session::requests::Names;

/// A listing under way. Dropping it before it is answered, at the end of the session, ends the wait for the next, too.
struct UnderWay {
    link: Arc<Link>,
    path: String,
    over: bool,
}

impl Link {
    /// Lists the children of `path` for `slot`, together with others who ask for the same. To be called in a
    /// [burst](Link::burst), to which the returned work belongs.
    pub(crate) fn list(self: &Arc<Self>, path: &str, slot: Slot<Names>) -> Option<Work> {
        let mut waiting = self.waiting();
        if let Some(next) = waiting.get_mut(path) {
            next.push(slot);
            return None;
        }
        waiting.insert(path.to_owned(), Vec::new());
        drop(waiting);
        let under_way = UnderWay { link: self.clone(), path: path.to_owned(), over: false };
        let answer = self.requests.list(path);
        Some(under_way.serve(answer, slot).boxed())
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Vec<Slot<Names>>>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    async fn serve(mut self, mut answer: Answer<Vec<String>>, first: Slot<Names>) {
        let mut asked = vec![first];
        loop {
            let result = answer.await.map(Names::new);
            // Nothing is sent while the connection is away: those who wait for the next see to that themselves.
            let lost = matches!(result, Err(Failure::Unknown | Failure::Over));
            let mut next = self.next(lost);
            if lost {
                asked.append(&mut next);
            }
            asked.into_iter().for_each(|slot| slot.put(result.clone()));
            if self.over {
                return;
            }
            answer = self.link.requests.list(&self.path);
            asked = next;
        }
    }

    /// Takes those who wait for the next listing. If there are none, or it is the last, whoever asks then sends one.
    fn next(&mut self, last: bool) -> Vec<Slot<Names>> {
        let mut waiting = self.link.waiting();
        let next = waiting.get_mut(&self.path).map(std::mem::take).unwrap_or_default();
        self.over = last || next.is_empty();
        if self.over {
            waiting.remove(&self.path);
        }
        next
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.over {
            drop(self.next(true));
        }
    }
}
