//! A transfer locks both accounts at once, in any order and without deadlock. The accounts refuse old tokens.
//!
//! ```console
//! $ zk-docker/run cargo run --example transfer
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use zookeeper_recipes::{FencingToken, MultiLock, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// By name: the balance, and the token of the last writer.
type Accounts = Arc<Mutex<HashMap<&'static str, (i64, Option<FencingToken>)>>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let names = ["alice", "bob", "carol"];
    let accounts = Accounts::new(Mutex::new(names.map(|name| (name, (100, None))).into()));
    let session = Session::connect(&hosts).await?;
    let mut transfers = JoinSet::new();
    for round in 0..30 {
        let (from, to) = (names[round % 3], names[(round + 1 + round % 2) % 3]);
        transfers.spawn(transfer(session.clone(), accounts.clone(), from, to));
    }
    transfers.join_all().await.into_iter().collect::<Result<()>>()?;
    let balances = accounts.lock().map_err(|_| "a transfer has panicked")?.clone();
    println!("{balances:?}, in all {}", balances.values().map(|(balance, _)| balance).sum::<i64>());
    Ok(session.close().await?)
}

async fn transfer(session: Session, accounts: Accounts, from: &'static str, to: &'static str) -> Result<()> {
    let locks = MultiLock::new(&session, [from, to].map(|name| format!("/examples/accounts/{name}")))?;
    let guard = locks.lock().await?;
    for (name, amount) in [(from, -10), (to, 10)] {
        // A holder that was paused for longer than its session comes here with an old token.
        let mut accounts = accounts.lock().map_err(|_| "a transfer has panicked")?;
        let (balance, newest) = accounts.get_mut(name).ok_or("no such account")?;
        if *newest > Some(guard.fencing_token()) {
            return Err("the token is too old".into());
        }
        (*balance, *newest) = (*balance + amount, Some(guard.fencing_token()));
    }
    Ok(())
}
