//! When the runtime of a session is dropped, its client goes on reporting that it is connected.

use std::panic;

use futures_util::FutureExt;
use tokio::runtime::Runtime;
use zookeeper_client::SessionState;

use crate::support::{Outcome, Result, UNHURRIED, block_on, connect};

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    let runtime = Runtime::new()?;
    let (client, watcher) = runtime.block_on(async {
        let client = connect(hosts, UNHURRIED).await?;
        let (_, _, watcher) = client.get_and_watch_data("/").await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((client, watcher))
    })?;
    let mut states = client.state_watcher();
    drop(runtime);
    println!("the runtime of the session is dropped");

    block_on(async move {
        let state = client.state();
        println!("state(): {state}");
        println!("StateWatcher::changed(): {:?}", states.changed().now_or_never());
        println!("a request: {:?}", client.check_stat("/").await.err());
        panic::set_hook(Box::new(|_| ()));
        let has_panicked = tokio::spawn(watcher.changed()).await.is_err();
        println!("OneshotWatcher::changed(): {}", if has_panicked { "panics" } else { "returns" });
        Ok(Outcome::of(state == SessionState::SyncConnected || has_panicked))
    })
}
