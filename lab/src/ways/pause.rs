//! The gap between two commands that should have been one.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// What happens between the two commands: nothing, or a pause in which the laboratory kills the process.
#[derive(Clone, Default)]
pub struct Pause(Option<Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>>);

impl Pause {
    /// Waits for this in the gap.
    pub(crate) fn at(hook: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Called in the gap.
    pub(crate) async fn here(&self) {
        self.0.as_ref().map_or_else(|| std::future::ready(()).boxed(), |hook| hook()).await;
    }
}

impl Debug for Pause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pause").field(&self.0.is_some()).finish()
    }
}
