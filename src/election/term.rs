//! Owns [`Term`], a view of the leadership that [`Election::run`](crate::Election::run) hands out, and [`CurrentTerm`].

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use zookeeper_client::{CheckWriter, Client};

use crate::error::{Loss, Result};
use crate::hold::{HoldMonitor, HoldState};
use crate::locked::locked;

/// One term of a leader: a [monitor](HoldMonitor) of the leadership that [`Election::run`](crate::Election::run) keeps.
///
/// A `Term` does not keep the leadership, so you may drop it or keep it. To resign, let the future of the term return. To
/// end in an orderly way on request, await [`revoke_requested`](HoldMonitor::revoke_requested). It resolves when an
/// operator revokes the leadership, the session is [drained](crate::Session::drain), or the `stop` of
/// [`run_until`](crate::Election::run_until) resolves.
#[derive(Clone)]
pub struct Term {
    monitor: HoldMonitor,
    /// The node of the leadership and the client, for [`Term::check_writer`], which borrows them.
    writes: OnceLock<(String, Arc<Client>)>,
}

impl Term {
    pub(crate) fn new(monitor: HoldMonitor) -> Self {
        Self { monitor, writes: OnceLock::new() }
    }

    /// Shows observers `data` instead of the identifier. See
    /// [`Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Cancel safety
    ///
    /// After dropping the future, `data` may have been written or not.
    ///
    /// # Errors
    ///
    /// As [`Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(term: zookeeper_recipes::Term) -> Result<(), zookeeper_recipes::Error> {
    /// term.proclaim("10.0.0.7:8080").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        self.monitor.proclaim(data.into()).await
    }

    /// Begins a transaction that succeeds only while the node of the leadership exists. See
    /// [`Hold::check_writer`](crate::Hold::check_writer).
    ///
    /// `commit` fails with `CheckFailed` when the leadership is gone. From the first call on, this `Term` keeps the client
    /// until the `Term` is dropped, and so do clones that are made later.
    ///
    /// # Errors
    ///
    /// The end of the leadership, lost or resigned, if it has ended already.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(term: zookeeper_recipes::Term) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut writer = term.check_writer()?;
    /// writer.add_set_data("/shards/7/owner", b"10.0.0.7:8080", None)?;
    /// writer.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_writer(&self) -> Result<CheckWriter<'_>, HoldState> {
        if let Some(ended) = self.state().end() {
            return Err(ended);
        }
        let (node, client) = match self.writes.get() {
            Some(known) => known,
            None => {
                let present = self.monitor.writes().ok_or(HoldState::Lost(Loss::Closed))?;
                self.writes.get_or_init(|| present)
            }
        };
        Ok(client.new_check_writer(node, None).expect("the path of a node is valid"))
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("monitor", &self.monitor).finish_non_exhaustive()
    }
}

impl Deref for Term {
    type Target = HoldMonitor;

    fn deref(&self) -> &HoldMonitor {
        &self.monitor
    }
}

/// The latest term, which an election and its clones share.
#[derive(Clone, Default)]
pub(crate) struct CurrentTerm(Arc<Mutex<Option<HoldMonitor>>>);

impl CurrentTerm {
    pub(crate) fn begin(&self, term: HoldMonitor) {
        let before = locked(&self.0).replace(term);
        // Dropping the old term may end its span, which runs the user's code. So the mutex is unlocked before.
        drop(before);
    }

    /// Returns a view of the term, unless the term has ended.
    pub(crate) fn monitor(&self) -> Option<HoldMonitor> {
        let term = locked(&self.0).clone();
        term.filter(|term| !term.state().has_ended())
    }
}
