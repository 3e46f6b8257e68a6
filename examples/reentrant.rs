//! A ledger whose methods lock: `transfer` locks and calls `withdraw` and `deposit`. These lock again for the same owner,
//! without a request. So no audit sees money that has left one account and not reached the other.
//!
//! ```console
//! $ zk-docker/run cargo run --example reentrant
//! ```

mod common;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_recipes::{Owner, ReentrantMutex};

use common::{Result, ensure};

const TRANSFERS: usize = 10;
const SUM: i64 = 200;
const AMOUNT: i64 = 60;
const WRITING: Duration = Duration::from_millis(2);

#[derive(Clone)]
struct Ledger {
    /// The clerk that uses this handle.
    name: &'static str,
    lock: ReentrantMutex,
    /// The balances of accounts 0 and 1, shared by all clerks.
    pages: Arc<Mutex<[i64; 2]>>,
}

impl Ledger {
    async fn deposit(&self, clerk: &Owner, account: usize, amount: i64) -> Result<()> {
        let guard = self.lock.lock(clerk).await?;
        guard.run_until_lost(sleep(WRITING)).await?;
        self.pages()[account] += amount;
        Ok(guard.release().await?)
    }

    /// Returns whether the balance was sufficient.
    async fn withdraw(&self, clerk: &Owner, account: usize, amount: i64) -> Result<bool> {
        let guard = self.lock.lock(clerk).await?;
        let enough = self.pages()[account] >= amount;
        if enough {
            guard.run_until_lost(sleep(WRITING)).await?;
            self.pages()[account] -= amount;
        }
        guard.release().await?;
        Ok(enough)
    }

    async fn transfer(&self, clerk: &Owner, from: usize, to: usize, amount: i64) -> Result<bool> {
        let guard = self.lock.lock(clerk).await?;
        let enough = self.withdraw(clerk, from, amount).await?;
        if enough {
            self.deposit(clerk, to, amount).await?;
        }
        guard.release().await?;
        Ok(enough)
    }

    async fn sum(&self, clerk: &Owner) -> Result<i64> {
        let guard = self.lock.lock(clerk).await?;
        let mut sum = 0;
        for account in [0, 1] {
            guard.run_until_lost(sleep(WRITING)).await?;
            sum += self.pages()[account];
        }
        guard.release().await?;
        Ok(sum)
    }

    fn pages(&self) -> MutexGuard<'_, [i64; 2]> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let pages = Arc::default();
    let (mut sessions, mut ledgers) = (Vec::new(), Vec::new());
    for name in ["the auditor", "clerk 1", "clerk 2", "clerk 3"] {
        let session = common::session(name).await?;
        let lock = ReentrantMutex::new(&session, &common::path())?;
        ledgers.push(Ledger { name, lock, pages: Arc::clone(&pages) });
        sessions.push(session);
    }
    let (books, auditor) = (ledgers.remove(0), Owner::new());
    books.deposit(&auditor, 0, SUM).await?;
    let mut clerks: JoinSet<_> = ledgers.into_iter().map(work).collect();
    let mut audits = Vec::new();
    while !clerks.is_empty() {
        audits.push(books.sum(&auditor).await?);
        while let Some(clerk) = clerks.try_join_next() {
            clerk??;
        }
    }
    println!("{} audits meanwhile; final balances {:?}", audits.len(), books.pages());
    ensure(audits.iter().all(|sum| *sum == SUM), "an audit found money missing, or too much")?;

    let outer = books.lock.lock(&auditor).await?;
    let inner = books.lock.lock(&auditor).await?;
    let (token, again) = (outer.fencing_token(), inner.fencing_token());
    println!("locked twice, with the tokens {token} and {again}");
    ensure(token == again, "the owner was granted two locks")?;
    inner.release().await?;
    outer.release().await?;
    common::close(&sessions).await
}

async fn work(ledger: Ledger) -> Result<()> {
    let (clerk, mut done) = (Owner::new(), 0);
    for _ in 0..TRANSFERS {
        let from = fastrand::usize(..2);
        done += usize::from(ledger.transfer(&clerk, from, 1 - from, AMOUNT).await?);
    }
    let not = TRANSFERS - done;
    println!("{} made {done} transfers; the balance was too low for {not}", ledger.name);
    Ok(())
}
