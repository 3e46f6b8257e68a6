//! What the page has about a store that fails over: a replica that lags has forgotten the largest token.

use std::time::Duration;

use lab::Outcome;
use lab::servers::redis::Redis;
use lab::servers::{Server, Setup};
use testbed::Wire;
use tokio::time::interval;

use crate::ID;
use crate::stores::Store;
use crate::tokens::Tokens;

#[tokio::test(flavor = "multi_thread")]
async fn replica_of_redis_that_lags_accepts_a_token_that_the_primary_refused() -> Outcome {
    let Tokens { first, second, .. } = Tokens::of_holds().await?;
    let mut primary = Redis::start(&Setup::default()).await?;
    let mut replica = Redis::start(&Setup::default()).await?;
    let between = Wire::to(primary.address()).await?;
    replica.follow(between.address()).await?;
    let (mut before, mut after) = (primary.connect().await?, replica.connect().await?);
    assert!(before.write(ID, 1, first).await?);
    let mut beat = interval(Duration::from_millis(10));
    while after.row(ID).await?.is_none() {
        beat.tick().await;
    }
    between.hold();
    assert!(before.write(ID, 2, second).await?);
    assert!(!before.write(ID, 3, first).await?, "the primary knows the later holder");
    primary.kill();
    replica.promote().await?;
    assert_eq!(after.row(ID).await?, Some((1, first.get())), "its write is lost with its token");
    assert!(after.write(ID, 3, first).await?, "the replica has not heard of the later holder");
    assert!(after.write(ID, 4, second).await?, "which is known once it writes again");
    assert!(!after.write(ID, 5, first).await?);
    Ok(())
}
