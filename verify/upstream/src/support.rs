//! What the points share.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, SessionState};

pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The session timeout of those that wait for its end.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// A session timeout during which nothing else happens: the client's pings are seconds apart.
pub(crate) const UNHURRIED: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(30);

/// What a point has shown.
pub(crate) enum Outcome {
    StillSo,
    Gone,
}

impl Outcome {
    pub(crate) fn of(is_still_so: bool) -> Self {
        if is_still_so { Self::StillSo } else { Self::Gone }
    }
}

/// Runs a point on one thread: the client's task does not run before the point awaits something.
pub(crate) fn block_on(point: impl Future<Output = Result<Outcome>>) -> Result<Outcome> {
    Builder::new_current_thread().enable_all().build()?.block_on(soon(point))?
}

/// Waits for what must come.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> Result<T> {
    timeout(PATIENCE, future).await.map_err(|_| format!("not done after {PATIENCE:?}").into())
}

/// Connects with this session timeout.
pub(crate) async fn connect(hosts: &str, session_timeout: Duration) -> Result<Client> {
    Ok(Client::connector().with_session_timeout(session_timeout).connect(hosts).await?)
}

/// Creates a container for a point's nodes, which the server deletes some time after it is empty.
pub(crate) async fn create_folder(client: &Client, point: &str) -> Result<String> {
    let path = format!("/upstream-{point}-{:x}", client.session_id().0);
    client.create(&path, b"", &CreateMode::Container.with_acls(Acls::anyone_all())).await?;
    Ok(path)
}

/// Waits until the client has lost its connection, and has one again; returns its state then.
pub(crate) async fn reconnected(client: &Client, cut: impl FnOnce()) -> Result<SessionState> {
    let mut states = client.state_watcher();
    cut();
    loop {
        match soon(states.changed()).await? {
            SessionState::Disconnected => {}
            state => return Ok(state),
        }
    }
}

/// As [`reconnected`], where the session must go on.
pub(crate) async fn reattached(client: &Client, cut: impl FnOnce()) -> Result<()> {
    match reconnected(client, cut).await? {
        SessionState::SyncConnected => Ok(()),
        state => Err(format!("after a reconnect, the client is {state}").into()),
    }
}
