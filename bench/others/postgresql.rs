//! PostgreSQL's advisory lock, held by a connection.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lab::servers::Setup;
use lab::servers::postgresql::PostgreSql;
use tokio_postgres::Statement;

use crate::Outcome;
use crate::contender::{Client, Contender, Server};

pub(crate) async fn start() -> Outcome<Contender> {
    let server = PostgreSql::start(&Setup::default()).await?;
    let client = server.connect().await?;
    let show = async |name| Outcome::<String>::Ok(client.query_one(&format!("SHOW {name}"), &[]).await?.get(0));
    let (fsync, commit) = (show("fsync").await?, show("synchronous_commit").await?);
    Ok(Contender {
        name: "PostgreSQL's advisory lock",
        version: show("server_version").await?,
        durability: format!(
            "a lock is never on the disk (fsync {fsync} and synchronous_commit {commit} are for data)"
        ),
        not_promised: "it ends with its connection, which its holder notices only at the next statement; no token lets a \
                       resource notice; a replica does not have it, so a failover can grant it twice",
        server: Box::new(server),
        clients: Vec::new(),
    })
}

impl Server for PostgreSql {
    fn connect(&self, number: usize) -> BoxFuture<'_, Outcome<Box<dyn Client>>> {
        async move {
            let client = self.connect().await?;
            let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
            let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
            let client: Box<dyn Client> = Box::new(Lock { client, key: i64::try_from(number)?, lock, unlock });
            Ok(client)
        }
        .boxed()
    }
}

struct Lock {
    client: tokio_postgres::Client,
    key: i64,
    lock: Statement,
    unlock: Statement,
}

impl Client for Lock {
    fn cycle(&mut self) -> BoxFuture<'_, Outcome> {
        async {
            self.client.query_one(&self.lock, &[&self.key]).await?;
            let was_held: bool = self.client.query_one(&self.unlock, &[&self.key]).await?.get(0);
            if was_held { Ok(()) } else { Err("the lock has ended".into()) }
        }
        .boxed()
    }
}
