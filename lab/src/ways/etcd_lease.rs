//! etcd's own lock: a key under a lease, created if absent; a contender waits for the deletion of its predecessor. The
//! server does both in its lock service. The key's creation revision is a token.
//!
//! Source: etcd's documentation of `concurrency.Mutex` and of its lock service. It promises the order of arrival, and
//! that a crashed holder blocks the others for one lease only. A holder learns of the end of its lease late, and
//! exclusion at a resource needs the revision there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use prost::Message;
use tokio::task::AbortHandle;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, Pause, Place};
use crate::Outcome;
use crate::servers::etcd::{call, connect as open, lease};

struct Lease {
    channel: Channel,
    name: String,
    id: i64,
    began: Instant,
    /// When the last keep-alive was answered, in milliseconds since then.
    answered: Arc<AtomicU64>,
    keeper: AbortHandle,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Connects a contender, which has a lease for all its locks.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let channel = open(place.address()?).await?;
        let id = lease(&channel, i64::try_from(LEASE.as_secs())?).await?;
        let (began, answered) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let keeper = keep(channel.clone(), id, began, answered.clone());
        let lock = Lease { channel, name: place.lock, id, began, answered, keeper };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

/// Keeps the lease alive until the connection ends.
fn keep(channel: Channel, id: i64, began: Instant, answered: Arc<AtomicU64>) -> AbortHandle {
    let job = async move {
        let requests = stream::unfold(true, move |is_first| async move {
            if !is_first {
                tokio::time::sleep(LEASE / 3).await;
            }
            Some((KeepAlive { id, ttl: 0 }, false))
        });
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<KeepAlive, KeepAliveAnswer>::default();
        let mut answers = client.streaming(tonic::Request::new(requests), path, codec).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            if answer.ttl <= 0 {
                break;
            }
            answered.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        Outcome::Ok(())
    };
    // Its end shows as answers that do not come.
    tokio::spawn(async move { drop(job.await) }).abort_handle()
}

#[async_trait]
impl Recipe for Lease {
    async fn acquire(&self) -> Outcome<Grant> {
        let request = LockRequest { name: self.name.clone().into_bytes(), lease: self.id };
        let LockResponse { key } = call(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
        let request = RangeRequest { key: key.clone() };
        let RangeResponse { kvs } = call(&self.channel, "/etcdserverpb.KV/Range", request).await?;
        let token = kvs.first().ok_or("the key is gone already")?.create_revision;
        let channel = self.channel.clone();
        let grant = Grant::new(async move {
            let UnlockResponse {} = call(&channel, "/v3lockpb.Lock/Unlock", UnlockRequest { key }).await?;
            Ok(())
        });
        let (began, answered) = (self.began, self.answered.clone());
        let is_alive = move || began.elapsed() < Duration::from_millis(answered.load(Ordering::Relaxed)) + LEASE;
        Ok(grant.with_token(token).held_while(is_alive))
    }
}

#[derive(Clone, PartialEq, Message)]
struct KeepAlive {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct KeepAliveAnswer {
    #[prost(int64, tag = "3")]
    ttl: i64,
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
struct RangeRequest {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(int64, tag = "2")]
    create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockResponse {}
