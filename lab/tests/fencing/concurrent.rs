//! Many writers of one row at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lab::Outcome;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use zookeeper_recipes::FencingToken;

use crate::ID;
use crate::stores::{Database, Store};

const WRITERS: i64 = 8;
const ROUNDS: i64 = 50;

pub(crate) async fn concurrent_first_writes_leave_the_largest_token(database: Arc<dyn Database>) -> Outcome {
    let barrier = Arc::new(Barrier::new(WRITERS as usize));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (mut store, barrier) = (database.connect().await?, barrier.clone());
        writers.spawn(async move {
            for id in 0..ROUNDS {
                // Each is the largest in its turn.
                let token = 1 + (writer + id) % WRITERS;
                barrier.wait().await;
                write(&mut *store, id, token).await?;
            }
            Ok(())
        });
    }
    writers.join_all().await.into_iter().collect::<Outcome<Vec<()>>>()?;
    let mut store = database.connect().await?;
    for id in 0..ROUNDS {
        assert_eq!(store.row(id).await?, Some((WRITERS, WRITERS)), "row {id}");
    }
    Ok(())
}

pub(crate) async fn no_writer_overwrites_a_larger_token(database: Arc<dyn Database>) -> Outcome {
    let (sent, acknowledged) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let mut random = fastrand::Rng::with_seed(writer as u64);
        let mut store = database.connect().await?;
        let (sent, acknowledged) = (sent.clone(), acknowledged.clone());
        writers.spawn(async move {
            for _ in 0..ROUNDS {
                let before = acknowledged.load(Ordering::SeqCst);
                // Some are larger than all before, some are late.
                let token = (before + random.i64(-3..4)).max(1);
                sent.fetch_max(token, Ordering::SeqCst);
                if write(&mut *store, ID, token).await? {
                    assert!(token >= before, "{token} was accepted after {before}");
                    acknowledged.fetch_max(token, Ordering::SeqCst);
                } else {
                    let largest = sent.load(Ordering::SeqCst);
                    assert!(token < largest, "{token} was refused, and {largest} was the largest");
                }
            }
            Ok(())
        });
    }
    writers.join_all().await.into_iter().collect::<Outcome<Vec<()>>>()?;
    let largest = sent.load(Ordering::SeqCst);
    assert_eq!(acknowledged.load(Ordering::SeqCst), largest, "the largest is accepted");
    assert_eq!(database.connect().await?.row(ID).await?, Some((largest, largest)));
    Ok(())
}

/// Writes the token as the balance, so that a row shows whether both are of one writer.
async fn write(store: &mut dyn Store, id: i64, token: i64) -> Outcome<bool> {
    loop {
        match store.write(id, token, FencingToken::try_from(token)?).await {
            // As the page has it: a deadlock, or a record that has changed. Either has written nothing.
            Err(error) if matches!(code(&*error), Some(1213 | 1020)) => {}
            written => return written,
        }
    }
}

fn code(error: &(dyn std::error::Error + 'static)) -> Option<u16> {
    match error.downcast_ref()? {
        mysql_async::Error::Server(error) => Some(error.code),
        _ => None,
    }
}
