//! Money moves between accounts, each with its own lock. A transfer acquires both locks at once, so transfers cannot
//! deadlock. The bank refuses tokens older than the newest that it has seen.
//!
//! ```console
//! $ zk-docker/run cargo run --example transfer
//! ```

mod common;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_recipes::{FencingToken, MultiLock, Options, Session};

use common::{Result, ensure};

const ACCOUNTS: usize = 5;
const BALANCE: i64 = 100;
const SESSIONS: usize = 3;
const TASKS: usize = 12;
const TRANSFERS: usize = 5;
const THINKING: Duration = Duration::from_millis(5);

/// The bank: the balance of each account, and the newest token that it has seen for it.
struct Bank(Mutex<[(i64, Option<FencingToken>); ACCOUNTS]>);

impl Bank {
    fn read(&self, accounts: [usize; 2], token: FencingToken) -> Result<[i64; 2]> {
        self.visit(accounts, token, |balances| balances.map(|balance| *balance))
    }

    fn write(&self, accounts: [usize; 2], balances: [i64; 2], token: FencingToken) -> Result<()> {
        self.visit(accounts, token, |[first, second]| [*first, *second] = balances)
    }

    fn visit<T>(
        &self,
        pair: [usize; 2],
        token: FencingToken,
        visit: impl FnOnce([&mut i64; 2]) -> T,
    ) -> Result<T> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = accounts.get_disjoint_mut(pair)?;
        let newest = first.1.max(second.1);
        if let Some(newest) = newest.filter(|newest| token < *newest) {
            return Err(format!("token {token} is older than {newest}").into());
        }
        (first.1, second.1) = (Some(token), Some(token));
        Ok(visit([&mut first.0, &mut second.0]))
    }

    fn balances(&self) -> [i64; ACCOUNTS] {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|(balance, _)| balance)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let bank = Arc::new(Bank(Mutex::new([(BALANCE, None); ACCOUNTS])));
    let mut sessions = Vec::new();
    for teller in 0..SESSIONS {
        sessions.push(common::session(&format!("teller {teller}")).await?);
    }
    println!("before  {:?}", bank.balances());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (session, bank) = (sessions[task % SESSIONS].clone(), bank.clone());
        tasks.spawn(async move {
            for _ in 0..TRANSFERS {
                let from = fastrand::usize(..ACCOUNTS);
                let to = (from + fastrand::usize(1..ACCOUNTS)) % ACCOUNTS;
                transfer(&session, &bank, [from, to], fastrand::i64(1..50)).await?;
            }
            Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect::<Result<()>>()?;
    println!("after   {:?}, {} transfers, no deadlock", bank.balances(), TASKS * TRANSFERS);

    let refused = write_late(&sessions, &bank).await?;
    println!("late    {refused}");
    let sum: i64 = bank.balances().iter().sum();
    println!("sum     {sum}");
    ensure(sum == BALANCE * ACCOUNTS as i64, "the sum has changed")?;
    common::close(&sessions).await
}

fn lock_paths(accounts: [usize; 2]) -> [String; 2] {
    accounts.map(|account| format!("{}/{account}", common::path()))
}

async fn transfer(session: &Session, bank: &Bank, accounts: [usize; 2], amount: i64) -> Result<()> {
    let guard = MultiLock::new(session, lock_paths(accounts))?.lock().await?;
    let token = guard.fencing_token();
    let [from, to] = bank.read(accounts, token)?;
    let amount = amount.min(from);
    guard.run_until_lost(sleep(THINKING)).await?;
    bank.write(accounts, [from - amount, to + amount], token)?;
    Ok(guard.release().await?)
}

/// Writes after the hold reached its time limit and another transfer was made; returns the bank's error.
async fn write_late(sessions: &[Session], bank: &Bank) -> Result<String> {
    let [one, other] = lock_paths([0, 1]);
    let options = Options::new().with_max_hold(THINKING);
    let locks = MultiLock::builder(&sessions[0]).lock(&one).lock(&other).with_options(options).build()?;
    let guard = locks.lock().await?;
    let [from, to] = bank.read([0, 1], guard.fencing_token())?;
    transfer(&sessions[1], bank, [1, 0], 1).await?;
    match bank.write([0, 1], [from - 1, to + 1], guard.fencing_token()) {
        Ok(()) => Err("the bank accepted an old token".into()),
        Err(refused) => Ok(refused.to_string()),
    }
}
