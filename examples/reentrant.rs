//! Methods that lock call methods that lock: the owner of the lock may lock it again.
//!
//! ```console
//! $ zk-docker/run cargo run --example reentrant
//! ```

use zookeeper_recipes::{Error, Owner, ReentrantMutex, Session};

/// A ledger of two accounts, shared by the clerks of a bank.
struct Ledger {
    lock: ReentrantMutex,
}

impl Ledger {
    async fn deposit(&self, clerk: &Owner, account: &str) -> Result<(), Error> {
        let guard = self.lock.lock(clerk).await?;
        println!("deposit to {account}, with token {}", guard.fencing_token());
        Ok(())
    }

    async fn withdraw(&self, clerk: &Owner, account: &str) -> Result<(), Error> {
        let guard = self.lock.lock(clerk).await?;
        println!("withdraw from {account}, with token {}", guard.fencing_token());
        Ok(())
    }

    /// Both or neither is seen by the other clerks. The lock is free when the last guard is dropped.
    async fn transfer(&self, clerk: &Owner, from: &str, to: &str) -> Result<(), Error> {
        let _guard = self.lock.lock(clerk).await?;
        self.withdraw(clerk, from).await?;
        self.deposit(clerk, to).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let session = Session::connect(&hosts).await?;
    let ledger = Ledger { lock: ReentrantMutex::new(&session, "/examples/ledger")? };
    // The owner is a value, and not the task: two branches of a `join!` share one task.
    let [anna, ben] = [Owner::new(), Owner::new()];
    let (one, other) = tokio::join!(ledger.transfer(&anna, "alice", "bob"), ledger.transfer(&ben, "bob", "carol"));
    one.and(other)?;
    Ok(session.close().await?)
}
