//! A lock on Redis: a key with a time to live, set only if it is missing, and deleted by a script if it is still ours.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lab::servers::{Server as _, Setup};
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::Outcome;
use crate::contender::{Client, Contender, Server};

const TIME_TO_LIVE: u32 = 30_000;
const UNLOCK: &str = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

pub(crate) async fn start() -> Outcome<Contender> {
    let server = lab::servers::redis::Redis::start(&Setup::default()).await?;
    let mut connection = server.connect().await?;
    let [save, append] = ["save", "appendonly"].map(|name| redis::cmd("CONFIG").arg("GET").arg(name).to_owned());
    let (_, save): (String, String) = save.query_async(&mut connection).await?;
    let (_, append): (String, String) = append.query_async(&mut connection).await?;
    Ok(Contender {
        name: "SET NX PX, on Redis",
        version: server.version().to_owned(),
        durability: format!("a lock is in memory only when it is answered (save \"{save}\", appendonly {append})"),
        not_promised: "it ends after its time to live while its holder still works, and no token lets a resource \
                       notice; replicas get it later, so a failover can grant it twice; waiters poll, in no order",
        server: Box::new(server),
        clients: Vec::new(),
    })
}

impl Server for lab::servers::redis::Redis {
    fn connect(&self, number: usize) -> BoxFuture<'_, Outcome<Box<dyn Client>>> {
        async move {
            let connection = self.connect().await?;
            let key = format!("others-{number}");
            let client: Box<dyn Client> = Box::new(Lock { connection, key, unlock: Script::new(UNLOCK) });
            Ok(client)
        }
        .boxed()
    }
}

struct Lock {
    connection: MultiplexedConnection,
    key: String,
    unlock: Script,
}

impl Client for Lock {
    fn cycle(&mut self) -> BoxFuture<'_, Outcome> {
        async {
            let Self { connection, key, unlock } = self;
            let owner = format!("{:032x}", fastrand::u128(..));
            let mut set = redis::cmd("SET");
            set.arg(&*key).arg(&owner).arg("NX").arg("PX").arg(TIME_TO_LIVE);
            let answer: Option<String> = set.query_async(connection).await?;
            answer.ok_or("somebody else has the lock")?;
            let deleted: u32 = unlock.key(&*key).arg(&owner).invoke_async(connection).await?;
            if deleted == 1 { Ok(()) } else { Err("the lock has ended".into()) }
        }
        .boxed()
    }
}
