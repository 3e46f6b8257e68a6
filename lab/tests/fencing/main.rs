//! `docs/fencing.md` on real servers: `lab/run --fencing`, which installs what is missing.

mod concurrent;
mod counts;
mod etcd_store;
mod failover;
mod objects;
mod page;
mod redis_store;
mod stores;
mod tokens;
mod wire;

use std::sync::Arc;

use lab::Outcome;
use zookeeper_recipes::FencingToken;

use crate::stores::Database;
use crate::tokens::Tokens;

/// Runs tests on a store. `lab/run --fencing` leaves stores out by the names of their modules.
macro_rules! on {
    ($store:ident, $start:path: $($test:ident),* $(,)?) => {
        mod $store {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
            async fn $test() -> lab::Outcome {
                crate::$test($start().await?).await
            }
        )*}
    };
}

/// Runs all tests on each store.
macro_rules! on_each {
    ($($store:ident, $start:path;)*) => {$(
        on! {
            $store, $start:
            late_writer_is_refused,
            read_shuts_out_earlier_holders,
            holder_writes_the_same_value_again,
            tokens_are_compared_to_the_last_bit,
            raised_epoch_is_accepted_after_the_data_was_wiped,
            concurrent_first_writes_leave_the_largest_token,
            no_writer_overwrites_a_larger_token,
        }
    )*};
}

on_each! {
    sqlite, crate::stores::Sqlite::start;
    postgresql, crate::stores::Postgres::start;
    mariadb, crate::stores::Maria::start;
    redis, crate::redis_store::Redis::start;
    etcd, crate::etcd_store::Etcd::start;
    object_store, crate::objects::InMemory::start;
}

mod sql {
    on! { sqlite, crate::stores::Sqlite::start: update_of_a_missing_row_is_not_accepted }
    on! { postgresql, crate::stores::Postgres::start: update_of_a_missing_row_is_not_accepted }
    on! { mariadb, crate::stores::Maria::start: update_of_a_missing_row_is_not_accepted }
}

use crate::concurrent::{concurrent_first_writes_leave_the_largest_token, no_writer_overwrites_a_larger_token};

const ID: i64 = 7;

async fn late_writer_is_refused(database: Arc<dyn Database>) -> Outcome {
    let Tokens { first, second, .. } = Tokens::of_holds().await?;
    let (mut one, mut other) = (database.connect().await?, database.connect().await?);
    assert!(one.write(ID, 1, first).await?, "the first write");
    assert!(other.write(ID, 2, second).await?);
    assert!(!one.write(ID, 3, first).await?);
    assert!(!one.update(ID, 3, first).await?);
    assert_eq!(one.read(ID, first).await?, None);
    assert_eq!(one.row(ID).await?, Some((2, second.get())));
    assert!(other.update(ID, 4, second).await?, "the refused writer has changed nothing");
    assert_eq!(other.row(ID).await?, Some((4, second.get())));
    Ok(())
}

async fn read_shuts_out_earlier_holders(database: Arc<dyn Database>) -> Outcome {
    let Tokens { first, second, .. } = Tokens::of_holds().await?;
    let mut store = database.connect().await?;
    assert_eq!(store.read(ID, second).await?, Some(0), "of a row that was missing");
    assert!(!store.write(ID, 1, first).await?);
    assert!(store.write(ID, 2, second).await?);
    assert_eq!(store.read(ID, second).await?, Some(2));
    Ok(())
}

async fn holder_writes_the_same_value_again(database: Arc<dyn Database>) -> Outcome {
    let Tokens { first, .. } = Tokens::of_holds().await?;
    let mut store = database.connect().await?;
    for time in 0..3 {
        assert!(store.write(ID, 1, first).await?, "write {time}");
        assert!(store.update(ID, 1, first).await?, "update {time}");
        assert_eq!(store.read(ID, first).await?, Some(1), "read {time}");
    }
    Ok(())
}

/// A number with 53 bits is the same for each of these.
async fn tokens_are_compared_to_the_last_bit(database: Arc<dyn Database>) -> Outcome {
    let mut store = database.connect().await?;
    for (id, largest) in [(ID, (1 << 55) + 8), (ID + 1, i64::MAX)] {
        let [before, largest] = [largest - 1, largest].map(FencingToken::try_from);
        let (before, largest) = (before?, largest?);
        assert!(store.write(id, 1, before).await?, "{before}");
        assert!(store.write(id, 2, largest).await?, "{largest} after {before}");
        assert!(!store.write(id, 3, before).await?, "{before} after {largest}");
        assert_eq!(store.read(id, before).await?, None, "{before} after {largest}");
        assert_eq!(store.row(id).await?, Some((2, largest.get())));
    }
    // One with fewer digits is smaller.
    let short = FencingToken::try_from(9_i64)?;
    assert!(store.write(ID + 2, 1, FencingToken::try_from(10_i64)?).await?);
    assert!(!store.write(ID + 2, 2, short).await?);
    Ok(())
}

async fn update_of_a_missing_row_is_not_accepted(database: Arc<dyn Database>) -> Outcome {
    let Tokens { first, .. } = Tokens::of_holds().await?;
    let mut store = database.connect().await?;
    assert!(!store.update(ID, 1, first).await?);
    assert_eq!(store.row(ID).await?, None);
    Ok(())
}

async fn raised_epoch_is_accepted_after_the_data_was_wiped(database: Arc<dyn Database>) -> Outcome {
    let mut store = database.connect().await?;
    assert_eq!(store.epoch().await?, 0, "of an empty table");
    let Tokens { second, mut wiped, .. } = Tokens::of_holds().await?;
    assert!(store.write(ID, 1, second).await?);
    assert!(!store.write(ID, 2, wiped.token(0).await?).await?, "tokens start over");
    for epoch in [1, 2, u8::MAX] {
        assert!(store.epoch().await? < epoch);
        let raised = wiped.token(epoch).await?;
        assert!(store.write(ID, i64::from(epoch), raised).await?);
        assert_eq!(store.epoch().await?, epoch);
        assert!(!store.write(ID, 3, second).await?, "a holder from before");
        wiped.again().await?;
    }
    assert_eq!(store.row(ID).await?.ok_or("no row")?.0, i64::from(u8::MAX));
    Ok(())
}
