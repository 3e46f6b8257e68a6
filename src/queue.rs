//! Owns the queue: enter it, wait for admission, come out with a [`Hold`].
//!
//! 1. One acquisition is one node. Its place is owned by a value with `Drop` before the create is sent, so the future
//!    may be dropped anywhere.
//! 2. A waiter watches one node, the nearest that excludes it, with one watch.
//! 3. When the session ends, the waiter queues again, at the tail, in the renewed one.
//! 4. A hold whose trust has passed is never returned.

mod admission;
mod line;
mod name;
mod place;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::Result;
use crate::hold::Hold;
use crate::queue::admission::contenders;
use crate::queue::place::{Outlook, Place};
use crate::session::Link;

pub(crate) use self::line::{Interrupt, Line};
pub(crate) use self::name::{Kind, Name, Ranked};

impl Line {
    /// Queues and waits for admission, for as long as it takes.
    #[tracing::instrument(level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn hold(&self) -> Result<Hold> {
        self.queue(&AtomicBool::new(false)).await
    }

    /// Queues and waits for admission; `None` if somebody was ahead of us to the end of the time limit.
    #[tracing::instrument(level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn try_hold_for(&self, limit: Duration) -> Result<Option<Hold>> {
        if limit.is_zero() {
            return self.try_hold().await;
        }
        let ahead = AtomicBool::new(false);
        match tokio::time::timeout(limit, self.queue(&ahead)).await {
            Ok(hold) => hold.map(Some),
            Err(_) if ahead.load(Ordering::Relaxed) => Ok(None),
            Err(_) => Err(self.session.unavailable(limit)),
        }
    }

    /// Takes the lock if nobody is ahead of us.
    #[tracing::instrument(level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn try_hold(&self) -> Result<Option<Hold>> {
        self.within(async {
            loop {
                let link = self.session.link().await?;
                if let Some(hold) = self.attempt(&link, self.try_once(&link)).await? {
                    return Ok(hold);
                }
            }
        })
        .await
    }

    async fn queue(&self, ahead: &AtomicBool) -> Result<Hold> {
        loop {
            let link = self.session.link().await?;
            if let Some(hold) = self.attempt(&link, self.queue_once(&link, ahead)).await? {
                return Ok(hold);
            }
        }
    }

    async fn queue_once(&self, link: &Arc<Link>, ahead: &AtomicBool) -> Result<Hold, Interrupt> {
        let mut place = Place::new(link, self)?;
        let mut outlook = place.enter().await?;
        while let Outlook::Behind(node) = outlook {
            ahead.store(true, Ordering::Relaxed);
            tracing::debug!(behind = node, "waiting");
            place.wait_behind(&node).await?;
            outlook = place.look().await?;
        }
        self.admitted(place, link).await
    }

    async fn try_once(&self, link: &Arc<Link>) -> Result<Option<Hold>, Interrupt> {
        // Whoever is there came before us, so nothing need be written to know that.
        if self.is_blocked(link).await? {
            return Ok(None);
        }
        let mut place = Place::new(link, self)?;
        match place.enter().await? {
            Outlook::Behind(_) => Ok(None),
            Outlook::Admitted => self.admitted(place, link).await.map(Some),
        }
    }

    async fn is_blocked(&self, link: &Arc<Link>) -> Result<bool, Interrupt> {
        let mut names = self.list(link).await?;
        self.clear_strays(link, &mut names);
        Ok(contenders(&names).any(|other| self.kind.waits_for(other.kind)))
    }

    /// Turns an admitted place into a hold, as soon as the session is trusted.
    async fn admitted(&self, place: Place<'_>, link: &Arc<Link>) -> Result<Hold, Interrupt> {
        let interest = link.interest(self.options.trust());
        link.trusted(self.options.trust()).await?;
        let hold = Hold::new(&self.session, &self.path, vec![place.into_stake()], self.options.trust(), interest);
        tracing::debug!(node = hold.nodes()[0], token = %hold.fencing_token(), "held");
        Ok(hold)
    }
}
