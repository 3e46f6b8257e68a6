//! etcd's own lock, by the requests of its lock service. etcd's client crate sends the same, but needs `protoc` to be
//! built; so the few messages are written out here.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lab::servers::etcd::{Etcd, call, connect, lease};
use lab::servers::{Server as _, Setup};
use prost::Message;
use tonic::transport::Channel;

use crate::Outcome;
use crate::contender::{Client, Contender, Server};

/// Of a client's lease, in seconds: longer than the benchmark, so that no keep-alive comes in between.
const TIME_TO_LIVE: i64 = 3_600;

pub(crate) async fn start() -> Outcome<Contender> {
    let server = Etcd::start(&Setup::default()).await?;
    Ok(Contender {
        name: "etcd's lock",
        version: server.version().to_owned(),
        durability: "each lock and release is on the disk before its answer".to_owned(),
        not_promised: "its holder gets no report that the lease has expired: it must watch the lease itself, and pass \
                       the key's revision to the resource as a token",
        server: Box::new(server),
        clients: Vec::new(),
    })
}

impl Server for Etcd {
    fn connect(&self, number: usize) -> BoxFuture<'_, Outcome<Box<dyn Client>>> {
        async move {
            let channel = connect(self.address()).await?;
            let lease = lease(&channel, TIME_TO_LIVE).await?;
            let client: Box<dyn Client> = Box::new(Lock { channel, lease, name: format!("others-{number}") });
            Ok(client)
        }
        .boxed()
    }
}

struct Lock {
    channel: Channel,
    lease: i64,
    name: String,
}

impl Client for Lock {
    fn cycle(&mut self) -> BoxFuture<'_, Outcome> {
        async {
            let request = LockRequest { name: self.name.clone().into_bytes(), lease: self.lease };
            let LockResponse { key } = call(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
            let UnlockResponse {} = call(&self.channel, "/v3lockpb.Lock/Unlock", UnlockRequest { key }).await?;
            Ok(())
        }
        .boxed()
    }
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes, tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes, tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockResponse {}
