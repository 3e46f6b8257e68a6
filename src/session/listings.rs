//! Owns the listings that are under way: callers of one session that ask for the same one share it.
//!
//! 1. A listing answers only those who asked before it was sent, so it shows what they have done before.
//! 2. A path has a few listings under way in a session, however many wait there. Who asks while there are as many shares
//!    the next, which is sent when one of them has been answered. Each is as large as the line is long: a server that is
//!    asked for thousands of them at once dies of its answers.
//! 3. A listing is tidied once, before it is handed to those who share it. Who searches for what is to be tidied asks
//!    for it as it is, and shares with others who do.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use futures_util::FutureExt;

use crate::path::LockPath;
use crate::session::answer::{Answer, Failure, Slot};
use crate::session::link::{Asked, Link, Work};
use crate::session::requests::Names;

/// How many tidied listings are under way at most: as many as let one who is woken look at once, beside newcomers. Of those
/// that are as they are, but sorted, one.
const MOST_UNDER_WAY: usize = 4;

/// Takes out of a listing what nobody is to see.
pub(crate) type Tidy = fn(&Arc<Link>, &LockPath, &mut Vec<String>);

/// A listing under way. Dropping it before it is answered, at the end of the session, ends the wait for the next, too.
struct UnderWay {
    link: Arc<Link>,
    path: LockPath,
    tidy: Option<Tidy>,
    over: bool,
}

impl Link {
    /// Lists the children of `path` for `slot`, tidied or as they are, together with others who ask for the same. To be
    /// called in a [burst](Link::burst), to which the returned work belongs.
    pub(crate) fn list(self: &Arc<Self>, path: &LockPath, tidy: Option<Tidy>, slot: Slot<Names>) -> Option<Work> {
        let mut listings = self.all_asked(tidy.is_some());
        let asked = listings.entry(path.clone()).or_default();
        if asked.under_way == if tidy.is_some() { MOST_UNDER_WAY } else { 1 } {
            asked.next.push(slot);
            return None;
        }
        asked.under_way += 1;
        drop(listings);
        let under_way = UnderWay { link: self.clone(), path: path.clone(), tidy, over: false };
        let answer = self.requests.list(path.as_str());
        Some(under_way.serve(answer, slot).boxed())
    }

    /// Whether the node is listed, and its session lives. A listing needs no permission for the node.
    pub(crate) async fn still_lists(self: &Arc<Self>, path: &LockPath, name: &str) -> Result<bool, Failure> {
        let (slot, answer) = Answer::deferred();
        let (asking, path) = (self.clone(), path.clone());
        self.burst(move |_| asking.list(&path, None, slot).into_iter().collect());
        // Thousands may look at the same time.
        Ok(answer.await?.binary_search_by(|listed| listed.as_str().cmp(name)).is_ok())
    }

    fn all_asked(&self, tidied: bool) -> MutexGuard<'_, HashMap<LockPath, Asked>> {
        self.listings[usize::from(tidied)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    async fn serve(mut self, mut answer: Answer<Vec<String>>, first: Slot<Names>) {
        let mut asking = vec![first];
        loop {
            let result = answer.await.map(|mut names| {
                match self.tidy {
                    Some(tidy) => tidy(&self.link, &self.path, &mut names),
                    None => names.sort_unstable(),
                }
                Names::new(names)
            });
            let lost = match &result {
                Err(failure @ (Failure::Unknown | Failure::Over)) => Some(failure.clone()),
                Ok(_) | Err(Failure::Refused(_)) => {
                    (!self.link.requests.is_connected()).then_some(Failure::Unknown)
                }
            };
            let next = self.next(lost.is_some());
            asking.into_iter().for_each(|slot| slot.put(result.clone()));
            if let Some(failure) = lost {
                // Nothing is sent while the connection is away; those who wait see to that themselves.
                next.into_iter().for_each(|slot| slot.put(Err(failure.clone())));
                return;
            }
            if next.is_empty() {
                return;
            }
            answer = self.link.requests.list(self.path.as_str());
            asking = next;
        }
    }

    /// Takes those who wait for the next listing. If there are none, or it is the last, this one makes room for another.
    fn next(&mut self, last: bool) -> Vec<Slot<Names>> {
        let mut listings = self.link.all_asked(self.tidy.is_some());
        let Some(asked) = listings.get_mut(&self.path) else {
            self.over = true;
            return Vec::new();
        };
        let mut next = std::mem::take(&mut asked.next);
        next.retain(|slot| !slot.is_abandoned());
        self.over = last || next.is_empty();
        if self.over {
            asked.under_way -= 1;
            if asked.under_way == 0 {
                listings.remove(&self.path);
            }
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
