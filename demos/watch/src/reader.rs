//! Owns [`Reader`]: reads what is at a path, a lock or a folder, as `zklock ls` does.

use zookeeper_recipes::zookeeper_client::{Acls, Client, Error as ZkError};
use zookeeper_recipes::{Config, Contender, Error, Mutex, Semaphore, Session};

/// The child of a semaphore with its permits, and the one with its queue.
const OF_SEMAPHORE: [&str; 2] = ["leases", "locks"];

pub(crate) struct Reader {
    session: Session,
}

/// What is at a path.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) contenders: Vec<Contender>,
    /// The paths below it that are not part of its lock.
    pub(crate) below: Vec<String>,
    /// Whether the ACLs do not let us look.
    pub(crate) is_denied: bool,
    /// How many requests it took to look.
    pub(crate) requests: usize,
}

impl Reader {
    /// The epoch of tokens is that of `config`. No lock is created, so there is nothing to open to everybody: the ACLs are never used.
    pub(crate) fn new(session: &Session, config: &Config) -> Self {
        let options = config.lock_options().with_acls(Acls::creator_all());
        Self { session: session.clone().with_lock_options(options) }
    }

    pub(crate) async fn look(&self, path: &str) -> Result<Node, Error> {
        let list = |client: Client| async move { client.list_children(path).await };
        let names = match self.session.request(None, list).await? {
            Ok(names) => names,
            Err(ZkError::NoNode) => Vec::new(),
            Err(ZkError::NoAuth) => return Ok(Node { is_denied: true, requests: 1, ..Node::default() }),
            Err(source) => return Err(Error::Client { action: "list", path: path.to_owned(), source }),
        };
        let is_semaphore = names.iter().any(|name| name == OF_SEMAPHORE[0]);
        let is_part = |name: &str| {
            is_sequential(name)
                || is_semaphore && OF_SEMAPHORE.contains(&name)
                || path == "/" && name == "zookeeper"
        };
        let child = |name: &String| format!("{}/{name}", path.trim_end_matches('/'));
        let below = names.iter().filter(|name| !is_part(name)).map(child).collect();
        let mut node = Node { below, requests: 1, ..Node::default() };
        if path != "/" && names.iter().any(|name| is_sequential(name)) {
            node.add(1, async { Mutex::new(&self.session, path)?.contenders().await }.await)?;
        }
        if path != "/" && is_semaphore {
            node.add(2, async { self.semaphore(path)?.contenders().await }.await)?;
        }
        Ok(node)
    }

    /// Asks a contender of the lock at this path to release. `false` if it is gone.
    pub(crate) async fn revoke(&self, path: &str, contender: &Contender) -> Result<bool, Error> {
        // Those of a semaphore are in folders of its own.
        if contender.path() == path {
            Mutex::new(&self.session, path)?.revoke(contender).await
        } else {
            self.semaphore(path)?.revoke(contender).await
        }
    }

    /// As if it had permits for all: each that is taken is held.
    fn semaphore(&self, path: &str) -> Result<Semaphore, Error> {
        Semaphore::new(&self.session, path, u32::MAX)
    }
}

impl Node {
    /// Takes in the contenders of a queue, which took this many requests and one for each of them.
    fn add(&mut self, requests: usize, listed: Result<Vec<Contender>, Error>) -> Result<(), Error> {
        match listed {
            Ok(contenders) => {
                self.requests += requests + contenders.len();
                self.contenders.extend(contenders);
            }
            Err(Error::NoAuth { .. }) => {
                self.requests += requests;
                self.is_denied = true;
            }
            // No lock can be there: the path has characters that no lock path has.
            Err(Error::InvalidInput { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Whether a name ends with a number of the servers, as those of all contenders do.
fn is_sequential(name: &str) -> bool {
    let (bytes, digits) = (name.as_bytes(), 10);
    bytes.len() > digits && bytes[bytes.len() - digits..].iter().all(u8::is_ascii_digit)
}
